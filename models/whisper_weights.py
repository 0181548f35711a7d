"""Random Whisper models in the format of CTranslate2, for tests of the conversion.

Here: weights, the element types they can be stored in, `model.bin` and the files beside it. Not here: the tiny model
that recognises tones (`whisper_models.py`).
"""

from __future__ import annotations

import json
import os
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from .whisper_models import suppressed, tokenizer_json, whisper_vocabulary

Floats = npt.NDArray[np.float32]
Stored = npt.NDArray[np.generic]

KINDS = ("float32", "float16", "bfloat16", "int8", "int8_float16", "int16")
VERSION, SPECIFICATION, REVISION = 6, "WhisperSpec", 3
AUDIO_POSITIONS = 1500
_EMBEDDING, _PROJECTION = "decoder/embeddings/weight", "decoder/projection/weight"
_TYPE_CODES = {"float32": 0, "int8": 1, "int16": 2, "int32": 3, "float16": 4, "uint16": 5}  # uint16: bfloat16
_SWITCHES = {
    "decoder/activation": np.int8(3),
    "decoder/alibi": np.int8(0),
    "decoder/alignment_heads": np.int16(1),
    "decoder/alignment_layer": np.int16(-1),
    "decoder/pre_norm": np.int8(1),
    "decoder/scale_embeddings": np.int8(0),
    "decoder/start_from_zero_embedding": np.int8(0),
}


@dataclass(frozen=True, slots=True)
class WeightShape:
    """Extents of a random model."""

    mel_count: int = 80
    width: int = 32
    hidden: int = 64
    encoder_layers: int = 2
    decoder_layers: int = 3
    encoder_heads: int = 2
    decoder_heads: int = 4
    position_count: int = 40
    vocabulary_size: int = len(whisper_vocabulary().tokens)


SHAPE = WeightShape()


def whisper_variables(shape: WeightShape = SHAPE) -> dict[str, Floats]:
    """Return the variables under the names of CTranslate2; matrices are (outputs, inputs)."""
    rng = np.random.default_rng(5)
    width = shape.width

    def normal(*extents: int, size: float = 1.0) -> Floats:
        return (size * rng.standard_normal(extents)).astype(np.float32)

    def norm(name: str) -> dict[str, Floats]:
        return {f"{name}layer_norm/gamma": 1 + normal(width, size=0.1), f"{name}layer_norm/beta": normal(width)}

    def linear(name: str, outputs: int, inputs: int) -> dict[str, Floats]:
        return {
            f"{name}/weight": normal(outputs, inputs, size=inputs**-0.5),
            f"{name}/bias": normal(outputs, size=0.1),
        }

    def layer(name: str, part: str) -> dict[str, Floats]:
        return {
            **norm(f"{name}{part}/"),
            **linear(f"{name}{part}/linear_0", 3 * width, width),
            **linear(f"{name}{part}/linear_1", width, width),
            **norm(f"{name}ffn/"),
            **linear(f"{name}ffn/linear_0", shape.hidden, width),
            **linear(f"{name}ffn/linear_1", width, shape.hidden),
        }

    variables = {
        "encoder/conv1/weight": normal(width, shape.mel_count, 3, size=0.1),
        "encoder/conv1/bias": normal(width, size=0.1),
        "encoder/conv2/weight": normal(width, width, 3, size=0.1),
        "encoder/conv2/bias": normal(width, size=0.1),
        "encoder/position_encodings/encodings": normal(AUDIO_POSITIONS, width),
        "decoder/position_encodings/encodings": normal(shape.position_count, width),
        _EMBEDDING: normal(shape.vocabulary_size, width),
        **norm("encoder/"),
        **norm("decoder/"),
    }
    for number in range(shape.encoder_layers):
        variables |= layer(f"encoder/layer_{number}/", "self_attention")
    for number in range(shape.decoder_layers):
        name = f"decoder/layer_{number}/"
        variables |= {**layer(name, "self_attention"), **norm(f"{name}attention/")}
        for index, rows in enumerate((width, 2 * width, width)):
            variables |= linear(f"{name}attention/linear_{index}", rows, width)
    return variables


