"""A tiny decoder that says what it sees and hears last, and the projectors that show it.

Red and blue pictures, loud and quiet sound: `ANSWERS`. Everything that matters is in weights written by hand, so the
answer to a picture is known. Not here: random projectors (`projector_models.py`), the scripted decoder that only reads
(`gguf_models.py`), names and caching (`recipes.py`).
"""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from .gguf_models import DecoderShape, decoder_metadata
from .gguf_writer import Tensors
from .projector_models import MEL_BINS, WIDTH, gemma3_projector, qwen2a_projector, qwen2vl_projector
from .vocabularies import CHATML_TOKENS, USER_DEFINED, TinyVocabulary, scripted_vocabulary, spell

Floats = npt.NDArray[np.float32]
Model = tuple[dict[str, object], Tensors]

NOTHING = "There is nothing to see or to hear."
ANSWERS = {"red": "A red picture.", "blue": "A blue picture.", "loud": "A loud sound.", "quiet": "A quiet sound."}
"""What the decoder says about the last picture or sound of the conversation; the picture if there are both."""
_FIRST = {"red": "A red", "blue": "A blue", "loud": "A loud", "quiet": "A quiet"}
_REST = {"red": " picture", "blue": " picture", "loud": " sound", "quiet": " sound"}
_NOTHING_PIECES = ("There is", " nothing", " to see", " or to hear", ".")

ROW_LENGTH = 96
_SHAPE = DecoderShape(ROW_LENGTH, layers=1, heads=6, kv_heads=6, head_size=16, hidden=32, context_length=4096)
_FREE = 80
_SHOWS, _FINDS, _SAYS = ({name: start + place for place, name in enumerate(ANSWERS)} for start in (80, 84, 88))
"""Directions of the residual stream: what a row shows, what a token has found, and what is to be said."""
_PICTURE, _SOUND, _ASKS = 92, 93, 94
"""Those of rows of each kind, which outweigh what the row shows, so that each row is looked at as much as another; and
of the last token of a prompt."""
_ROPE_BASE = 10000.0  # the pair of numbers that looks back turns a quarter in 497 positions: nearer rows weigh more
_LOUD_FROM = 2.26
_FRAMING = ("<|vision_start|>", "<|vision_end|>", "<|audio_bos|>", "<|audio_eos|>")


def media_vocabulary() -> TinyVocabulary:
    """Return a byte-level vocabulary with a token for each piece of the answers."""
    pieces = dict.fromkeys((*_FIRST.values(), *_REST.values(), *_NOTHING_PIECES))
    base = scripted_vocabulary([*pieces, "user", "assistant", "system", " What", "What"])
    return replace(base, tokens=(*base.tokens, *_FRAMING), types=(*base.types, *[USER_DEFINED] * len(_FRAMING)))


def media_decoder(architecture: str = "llama") -> Model:
    """Return metadata and tensors of the decoder, of architecture `"llama"` or `"qwen2vl"`.

    The output matrix sends each token to its successor. From the line feed that ends a prompt one head looks for rows
    of pictures and one for rows of sound, the nearest ones. Behind it, and only there, what they show becomes the
    beginning of an answer.
    """
    vocabulary = media_vocabulary()
    embedding = _embedding(vocabulary)
    metadata = decoder_metadata(architecture, "tiny-media", _SHAPE, vocabulary)
    metadata[f"{architecture}.rope.freq_base"] = _ROPE_BASE
    looking = 10
    if architecture == "qwen2vl":
        metadata["qwen2vl.rope.dimension_sections"] = np.array([6, 1, 1, 0], np.int32)
        looking = 5  # this pair counts time
    tensors: dict[str, Floats] = {
        "token_embd.weight": embedding,
        "output_norm.weight": np.ones(ROW_LENGTH, np.float32),
        "output.weight": _output(vocabulary, embedding),
        **_layer(looking),
    }
    if architecture == "qwen2vl":
        tensors |= {f"blk.0.attn_{part}.bias": _zeros(ROW_LENGTH) for part in "qkv"}
    return metadata, tensors


