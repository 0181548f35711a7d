"""Memory for new tensors (tensors §4): zeros, copies of buffers and arrays, and aliases of buffers."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

import numpy as np
import numpy.typing as npt

from .checks import UINT64_MAX, enum_value, number_value
from .interop import Array, foreign_array
from .storage import Bytes, Storage, allocate, byte_size
from .values import NUMPY_NAMES, TensorAccessMode, TensorDataType

_FROM_NUMPY_NAME = {name: data_type for data_type, name in NUMPY_NAMES.items()}
_FIELD_NAME = re.compile(":[^:]*:")
_OBJECTS = "an array of Python objects is no memory for a tensor"


def tensor_type(data_type: TensorDataType | int) -> TensorDataType:
    """Return a concrete element type; UNDEFINED and unknown numbers are ValueError."""
    found = data_type if type(data_type) is TensorDataType else enum_value(data_type, TensorDataType, "data_type")
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
    kind, extents = tensor_type(data_type), tensor_shape(shape)
    packed = None if data is None else _packed_bytes(data)
    if packed is None or not packed.nbytes:
        return allocate(kind, extents)
    return _copied(packed, kind, extents)


def numpy_storage(array: npt.ArrayLike) -> Storage:
    """Copy an array-like: a scalar becomes shape (1,), a foreign byte order is converted.

    A dtype that tensors do not have is ValueError, and so is a masked array, whose mask would be lost.
    """
    if isinstance(array, np.ma.MaskedArray):
        raise ValueError("a tensor has no mask; pass array.filled(value), or array.data")
    source = np.asarray(array)
    if source.dtype == object and not source.ndim and hasattr(array, "__dlpack__"):
        source = foreign_array(array)  # NumPy took it for one opaque object
    return _array_storage(source if source.ndim else source.reshape(1))


def buffer_storage(
    buffer: Any, data_type: TensorDataType | int, shape: Iterable[int], access: TensorAccessMode | int
) -> Storage:
    """Copy or alias a buffer. The alias holds the buffer's export for as long as the storage lives."""
    mode = _access_mode(access)
    kind, extents = tensor_type(data_type), tensor_shape(shape)
    if mode is TensorAccessMode.COPY:
        return _copied(_packed_bytes(buffer), kind, extents)
    data = _aliased_bytes(buffer, mode)
    _check_size(data.nbytes, kind, extents)
    storage = Storage(data, kind, extents, mode is TensorAccessMode.READWRITE)
    storage.is_alias = True
    return storage


def dlpack_storage(source: Any, access: TensorAccessMode | int) -> Storage:
    """Alias or copy what another library shares by DLPack, with its dtype and shape."""
    mode = _access_mode(access)
    array = foreign_array(source)
    if mode is TensorAccessMode.COPY:
        return _array_storage(array)
    data = _aliased_bytes(array, mode)
    storage = Storage(data, _array_type(array), array.shape, mode is TensorAccessMode.READWRITE)
    storage.is_alias = True
    return storage


def _copied(data: Bytes, data_type: TensorDataType, shape: tuple[int, ...]) -> Storage:
    _check_size(data.nbytes, data_type, shape)
    storage = allocate(data_type, shape)
    storage.data[:] = data
    return storage


def _array_type(array: Array) -> TensorDataType:
    data_type = _FROM_NUMPY_NAME.get(array.dtype.name)
    if data_type is None:
        known = ", ".join(_FROM_NUMPY_NAME)
        raise ValueError(
            f"a tensor cannot be made from dtype {array.dtype}; the dtypes are {known}. "
            "BFLOAT16 and 4-bit elements go as bytes through create_tensor or tensor_from_buffer"
        )
    return data_type


def _array_storage(array: Array) -> Storage:
    """Copy an array, in C order and in this machine's byte order."""
    data_type = _array_type(array)
    packed = np.array(array, dtype=array.dtype.newbyteorder("="), order="C", subok=False)
    return Storage(packed.reshape(-1).view(np.uint8), data_type, packed.shape)


def _packed_bytes(buffer: Any) -> Bytes:
    """Return the bytes of a buffer in C order, with its elements in this machine's byte order.

    The format of the elements tells the byte order they have; the result is a view where it can be one.
    """
    array = _exported_array(buffer)
    if array is not None:
        if array.dtype.hasobject:
            raise ValueError(_OBJECTS)
        if not array.dtype.isnative:
            array = array.astype(array.dtype.newbyteorder("="))
        return np.ascontiguousarray(array).reshape(-1).view(np.uint8)
    with memoryview(buffer) as view:
        if _is_foreign(view):
            return _packed_bytes(np.array(view))
        return np.frombuffer(buffer if view.c_contiguous else view.tobytes(), np.uint8)


def _aliased_bytes(buffer: Any, mode: TensorAccessMode) -> Bytes:
    """Return the very bytes of a buffer, which must be contiguous, and writable for READWRITE."""
    array = buffer if type(buffer) is np.ndarray else _exported_array(buffer)
    if array is None:
        with memoryview(buffer) as view:
            is_foreign = _is_foreign(view)
        data = np.frombuffer(buffer, np.uint8)
    elif array.dtype.hasobject:
        raise ValueError(_OBJECTS)
    elif not array.flags.c_contiguous:
        raise ValueError(
            "an alias needs an array in C order; copy it with tensor_from_numpy, or access=TensorAccessMode.COPY"
        )
    else:
        is_foreign = not array.dtype.isnative
        data = array.reshape(-1).view(np.uint8)
    if is_foreign:
        raise ValueError(
            "an alias needs elements in this machine's byte order; convert them with access=TensorAccessMode.COPY"
        )
    if mode is TensorAccessMode.READ:
        data.flags.writeable = False
    elif not data.flags.writeable:
        raise BufferError("access READWRITE needs a writable buffer")
    return data


def _exported_array(buffer: Any) -> Array | None:
    """Return an array over what NumPy or DLPack shares; None for other buffers."""
    if isinstance(buffer, np.ndarray):
        return np.asarray(buffer)
    try:
        memoryview(buffer).release()
    except TypeError:
        return foreign_array(buffer)
    return None


def _is_foreign(view: memoryview) -> bool:
    """Whether the elements of a buffer have another byte order than this machine; objects are refused."""
    element = _FIELD_NAME.sub("", view.format)
    if "O" in element:
        raise ValueError(_OBJECTS)
    return ">" in element or "!" in element


def _access_mode(access: TensorAccessMode | int) -> TensorAccessMode:
    return access if type(access) is TensorAccessMode else enum_value(access, TensorAccessMode, "access")


def _check_size(size: int, data_type: TensorDataType, shape: tuple[int, ...]) -> None:
    needed = byte_size(data_type, shape)
    if size != needed:
        raise ValueError(f"{data_type.name}{list(shape)} takes {needed} bytes, the buffer has {size}")
