"""Tensors (tensors §2). Their locks are in `data_lock.py`, views for others in `interop.py`, the factories in
`factories.py` and `token_tensors.py`, pictures and sound in `media/`.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any, NoReturn

import numpy as np
import numpy.typing as npt

from .checks import number_value
from .data_lock import TensorDataLock, lock_storage
from .errors import E_INVALIDARG, E_NOINTERFACE, NOT_SUPPORTED, NotSupportedError, WinMLError
from .fence import Fence, FenceCore
from .handles import Closeable
from .interop import CPU_DEVICE, as_array, copied_array, export_dlpack
from .media.audio_tensors import audio_bytes
from .media.image_bytes import image_bytes
from .media.options import ImageFormat, ImageTensorOptions
from .storage import Storage, StorageLock
from .target import ExecutionTarget, RuntimeCore, TargetCore, tensor_target
from .token_tensors import read_tokens
from .values import (
    BITS,
    FLOATING_TYPES,
    NUMPY_NAMES,
    D3D12BufferBinding,
    Descriptor,
    TensorDataType,
    TensorLockFlags,
    TensorLockMode,
)

_READ = TensorLockMode.READ
_WRITE = TensorLockMode.WRITE


class Tensor(Closeable[Storage]):
    """A typed block of memory: element type, shape, and bytes in C order.

    Made by a `Runtime` or published by a `Stage`.
    """

    __slots__ = ("_runtime", "_target")

    def __init__(self, storage: Storage, runtime: RuntimeCore, target: TargetCore | None = None) -> None:
        self._open = storage
        self._runtime = runtime
        self._target = target

    def __repr__(self) -> str:
        storage = self._open
        if storage is None:
            return "<Tensor (closed)>"
        return f"<Tensor {storage.data_type.name} {list(storage.shape)}>"

    def desc(self) -> Descriptor:
        """Return `(element type, shape)`; constant for the tensor's life."""
        return self._core.descriptor

    def to_numpy(self) -> npt.NDArray[Any]:
        """Return an independent, writable copy with the tensor's dtype and shape (rank 0 gives a 0-d array).

        ValueError for BFLOAT16, INT4 and UINT4, which NumPy lacks; 0x800700D4 while a writable lock is open.
        """
        return copied_array(self._core)

    def __array__(self, dtype: npt.DTypeLike | None = None, copy: bool | None = None) -> npt.NDArray[Any]:
        """Give NumPy a view where it can be had: `np.asarray(tensor)` copies nothing, `np.array(tensor)` copies.

        The view keeps the memory alive, is read-only for a tensor made with access READ, and is no lock. Errors as in
        `to_numpy`.
        """
        return as_array(self._core, dtype, copy)

    def __dlpack__(
        self,
        *,
        stream: None = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None,
        copy: bool | None = None,
    ) -> Any:
        """Share the memory by DLPack, for `torch.from_dlpack(tensor)`, `np.from_dlpack(tensor)` and the like.

        What `__array__` says of views holds here too. BufferError for BFLOAT16, INT4 and UINT4.
        """
        if stream is not None:
            raise ValueError("memory of the CPU has no streams: stream must be None")
        return export_dlpack(self._core, max_version, dl_device, copy)

    def __dlpack_device__(self) -> tuple[int, int]:
        self._core  # noqa: B018  (raises on a closed object)
        return CPU_DEVICE

    def __copy__(self) -> NoReturn:
        self.__reduce__()

    def __reduce__(self) -> NoReturn:
        raise TypeError("a Tensor cannot be copied or pickled; use runtime.tensor_from_numpy(tensor.to_numpy())")

    def copy_from(self, source: Tensor) -> None:
        """Copy the bytes of `source`, which must be as many (else 0x80070057). Nothing is converted."""
        destination = self._core
        if not isinstance(source, Tensor):
            raise TypeError(f"source must be a Tensor, not {type(source).__name__}")
        origin = source._core
        if origin.data.nbytes != destination.data.nbytes:
            raise WinMLError(
                E_INVALIDARG,
                "IWinMLTensor.CopyFrom",
                f"the source has {origin.data.nbytes} bytes, the destination {destination.data.nbytes}",
            )
        destination.settle()
        with StorageLock(destination, _WRITE):
            if origin is not destination:
                origin.settle()
                with StorageLock(origin, _READ):
                    origin.fetch()
                    np.copyto(destination.data, origin.data)
                    destination.publish()

    def fill(self, value: Any) -> None:
        """Write one number to every element; a value that the element type cannot hold is ValueError."""
        storage = self._core
        if storage.data_type not in NUMPY_NAMES:
            raise NotSupportedError(NOT_SUPPORTED, "IWinMLTensor.Fill", f"{storage.data_type.name} cannot be filled")
        element = encode_element(value, storage.data_type)
        storage.settle()
        with StorageLock(storage, _WRITE):
            storage.array()[...] = element
            storage.publish()

    def region(self, starts: Sequence[int], extents: Sequence[int], *, target: ExecutionTarget | None = None) -> Tensor:
        """Copy a box into a new tensor of shape `extents`, beginning at `starts` (one number an axis)."""
        storage = self._core
        first = tuple(number_value(start, "start") for start in starts)
        shape = tuple(number_value(extent, "extent", minimum=1) for extent in extents)
        if len(first) != len(shape) or not shape:
            raise ValueError(f"starts {first} and extents {shape} must have equal, nonzero length")
        keeper = self._resolve(target)
        return Tensor(copy_region(storage, first, shape), self._runtime, keeper)

    def token_ids(self, target: ExecutionTarget | None = None) -> list[int]:
        """Return the ids in an INT32 or INT64 tensor of shape (L,) or (1, L)."""
        storage = self._core
        self._resolve(target)
        return read_tokens(storage)

    def to_audio_bytes(
        self,
        *,
        sample_rate: int,
        channels: int,
        sample_format: str = "int16",
        target: ExecutionTarget | None = None,
    ) -> bytes:
        """Return the sound in the tensor as interleaved samples (see `Runtime.audio_bytes_from_tensor`)."""
        storage = self._core
        self._resolve(target)
        return audio_bytes(storage, sample_rate, channels, sample_format)

    def to_image_bytes(
        self,
        *,
        size: tuple[int, int],
        image_format: ImageFormat | int = ImageFormat.RGBA8,
        options: ImageTensorOptions | None = None,
        target: ExecutionTarget | None = None,
    ) -> bytes:
        """Return the pixels of a picture tensor, as `Runtime.image_bytes_from_tensor` does."""
        storage = self._core
        self._resolve(target)
        return image_bytes(storage, size, image_format, options)

    def lock(self, mode: TensorLockMode | int, flags: TensorLockFlags | int = TensorLockFlags.NONE) -> TensorDataLock:
        """Open the memory, without ever waiting.

        READ locks coexist; WRITE and READ_WRITE exclude every other lock (0x800700D4). WRITE promises to overwrite
        everything. Changes are visible at once, without `commit`. Memory that the CPU cannot reach directly needs the
        flag ALLOW_SYNCHRONIZED_CPU_ACCESS (else 0x80070032): the lock is then on a copy, which `commit` publishes.
        """
        return lock_storage(self._core, mode, flags)

    @property
    def ready_fence(self) -> Fence | None:
        """The fence of the work that writes this tensor, as a new object; None, also to clear it, when there is none.

        Reading memory that the CPU cannot reach directly waits for it. Set it before the tensor is handed on.
        """
        ready = self._core.ready
        return Fence(ready) if isinstance(ready, FenceCore) else None

    @ready_fence.setter
    def ready_fence(self, fence: Fence | None) -> None:
        storage = self._core
        if fence is not None and not isinstance(fence, Fence):
            raise TypeError(f"ready_fence must be a Fence or None, not {type(fence).__name__}")
        storage.ready = None if fence is None else fence._core

    def d3d12_buffer(self) -> D3D12BufferBinding:
        """Raise NotSupportedError 0x80004002: the memory of every tensor is host memory, not a Direct3D 12 resource."""
        self._core  # noqa: B018  (raises on a closed object)
        raise NotSupportedError(
            E_NOINTERFACE, "IWinMLTensor.D3D12Buffer", "the tensor lies in CPU memory; share it with np.asarray(tensor)"
        )

    def _resolve(self, target: ExecutionTarget | None) -> TargetCore:
        """Target of a tensor made from this one: the given one, else its own, else the Runtime's."""
        if target is None and self._target is not None:
            return self._target
        return tensor_target(target, self._runtime)