def _embedding(vocabulary: TinyVocabulary) -> Floats:
    rng = np.random.default_rng(12)
    embedding = rng.standard_normal((len(vocabulary.tokens), ROW_LENGTH))
    embedding[:, _FREE:] = 0
    embedding[ord("\n")] = 0  # ids 0..255 are the bytes
    embedding[ord("\n"), _ASKS] = 1
    embedding *= np.sqrt(ROW_LENGTH) / np.linalg.norm(embedding, axis=1, keepdims=True)
    return embedding.astype(np.float32)


def _output(vocabulary: TinyVocabulary, embedding: Floats) -> Floats:
    rng = np.random.default_rng(13)
    output = 0.02 * rng.standard_normal(embedding.shape)
    end = CHATML_TOKENS[-1]

    def token(piece: str) -> int:
        return vocabulary.id(end if piece == end else spell(piece))

    chains = [("\n", *_NOTHING_PIECES, end), *((_FIRST[name], _REST[name], ".") for name in ANSWERS)]
    for piece, successor in dict.fromkeys(pair for chain in chains for pair in pairwise(chain)):
        output[token(successor)] += embedding[token(piece)] * (12 / ROW_LENGTH)
    for name, piece in _FIRST.items():
        output[token(piece), _SAYS[name]] += 4.0 if name in ("red", "blue") else 3.0
    return output.astype(np.float32)


def _layer(looking: int) -> dict[str, Floats]:
    """Return a layer whose two heads look for pictures and sound with the number `looking` of their 16."""
    size = _SHAPE.head_size
    query, key, value, output = (_zeros(ROW_LENGTH, ROW_LENGTH) for _ in range(4))
    gate, up, down = (
        _zeros(_SHAPE.hidden, ROW_LENGTH),
        _zeros(_SHAPE.hidden, ROW_LENGTH),
        _zeros(ROW_LENGTH, _SHAPE.hidden),
    )
    for place, name in enumerate(ANSWERS):
        gate[place, _ASKS] = up[place, _FINDS[name]] = down[_SAYS[name], place] = 1.0
    for head, (kind, names) in enumerate(((_PICTURE, ("red", "blue")), (_SOUND, ("loud", "quiet")))):
        start = head * size
        query[start + looking, _ASKS] = key[start + looking, kind] = 30.0
        for place, name in enumerate(names, start):
            value[place, _SHOWS[name]], output[_FINDS[name], place] = 1.0, 50.0
    return {
        "blk.0.attn_norm.weight": np.ones(ROW_LENGTH, np.float32),
        "blk.0.ffn_norm.weight": np.ones(ROW_LENGTH, np.float32),
        "blk.0.attn_q.weight": query,
        "blk.0.attn_k.weight": key,
        "blk.0.attn_v.weight": value,
        "blk.0.attn_output.weight": output,
        "blk.0.ffn_gate.weight": gate,
        "blk.0.ffn_up.weight": up,
        "blk.0.ffn_down.weight": down,
    }


def seeing_gemma3_projector() -> Model:
    """Return a projector of type gemma3 whose 4 rows say how red and how blue their quarter of the picture is."""
    metadata, tensors = gemma3_projector(ROW_LENGTH)
    projection = _zeros(WIDTH, ROW_LENGTH)
    red, blue = projection[:, _SHOWS["red"]], projection[:, _SHOWS["blue"]]
    red[0], red[2] = blue[2], blue[0] = 1, -1
    projection[3, _PICTURE] = 100
    changed = {
        "v.patch_embd.weight": _mean_colours(),
        "v.patch_embd.bias": _unit(3),
        "v.position_embd.weight": np.zeros_like(tensors["v.position_embd.weight"]),
        "mm.input_projection.weight": projection,
    }
    return metadata, {**tensors, **_passing(tensors, "v"), **changed}


