"""Memory shared with other libraries, without copies (tensors §3 and 4): NumPy views and DLPack, out and in.

Out: `Tensor.__array__` and `Tensor.__dlpack__` give views that outlive the tensor. They are no locks: what they and
the tensor write is seen on both sides at any time. In: `foreign_array` turns whatever shares by DLPack into an array.
Not here: the buffer protocol (`factories.py` in, `data_lock.py` out).
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from .storage import Storage, StorageLock
from .values import NUMPY_NAMES, TensorLockMode

Array = npt.NDArray[Any]

CPU_DEVICE = (1, 0)
"""Device type kDLCPU and device number."""

# kDLCPU, and memory of CUDA and ROCm that the CPU reaches as well: pinned, pinned, managed.
_HOST_DEVICES = frozenset({1, 3, 11, 13})
_HAS_VERSIONS = np.lib.NumpyVersion(np.__version__) >= "2.1.0"


def shared_array(storage: Storage) -> Array:
    """View the memory as an array that may be kept: of a tensor made with access READ it is read-only.

    ValueError for element types that NumPy lacks, BufferError for memory that the CPU cannot reach, 0x800700D4 while a
    writable lock is open.
    """
    check_numpy_type(storage)
    if not storage.is_direct:
        raise BufferError("the CPU cannot reach this memory directly; copy it with to_numpy()")
    storage.settle()
    with StorageLock(storage, TensorLockMode.READ):
        view = storage.array()
    if not storage.writable:
        view.flags.writeable = False
    return view


def copied_array(storage: Storage) -> Array:
    """Copy the memory to a new, writable array; errors as in `shared_array`, but any memory will do."""
    check_numpy_type(storage)
    with StorageLock(storage, TensorLockMode.READ):
        storage.fetch()
        data = storage.copy()
    return data.view(NUMPY_NAMES[storage.data_type]).reshape(storage.shape)


def check_numpy_type(storage: Storage) -> None:
    """Raise ValueError for element types that NumPy lacks."""
    if storage.data_type not in NUMPY_NAMES:
        raise ValueError(f"NumPy has no {storage.data_type.name}; read the bytes with lock(TensorLockMode.READ)")


def as_array(storage: Storage, dtype: npt.DTypeLike | None, copy: bool | None) -> Array:
    """Do what `np.array(tensor, dtype, copy=copy)` asks for: None copies where it must, False never (ValueError)."""
    check_numpy_type(storage)
    own = np.dtype(NUMPY_NAMES[storage.data_type])
    wanted = own if dtype is None else np.dtype(dtype)
    if copy is False and (wanted != own or not storage.is_direct):
        raise ValueError(f"a copy is needed to have this memory as an array of {wanted}")
    array = copied_array(storage) if copy or not storage.is_direct else shared_array(storage)
    return array.astype(wanted, copy=False)


def export_dlpack(
    storage: Storage, max_version: tuple[int, int] | None, device: tuple[int, int] | None, copy: bool | None
) -> Any:
    """Return the DLPack capsule that `Tensor.__dlpack__` was asked for."""
    if device is not None and tuple(device) != CPU_DEVICE:
        raise BufferError(f"a tensor is shared in CPU memory {CPU_DEVICE}, not on DLPack device {tuple(device)}")
    try:
        check_numpy_type(storage)
    except ValueError:
        raise BufferError(
            f"{storage.data_type.name} is not shared by DLPack; read the bytes with lock(TensorLockMode.READ)"
        ) from None
    if copy is None and not storage.is_direct:
        copy = True
    array = copied_array(storage) if copy else shared_array(storage)
    if not array.flags.writeable and (not _HAS_VERSIONS or max_version is None or max_version[0] < 1):
        raise BufferError("a tensor made with access READ needs a consumer of DLPack 1.0; ask for copy=True")
    return array.__dlpack__(max_version=max_version) if _HAS_VERSIONS else array.__dlpack__()


def foreign_array(source: Any) -> Array:
    """View what another library shares by DLPack; TypeError when it does not, BufferError when it cannot be shared.

    The array keeps the memory of the source. It is read-only when the source says so, and with NumPy before 2.1.
    """
    if isinstance(source, np.ndarray):
        return source
    if not hasattr(source, "__dlpack__") or not hasattr(source, "__dlpack_device__"):
        raise TypeError(f"a buffer or an object with __dlpack__ is needed, not {type(source).__name__}")
    device = int(source.__dlpack_device__()[0])
    if device not in _HOST_DEVICES:
        raise BufferError(f"{type(source).__name__} lies on DLPack device {device}: move it to the CPU first")
    try:
        return np.from_dlpack(source)
    except (BufferError, RuntimeError) as error:
        raise BufferError(
            f"{type(source).__name__} cannot be shared ({error}); element types that NumPy lacks, such as bfloat16, "
            "go as a view of uint16 through tensor_from_buffer"
        ) from error
