"""Memory behind tensors (tensors §2 and 3).

A `Storage` is a C-contiguous, little-endian block of host memory with an element type and a shape. Tensors, bindings
and engines share it; it knows neither of them. It owns its memory, borrows a caller's buffer, or views memory of an
engine: in every case the NumPy array `data` keeps the owner alive.
"""

from __future__ import annotations

import math
import threading
import weakref
from abc import ABC, abstractmethod
from types import TracebackType
from typing import Any, ClassVar, NoReturn, Protocol, Self

import numpy as np
import numpy.typing as npt

from .errors import ARITHMETIC_OVERFLOW, E_ACCESSDENIED, E_INVALIDARG, E_OUTOFMEMORY, LOCKED, WinMLError
from .handles import free_in_child
from .values import ANY_SHAPE, BITS, FREE_DIMENSION, NUMPY_NAMES, Descriptor, TensorDataType, TensorLockMode

Bytes = npt.NDArray[np.uint8]

# Guards the counts below. Re-entrant, since garbage collection may release a lock in the middle of taking one.
_counting = threading.RLock()
free_in_child(_counting)


def byte_size(data_type: TensorDataType, shape: tuple[int, ...]) -> int:
    """Bytes that `shape` elements of `data_type` take; 4-bit elements are packed over the whole tensor."""
    return (math.prod(shape) * BITS[data_type] + 7) // 8


class Work(Protocol):
    """Work that writes a storage."""

    def wait(self, seconds: float | None) -> bool:
        """Return whether it has ended within that time; None waits for ever."""

    def check(self, context: str) -> None:
        """Raise its failure if it has failed."""


class Storage:
    """A typed block of host memory with its lock state.

    `native` is a slot for the engine that runs on this memory (ONNX Runtime keeps its value object there).
    """

    __slots__ = (
        "__weakref__",
        "_readers",
        "_writer",
        "data",
        "data_type",
        "is_alias",
        "native",
        "ready",
        "shape",
        "writable",
    )

    is_direct: ClassVar[bool] = True
    """Whether `data` is the memory itself; in a `StagedStorage` it is a copy."""

    is_fleeting: ClassVar[bool] = False
    """Whether an engine may overwrite `data` with its next run; `settle` ends that."""

    open_locks: ClassVar[int] = 0
    """Locks open on any storage; a run looks at single storages only when this is not 0."""

    staged_count: ClassVar[int] = 0
    """Storages that are not direct; a run looks for them only when this is not 0."""

    def __init__(self, data: Bytes, data_type: TensorDataType, shape: tuple[int, ...], writable: bool = True) -> None:
        self.data = data
        self.data_type = data_type
        self.shape = shape
        self.writable = writable
        self.is_alias = False
        """Whether the memory is a caller's: other storages may lie in it too."""
        self.native: Any = None
        self.ready: Work | None = None
        """Work that is to end before memory is read that is not direct."""
        self._readers = 0
        self._writer = False

    @property
    def descriptor(self) -> Descriptor:
        return self.data_type, self.shape

    @property
    def address(self) -> int:
        return int(self.data.__array_interface__["data"][0])

    def array(self) -> npt.NDArray[Any]:
        """View the memory as a NumPy array of the tensor's dtype and shape; only for types that NumPy has."""
        return self.data.view(NUMPY_NAMES[self.data_type]).reshape(self.shape)

    def fetch(self) -> None:
        """Bring `data` up to date before it is read; host memory always is."""

    def publish(self) -> None:
        """Bring the memory up to date after `data` was written; host memory always is."""

    def settle(self) -> None:
        """Make `data` stay where it is, unchanged by later runs: due before its address or a view of it is kept.

        Only fleeting memory has to move for that.
        """

    def copy(self) -> Bytes:
        """Copy `data`."""
        return self.data.copy()

    def __reduce__(self) -> NoReturn:
        raise TypeError(f"{type(self).__name__} objects cannot be copied or pickled; copy a tensor with to_numpy()")

    @property
    def is_locked(self) -> bool:
        return self._writer or self._readers > 0

    @property
    def is_locked_for_writing(self) -> bool:
        return self._writer

    def acquire(self, claim: Claim) -> None:
        """Take a lock without waiting; a conflict is 0x800700D4, writing to a read-only storage 0x80070005."""
        with _counting:
            if claim.mode is TensorLockMode.READ:
                if self._writer:
                    raise WinMLError(LOCKED, "IWinMLTensor.Lock", "a writable lock is open on this tensor")
                self._readers += 1
            else:
                if not self.writable:
                    raise WinMLError(E_ACCESSDENIED, "IWinMLTensor.Lock", "the tensor is a read-only view")
                if self._writer or self._readers:
                    raise WinMLError(LOCKED, "IWinMLTensor.Lock", "another lock is open on this tensor")
                self._writer = True
            # No call from the count above to here: only at calls and jumps back does Python look for signals.
            Storage.open_locks += 1
            claim.is_held = True

    def release(self, claim: Claim) -> None:
        """Give back what `acquire` took for this claim; nothing if it took nothing."""
        with _counting:
            if not claim.is_held:
                return
            if claim.mode is TensorLockMode.READ:
                self._readers -= 1
            else:
                self._writer = False
            Storage.open_locks -= 1
            claim.is_held = False