def seeing_qwen2vl_projector() -> Model:
    """Return a projector of type qwen2vl whose rows, one for 8 x 8 pixels, say how red and how blue these are."""
    metadata, tensors = qwen2vl_projector(ROW_LENGTH)
    gather, projection = _zeros(4 * WIDTH, 4 * WIDTH), _zeros(ROW_LENGTH, 4 * WIDTH)
    for patch in range(0, 4 * WIDTH, WIDTH):  # between the two matrices negative numbers are lost
        gather[0, patch], gather[0, patch + 2] = gather[1, patch + 2], gather[1, patch] = 5, -5
    projection[_SHOWS["red"], 0] = projection[_SHOWS["blue"], 1] = 1
    gather_bias = _zeros(4 * WIDTH)
    gather_bias[2] = 50
    projection[_PICTURE, 2] = 100
    changed = {
        "v.patch_embd.weight": _mean_colours(),
        "v.patch_embd.weight.1": np.zeros_like(tensors["v.patch_embd.weight.1"]),
        "mm.0.weight": gather,
        "mm.0.bias": gather_bias,
        "mm.2.weight": projection,
    }
    return metadata, {**tensors, **_passing(tensors, "v"), **changed}


def hearing_projector() -> Model:
    """Return a projector of type qwen2a whose 750 rows say how loud the 30 seconds are.

    The encoder hears levels relative to the loudest one, so how far silence lies below tells the loudness; the rows of
    the silence behind a sound are the nearest ones.
    """
    metadata, tensors = qwen2a_projector(ROW_LENGTH)
    first, second = _zeros(WIDTH, MEL_BINS, 3), _zeros(WIDTH, WIDTH, 3)
    first[0, :, 1] = 1 / MEL_BINS
    second[0, 0, 1] = second[1, 1, 1] = 1
    projection = _zeros(ROW_LENGTH, WIDTH)
    loud, quiet = projection[_SHOWS["loud"]], projection[_SHOWS["quiet"]]
    loud[0], loud[1] = quiet[1], quiet[0] = 2, -2
    projection[_SOUND, 2:] = -15
    changed = {
        "a.conv1d.1.weight": first,
        "a.conv1d.1.bias": (3 * _unit(0) + _LOUD_FROM * _unit(1))[:, None],
        "a.conv1d.2.weight": second,
        "a.position_embd.weight": np.zeros_like(tensors["a.position_embd.weight"]),
        "mm.a.fc.weight": projection,
    }
    return metadata, {**tensors, **_passing(tensors, "a"), **changed}


def seeing_and_hearing_projector() -> Model:
    """Return the gemma3 projector and the one for sound in one file."""
    seeing, pictures = seeing_gemma3_projector()
    hearing, sound = hearing_projector()
    kinds = {
        "clip.vision.projector_type": seeing.pop("clip.projector_type"),
        "clip.audio.projector_type": hearing.pop("clip.projector_type"),
    }
    return {**seeing, **hearing, **kinds}, {**pictures, **sound}


def _mean_colours() -> Floats:
    """The first three numbers of a patch: its mean red, green and blue, -1 to 1."""
    weights = _zeros(WIDTH, 3, 4, 4)
    for colour in range(3):
        weights[colour, colour] = 1 / 16
    return weights


def _passing(tensors: Tensors, sense: str) -> dict[str, Floats]:
    """The block of an encoder that adds nothing to what passes."""
    names = (f"{sense}.blk.0.attn_out.weight", f"{sense}.blk.0.ffn_down.weight")
    return {name: np.zeros(tensors[name].shape, np.float32) for name in names}


def _zeros(*shape: int) -> Floats:
    return np.zeros(shape, np.float32)


def _unit(place: int) -> Floats:
    vector = _zeros(WIDTH)
    vector[place] = 1
    return vector
