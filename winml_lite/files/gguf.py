"""GGUF files: metadata, the tensor table, mapped tensor data, and the rules of shards (runtime §2.1).

Here: the file as an object, opened by mapping it, and the shards of a model. Not here: the parsing (`gguf_header.py`),
the decoding of quantised values (`quantization.py`), any engine.
The format is that of the GGUF specification, versions 2 and 3, little-endian.
"""

from __future__ import annotations

import mmap
import os
import re
from collections.abc import Mapping
from threading import Lock
from types import MappingProxyType
from typing import NoReturn, Self

import numpy as np
import numpy.typing as npt

from .. import errors
from ..errors import WinMLError
from .artifact import GgufArtifact
from .gguf_header import CorruptHeader, GgufHeader, GgufTensor, MoreNeeded, read_header
from .mapped import Identity, RegularFile, check_unchanged
from .quantization import STORAGE_TYPES, dequantize

_CONTEXT = "IWinMLRuntime.LoadModelFromFile"
_FIRST_READ = 8 << 20  # bytes; enough for nearly every header
_SHARD_NAME = re.compile(r"-(\d{5})-of-(\d{5})(\.gguf)$", re.IGNORECASE)


class GgufFile:
    """A GGUF file, read-only: header and tensors, no engine needed.

    Raises `WinMLError` with the path in its message: FILE_CORRUPT for content that is not a valid GGUF header (a
    truncated file included), FILE_NOT_FOUND, PATH_NOT_FOUND, E_ACCESSDENIED or E_INVALIDARG (a folder, a pipe) when it
    cannot be opened.

    The header is in memory. Tensor data is mapped at the first `raw()` or `dequantize()` until `close()` **and** until
    the last array from `raw()` is gone; on Windows a mapped file cannot be replaced or deleted. Who truncates a file
    while its arrays are read ends the process. Reading is safe from several threads.
    """

    path: str
    """Absolute path."""
    version: int
    """Format version, 2 or 3."""
    metadata: Mapping[str, object]
    """Python scalars, `str`, `list[str]` for string arrays, NumPy arrays for numeric ones. Text that is not UTF-8 keeps
    its bytes as surrogate escapes."""
    tensors: Mapping[str, GgufTensor]
    """The tensor table, in file order."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = os.path.abspath(os.fsdecode(path))
        self._data: mmap.mmap | None = None
        self._mapping = Lock()
        self._closed = False
        with RegularFile(self.path) as file:
            self.identity: Identity = file.identity
            """The file when its header was read."""
            try:
                header = _read(file)
            except CorruptHeader as error:
                raise WinMLError(errors.FILE_CORRUPT, _CONTEXT, f"{self.path}: {error}") from None
        self.version = header.version
        self._metadata = header.metadata
        self.metadata = header.metadata
        self.tensors = MappingProxyType(header.tensors)

    @property
    def architecture(self) -> str | None:
        """`general.architecture`, or None for a file without one."""
        value = self.metadata.get("general.architecture")
        return value if isinstance(value, str) else None

    def raw(self, name: str) -> npt.NDArray[np.uint8]:
        """Return the stored bytes of a tensor as a read-only view, uint8 [rows, bytes per row].

        An unknown name is KeyError, a file that has changed since it was opened 0x800703EE.
        """
        if self._closed:
            raise RuntimeError(f"{self.path} is closed")
        tensor = self.tensors[name]
        check_unchanged(self.identity, "GgufFile.raw")
        with self._mapping:
            if self._data is None:
                with RegularFile(self.path) as file:
                    self._data = file.map()
        storage = STORAGE_TYPES[tensor.type_code]
        row_bytes = tensor.shape[-1] // storage.block_values * storage.block_bytes
        view = np.frombuffer(self._data, np.uint8, tensor.byte_size, tensor.offset)
        return view.reshape(-1, row_bytes)

    def dequantize(self, name: str, rows: slice | npt.NDArray[np.integer] | None = None) -> npt.NDArray[np.float32]:
        """Return a tensor as a new float32 array of its shape. K and IQ types need the extra `kquants`.

        With `rows`, a slice or an index array, only those rows of `raw()` are decoded, and the result is 2-D.
        """
        tensor = self.tensors[name]
        what = f"{self.path}: tensor {name!r}"
        if rows is not None:
            return dequantize(self.raw(name)[rows], tensor.type_code, what)
        return dequantize(self.raw(name), tensor.type_code, what).reshape(tensor.shape)

    def close(self) -> None:
        """Unmap the file; arrays from `raw()` that are still alive keep it mapped. Closing twice is fine."""
        self._closed = True
        self._metadata.close()
        if self._data is not None:
            try:
                self._data.close()
            except BufferError:
                pass  # a raw view is alive: the map goes with the last of them

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<GgufFile {self.path!r}: {self.architecture}, {len(self.metadata)} keys, {len(self.tensors)} tensors>"


def _read(file: RegularFile) -> GgufHeader:
    """Read as much of a file as its header takes."""
    size = file.identity.size
    wanted = _FIRST_READ
    while True:
        wanted = min(wanted, size)
        file.seek(0)
        start = file.read(wanted)
        if len(start) < wanted:
            raise CorruptHeader("the file was truncated while it was read")
        try:
            return read_header(start, size)
        except MoreNeeded:
            wanted *= 4


def read_gguf(path: str) -> GgufArtifact:
    """Open a model of one or several files and return what it declares.

    A name that ends in `-00001-of-000NN.gguf` is the first of NN shards in one folder: a later shard is E_INVALIDARG, a
    missing sibling FILE_NOT_FOUND, shards that do not fit each other FILE_CORRUPT. The headers of all shards are read.
    """
    path = os.path.abspath(path)
    match = _SHARD_NAME.search(path)
    if match is None:
        file = GgufFile(path)
        count = file.metadata.get("split.count", 1)
        if isinstance(count, int) and count > 1:
            _refuse_renamed(file, count)
        return GgufArtifact(file, path, (file.identity,))
    number, count = int(match[1]), int(match[2])
    first = _shard_path(path, match, 1)
    if number != 1:
        message = f"{path} is shard {number} of {count}; load the first one, {os.path.basename(first)}"
        raise WinMLError(errors.E_INVALIDARG, _CONTEXT, message)
    if count == 0:
        raise WinMLError(errors.FILE_CORRUPT, _CONTEXT, f"{path}: the name says shard 1 of 0")
    file = GgufFile(path)
    try:
        shards = _check_shards(file, match, count)
    except BaseException:
        file.close()
        raise
    return GgufArtifact(file, path, shards)


def _check_shards(first: GgufFile, match: re.Match[str], count: int) -> tuple[Identity, ...]:
    """Return all shards after reading every header."""
    shards = [first.identity]
    _check_split_keys(first, 0, count)
    for number in range(2, count + 1):
        sibling = _shard_path(first.path, match, number)
        if not os.path.exists(sibling):
            message = f"{first.path} is shard 1 of {count}; {os.path.basename(sibling)} is missing beside it"
            raise WinMLError(errors.FILE_NOT_FOUND, _CONTEXT, message)
        with GgufFile(sibling) as shard:
            _check_split_keys(shard, number - 1, count)
            shards.append(shard.identity)
    return tuple(shards)


def _check_split_keys(shard: GgufFile, number: int, count: int) -> None:
    found = shard.metadata.get("split.no", 0), shard.metadata.get("split.count", 1)
    if found != (number, count):
        named = f"the name says shard {number} of {count} (from 0)"
        message = f"{shard.path}: {named}, the header says {found[0]} of {found[1]}"
        raise WinMLError(errors.FILE_CORRUPT, _CONTEXT, message)


def _refuse_renamed(file: GgufFile, count: int) -> NoReturn:
    number = file.metadata.get("split.no", 0)
    file.close()
    if number != 0:
        message = f"{file.path} is a later shard ({number} of {count}, from 0); load the first one"
        raise WinMLError(errors.E_INVALIDARG, _CONTEXT, message)
    message = f"{file.path} is the first of {count} shards but was renamed; it must end in -00001-of-{count:05}.gguf"
    raise WinMLError(errors.FILE_CORRUPT, _CONTEXT, message)


def _shard_path(path: str, match: re.Match[str], number: int) -> str:
    return f"{path[: match.start()]}-{number:05}-of-{match[2]}{match[3]}"