class StagedStorage(Storage, ABC):
    """Memory that the CPU reaches only through a copy, as on a device: `data` is that copy, always in the same place.

    A subclass says in `refresh` and `publish` how its memory is read and written.
    """

    __slots__ = ()

    is_direct: ClassVar[bool] = False

    def __init__(self, data: Bytes, data_type: TensorDataType, shape: tuple[int, ...], writable: bool = True) -> None:
        super().__init__(data, data_type, shape, writable)
        with _counting:
            Storage.staged_count += 1
        weakref.finalize(self, _forget_staged)

    def fetch(self) -> None:
        """Bring `data` up to date before it is read, once the memory is ready."""
        if self.ready is not None:
            self.ready.wait(None)
            self.ready.check("IWinMLTensorDataLock")
        self.refresh()

    @abstractmethod
    def refresh(self) -> None:
        """Copy the memory to `data`."""

    @abstractmethod
    def publish(self) -> None:
        """Copy `data` to the memory."""


def _forget_staged() -> None:
    with _counting:
        Storage.staged_count -= 1


class Claim:
    """What a lock has taken of a storage."""

    __slots__ = ("is_held", "mode")

    def __init__(self, mode: TensorLockMode) -> None:
        self.mode = mode
        self.is_held = False


class StorageLock:
    """A lock on a storage, taken when this object is made; `acquire` tells the errors.

    It ends with `close`, with the `with` block, and at the latest when the object goes. So Ctrl-C may strike anywhere:
    the finalizer is there before the lock is taken, and stays until it is given back.
    """

    __slots__ = ("__weakref__", "_claim", "_finalizer", "_storage")

    def __init__(self, storage: Storage, mode: TensorLockMode) -> None:
        self._storage = storage
        self._claim = Claim(mode)
        self._finalizer = weakref.finalize(self, storage.release, self._claim)
        try:
            storage.acquire(self._claim)
        except BaseException:
            self.close()
            raise

    def __reduce__(self) -> NoReturn:
        raise TypeError("a lock cannot be copied or pickled; take another one")

    @property
    def is_held(self) -> bool:
        return self._claim.is_held

    def close(self) -> None:
        """Give the lock back. Closing twice is fine."""
        self._storage.release(self._claim)
        self._finalizer.detach()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


def allocate(data_type: TensorDataType, shape: tuple[int, ...]) -> Storage:
    """Make a zero-filled storage."""
    if FREE_DIMENSION in shape:
        raise WinMLError(E_INVALIDARG, "IWinMLRuntime.CreateTensor", f"shape {shape} has a free dimension")
    size = byte_size(data_type, shape)
    if size > np.iinfo(np.intp).max:
        raise WinMLError(ARITHMETIC_OVERFLOW, "IWinMLRuntime.CreateTensor", f"shape {shape} needs {size} bytes")
    try:
        return Storage(np.zeros(size, np.uint8), data_type, shape)
    except MemoryError:
        raise WinMLError(E_OUTOFMEMORY, "IWinMLRuntime.CreateTensor", f"shape {shape} needs {size} bytes") from None


def check_descriptor(storage: Storage, wanted: Descriptor, what: str) -> None:
    """Raise 0x80070057 unless `storage` has the wanted type, rank and fixed extents; `what` names the binding."""
    data_type, extents = wanted
    shape = storage.shape
    fits = storage.data_type is data_type and len(shape) == len(extents)
    for have, want in zip(shape, extents, strict=False):  # a loop, since it runs for each token
        fits = fits and want in (FREE_DIMENSION, have)
    if not fits:
        text = f"expected {descriptor_text(wanted)}, got {descriptor_text(storage.descriptor)}"
        if not extents and shape == (1,):
            text += "; create_tensor(type, (), data) makes a scalar"
        raise WinMLError(E_INVALIDARG, what, text)


def descriptor_text(descriptor: Descriptor) -> str:
    """Return element type and shape to be shown, as in `FLOAT32[?, 2]`."""
    data_type, shape = descriptor
    return data_type.name + shape_text(shape)


def shape_text(shape: tuple[int, ...]) -> str:
    """Return a shape to be shown, with a question mark for each free extent; `[...]` is a shape of unknown rank."""
    if shape is ANY_SHAPE:
        return "[...]"
    return "[" + ", ".join("?" if extent == FREE_DIMENSION else str(extent) for extent in shape) + "]"
