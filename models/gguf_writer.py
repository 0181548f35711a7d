"""A writer of GGUF files, the same bytes on every run: one file, or several shards. Only NumPy.

Not here: the models (`gguf_models.py`).
"""

from __future__ import annotations

import os
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

_STRING, _ARRAY = 8, 9
_VALUE_TYPES: dict[str, int] = {
    "|u1": 0,
    "|i1": 1,
    "<u2": 2,
    "<i2": 3,
    "<u4": 4,
    "<i4": 5,
    "<f4": 6,
    "|b1": 7,
    "<u8": 10,
    "<i8": 11,
    "<f8": 12,
}
_TENSOR_TYPES: dict[str, int] = {"<f4": 0, "<f2": 1}


@dataclass(frozen=True, slots=True)
class Stored:
    """A tensor in a storage format of its own: type code, shape (rows first), and the packed bytes."""

    type_code: int
    shape: tuple[int, ...]
    data: bytes


Tensors = Mapping[str, "npt.NDArray[np.float32] | npt.NDArray[np.float16] | Stored"]


def write_gguf(
    path: str | os.PathLike[str],
    metadata: Mapping[str, object],
    tensors: Tensors | None = None,
    *,
    alignment: int = 32,
    version: int = 3,
) -> Path:
    """Write a GGUF file and return its path.

    A Python int is stored as UINT32, a float as FLOAT32; a NumPy scalar or array keeps its type. Tensors are float32 or
    float16 arrays, or `Stored`.
    """
    rows = [(name, _stored(tensor)) for name, tensor in (tensors or {}).items()]
    header = bytearray(b"GGUF" + struct.pack("<IQQ", version, len(rows), len(metadata)))
    for key, value in metadata.items():
        header += _text(key) + _value(value)
    offset = 0
    for name, row in rows:
        header += _text(name) + struct.pack("<I", len(row.shape))
        header += struct.pack(f"<{len(row.shape)}Q", *reversed(row.shape)) + struct.pack("<IQ", row.type_code, offset)
        offset += _padded(len(row.data), alignment)
    path = Path(path)
    with path.open("wb") as stream:
        stream.write(header)
        if rows:
            stream.write(bytes(_padded(len(header), alignment) - len(header)))
        for _, row in rows:
            stream.write(row.data)
            stream.write(bytes(_padded(len(row.data), alignment) - len(row.data)))
    return path


def _padded(size: int, alignment: int) -> int:
    return -(-size // alignment) * alignment


def _text(text: str) -> bytes:
    data = text.encode("utf-8", "surrogateescape")
    return struct.pack("<Q", len(data)) + data


def _value(value: object) -> bytes:
    """Encode a metadata value with its type in front."""
    if isinstance(value, str):
        return struct.pack("<I", _STRING) + _text(value)
    if isinstance(value, list):
        return struct.pack("<IIQ", _ARRAY, _STRING, len(value)) + b"".join(_text(text) for text in value)
    if isinstance(value, np.ndarray):
        return struct.pack("<IIQ", _ARRAY, _VALUE_TYPES[value.dtype.str], value.size) + value.tobytes()
    if isinstance(value, bool):
        number: np.generic = np.bool_(value)
    elif isinstance(value, int):
        number = np.uint32(value)
    elif isinstance(value, float):
        number = np.float32(value)
    elif isinstance(value, np.generic):
        number = value
    else:
        raise TypeError(f"a GGUF value cannot be a {type(value).__name__}")
    return struct.pack("<I", _VALUE_TYPES[number.dtype.str]) + number.tobytes()


def _stored(tensor: Any) -> Stored:
    if isinstance(tensor, Stored):
        return tensor
    return Stored(_TENSOR_TYPES[tensor.dtype.str], tensor.shape, tensor.tobytes())


def write_shards(
    folder: str | os.PathLike[str], stem: str, metadata: Mapping[str, object], tensors: Tensors, count: int = 2
) -> tuple[Path, ...]:
    """Write a model as `count` files, `stem-00001-of-000NN.gguf` and so on; all metadata is in the first."""
    names = list(tensors)
    size = -(-len(names) // count)
    paths: list[Path] = []
    for number in range(count):
        split = {
            "split.no": np.uint16(number),
            "split.count": np.uint16(count),
            "split.tensors.count": np.int32(len(names)),
        }
        part = {name: tensors[name] for name in names[number * size : (number + 1) * size]}
        path = Path(folder) / f"{stem}-{number + 1:05}-of-{count:05}.gguf"
        paths.append(write_gguf(path, {**(metadata if number == 0 else {}), **split}, part))
    return tuple(paths)
