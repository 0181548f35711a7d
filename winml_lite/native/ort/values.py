"""`OrtValue` and `Storage`: one block of memory seen from both sides, never copied.

A value over a storage is made once and kept in `Storage.native`. A value that the engine made becomes a storage that
owns it.
"""

from __future__ import annotations

import ctypes
import math
import threading

from ...errors import E_UNEXPECTED, WinMLError
from ...handles import Resource, free_in_child
from ...storage import Storage, byte_size
from ...values import FROM_ONNX_TYPE, TO_ONNX_TYPE, Descriptor, TensorDataType
from .. import ffi
from . import api
from .environment import cpu_memory, owned

_USUAL_RANK = 8


class _Outs(threading.local):
    """Places that calls write their answers to; made once per thread because making them costs more than the calls."""

    def __init__(self) -> None:
        self.pointer = ctypes.c_void_p()
        self.pointer_reference = ctypes.byref(self.pointer)
        self.size = ctypes.c_size_t()
        self.size_reference = ctypes.byref(self.size)
        self.code = ctypes.c_int()
        self.code_reference = ctypes.byref(self.code)
        self.extents = (ctypes.c_int64 * _USUAL_RANK)()


_outs = _Outs()
_creating = threading.Lock()
free_in_child(_creating)


def value_of(storage: Storage) -> int:
    """The value over a storage's memory. It lives as long as the storage, which the caller keeps."""
    native = storage.native
    if native is None:
        with _creating:  # two stages may meet a storage at the same time; a value that one has must not go
            native = storage.native
            if native is None:
                native = storage.native = create_value(storage)
    return native.pointer  # type: ignore[no-any-return]


def create_value(storage: Storage) -> Resource:
    """Make a value over the storage's memory. The value keeps the memory, not the storage."""
    if storage.is_fleeting:
        storage.settle()
    shape = storage.shape
    pointer = ctypes.c_void_p()
    api.CreateTensorWithDataAsOrtValue(
        cpu_memory(),
        storage.address,
        byte_size(storage.data_type, shape),
        (ctypes.c_int64 * len(shape))(*shape),
        len(shape),
        TO_ONNX_TYPE[storage.data_type],
        ctypes.byref(pointer),
    )
    return owned(pointer, api.ReleaseValue, storage.data)


def own_value(value: int) -> Resource:
    """Take over a value that the engine made."""
    return owned(ctypes.c_void_p(value), api.ReleaseValue)


def storage_of(owner: Resource) -> Storage:
    """View a value that the engine made; the memory lives as long as the storage or any array over it."""
    storage = view_of(owner.pointer, owner)
    storage.native = owner
    return storage


def view_of(value: int, owner: object = None) -> Storage:
    """View a value; without an owner, the caller keeps the value for as long as the view is used."""
    data_type, shape = value_descriptor(value)
    out = _outs
    api.GetTensorMutableData(value, out.pointer_reference)
    return Storage(ffi.view_memory(out.pointer.value or 0, byte_size(data_type, shape), owner), data_type, shape)


def copied(storage: Storage) -> Storage:
    """Copy a storage."""
    return Storage(storage.data.copy(), storage.data_type, storage.shape)


def value_descriptor(value: int) -> Descriptor:
    """Element type and shape of a tensor value."""
    out = _outs
    api.GetTensorTypeAndShape(value, out.pointer_reference)
    info = out.pointer.value or 0
    try:
        code, extents = tensor_info(info)
    finally:
        api.ReleaseTensorTypeAndShapeInfo(info)
    data_type = FROM_ONNX_TYPE.get(code)
    if data_type is None:
        raise WinMLError(E_UNEXPECTED, "IWinMLStage.GetOutput", f"the engine made a tensor of element type {code}")
    return data_type, extents


def tensor_info(info: int) -> tuple[int, tuple[int, ...]]:
    """ONNX element type and extents of an `OrtTensorTypeAndShapeInfo`; a free extent is -1."""
    out = _outs
    api.GetTensorElementType(info, out.code_reference)
    api.GetDimensionsCount(info, out.size_reference)
    rank = out.size.value
    extents = out.extents if rank <= _USUAL_RANK else (ctypes.c_int64 * rank)()
    api.GetDimensions(info, extents, rank)
    return out.code.value, tuple(extents[:rank])


def size_in_bytes(value: int) -> int:
    """Bytes of a tensor value."""
    out = _outs
    api.GetTensorSizeInBytes(value, out.size_reference)
    return out.size.value


def truncated(storage: Storage, axis: int, extent: int) -> Storage:
    """Copy the first `extent` slices along `axis`; for element types of whole bytes."""
    shape = (*storage.shape[:axis], extent, *storage.shape[axis + 1 :])
    inner = byte_size(storage.data_type, storage.shape[axis + 1 :])
    rows = storage.data.reshape(math.prod(storage.shape[:axis]), storage.shape[axis] * inner)
    return Storage(rows[:, : extent * inner].reshape(-1).copy(), storage.data_type, shape)


def has_whole_bytes(data_type: TensorDataType) -> bool:
    """Whether a tensor of this type can be cut between any two elements."""
    return byte_size(data_type, (2,)) == 2 * byte_size(data_type, (1,))
