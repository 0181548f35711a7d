"""A Whisper model as a folder: what lies in it, its shapes, and the ids of its special tokens (genai 10).

The folder, which `genai.convert.convert_whisper` writes:

    encoder.onnx    input_features float32 [batch, mels, 3000] -> last_hidden_state float32 [batch, 1500, width],
                    present.N.encoder.key and .value float32 [batch, heads, 1500, head size]
    decoder.onnx    input_ids int64 [batch, tokens], past_key_values.N.decoder.key and .value float32 [batch, heads,
                    past, head size], past_key_values.N.encoder.key and .value -> logits float32 [batch, 1, vocabulary],
                    those of the last token, and present.N.decoder.key and .value
    tokenizer.json  with a token for every row of the logits
    whisper.json    shapes and token ids: `WhisperShape` and `WhisperTokens` by the names of their members

Not here: running the graphs, what a decoder may say next (`whisper_decoding.py`).
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import numpy.typing as npt

from winml_lite import NotSupportedError, WinMLError

from .codes import FILE_NOT_FOUND, INVALID_DATA, NOT_SUPPORTED
from .log_mel import FRAME_COUNT as FRAME_COUNT
from .log_mel import log_mel
from .reading import read_bytes

ENCODER_FILE, DECODER_FILE, TOKENIZER_FILE, SETTINGS_FILE = (
    "encoder.onnx",
    "decoder.onnx",
    "tokenizer.json",
    "whisper.json",
)
AUDIO_POSITIONS = FRAME_COUNT // 2
"""Rows that the encoder gives."""
TIMESTAMP_COUNT = 1501
"""Timestamp tokens, from 0.00 s to 30.00 s."""
TIMESTAMP_SECONDS = 0.02

_CONTEXT = "WhisperFolder.open"
_LARGEST = 1 << 20


@dataclass(frozen=True, slots=True)
class WhisperShape:
    """Extents of the two graphs."""

    mel_count: int
    """Mel bands of the features: 80, or 128 since large-v3."""
    layer_count: int
    """Decoder layers: pairs of key and value in each cache."""
    head_count: int
    head_size: int
    vocabulary_size: int
    position_count: int = 448
    """Most tokens of a sequence, prompt included."""


@dataclass(frozen=True, slots=True)
class WhisperTokens:
    """Ids of the special tokens."""

    end: int
    """`<|endoftext|>`; text tokens have smaller ids."""
    start: int
    """`<|startoftranscript|>`"""
    translate: int
    transcribe: int
    start_of_lm: int
    start_of_previous: int
    no_speech: int
    no_timestamps: int
    timestamp_begin: int
    """`<|0.00|>`; the id of a time is larger by one for every 0.02 s."""
    languages: Mapping[str, int]
    """Token of a language by its code, for example `"en"`."""
    suppress: tuple[int, ...] = ()
    """Never said: marks of the format, brackets and the like."""
    suppress_at_begin: tuple[int, ...] = ()
    """Not said first: a space alone, and the end."""
    is_multilingual: bool = False
    """False: the model knows English only, and its prompt names neither language nor task."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "languages", MappingProxyType(dict(self.languages)))

    def prompt(self, language: str | None = None, *, translate: bool = False, timestamps: bool = False) -> list[int]:
        """Return the tokens that a transcript starts with.

        language: a code of `languages`; a multilingual model needs one. An English-only model takes "en" or None.
        translate: to English, instead of transcribing; for multilingual models.
        ValueError for what the model cannot do.
        """
        if self.is_multilingual:
            if language is None or language not in self.languages:
                raise ValueError(f"language must be one of {', '.join(self.languages)}, not {language!r}")
            task = self.translate if translate else self.transcribe
            begin = [self.start, self.languages[language], task]
        else:
            if language not in (None, "en"):
                raise ValueError(
                    f"the model knows English only, not {language!r}: leave language out, or give the code 'en'"
                )
            if translate:
                raise ValueError("the model knows English only and cannot translate")
            begin = [self.start]
        return begin if timestamps else [*begin, self.no_timestamps]

    def is_timestamp(self, token_id: int) -> bool:
        return token_id >= self.timestamp_begin

    def seconds(self, token_id: int) -> float:
        """Return the time of a timestamp token, in seconds from the start of the 30-second window."""
        return round((token_id - self.timestamp_begin) * TIMESTAMP_SECONDS, 2)