def stored_variables(variables: Mapping[str, Floats], kind: str) -> dict[str, Stored]:
    """Return the variables in one of `KINDS`; integers have scales that they are to be divided by."""
    stored: dict[str, Stored] = {}
    for name, values in variables.items():
        if kind.startswith("int") and name.endswith("weight") and "/conv" not in name:
            largest = np.abs(values).max(axis=1) if kind.startswith("int8") else np.abs(values).max()
            scale = np.float32((127 if kind.startswith("int8") else 1024) / largest)
            integers = np.rint(values * np.reshape(scale, (-1, 1)))
            stored[name] = integers.astype(np.int8 if kind.startswith("int8") else np.int16)
            stored[f"{name}_scale"] = np.asarray(scale, np.float32)
        elif kind == "bfloat16":
            stored[name] = (values.view(np.uint32) >> np.uint32(16)).astype(np.uint16)
        else:
            stored[name] = values.astype(np.float16 if kind in ("float16", "int8_float16") else np.float32)
    return stored


def meant_values(stored: Mapping[str, Stored]) -> dict[str, npt.NDArray[np.float64]]:
    """Return what the stored variables mean, in double precision, without scales."""
    meant = {}
    for name, values in stored.items():
        if name.endswith("_scale"):
            continue
        if values.dtype == np.uint16:
            meant[name] = (values.astype(np.uint32) << np.uint32(16)).view(np.float32).astype(np.float64)
        else:
            meant[name] = values.astype(np.float64)
        if f"{name}_scale" in stored:
            meant[name] /= np.reshape(stored[f"{name}_scale"].astype(np.float64), (-1, 1))
    return meant


def model_bytes(
    stored: Mapping[str, Stored],
    aliases: Mapping[str, str],
    head: tuple[int, str, int] = (VERSION, SPECIFICATION, REVISION),
) -> bytes:
    """Return a `model.bin`; `head` is version, specification and its revision."""
    version, specification, revision = head
    data = [struct.pack("<I", version), _text(specification), struct.pack("<II", revision, len(stored))]
    for name, values in sorted(stored.items()):
        code = _TYPE_CODES[values.dtype.name]
        extents = struct.pack(f"<B{values.ndim}I", values.ndim, *values.shape)
        data += [_text(name), extents, struct.pack("<BI", code, values.nbytes), values.tobytes()]
    data.append(struct.pack("<I", len(aliases)))
    data += [_text(name) + _text(original) for name, original in aliases.items()]
    return b"".join(data)


def whisper_model(shape: WeightShape = SHAPE, kind: str = "float16") -> tuple[dict[str, Stored], dict[str, str]]:
    """Return everything in a model file: variables with switches, and aliases."""
    stored = stored_variables(whisper_variables(shape), kind)
    stored["encoder/num_heads"] = np.array(shape.encoder_heads, np.int16)
    stored["decoder/num_heads"] = np.array(shape.decoder_heads, np.int16)
    stored |= {name: np.asarray(value) for name, value in _SWITCHES.items()}
    aliases = {_PROJECTION: _EMBEDDING}
    if f"{_EMBEDDING}_scale" in stored:
        aliases[f"{_PROJECTION}_scale"] = f"{_EMBEDDING}_scale"
    return stored, aliases


def ct2_whisper(folder: str | os.PathLike[str], kind: str = "float16", shape: WeightShape = SHAPE) -> Path:
    """Build a CTranslate2 folder with `model.bin` (0.4 MB), `config.json` and `tokenizer.json` without timestamps."""
    path = Path(folder)
    path.mkdir(parents=True, exist_ok=True)
    vocabulary = whisper_vocabulary()
    config = {
        "alignment_heads": [[0, 0]],
        "lang_ids": [vocabulary.id("<|en|>"), vocabulary.id("<|de|>")],
        "suppress_ids": suppressed(vocabulary),
        "suppress_ids_begin": [*vocabulary.ids((b" ",)), vocabulary.id("<|endoftext|>")],
    }
    (path / "config.json").write_text(json.dumps(config), encoding="utf-8")
    tokenizer = json.dumps(tokenizer_json(vocabulary, with_times=False))
    (path / "tokenizer.json").write_text(tokenizer, encoding="utf-8")
    (path / "model.bin").write_bytes(model_bytes(*whisper_model(shape, kind)))
    return path


def _text(value: str) -> bytes:
    encoded = value.encode() + b"\0"
    return struct.pack("<H", len(encoded)) + encoded
