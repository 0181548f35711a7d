"""Asking running operations to stop (genai §1).

A source holds a latch that operations keep: closing the source ends only the wrapper, never an operation that uses it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from .closing import Closing


class CancellationLatch:
    """The shared state: set once, never cleared. Safe to use from any thread and from a signal handler."""

    __slots__ = ("_callbacks", "_is_canceled", "_lock")

    def __init__(self) -> None:
        # Re-entrant: a signal handler may cancel while its own thread is inside `on_cancel`.
        self._lock = threading.RLock()
        self._is_canceled = False
        self._callbacks: list[Callable[[], object]] = []

    @property
    def is_canceled(self) -> bool:
        """Whether `cancel` was called."""
        return self._is_canceled

    def cancel(self) -> None:
        """Set the latch and call the callbacks, on this thread. Further calls do nothing."""
        with self._lock:
            if self._is_canceled:
                return
            self._is_canceled = True
            callbacks = tuple(self._callbacks)
        for callback in callbacks:
            callback()

    def on_cancel(self, callback: Callable[[], object]) -> None:
        """Have the first `cancel` call `callback`, which must not block. After that `cancel` it is never called."""
        with self._lock:
            self._callbacks.append(callback)

    def off_cancel(self, callback: Callable[[], object]) -> None:
        """Take back one `on_cancel` of an equal callback; without one do nothing."""
        with self._lock:
            if callback in self._callbacks:
                self._callbacks.remove(callback)


class CancellationSource(Closing):
    """Cancels every operation that was started with it; it latches, so it never un-cancels.

    Free-threaded. An operation that is started with a canceled source ends as CANCELED on its first read. After `close`
    every member raises RuntimeError, while operations that were started with the source keep its state.
    """

    __slots__ = ("__weakref__", "_latch")

    def __init__(self) -> None:
        self._latch: CancellationLatch | None = CancellationLatch()

    def __repr__(self) -> str:
        if self._latch is None:
            return "<CancellationSource (closed)>"
        return f"<CancellationSource {'canceled' if self._latch.is_canceled else 'not canceled'}>"

    @property
    def latch(self) -> CancellationLatch:
        """The state that an operation keeps for as long as it runs."""
        if self._latch is None:
            raise RuntimeError("CancellationSource is closed")
        return self._latch

    @property
    def underlying_object(self) -> object:
        """The object behind this wrapper; opaque, only good for comparing."""
        return self.latch

    @property
    def is_canceled(self) -> bool:
        """Whether `cancel` was called."""
        return self.latch.is_canceled

    def cancel(self) -> None:
        """Ask every operation of this source to stop. Further calls do nothing."""
        self.latch.cancel()

    def on_cancel(self, callback: Callable[[], object]) -> None:
        """Have the first `cancel` call `callback`, on the cancelling thread."""
        self.latch.on_cancel(callback)

    def off_cancel(self, callback: Callable[[], object]) -> None:
        """Take back one `on_cancel`."""
        self.latch.off_cancel(callback)

    def close(self) -> None:
        """Close this wrapper. Closing twice is fine."""
        self._latch = None

    def _check_open(self) -> CancellationLatch:
        return self.latch
