"""Tiny GGUF models, the same on every run: decoders and vocabulary-only files.

Here: metadata and weights of the models. Only NumPy. Not here: the file format (`gguf_writer.py`), ONNX graphs
(`onnx_models.py`), names and caching (`recipes.py`).
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from .gguf_writer import Tensors
from .vocabularies import TinyVocabulary, byte_level_vocabulary, scripted_vocabulary, sentencepiece_vocabulary

Floats = npt.NDArray[np.float32]

SENTENCE = "Paris is the capital of France, a city with good café and museums."
"""What the scripted model says to any prompt that ends in a line feed; then it ends the turn."""
_PIECES: tuple[str, ...] = (
    "Paris",
    " is",
    " the",
    " capital",
    " of",
    " France",
    ",",
    " a",
    " city",
    " with",
    " good",
    " caf",
    "é",
)
_PIECES += (" and", " museums", ".")


@dataclass(frozen=True, slots=True)
class DecoderShape:
    """Extents of a tiny decoder."""

    width: int
    layers: int
    heads: int
    kv_heads: int
    head_size: int
    hidden: int
    context_length: int = 512


def llama_metadata(name: str, shape: DecoderShape, vocabulary: TinyVocabulary) -> dict[str, object]:
    """Return the metadata of a llama-type decoder."""
    return {**decoder_metadata("llama", name, shape, vocabulary), "llama.rope.freq_base": 10000.0}


def gemma3_metadata(name: str, shape: DecoderShape, vocabulary: TinyVocabulary, window: int) -> dict[str, object]:
    """Return the metadata of a gemma3-type decoder with a sliding window of `window` tokens in its local layers."""
    return {
        **decoder_metadata("gemma3", name, shape, vocabulary),
        "gemma3.rope.freq_base": 1000000.0,
        "gemma3.attention.sliding_window": window,
    }


def qwen2vl_metadata(name: str, shape: DecoderShape, vocabulary: TinyVocabulary) -> dict[str, object]:
    """Return the metadata of a qwen2vl-type decoder: rows of an image have a position in time, height and width."""
    return {
        **decoder_metadata("qwen2vl", name, shape, vocabulary),
        "qwen2vl.rope.freq_base": 10000.0,
        "qwen2vl.rope.dimension_sections": np.array([2, 3, 3, 0], np.int32),
    }


def decoder_metadata(
    architecture: str, name: str, shape: DecoderShape, vocabulary: TinyVocabulary
) -> dict[str, object]:
    values = {
        "context_length": shape.context_length,
        "embedding_length": shape.width,
        "block_count": shape.layers,
        "feed_forward_length": shape.hidden,
        "attention.head_count": shape.heads,
        "attention.head_count_kv": shape.kv_heads,
        "attention.key_length": shape.head_size,
        "attention.value_length": shape.head_size,
        "attention.layer_norm_rms_epsilon": 1e-5,
        "rope.dimension_count": shape.head_size,
        "vocab_size": len(vocabulary.tokens),
    }
    return {
        "general.architecture": architecture,
        "general.name": name,
        "general.file_type": 0,
        **{f"{architecture}.{key}": value for key, value in values.items()},
        **vocabulary.metadata(),
    }


SCRIPTED_SHAPE = DecoderShape(width=96, layers=2, heads=6, kv_heads=2, head_size=16, hidden=160)
RANDOM_SHAPE = DecoderShape(width=64, layers=2, heads=4, kv_heads=2, head_size=16, hidden=128)
GEMMA3_SHAPE = DecoderShape(width=64, layers=7, heads=4, kv_heads=1, head_size=32, hidden=96)
GEMMA3_WINDOW = 8


def scripted_model() -> tuple[dict[str, object], Tensors]:
    """Return metadata and tensors of the scripted decoder.

    Embeddings are random and nearly orthogonal, attention and feed-forward are small but real, and the output matrix
    sends each token to its successor in the sentence, by a margin of about 10 over every other token. `é` is two byte
    tokens.
    """
    vocabulary = scripted_vocabulary(
        [piece for piece in _PIECES if piece != "é"] + ["user", "assistant", "system", " What", " Where", "What"]
    )
    count, shape = len(vocabulary.tokens), SCRIPTED_SHAPE
    chain = [ord("\n")]  # ids 0..255 are the bytes
    for piece in _PIECES:
        chain += piece.encode("utf-8") if piece == "é" else [_piece_id(vocabulary, piece)]
    chain.append(vocabulary.id("<|im_end|>"))
    rng = np.random.default_rng(7)
    embedding = rng.standard_normal((count, shape.width))
    embedding *= np.sqrt(shape.width) / np.linalg.norm(embedding, axis=1, keepdims=True)
    output = 0.02 * rng.standard_normal((count, shape.width))
    for token, successor in pairwise(chain):
        output[successor] += embedding[token] * (12 / shape.width)
    tensors: dict[str, Floats] = {
        "token_embd.weight": embedding.astype(np.float32),
        "output_norm.weight": np.ones(shape.width, np.float32),
        "output.weight": output.astype(np.float32),
    }
    for layer in range(shape.layers):
        tensors |= decoder_block(rng, shape, f"blk.{layer}.", attention_scale=2.0, residual_scale=0.25, norm_noise=0.0)
    return llama_metadata("tiny-scripted-llama", shape, vocabulary), tensors


def _piece_id(vocabulary: TinyVocabulary, piece: str) -> int:
    return vocabulary.id(piece.replace(" ", "Ġ"))


def random_model() -> tuple[dict[str, object], Tensors]:
    """Return metadata and tensors of the random decoder.

    Its greedy output is long and varied: the rows of the three control tokens in the output matrix are zero, so they
    have the logit 0 and never win.
    """
    vocabulary, shape = byte_level_vocabulary(), RANDOM_SHAPE
    count = len(vocabulary.tokens)
    rng = np.random.default_rng(20240607)
    output = normal_weights(rng, count, shape.width, scale=0.35 * np.sqrt(shape.width))
    output[count - 3 :] = 0
    tensors = {
        "token_embd.weight": normal_weights(rng, count, shape.width, scale=np.sqrt(shape.width)),
        "output_norm.weight": norm_weight(rng, shape.width, 0.1),
        "output.weight": output,
    }
    for layer in range(shape.layers):
        tensors |= decoder_block(rng, shape, f"blk.{layer}.", attention_scale=2.0, residual_scale=1.0, norm_noise=0.1)
    return llama_metadata("tiny-random-llama", shape, vocabulary), tensors


def gemma3_model() -> tuple[dict[str, object], Tensors]:
    """Return metadata and tensors of a random gemma3-type decoder: tied embedding, six local layers and a global
    one."""
    vocabulary, shape = sentencepiece_vocabulary(add_space_prefix=False), GEMMA3_SHAPE
    rng = np.random.default_rng(3)
    tensors = {
        "token_embd.weight": normal_weights(rng, len(vocabulary.tokens), shape.width, scale=1.0),
        "output_norm.weight": norm_weight(rng, shape.width, 0.1),
    }
    for layer in range(shape.layers):
        name = f"blk.{layer}."
        tensors |= decoder_block(rng, shape, name, attention_scale=1.0, residual_scale=1.0, norm_noise=0.1)
        for norm in ("attn_q_norm", "attn_k_norm"):
            tensors[f"{name}{norm}.weight"] = norm_weight(rng, shape.head_size, 0.1)
        for norm in ("post_attention_norm", "post_ffw_norm"):
            tensors[f"{name}{norm}.weight"] = norm_weight(rng, shape.width, 0.1)
    return gemma3_metadata("tiny-random-gemma3", shape, vocabulary, GEMMA3_WINDOW), tensors


def qwen2vl_model() -> tuple[dict[str, object], Tensors]:
    """Return metadata and tensors of a random qwen2vl-type decoder, which knows the framing tokens of images."""
    vocabulary, shape = byte_level_vocabulary(user_defined=("<|vision_start|>", "<|vision_end|>")), RANDOM_SHAPE
    rng = np.random.default_rng(5)
    count = len(vocabulary.tokens)
    tensors = {
        "token_embd.weight": normal_weights(rng, count, shape.width, scale=np.sqrt(shape.width)),
        "output_norm.weight": norm_weight(rng, shape.width, 0.1),
        "output.weight": normal_weights(rng, count, shape.width, scale=2.0),
    }
    for layer in range(shape.layers):
        name = f"blk.{layer}."
        tensors |= decoder_block(rng, shape, name, attention_scale=2.0, residual_scale=1.0, norm_noise=0.1)
        for part, rows in (("q", shape.heads), ("k", shape.kv_heads), ("v", shape.kv_heads)):
            tensors[f"{name}attn_{part}.bias"] = np.zeros(rows * shape.head_size, np.float32)
    return qwen2vl_metadata("tiny-random-qwen2vl", shape, vocabulary), tensors


def normal_weights(rng: np.random.Generator, rows: int, columns: int, scale: float = 1.0) -> Floats:
    """Normal weights that keep the size of a normalised input, times `scale`."""
    weights: Floats = (rng.standard_normal((rows, columns)) * (scale / np.sqrt(columns))).astype(np.float32)
    return weights


def norm_weight(rng: np.random.Generator, width: int, noise: float) -> Floats:
    return (1 + noise * rng.standard_normal(width)).astype(np.float32)


def decoder_block(
    rng: np.random.Generator,
    shape: DecoderShape,
    name: str,
    *,
    attention_scale: float,
    residual_scale: float,
    norm_noise: float,
) -> dict[str, Floats]:
    """Return the weights of one decoder block that llama and gemma3 share."""
    query, key = shape.heads * shape.head_size, shape.kv_heads * shape.head_size
    return {
        f"{name}attn_norm.weight": norm_weight(rng, shape.width, norm_noise),
        f"{name}ffn_norm.weight": norm_weight(rng, shape.width, norm_noise),
        f"{name}attn_q.weight": normal_weights(rng, query, shape.width, attention_scale),
        f"{name}attn_k.weight": normal_weights(rng, key, shape.width, attention_scale),
        f"{name}attn_v.weight": normal_weights(rng, key, shape.width),
        f"{name}attn_output.weight": normal_weights(rng, shape.width, query, residual_scale),
        f"{name}ffn_gate.weight": normal_weights(rng, shape.hidden, shape.width),
        f"{name}ffn_up.weight": normal_weights(rng, shape.hidden, shape.width),
        f"{name}ffn_down.weight": normal_weights(rng, shape.width, shape.hidden, residual_scale),
    }


def vocabulary_metadata(vocabulary: TinyVocabulary) -> dict[str, object]:
    """Return the metadata of a file that has a vocabulary and no tensors: enough for tokenization, not for running."""
    return {"general.architecture": "llama", "general.name": "vocabulary", **vocabulary.metadata()}
