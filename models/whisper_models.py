"""A tiny Whisper model that hears tones and says words: every pitch is one word of `WORDS`, with its times.

    folder = tiny_whisper(path)
    sound = tones([0, None, 2])  # a second of each: the model says " one three"

Here: the vocabulary, what is said, the folder, and the sound that makes the model say it. Not here: the graphs
(`whisper_graphs.py`), random models in the format of CTranslate2 (`whisper_weights.py`).
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx

from .vocabularies import byte_characters
from .whisper_graphs import (
    BANDS,
    EVENT_COUNT,
    FIRST_PIECE,
    FIRST_TIME,
    HEAD_SIZE,
    HEADS,
    LAYERS,
    POSITIONS,
    Script,
    decoder_graph,
    encoder_graph,
)

# Every word is three tokens; some of them are half a character.
_ENGLISH = (
    (b" o", b"n", b"e"),
    (b" t", b"w", b"o"),
    (b" thr", b"e", b"e"),
    (b" f", b"ou", b"r"),
    (b" f", b"iv", b"e"),
    (b" s", b"i", b"x"),
    (b" caf", b"\xc3", b"\xa9"),
    (b" en", b"d", b"."),
)
_GERMAN = (
    (b" ein", b"s", b"."),
    (b" zw", b"e", b"i"),
    (b" dr", b"e", b"i"),
    (b" v", b"ie", b"r"),
    (b" f", b"\xc3", b"\xbcnf"),
    (b" s", b"ech", b"s"),
    (b" Caf", b"\xc3", b"\xa9"),
    (b" En", b"d", b"e"),
)
WORDS = tuple(b"".join(pieces).decode() for pieces in _ENGLISH)
"""What is said for the tones 0 to 7, from low to high."""
GERMAN_WORDS = tuple(b"".join(pieces).decode() for pieces in _GERMAN)
"""What a multilingual model says when the language is German: when the first tone is one of the upper four."""
PITCHES = (186.0, 559.0, 931.0, 1367.0, 2005.0, 2944.0, 4321.0, 6344.0)
"""Hz of the tones: the middles of eight bands of the mel scale between 0 and 8000 Hz."""
LANGUAGES = ("en", "zh", "de", "es")
SAMPLE_RATE = 16000
_TIMES = 1501


@dataclass(frozen=True, slots=True)
class WhisperVocabulary:
    """Tokens by id: 256 bytes, pieces, special tokens in the order of Whisper, times."""

    tokens: tuple[str, ...]
    merges: tuple[str, ...]

    def id(self, token: str) -> int:
        """Return the id of a token by its stored text."""
        return self.tokens.index(token)

    def ids(self, pieces: Iterable[bytes]) -> list[int]:
        return [self.id(_spelled(piece)) for piece in pieces]

    @property
    def special(self) -> range:
        """Ids of the special tokens that are no times."""
        return range(self.id("<|endoftext|>"), self.id("<|0.00|>"))


def whisper_vocabulary(languages: Sequence[str] = LANGUAGES, no_speech: str = "<|nospeech|>") -> WhisperVocabulary:
    """Return the vocabulary of the tiny models; older files call `no_speech` `"<|nocaptions|>"`."""
    characters = byte_characters()
    tokens = [characters[byte] for byte in range(256)]
    merges: list[str] = []
    for piece in (piece for word in (*_ENGLISH, *_GERMAN) for piece in word):
        symbols = _spelled(piece)
        for length in range(1, len(symbols)):
            if symbols[: length + 1] not in tokens:
                tokens.append(symbols[: length + 1])
                merges.append(f"{symbols[:length]} {symbols[length]}")
    special = ["<|endoftext|>", "<|startoftranscript|>", *(f"<|{code}|>" for code in languages)]
    special += ["<|translate|>", "<|transcribe|>", "<|startoflm|>", "<|startofprev|>", no_speech, "<|notimestamps|>"]
    times = [f"<|{number * 0.02:.2f}|>" for number in range(_TIMES)]
    return WhisperVocabulary((*tokens, *special, *times), tuple(merges))


def tokenizer_json(vocabulary: WhisperVocabulary, *, with_times: bool = True) -> dict[str, Any]:
    """Return the tokenizer in the format of the `tokenizers` library; files of CTranslate2 models end before the
    times."""
    special = vocabulary.special
    end = len(vocabulary.tokens) if with_times else special.stop
    plain = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
    added = [
        {"id": index, "content": vocabulary.tokens[index], **plain, "special": index in special}
        for index in range(special.start, end)
    ]
    words = {token: index for index, token in enumerate(vocabulary.tokens[: special.start])}
    level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": added,
        "normalizer": None,
        "pre_tokenizer": level,
        "post_processor": None,
        "decoder": level,
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": None,
            "continuing_subword_prefix": "",
            "end_of_word_suffix": "",
            "fuse_unk": False,
            "vocab": words,
            "merges": list(vocabulary.merges),
        },
    }


def suppressed(vocabulary: WhisperVocabulary) -> list[int]:
    """Return the tokens that are never said: three brackets, and special tokens of the prompt."""
    names = ("<|startoftranscript|>", "<|translate|>", "<|transcribe|>", "<|startoflm|>", "<|startofprev|>")
    return [*vocabulary.ids((b"#", b"[", b"(")), *(vocabulary.id(name) for name in names), vocabulary.special.stop - 2]


def tiny_whisper(folder: str | os.PathLike[str], *, multilingual: bool = False, mel_count: int = 80) -> Path:
    """Build a folder that `genai.whisper_folder` reads (0.4 MB), unless it is there, and return it.

    The decoder prefers tokens that `whisper.json` suppresses: without suppression it says nothing but brackets. Before
    the first token it prefers a space, which is not to be said first. Where it hears nothing `<|nospeech|>` is the
    likeliest token after `<|startoftranscript|>`, and a full stop the likeliest text.
    """
    path = Path(folder)
    if (path / "whisper.json").exists():
        return path
    vocabulary = whisper_vocabulary()
    path.mkdir(parents=True, exist_ok=True)
    onnx.save(encoder_graph(mel_count), path / "encoder.onnx")
    onnx.save(decoder_graph(_script(vocabulary, multilingual)), path / "decoder.onnx")
    (path / "tokenizer.json").write_text(json.dumps(tokenizer_json(vocabulary)), encoding="utf-8")
    shape = {
        "mel_count": mel_count,
        "layer_count": LAYERS,
        "head_count": HEADS,
        "head_size": HEAD_SIZE,
        "vocabulary_size": len(vocabulary.tokens),
        "position_count": POSITIONS,
    }
    settings = {"shape": shape, "tokens": _token_ids(vocabulary, multilingual)}
    (path / "whisper.json").write_text(json.dumps(settings, indent=2), encoding="utf-8")
    return path


def tones(words: Iterable[int | None], seconds: float = 1.0, amplitude: float = 0.3) -> npt.NDArray[np.float32]:
    """Return sound for the tiny model, float32 (samples,) at 16 kHz: `seconds` for each word, of silence for None.

    Start and end times come out right when `seconds` is a multiple of 0.2.
    """
    times = np.arange(round(seconds * SAMPLE_RATE)) / SAMPLE_RATE
    parts = [
        np.zeros(len(times)) if word is None else amplitude * np.sin(2 * np.pi * PITCHES[word] * times)
        for word in words
    ]
    return np.concatenate(parts).astype(np.float32) if parts else np.zeros(0, np.float32)


def _spelled(piece: bytes) -> str:
    characters = byte_characters()
    return "".join(characters[byte] for byte in piece)


def _token_ids(vocabulary: WhisperVocabulary, multilingual: bool) -> dict[str, Any]:
    names = {
        "end": "<|endoftext|>",
        "start": "<|startoftranscript|>",
        "translate": "<|translate|>",
        "transcribe": "<|transcribe|>",
        "start_of_lm": "<|startoflm|>",
        "start_of_previous": "<|startofprev|>",
        "no_speech": "<|nospeech|>",
        "no_timestamps": "<|notimestamps|>",
        "timestamp_begin": "<|0.00|>",
    }
    return {
        **{name: vocabulary.id(token) for name, token in names.items()},
        "languages": {code: vocabulary.id(f"<|{code}|>") for code in LANGUAGES},
        "suppress": suppressed(vocabulary),
        "suppress_at_begin": [*vocabulary.ids((b" ",)), vocabulary.id("<|endoftext|>")],
        "is_multilingual": multilingual,
    }


def _script(vocabulary: WhisperVocabulary, multilingual: bool) -> Script:
    end, time = vocabulary.id("<|endoftext|>"), vocabulary.id("<|0.00|>")
    sayings = np.full((2, EVENT_COUNT), end, np.int64)
    sayings[:, FIRST_TIME : FIRST_TIME + _TIMES] = time + np.arange(_TIMES)
    for row, words in enumerate((_ENGLISH, _GERMAN)):
        sayings[row, FIRST_PIECE:] = vocabulary.ids(piece for word in words for piece in word)
    assert len(_ENGLISH) == len(_GERMAN) == BANDS
    return Script(
        vocabulary_size=len(vocabulary.tokens),
        sayings=sayings,
        end=end,
        start=vocabulary.id("<|startoftranscript|>"),
        no_speech=vocabulary.id("<|nospeech|>"),
        no_timestamps=vocabulary.id("<|notimestamps|>"),
        translate=vocabulary.id("<|translate|>"),
        transcribe=vocabulary.id("<|transcribe|>"),
        english=vocabulary.id("<|en|>"),
        other=vocabulary.id("<|de|>"),
        intruders=tuple(vocabulary.ids((b"#", b"[", b"("))),
        first_intruders=tuple(vocabulary.ids((b" ",))),
        fallback=vocabulary.ids((b".",))[0],
        is_multilingual=multilingual,
    )