def bindable(tensor: Any) -> Storage:
    """Return the storage of a tensor to be bound; another class (None too) is TypeError, a closed one RuntimeError."""
    if not isinstance(tensor, Tensor):
        is_array = isinstance(tensor, (np.generic, list, tuple)) or hasattr(tensor, "__dlpack__")
        mend = "; make one with runtime.tensor_from_numpy, or tensor_from_dlpack without a copy" if is_array else ""
        raise TypeError(f"tensor must be a Tensor, not {type(tensor).__name__}{mend}")
    return tensor._core


def encode_element(value: Any, data_type: TensorDataType) -> Any:
    """Return `value` as a NumPy scalar of `data_type`; ValueError when it cannot be represented."""
    name = NUMPY_NAMES[data_type]
    dtype = np.dtype(name)
    try:
        if isinstance(value, np.ndarray) and value.ndim:
            raise TypeError("an array of rank 0 is needed")
        if data_type is TensorDataType.BOOL:
            return np.bool_(bool(value))
        if data_type not in FLOATING_TYPES:
            return dtype.type(operator.index(value))
        if isinstance(value, str | bytes | bytearray):
            raise TypeError("text is not a number")
        if isinstance(value, np.complexfloating):
            raise TypeError("a complex number is not a real one")
        number = float(value)
        with np.errstate(over="ignore"):
            element = dtype.type(number)
        if np.isinf(element) and not np.isinf(number):
            raise OverflowError("too large")
        return element
    except (TypeError, ValueError, OverflowError) as error:
        raise ValueError(f"{value!r} is not a value of {data_type.name}: {error}") from None


def copy_region(storage: Storage, starts: tuple[int, ...], extents: tuple[int, ...]) -> Storage:
    """Copy the box at `starts` of size `extents` (see `Tensor.region`)."""
    context = "IWinMLTensor.Region"
    if BITS[storage.data_type] < 8:
        raise WinMLError(NOT_SUPPORTED, context, f"{storage.data_type.name} elements are packed, a region is not")
    if len(extents) != len(storage.shape) or any(
        start + extent > size for start, extent, size in zip(starts, extents, storage.shape, strict=True)
    ):
        raise WinMLError(E_INVALIDARG, context, f"{extents} at {starts} is not inside {storage.shape}")
    storage.settle()
    # Elements as opaque blocks of bytes: works for every type of whole bytes, BFLOAT16 included.
    elements = storage.data.view(f"V{BITS[storage.data_type] // 8}").reshape(storage.shape)
    box = tuple(slice(start, start + extent) for start, extent in zip(starts, extents, strict=True))
    with StorageLock(storage, _READ):
        storage.fetch()
        copy = elements[box].copy()
    return Storage(copy.reshape(-1).view(np.uint8), storage.data_type, extents)
