"""`TensorDataLock` (tensors §3): the bytes of a tensor, for as long as the lock is open."""

from __future__ import annotations

from types import TracebackType
from typing import NoReturn, Self

from .checks import member_of
from .errors import E_INVALIDARG, E_NOT_VALID_STATE, NOT_SUPPORTED, WinMLError
from .storage import Storage, StorageLock
from .values import TensorLockFlags, TensorLockMode

_LOCK = "IWinMLTensor.Lock"
_NEEDS_WRITABLE = 1  # the flag PyBUF_WRITABLE of the buffer protocol


class TensorDataLock:
    """Access to the bytes of a tensor until it is closed; keeps the memory, not the Tensor object, alive.

    From Python 3.12 on the lock itself is a buffer, so `memoryview(lock)` and `np.frombuffer(lock, dtype)` work like
    the same calls on `lock.data()`.
    """

    __slots__ = ("__weakref__", "_lock", "_mode", "_storage", "_view")

    def __init__(self, storage: Storage, mode: TensorLockMode, lock: StorageLock) -> None:
        """Wrap an open lock on the storage, in this mode."""
        self._storage = storage
        self._mode = mode
        self._view: memoryview | None = None
        self._lock = lock

    def __repr__(self) -> str:
        state = f"{self._mode.name}, {self.byte_size} bytes" if self._lock.is_held else "closed"
        return f"<TensorDataLock ({state})>"

    def __reduce__(self) -> NoReturn:
        raise TypeError("a TensorDataLock cannot be copied or pickled; copy its bytes with bytes(lock.data())")

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
            self._view = view.toreadonly() if self._mode is TensorLockMode.READ else view
        return self._view

    def __buffer__(self, flags: int) -> memoryview:
        if flags & _NEEDS_WRITABLE and self._mode is TensorLockMode.READ:
            raise BufferError("a READ lock gives no writable buffer; use READ_WRITE")
        return self.data()

    def commit(self) -> None:
        """Publish what was written so far to memory that the CPU cannot reach; without it `close` discards the changes.

        0x8007139F on a READ lock, and on a direct lock, whose changes are visible anyway.
        """
        if not self._lock.is_held:
            raise RuntimeError("TensorDataLock is closed")
        if self._mode is TensorLockMode.READ or self._storage.is_direct:
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


def lock_storage(storage: Storage, mode: TensorLockMode | int, flags: TensorLockFlags | int) -> TensorDataLock:
    """Lock the memory of a tensor (see `Tensor.lock`)."""
    wanted, given = member_of(mode, TensorLockMode), member_of(flags, TensorLockFlags)
    if wanted is None or given not in (TensorLockFlags.NONE, TensorLockFlags.ALLOW_SYNCHRONIZED_CPU_ACCESS):
        raise WinMLError(E_INVALIDARG, _LOCK, f"there is no mode {mode!r} with flags {flags!r}")
    if not storage.is_direct and not given:
        raise WinMLError(NOT_SUPPORTED, _LOCK, "no direct access: use ALLOW_SYNCHRONIZED_CPU_ACCESS")
    storage.settle()
    lock = StorageLock(storage, wanted)
    if wanted is not TensorLockMode.WRITE:
        storage.fetch()
    return TensorDataLock(storage, wanted, lock)
