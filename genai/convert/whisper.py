"""A CTranslate2 Whisper model to a folder that `genai.load_speech` takes: the one function, and its result."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

from winml_lite import NotSupportedError, WinMLError

from ..codes import E_INVALIDARG, FILE_NOT_FOUND, NOT_SUPPORTED
from ..whisper_folder import DECODER_FILE, ENCODER_FILE, SETTINGS_FILE, TIMESTAMP_COUNT, WhisperShape, settings_text
from .ctranslate2 import CTranslate2File, Progress
from .new_folder import new_folder
from .whisper_architecture import WhisperArchitecture, read_architecture
from .whisper_graphs import Form, write_decoder, write_encoder
from .whisper_matrices import EightBitMatrices, float16_matrices, float32_matrices
from .whisper_vocabulary import write_tokenizer

Weights = Literal["f32", "f16", "q8"]

MODEL_FILE = "model.bin"
_FORMS: dict[Weights, tuple[Form, Form]] = {
    "f32": (float32_matrices, float32_matrices),
    "f16": (float16_matrices, float16_matrices),
    "q8": (float16_matrices, EightBitMatrices),
}
"""How encoder and decoder store their matrices."""
_OTHER_FORMATS = ("model.safetensors", "pytorch_model.bin", "model.pt", "encoder_model.onnx", "ggml-model.bin")


@dataclass(frozen=True, slots=True)
class ConvertedSpeechModel:
    """A speech recognition folder that was made from a CTranslate2 model."""

    folder: Path
    weights: str
    mel_count: int
    encoder_layers: int
    decoder_layers: int
    is_multilingual: bool
    size_in_bytes: int
    """Of all files."""


def convert_whisper(
    source: str | os.PathLike[str],
    folder: str | os.PathLike[str],
    *,
    weights: Weights = "f16",
    progress: Progress | None = None,
) -> ConvertedSpeechModel:
    """Write a CTranslate2 Whisper model, as faster-whisper takes it, as ONNX encoder and decoder.

    source: the folder with `model.bin`, of version 6 of the format, with float32, float16, bfloat16 or integer weights;
        `tokenizer.json`; and `config.json`, which says what is never said. Every size is known by its shapes,
        multilingual or not.
    folder: must not exist or be empty (else FileExistsError); it appears complete under its name or not at all.
        `genai.load_speech` takes it.
    weights: "f16" (float16 in the file, float32 in memory: exact for a float16 model), "f32", or "q8" (the decoder in
        blocks of 32 8-bit values, which it also computes with: twice as fast; the encoder as for "f16").
    progress: called with bytes of variables done and in all.

    Raises `WinMLError`: FILE_NOT_FOUND for a missing file, FILE_CORRUPT for one that is cut off or damaged,
    NOT_SUPPORTED for another model, version, or variable that is not known, named in the message, INVALID_DATA for a
    model that contradicts itself.
    """
    if weights not in get_args(Weights):
        raise ValueError(f"weights must be one of {', '.join(get_args(Weights))}, not {weights!r}")
    origin, target = Path(source), Path(folder)
    with CTranslate2File(_model_file(origin), progress) as model:
        architecture = read_architecture(model)
        with new_folder(target) as partial:
            tokens = write_tokenizer(origin, partial, architecture.row_count)
            count = tokens.timestamp_begin + TIMESTAMP_COUNT
            encoder_form, decoder_form = _FORMS[weights]
            write_encoder(model, architecture, partial / ENCODER_FILE, encoder_form)
            write_decoder(model, architecture, partial / DECODER_FILE, decoder_form, count)
            settings = settings_text(_shape(architecture, count), tokens)
            (partial / SETTINGS_FILE).write_text(settings, encoding="utf-8", newline="\n")
            size = sum(file.stat().st_size for file in partial.iterdir())
    return ConvertedSpeechModel(
        folder=target,
        weights=weights,
        mel_count=architecture.mel_count,
        encoder_layers=architecture.encoder_layers,
        decoder_layers=architecture.decoder_layers,
        is_multilingual=tokens.is_multilingual,
        size_in_bytes=size,
    )


def _shape(architecture: WhisperArchitecture, count: int) -> WhisperShape:
    return WhisperShape(
        mel_count=architecture.mel_count,
        layer_count=architecture.decoder_layers,
        head_count=architecture.decoder_heads,
        head_size=architecture.head_size,
        vocabulary_size=count,
        position_count=architecture.position_count,
    )


def _model_file(folder: Path) -> Path:
    """Return `model.bin` of a folder; say what is there instead."""
    if not folder.exists():
        raise WinMLError(FILE_NOT_FOUND, "convert_whisper", f"there is no folder {folder}")
    if not folder.is_dir():
        text = f"{folder} is a file; name the folder that holds {MODEL_FILE}, config.json and tokenizer.json"
        raise WinMLError(E_INVALIDARG, "convert_whisper", text)
    if (folder / MODEL_FILE).is_file():
        return folder / MODEL_FILE
    other = next((name for name in _OTHER_FORMATS if (folder / name).is_file()), None)
    if other is not None:
        text = f"{folder} holds {other}; only CTranslate2 models ({MODEL_FILE}) can be converted"
        raise NotSupportedError(NOT_SUPPORTED, "convert_whisper", text)
    raise WinMLError(FILE_NOT_FOUND, "convert_whisper", f"{folder} holds no {MODEL_FILE}")
