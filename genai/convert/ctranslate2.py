"""Reading `model.bin` of a CTranslate2 model: named variables of up to six element types, mapped from the file.

Layout of version 6, little-endian: version, name and revision of the specification, the variables (name, rank, extents,
type, byte count, elements), and names that stand for another variable. A text is its length with the closing zero, in
16 bits, and its bytes. Every count is checked against the size of the file before anything is read by it.

Not here: what the variables mean (`whisper_architecture.py`).
"""

from __future__ import annotations

import mmap
import os
import stat
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from winml_lite import NotSupportedError, WinMLError

from ..codes import E_INVALIDARG, FILE_CORRUPT, FILE_NOT_FOUND, NOT_SUPPORTED
from ..reading import open_without_waiting

Floats = npt.NDArray[np.float32]
Progress = Callable[[int, int], object]

_VERSION = 6
_BFLOAT16 = 5
_ALL = slice(None)
_TYPES = ("<f4", "<i1", "<i2", "<i4", "<f2", "<u2")
_LARGEST_RANK = 4
_LARGEST_NAME = 512
_CONTEXT = "convert_whisper"


@dataclass(frozen=True, slots=True)
class Variable:
    """Where a variable lies in the file."""

    shape: tuple[int, ...]
    type_code: int
    offset: int
    byte_size: int

    @property
    def dtype(self) -> np.dtype[Any]:
        return np.dtype(_TYPES[self.type_code])


class CTranslate2File:
    """The variables of a model, a context manager. Nothing is read before it is asked for.

    WinMLError 0x80070002 for a missing file, 0x80070570 for one that contradicts itself, 0x80070032 for another version
    of the format.
    """

    def __init__(self, path: str | os.PathLike[str], progress: Progress | None = None) -> None:
        self.path = os.path.abspath(os.fsdecode(path))
        self._progress = progress
        self._done: set[str] = set()
        self._map = _mapped(self.path)
        try:
            reader = _Reader(self._map, self.path)
            version = reader.number("I", "the version")
            if version != _VERSION:
                text = f"{self.path} is no CTranslate2 model of version {_VERSION}, the only one that is read"
                raise NotSupportedError(NOT_SUPPORTED, _CONTEXT, f"{text}; it begins with {version}")
            self.specification = reader.text("the specification")
            """Kind of model, for example `"WhisperSpec"`."""
            self.revision = reader.number("I", "the revision")
            self.variables: Mapping[str, Variable] = _variables(reader)
        except BaseException:
            self._map.close()
            raise
        self._total = sum(variable.byte_size for variable in set(self.variables.values()))

    def __contains__(self, name: str) -> bool:
        return name in self.variables

    def scalar(self, name: str) -> float:
        """Return a variable of one element."""
        return float(self._widened(name).reshape(-1)[0])

    def floats(self, name: str, rows: slice = _ALL) -> Floats:
        """Return a variable, or some of its rows, as float32; integers are divided by their scales, one for all or one
        a row.

        WinMLError 0x80070570 for values that are not finite.
        """
        values = self._widened(name, rows)
        if self.variables[name].dtype.kind == "i":
            scale = self._widened(f"{name}_scale").reshape(-1)
            scale = scale if scale.size == 1 else scale[rows]
            with np.errstate(all="ignore"):
                values /= scale.reshape(-1, *(1,) * (values.ndim - 1))
        if not np.isfinite(values).all():
            raise WinMLError(FILE_CORRUPT, _CONTEXT, f"{self.path}: {name} has values that are not finite")
        return values

    def report(self, name: str) -> None:
        """Count a variable as done, and tell the caller."""
        if self._progress is not None and name not in self._done:
            self._done.add(name)
            self._progress(sum(self.variables[done].byte_size for done in self._done), self._total)

    def close(self) -> None:
        """Close the file; arrays that were returned stay as they are."""
        self._map.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def _widened(self, name: str, rows: slice = _ALL) -> Floats:
        """The elements as they are stored, as a new float32 array."""
        variable = self.variables[name]
        start, stop, _ = rows.indices(variable.shape[0]) if variable.shape else (0, 1, 1)
        row_bytes = variable.byte_size // (variable.shape[0] if variable.shape else 1)
        data = self._map[variable.offset + start * row_bytes : variable.offset + stop * row_bytes]
        raw = np.frombuffer(data, variable.dtype).reshape(-1, *variable.shape[1:])
        if variable.type_code == _BFLOAT16:
            return (raw.astype(np.uint32) << np.uint32(16)).view(np.float32)
        return raw.astype(np.float32)


