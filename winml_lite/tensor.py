"""Tensors and locks (tensors §2 and 3). The factories are in `factories.py` and `token_tensors.py`."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from types import TracebackType
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from .checks import number_value
from .errors import E_INVALIDARG, E_NOT_VALID_STATE, NOT_SUPPORTED, NotSupportedError, WinMLError
from .handles import Closeable
from .storage import Storage, StorageLock
from .target import ExecutionTarget, RuntimeCore, TargetCore, tensor_target
from .token_tensors import read_tokens
from .values import (
    BITS,
    FLOATING_TYPES,
    NUMPY_NAMES,
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
        storage = self._core
        if storage.data_type not in NUMPY_NAMES:
            raise ValueError(f"NumPy has no {storage.data_type.name}; read the bytes with lock(TensorLockMode.READ)")
        with StorageLock(storage, _READ):
            storage.fetch()
            return storage.array().copy()

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
        with StorageLock(destination, _WRITE):
            if origin is not destination:
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

    def lock(self, mode: TensorLockMode | int, flags: TensorLockFlags | int = TensorLockFlags.NONE) -> TensorDataLock:
        """Open the memory, without ever waiting.

        READ locks coexist; WRITE and READ_WRITE exclude every other lock (0x800700D4). WRITE promises to overwrite
        everything. Changes are visible at once, without `commit`. Memory that the CPU cannot reach directly needs the
        flag ALLOW_SYNCHRONIZED_CPU_ACCESS (else 0x80070032): the lock is then on a copy, which `commit` publishes.
        """
        storage = self._core
        if mode not in (1, 2, 3) or flags not in (0, 1):
            raise WinMLError(E_INVALIDARG, "IWinMLTensor.Lock", f"there is no mode {mode!r} with flags {flags!r}")
        wanted = TensorLockMode(mode)
        if not storage.is_direct and not flags:
            raise WinMLError(NOT_SUPPORTED, "IWinMLTensor.Lock", "no direct access: use ALLOW_SYNCHRONIZED_CPU_ACCESS")
        lock = StorageLock(storage, wanted)
        if wanted is not _WRITE:
            storage.fetch()
        return TensorDataLock(storage, wanted, lock)

    def _resolve(self, target: ExecutionTarget | None) -> TargetCore:
        """Target of a tensor made from this one: the given one, else its own, else the Runtime's."""
        if target is None and self._target is not None:
            return self._target
        return tensor_target(target, self._runtime)


class TensorDataLock:
    """Access to the bytes of a tensor until it is closed; keeps the memory, not the Tensor object, alive."""

    __slots__ = ("__weakref__", "_lock", "_mode", "_storage", "_view")

    def __init__(self, storage: Storage, mode: TensorLockMode, lock: StorageLock) -> None:
        """Wrap an open lock on the storage, in this mode."""
        self._storage = storage
        self._mode = mode
        self._view: memoryview | None = None
        self._lock = lock

    @property
    def byte_size(self) -> int:
        """Bytes of the tensor."""
        return self._storage.data.nbytes

    def data(self) -> memoryview:
        """Return the bytes (format "B"), read-only for READ. The view ends with the lock."""
        if not self._lock.is_held:
            raise RuntimeError("TensorDataLock is closed")
        if self._view is None:
            view = self._storage.data.data
            self._view = view.toreadonly() if self._mode is _READ else view
        return self._view

    def commit(self) -> None:
        """Publish what was written so far to memory that the CPU cannot reach; without it `close` discards the changes.

        0x8007139F on a READ lock, and on a direct lock, whose changes are visible anyway.
        """
        if not self._lock.is_held:
            raise RuntimeError("TensorDataLock is closed")
        if self._mode is _READ or self._storage.is_direct:
            raise WinMLError(E_NOT_VALID_STATE, "IWinMLTensorDataLock.Commit", "a direct lock has nothing to commit")
        self._storage.publish()

    def close(self) -> None:
        """End the access. Closing twice is fine."""
        view, self._view = self._view, None
        if view is not None:
            try:
                view.release()
            except BufferError:
                # Somebody derived a view of their own: it keeps the memory, the lock ends all the same.
                pass
        self._lock.close()

    def __enter__(self) -> Self:
        if not self._lock.is_held:
            raise RuntimeError("TensorDataLock is closed")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


def bindable(tensor: Any) -> Storage:
    """Return the storage of a tensor to be bound; another class (None too) is TypeError, a closed one RuntimeError."""
    if not isinstance(tensor, Tensor):
        mend = "; make one with runtime.tensor_from_numpy" if isinstance(tensor, np.ndarray | np.generic) else ""
        raise TypeError(f"tensor must be a Tensor, not {type(tensor).__name__}{mend}")
    return tensor._core


def encode_element(value: Any, data_type: TensorDataType) -> Any:
    """Return `value` as a NumPy scalar of `data_type`; ValueError when it cannot be represented."""
    name = NUMPY_NAMES[data_type]
    dtype = np.dtype(name)
    try:
        if data_type is TensorDataType.BOOL:
            return np.bool_(bool(value))
        if data_type not in FLOATING_TYPES:
            return dtype.type(operator.index(value))
        if isinstance(value, str | bytes | bytearray):
            raise TypeError("text is not a number")
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
    # Elements as opaque blocks of bytes: works for every type of whole bytes, BFLOAT16 included.
    elements = storage.data.view(f"V{BITS[storage.data_type] // 8}").reshape(storage.shape)
    box = tuple(slice(start, start + extent) for start, extent in zip(starts, extents, strict=True))
    with StorageLock(storage, _READ):
        storage.fetch()
        copy = elements[box].copy()
    return Storage(copy.reshape(-1).view(np.uint8), storage.data_type, extents)
