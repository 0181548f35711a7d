"""Memory for new tensors (tensors §4): zeros, copies of buffers and arrays, and aliases of buffers."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import numpy.typing as npt

from .checks import UINT64_MAX, number_value
from .storage import Storage, allocate, byte_size
from .values import NUMPY_NAMES, TensorAccessMode, TensorDataType

_FROM_NUMPY_NAME = {name: data_type for data_type, name in NUMPY_NAMES.items()}


def tensor_type(data_type: TensorDataType | int) -> TensorDataType:
    """Return a concrete element type; UNDEFINED and unknown numbers are ValueError."""
    found = data_type if type(data_type) is TensorDataType else TensorDataType(data_type)
    if found is TensorDataType.UNDEFINED:
        raise ValueError("UNDEFINED is not the type of a tensor")
    return found


def tensor_shape(shape: Iterable[int]) -> tuple[int, ...]:
    """Return the extents as a tuple of ints in 0..2**64-1, else ValueError."""
    extents = tuple(shape)
    for extent in extents:
        if type(extent) is not int or not 0 <= extent <= UINT64_MAX:
            return tuple(number_value(extent, "extent", UINT64_MAX) for extent in extents)
    return extents


def raw_storage(data_type: TensorDataType | int, shape: Iterable[int], data: Any = None) -> Storage:
    """Make zero-filled memory, or a packed copy of `data` (any buffer, exactly as many bytes)."""
    storage = allocate(tensor_type(data_type), tensor_shape(shape))
    if data is not None:
        with memoryview(data) as view:
            if view.nbytes:
                _check_size(view.nbytes, storage.data_type, storage.shape)
                _check_plain(view.format)
                storage.data[:] = np.frombuffer(data if view.c_contiguous else view.tobytes(), np.uint8)
    return storage


def numpy_storage(array: npt.ArrayLike) -> Storage:
    """Copy an array-like: a scalar becomes shape (1,), a foreign byte order is converted.

    A dtype that tensors do not have is ValueError.
    """
    source = np.asarray(array)
    data_type = _FROM_NUMPY_NAME.get(source.dtype.name)
    if data_type is None:
        known = ", ".join(_FROM_NUMPY_NAME)
        raise ValueError(f"a tensor cannot hold dtype {source.dtype}; the dtypes are {known}")
    packed = np.array(source, dtype=source.dtype.newbyteorder("="), order="C", ndmin=1)
    return Storage(packed.reshape(-1).view(np.uint8), data_type, packed.shape)


def buffer_storage(
    buffer: Any, data_type: TensorDataType | int, shape: Iterable[int], access: TensorAccessMode | int
) -> Storage:
    """Copy or alias a buffer. The alias holds the buffer's export for as long as the storage lives."""
    mode = _access_mode(access)
    kind, extents = tensor_type(data_type), tensor_shape(shape)
    if mode is TensorAccessMode.COPY:
        # `raw_storage` takes an empty buffer for zeros; here the sizes must agree.
        with memoryview(buffer) as view:
            _check_size(view.nbytes, kind, extents)
        return raw_storage(kind, extents, buffer)
    if isinstance(buffer, np.ndarray):
        _check_plain(buffer.dtype.char)
    data = np.frombuffer(buffer, np.uint8)
    _check_size(data.nbytes, kind, extents)
    writable = mode is TensorAccessMode.READWRITE
    if not writable:
        data.flags.writeable = False
    elif not data.flags.writeable:
        raise BufferError("access READWRITE needs a writable buffer")
    return Storage(data, kind, extents, writable)


def _check_plain(element_format: str) -> None:
    if "O" in element_format:
        raise ValueError("an array of Python objects is no memory for a tensor")


def _access_mode(access: TensorAccessMode | int) -> TensorAccessMode:
    if type(access) is TensorAccessMode:
        return access
    if type(access) is not int:
        raise ValueError(f"access must be a TensorAccessMode, not {access!r}")
    return TensorAccessMode(access)


def _check_size(size: int, data_type: TensorDataType, shape: tuple[int, ...]) -> None:
    needed = byte_size(data_type, shape)
    if size != needed:
        raise ValueError(f"{data_type.name}{list(shape)} takes {needed} bytes, the buffer has {size}")
