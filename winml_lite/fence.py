"""`Fence`: the end of work that was submitted (runtime §14).

Not here: the work itself and what is done in which order (`execution.py`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator
from queue import Empty, SimpleQueue
from threading import get_ident
from types import TracebackType
from typing import Any, Final, NoReturn

from .checks import UINT32_MAX, index_value
from .errors import NOT_SUPPORTED, WAIT_TIMEOUT, NotSupportedError, WinMLError, recast
from .handles import Closeable

_INFINITE = UINT32_MAX
_WAIT = "IWinMLFence.Wait"
_SLICE_SECONDS = 0.2
"""Longest wait without a look around: on Windows Ctrl-C does not end the wait for a lock."""

Wake = Callable[[Any], object]

exiting_thread: Final = [0]
"""Identifier of the thread that ends the interpreter, once it has cancelled all work."""


class FenceCore:
    """Whether some work has ended, how, and whom to wake then. It does not refer to the work.

    There is no lock that Ctrl-C could leave locked: whoever waits enters his call into a list first and looks at
    `is_complete` afterwards; who completes does it the other way round.
    """

    __slots__ = ("__weakref__", "_traceback", "_wakes", "failure", "is_complete", "value")

    def __init__(self) -> None:
        self.value = 0
        """Number of the submission on its pipeline."""
        self.is_complete = False
        self.failure: BaseException | None = None
        """Why the work failed; set before `is_complete`."""
        self._traceback: TracebackType | None = None
        self._wakes: list[Wake] = []

    def complete(self, failure: BaseException | None = None) -> None:
        """Mark the end of the work, once, and wake all who wait."""
        if failure is not None:
            if not isinstance(failure, WinMLError) or failure.is_final:
                self._traceback = failure.__traceback__  # of code that is not ours: it says where
            failure.__traceback__ = None
            self.failure = failure
        self.is_complete = True
        for wake in tuple(self._wakes):
            wake(None)

    def add_wake(self, wake: Wake) -> None:
        """Have `wake(None)` called at the end of the work, by its thread; the caller looks at `is_complete` himself."""
        self._wakes.append(wake)

    def remove_wake(self, wake: Wake) -> None:
        """Undo `add_wake`."""
        self._wakes.remove(wake)

    def wait(self, seconds: float | None) -> bool:
        """Return whether the work has ended within that time; None waits for ever."""
        if not self.is_complete and seconds != 0:
            self._block(None if seconds is None else time.monotonic() + seconds)
        return self.is_complete

    def _block(self, latest: float | None) -> None:
        ended: SimpleQueue[None] = SimpleQueue()
        wake = ended.put
        self.add_wake(wake)
        try:
            while not self.is_complete:
                left = _SLICE_SECONDS if latest is None else min(latest - time.monotonic(), _SLICE_SECONDS)
                if left <= 0:
                    return
                try:
                    ended.get(timeout=left)
                except Empty:
                    continue
        finally:
            self.remove_wake(wake)

    def check(self, context: str) -> None:
        """Raise the failure of work that has ended.

        Tracebacks grow when raised, so each time it is a new exception; one that is not ours, or that a function of the
        caller has raised, comes as it is, with the traceback that it had first.
        """
        failure = self.failure
        if failure is None:
            return
        while exiting_thread[0] not in (0, get_ident()):
            time.sleep(60)  # a daemon thread at interpreter exit: it would only report the end of its work to nobody
        if not isinstance(failure, WinMLError) or failure.is_final:
            raise failure.with_traceback(self._traceback)
        copy = WinMLError(failure.hresult, failure.context, failure.native_message)
        raise recast(copy, context) from failure.__cause__


class Fence(Closeable[FenceCore]):
    """The end of submitted work. It stays complete once it is; any number of threads may wait, and wait again.

    `await fence` waits in asyncio without blocking the event loop. Closing a fence does not stop the work.
    """

    __slots__ = ()

    def __repr__(self) -> str:
        core = self._open
        if core is None:
            return "<Fence (closed)>"
        state = "pending" if not core.is_complete else "failed" if core.failure is not None else "complete"
        return f"<Fence {core.value}, {state}>"

    def wait(self, timeout_ms: int | None = None) -> None:
        """Block until the work has ended, and raise its failure if it failed, each time.

        `timeout_ms` in 0..0xFFFFFFFF; None and 0xFFFFFFFF wait for ever, 0 only looks. Work that has not ended by then
        is 0x80070102; the fence can be waited for again, also after Ctrl-C.
        """
        core = self._core
        limit = _INFINITE if timeout_ms is None else index_value(timeout_ms, "timeout_ms")
        if not core.wait(None if limit == _INFINITE else limit / 1000):
            raise WinMLError(WAIT_TIMEOUT, _WAIT, f"the work has not ended after {limit} ms")
        core.check(_WAIT)

    def __await__(self) -> Generator[Any, None, None]:
        core = self._core
        if not core.is_complete:
            yield from _ended(core)
        core.check(_WAIT)

    @property
    def is_complete(self) -> bool:
        """Whether the work has ended, well or not."""
        return self._core.is_complete

    @property
    def completion_value(self) -> int:
        """Number of the submission on its pipeline, from 1."""
        return self._core.value

    def d3d12_fence(self) -> NoReturn:
        """Raise NotSupportedError 0x80070032: the work runs on a thread of the host, see `wait` and `is_complete`."""
        self._core  # noqa: B018  (raises on a closed object)
        raise NotSupportedError(
            NOT_SUPPORTED, "IWinMLFence.D3D12Fence", "the work runs on the host; use wait() or is_complete"
        )


def _ended(core: FenceCore) -> Generator[Any, None, None]:
    """Wait in the running event loop of asyncio."""
    from asyncio import get_running_loop  # whoever awaits has it; importing it here would cost everybody else

    loop = get_running_loop()
    future = loop.create_future()

    def finish() -> None:
        if not future.done():
            future.set_result(None)

    def wake(_: None) -> None:
        try:
            loop.call_soon_threadsafe(finish)
        except RuntimeError:
            return  # the loop was closed meanwhile: nobody awaits any more

    core.add_wake(wake)
    try:
        if not core.is_complete:
            yield from future
    finally:
        core.remove_wake(wake)
