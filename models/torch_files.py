"""Files as `torch.save` writes them, without torch: for tests of what reads them.

Here: a writer of the few pickle instructions that such files have, and the two forms around them. `Global`, `Call` and
`Persistent` write instructions that a file may have or must not have.
"""

from __future__ import annotations

import io
import struct
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy.typing as npt

MAGIC = 0x1950A86A20F9469CFC6C
STORAGES = {
    "float64": "DoubleStorage",
    "float32": "FloatStorage",
    "float16": "HalfStorage",
    "int64": "LongStorage",
    "int32": "IntStorage",
    "uint8": "ByteStorage",
    "bool": "BoolStorage",
}


@dataclass(frozen=True)
class Global:
    """A name that the pickle asks for."""

    module: str
    name: str


@dataclass(frozen=True)
class Call:
    """A call of something with arguments."""

    target: Any
    arguments: Any


@dataclass(frozen=True)
class Persistent:
    """A reference to something outside of the pickle."""

    identity: Any


def pickled(value: Any) -> bytes:
    """Return the pickle of a value, of protocol 2."""
    return b"\x80\x02" + _instructions(value) + b"."


def _instructions(value: Any) -> bytes:
    if value is None:
        return b"N"
    if isinstance(value, bool):
        return b"\x88" if value else b"\x89"
    if isinstance(value, int):
        size = value.bit_length() // 8 + 1
        return b"\x8a" + bytes([size]) + value.to_bytes(size, "little", signed=True)
    if isinstance(value, str):
        data = value.encode()
        return b"X" + struct.pack("<I", len(data)) + data
    if isinstance(value, tuple):
        return b"(" + b"".join(map(_instructions, value)) + b"t"
    if isinstance(value, list):
        return b"](" + b"".join(map(_instructions, value)) + b"e"
    if isinstance(value, dict):
        return b"}(" + b"".join(_instructions(k) + _instructions(v) for k, v in value.items()) + b"u"
    if isinstance(value, Global):
        return f"c{value.module}\n{value.name}\n".encode()
    if isinstance(value, Persistent):
        return _instructions(value.identity) + b"Q"
    assert isinstance(value, Call)
    return _instructions(value.target) + _instructions(value.arguments) + b"R"


def storage(key: str, dtype: str, length: int) -> Persistent:
    """Return a reference to a storage."""
    return Persistent(("storage", Global("torch", STORAGES[dtype]), key, "cpu", length))


def tensor(place: Any, offset: int, shape: tuple[int, ...], strides: tuple[int, ...]) -> Call:
    """Return a tensor that is a window of a storage."""
    hooks = Call(Global("collections", "OrderedDict"), ())
    return Call(Global("torch._utils", "_rebuild_tensor_v2"), (place, offset, shape, strides, False, hooks))


def contiguous(key: str, array: npt.NDArray[Any]) -> Call:
    """Return an array as a tensor with a storage of its own."""
    strides = tuple(size // array.itemsize for size in array.copy(order="C").strides)
    return tensor(storage(key, array.dtype.name, array.size), 0, array.shape, strides)


def state(tensors: Mapping[str, npt.NDArray[Any]]) -> dict[str, Any]:
    """Return a state dictionary whose tensors have the storages "0", "1" ..."""
    return {name: contiguous(str(number), array) for number, (name, array) in enumerate(tensors.items())}


def pickles(content: Any, storages: Mapping[str, npt.NDArray[Any]], system: Mapping[str, Any] | None = None) -> bytes:
    """Return the old form: a header, the object, and the storages."""
    header = (MAGIC, 1001, system or {"protocol_version": 1001, "little_endian": True})
    parts = [*map(pickled, header), pickled(content), pickled(list(storages))]
    parts += [struct.pack("<q", array.size) + array.tobytes() for array in storages.values()]
    return b"".join(parts)


def archive(
    content: Any,
    storages: Mapping[str, npt.NDArray[Any]],
    byte_order: str = "little",
    compression: int = zipfile.ZIP_STORED,
) -> bytes:
    """Return the form of today: a ZIP archive."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", compression) as target:
        target.writestr("model/data.pkl", pickled(content))
        target.writestr("model/byteorder", byte_order)
        for key, array in storages.items():
            target.writestr(f"model/data/{key}", array.tobytes())
    return file.getvalue()


def torch_file(tensors: Mapping[str, npt.NDArray[Any]]) -> bytes:
    """Return a state dictionary in the old form."""
    return pickles(state(tensors), {str(number): array for number, array in enumerate(tensors.values())})
