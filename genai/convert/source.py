"""The GGUF that is converted: one file or several shards, read tensor by tensor.

Not here: what the tensors mean (`architecture.py`), how they are stored in the result (`weights.py`).
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from typing import Self

import numpy as np
import numpy.typing as npt

from winml_lite import GgufFile, WinMLError

from ..codes import E_INVALIDARG, FILE_NOT_FOUND, INVALID_DATA, NOT_SUPPORTED

Floats = npt.NDArray[np.float32]
Rows = npt.NDArray[np.int64]
Progress = Callable[[int, int], object]

CONTEXT = "convert_gguf"
_CHUNK_BYTES = 32 << 20  # of float32 values: bounds what is held of a large embedding
_SHARD_NAME = re.compile(r"-(\d{5})-of-(\d{5})(\.gguf)$", re.IGNORECASE)


def refuse(path: str, message: str) -> WinMLError:
    """Return the error for a model that is valid but cannot be converted."""
    return WinMLError(NOT_SUPPORTED, CONTEXT, f"{path}: {message}")


def invalid(path: str, message: str) -> WinMLError:
    """Return the error for a model that contradicts itself."""
    return WinMLError(INVALID_DATA, CONTEXT, f"{path}: {message}")


class ModelSource:
    """Metadata and tensors of a GGUF model, with progress by bytes of tensor data."""

    shapes: dict[str, tuple[int, ...]]
    """Shape of every tensor, in row-major order."""

    def __init__(self, path: str | os.PathLike[str], progress: Progress | None = None) -> None:
        self.path = os.path.abspath(os.fsdecode(path))
        self._progress = progress
        self._done = self._told = 0
        with ExitStack() as stack:
            self._files = [stack.enter_context(GgufFile(shard)) for shard in _shards(self.path)]
            self._stack = stack.pop_all()
        self._homes = {name: file for file in self._files for name in file.tensors}
        self.shapes = {name: file.tensors[name].shape for name, file in self._homes.items()}
        self._total = sum(tensor.byte_size for file in self._files for tensor in file.tensors.values())

    @property
    def metadata(self) -> Mapping[str, object]:
        return self._files[0].metadata

    def __contains__(self, name: str) -> bool:
        return name in self._homes

    def type_name(self, name: str) -> str:
        """Return the storage type of a tensor: `"F32"`, `"Q4_1"`, ..."""
        return self._homes[name].tensors[name].type_name

    def raw(self, name: str) -> npt.NDArray[np.uint8]:
        """Return the stored bytes, a view [rows, bytes per row]."""
        return self._homes[name].raw(name)

    def floats(self, name: str, rows: slice | Rows | None = None) -> Floats:
        """Return a tensor, or some of its rows, as float32."""
        return self._homes[name].dequantize(name, rows)

    def row_chunks(self, name: str) -> Iterator[slice]:
        """Yield slices of the rows of a matrix, each a bounded amount of memory as float32."""
        rows, width = self.shapes[name]
        step = max(1, _CHUNK_BYTES // (4 * width))
        size = self._homes[name].tensors[name].byte_size
        for start in range(0, rows, step):
            end = min(start + step, rows)
            yield slice(start, end)
            self._tell(self._done + size * end // rows)

    def check_types(self) -> None:
        """Decode one row of every storage type, so that a type that cannot be decoded fails before any work is done."""
        examples = {self.type_name(name): name for name in self._homes}
        for name in examples.values():
            self.floats(name, slice(0, 1))

    def report(self, name: str) -> None:
        """Count a tensor as done and tell the caller."""
        self._done += self._homes[name].tensors[name].byte_size
        self._tell(self._done)

    def _tell(self, done: int) -> None:
        """Report progress, which never goes back: a tensor that is read twice counts once."""
        if self._progress is not None and done > self._told:
            self._told = min(done, self._total)
            self._progress(self._told, self._total)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self._stack.close()


def _shards(path: str) -> list[str]:
    """Return all files of a model by the name rule of shards (runtime §2.1)."""
    match = _SHARD_NAME.search(path)
    if match is None:
        return [path]
    stem, count = path[: match.start()], int(match[2])
    shards = [f"{stem}-{number:05}-of-{match[2]}{match[3]}" for number in range(1, count + 1)]
    if path != shards[0]:
        raise WinMLError(E_INVALIDARG, CONTEXT, f"{path} is a later shard of a model; convert the first one")
    for shard in shards[1:]:
        if not os.path.exists(shard):
            raise WinMLError(FILE_NOT_FOUND, CONTEXT, f"{path} is shard 1 of {count}; {shard} is missing")
    return shards
