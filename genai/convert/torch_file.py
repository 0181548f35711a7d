"""The tensors of a file that `torch.save` wrote, as NumPy arrays: without torch, and without unpickling it.

Both forms are read: the old one, pickles with the bytes of the tensors behind them, and the ZIP archive of torch 1.6
and later. Every count in a file is checked against its size before anything is made of it. Not here: the pickles
themselves (`torch_pickle.py`), what the tensors mean (`efficientnet.py`).
"""

from __future__ import annotations

import io
import math
import os
import struct
import zipfile
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from winml_lite import WinMLError

from ..codes import FILE_CORRUPT, NOT_SUPPORTED
from ..reading import read_bytes
from .torch_pickle import CorruptFile, RefusedContent, StoredElements, StoredTensor, kind_name, load_pickle, quoted

Array = npt.NDArray[Any]

_MAGIC = 0x1950A86A20F9469CFC6C
_PROTOCOL = 1001


def read_torch_file(path: str | os.PathLike[str]) -> dict[str, Array]:
    """Return the tensors of a state dictionary by name, in the order of the file; of a checkpoint its `state_dict`.

    The arrays are read-only views of the file's bytes, which are in memory once.

    WinMLError: 0x80070002 for a missing file, 0x80070570 for one that is broken or none of torch, 0x80070032 for
    contents that are no plain state dictionary; the message names what was found.
    """
    data = read_bytes(path)
    try:
        return _read_archive(data) if data.startswith(b"PK") else _read_pickles(data)
    except RefusedContent as error:
        raise WinMLError(NOT_SUPPORTED, os.fspath(path), f"not a plain state dictionary of torch: {error}") from None
    except CorruptFile as error:
        raise WinMLError(FILE_CORRUPT, os.fspath(path), f"not a readable file of torch: {error}") from None


def _read_pickles(data: bytes) -> dict[str, Array]:
    """Read the old form: five pickles, then each storage as a count of elements and its bytes."""
    stream = io.BytesIO(data)
    try:
        magic = load_pickle(stream)
    except RefusedContent:
        magic = None
    if magic != _MAGIC:
        raise CorruptFile("it does not begin as one")
    protocol, system = load_pickle(stream), load_pickle(stream)
    if protocol != _PROTOCOL or not isinstance(system, dict):
        raise CorruptFile("its header is not that of a saved object")
    if system.get("little_endian") is not True:
        raise RefusedContent("its numbers have the bytes in big-endian order")
    storages: dict[str, StoredElements] = {}
    content, keys = load_pickle(stream, storages), load_pickle(stream)
    if not isinstance(keys, list) or not all(isinstance(key, str) for key in keys):
        raise CorruptFile("it has no list of storages")
    elements: dict[str, Array] = {}
    for key in keys:
        storage, header = storages.get(key), stream.read(8)
        if storage is None or key in elements or len(header) < 8:
            raise CorruptFile(f"the storage {quoted(key)} is unknown, twice there or cut off")
        elements[key] = _elements(data, stream.tell(), storage, *struct.unpack("<q", header))
        stream.seek(elements[key].nbytes, io.SEEK_CUR)
    return _arrays(content, elements.get)


def _read_archive(data: bytes) -> dict[str, Array]:
    """Read the ZIP form: one pickle, and a file for each storage."""
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            for member in archive.infolist():
                if member.compress_type != zipfile.ZIP_STORED:  # torch never packs them; a bomb would
                    raise RefusedContent(f"{quoted(member.filename)} is compressed")
            if sum(member.file_size for member in archive.infolist()) > len(data):
                raise CorruptFile("its members are larger than the archive")
            members = {member.filename.partition("/")[2]: member for member in archive.infolist()}

            def content_of(name: str) -> bytes:
                member = members.get(name)
                if member is None:
                    raise CorruptFile(f"the archive holds no {quoted(name)}")
                return archive.read(member)

            if "byteorder" in members and content_of("byteorder") != b"little":
                raise RefusedContent("its numbers have the bytes in big-endian order")
            storages: dict[str, StoredElements] = {}
            content = load_pickle(io.BytesIO(content_of("data.pkl")), storages)
            elements: dict[str, Array] = {}
            for key, storage in storages.items():
                elements[key] = _elements(content_of(f"data/{key}"), 0, storage, storage.length)
    except (zipfile.BadZipFile, struct.error, RuntimeError, EOFError, OSError, ValueError) as error:
        raise CorruptFile(f"the archive is broken: {error}") from None
    return _arrays(content, elements.get)


def _elements(data: bytes, offset: int, storage: StoredElements, count: int) -> Array:
    if count != storage.length or count * storage.dtype.itemsize > len(data) - offset:
        raise CorruptFile(f"the storage {quoted(storage.key)} should have {storage.length} elements")
    return np.frombuffer(data, storage.dtype, count, offset)


def _arrays(content: object, elements_of: Callable[[str], Array | None]) -> dict[str, Array]:
    if isinstance(content, dict) and isinstance(content.get("state_dict"), dict):  # a checkpoint, with more beside it
        content = content["state_dict"]
    if not isinstance(content, dict):
        raise RefusedContent(f"it holds {kind_name(content)}")
    arrays: dict[str, Array] = {}
    for name, tensor in content.items():
        if not isinstance(name, str) or not isinstance(tensor, StoredTensor):
            raise RefusedContent(f"{quoted(name)} is {kind_name(tensor)} and no tensor")
        elements = elements_of(tensor.storage.key)
        if elements is None:
            raise CorruptFile(f"the storage of {quoted(name)} is missing")
        arrays[name] = _window(elements, tensor, name)
    return arrays


def _window(elements: Array, tensor: StoredTensor, name: str) -> Array:
    """Return the elements of one tensor; what it claims is checked before anything is made of it."""
    count = math.prod(tensor.shape)
    last = tensor.offset + sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.strides, strict=True))
    if count > elements.size or (count and last >= elements.size):
        raise CorruptFile(f"the tensor {quoted(name)} is larger than its storage")
    if not count:
        return np.zeros(tensor.shape, elements.dtype)
    strides = [stride * elements.itemsize for stride in tensor.strides]
    return np.lib.stride_tricks.as_strided(elements[tensor.offset :], tensor.shape, strides, writeable=False)