@dataclass(frozen=True, slots=True)
class WhisperFolder:
    """Files, shapes and token ids of a Whisper model."""

    path: Path
    shape: WhisperShape
    tokens: WhisperTokens

    @classmethod
    def open(cls, path: str | os.PathLike[str]) -> WhisperFolder:
        """Read `whisper.json` of a folder and see that the other files are there. No graph is loaded.

        WinMLError 0x80070002 for a missing folder or file, 0x80070032 for a Whisper model in another layout,
        0x8007000D for settings that cannot be read or contradict themselves.
        """
        folder = Path(path)
        settings = folder / SETTINGS_FILE
        if not settings.is_file():
            raise _no_settings(folder)
        for name in (ENCODER_FILE, DECODER_FILE, TOKENIZER_FILE):
            if not (folder / name).is_file():
                raise WinMLError(FILE_NOT_FOUND, _CONTEXT, f"{folder} holds no {name}: convert the model again")
        try:
            content = json.loads(read_bytes(settings).decode("utf-8-sig"))
            shape = _shape(_table(content, "shape"))
            return cls(folder, shape, _tokens(_table(content, "tokens"), shape.vocabulary_size))
        except (ValueError, TypeError, KeyError, RecursionError) as error:
            reason = f"{error} is missing" if isinstance(error, KeyError) else str(error)
            raise WinMLError(INVALID_DATA, _CONTEXT, f"{settings}: {reason}") from None

    @property
    def encoder_path(self) -> Path:
        """The ONNX graph that reads features."""
        return self.path / ENCODER_FILE

    @property
    def decoder_path(self) -> Path:
        """The ONNX graph that writes tokens."""
        return self.path / DECODER_FILE

    @property
    def tokenizer_path(self) -> Path:
        """`tokenizer.json`, for `Tokenizer.from_file`."""
        return self.path / TOKENIZER_FILE

    def features(self, samples: npt.NDArray[Any]) -> npt.NDArray[np.float32]:
        """Return what the encoder takes for a mono sound at 16 kHz of up to 30 s: float32 (1, mel_count, 3000)."""
        return log_mel(samples, self.shape.mel_count)


def settings_text(shape: WhisperShape, tokens: WhisperTokens) -> str:
    """Return the content of `whisper.json`."""
    named = {field.name: getattr(tokens, field.name) for field in fields(tokens)}
    named["languages"] = dict(tokens.languages)
    return json.dumps({"shape": asdict(shape), "tokens": named}, indent=2) + "\n"


def is_whisper_folder(path: Path) -> bool:
    """Tell whether `path` is a folder that `WhisperFolder.open` would take up."""
    return (path / SETTINGS_FILE).is_file()


def _no_settings(folder: Path) -> WinMLError:
    if not folder.is_dir():
        return WinMLError(FILE_NOT_FOUND, _CONTEXT, f"there is no folder {folder}")
    if (folder / "model.bin").is_file():
        mend = f"a CTranslate2 model; `winml-lite convert {folder} FOLDER` makes a folder that can be loaded"
        return NotSupportedError(NOT_SUPPORTED, _CONTEXT, f"{folder} holds {mend}")
    for name in ("encoder_model.onnx", "onnx/encoder_model.onnx", "genai_config.json"):
        if (folder / name).is_file():
            mend = "what `winml-lite convert` writes is; sessions of genai.tasks run other graphs, too"
            text = f"{folder} holds {name}: exports of other tools are not read, {mend}"
            return NotSupportedError(NOT_SUPPORTED, _CONTEXT, text)
    return WinMLError(FILE_NOT_FOUND, _CONTEXT, f"{folder} holds no {SETTINGS_FILE}: it is no speech recognition model")


def _table(content: Any, key: str) -> dict[str, Any]:
    if not isinstance(content, dict) or not isinstance(content.get(key), dict):
        raise ValueError(f"there is no object {key!r}")
    return dict(content[key])


def _shape(table: dict[str, Any]) -> WhisperShape:
    return WhisperShape(**{field.name: _integer(table, field.name, 1, _LARGEST) for field in fields(WhisperShape)})


def _tokens(table: dict[str, Any], count: int) -> WhisperTokens:
    last_begin = count - TIMESTAMP_COUNT
    names = ("end", "start", "translate", "transcribe", "start_of_lm", "start_of_previous", "no_speech")
    ids = {name: _integer(table, name, 0, last_begin) for name in (*names, "no_timestamps", "timestamp_begin")}
    languages = _table(table, "languages")
    multilingual = table["is_multilingual"]
    if not isinstance(multilingual, bool):
        raise ValueError(f"is_multilingual must be true or false, not {multilingual!r}")
    return WhisperTokens(
        **ids,
        languages={code: _integer(languages, code, 0, last_begin) for code in languages},
        suppress=_ids(table["suppress"], count),
        suppress_at_begin=_ids(table["suppress_at_begin"], count),
        is_multilingual=multilingual,
    )


def _ids(values: Any, count: int) -> tuple[int, ...]:
    if not isinstance(values, list):
        raise ValueError("suppressed tokens must be a list of ids")
    return tuple(_integer({"suppressed token": value}, "suppressed token", 0, count - 1) for value in values)


def _integer(table: dict[str, Any], name: str, lowest: int, highest: int) -> int:
    value = table[name]
    if isinstance(value, bool) or not isinstance(value, int) or not lowest <= value <= highest:
        raise ValueError(f"{name} must be a whole number in {lowest}..{highest}, not {value!r}")
    return value