def _mapped(path: str) -> mmap.mmap:
    try:
        with open(path, "rb", opener=open_without_waiting) as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise WinMLError(E_INVALIDARG, _CONTEXT, f"{path} is not a file")
            return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    except WinMLError:
        raise
    except FileNotFoundError:
        raise WinMLError(FILE_NOT_FOUND, _CONTEXT, f"there is no file {path}") from None
    except (OSError, ValueError) as error:  # a file of no bytes cannot be mapped
        raise WinMLError(FILE_CORRUPT, _CONTEXT, f"{path} cannot be read: {error}") from None


def _variables(reader: _Reader) -> dict[str, Variable]:
    variables: dict[str, Variable] = {}
    for _ in range(reader.number("I", "the number of variables")):
        name = reader.text("the name of a variable")
        if name in variables:
            raise reader.corrupt(f"{name} is there twice")
        variables[name] = _variable(reader, name)
    for _ in range(reader.number("I", "the number of aliases")):
        name, original = reader.text("an alias"), reader.text("the variable of an alias")
        if original not in variables or name in variables:
            raise reader.corrupt(f"the alias {name} of {original} cannot be")
        variables[name] = variables[original]
    return variables


def _variable(reader: _Reader, name: str) -> Variable:
    rank = reader.number("B", f"the rank of {name}")
    if rank > _LARGEST_RANK:
        raise reader.corrupt(f"{name} has {rank} dimensions")
    shape = tuple(reader.number("I", f"the shape of {name}") for _ in range(rank))
    type_code, byte_size = reader.number("B", f"the type of {name}"), reader.number("I", f"the size of {name}")
    if type_code >= len(_TYPES):
        raise reader.corrupt(f"{name} has the unknown type {type_code}")
    count = 1
    for extent in shape:
        count *= extent  # a Python number: no product of extents overflows
    variable = Variable(shape, type_code, reader.position, byte_size)
    if count == 0 or count * variable.dtype.itemsize != byte_size:
        raise reader.corrupt(f"{name} of shape {shape} cannot have {byte_size} bytes")
    reader.skip(byte_size, name)
    return variable


class _Reader:
    """Reads numbers and texts one after another, and never beyond the end."""

    def __init__(self, data: mmap.mmap, path: str) -> None:
        self.position = 0
        self._data = data
        self._path = path

    def number(self, kind: str, what: str) -> int:
        """Read an unsigned number of 8, 16 or 32 bits: "B", "H", "I"."""
        start = self.position
        self.skip(struct.calcsize(kind), what)
        return int(struct.unpack_from(f"<{kind}", self._data, start)[0])

    def text(self, what: str) -> str:
        length = self.number("H", what)
        if length > _LARGEST_NAME:
            raise self.corrupt(f"{what} has {length} characters")
        start = self.position
        self.skip(length, what)
        try:
            return self._data[start : start + length].rstrip(b"\0").decode("utf-8")
        except UnicodeDecodeError:
            raise self.corrupt(f"{what} is not UTF-8") from None

    def skip(self, count: int, what: str) -> None:
        if count > len(self._data) - self.position:
            raise self.corrupt(f"the file of {len(self._data)} bytes ends within {what}")
        self.position += count

    def corrupt(self, reason: str) -> WinMLError:
        return WinMLError(FILE_CORRUPT, _CONTEXT, f"{self._path}: {reason}")
