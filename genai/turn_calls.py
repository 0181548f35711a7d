"""Calls at a model that return one result when it is their turn, blocking or for asyncio.

Not here: whose turn it is (`turnstile.py`), streams and the thread that works for an event loop (`async_stream.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Generic, NoReturn, TypeVar

from winml_lite import WinMLError

from .cancellation import CancellationLatch, CancellationSource
from .checks import instance_of
from .codes import CANCELLED
from .option_values import finite
from .turnstile import Turn, Turnstile

Result = TypeVar("Result")
Work = Callable[[CancellationLatch], Result]
"""What a call does in its turn; it stops early when the latch is set."""


class TurnCall(Generic[Result]):
    """A call that waits for its turn at a model and then does some work."""

    def __init__(
        self,
        turnstile: Turnstile,
        check_open: Callable[[], object],
        timeout: float | None,
        cancellation: CancellationSource | None,
    ) -> None:
        """`check_open` raises when the model is closed; `timeout` is the most seconds to wait for other calls.

        TypeError or ValueError for a timeout or a cancellation that cannot be.
        """
        self._turnstile = turnstile
        self._check_open = check_open
        self._timeout = None if timeout is None else finite(timeout, "timeout")
        if self._timeout is not None and self._timeout < 0:
            raise ValueError(f"timeout must be 0 or more seconds, not {timeout}")
        given = None if cancellation is None else instance_of(cancellation, CancellationSource, "cancellation")
        self._source = None if given is None else given.latch

    def run(self, work: Work[Result], *, is_waited_for: bool = False) -> Result:
        """Return `work(latch)`. The cancellation sets the latch, and so does closing the model in another thread, which
        waits for the end of the work instead where `is_waited_for`.
        """
        self._check_open()
        latch = CancellationLatch()
        turn = Turn()
        try:
            self._turnstile.enter(turn, self._timeout)
            self._check_open()
            turn.stop = None if is_waited_for else latch.cancel
            self._check_open()  # close() in another thread has seen how to stop this by now, or is seen here
            return _linked(work, latch, self._source)
        finally:
            try:
                self._turnstile.leave(turn)
            except KeyboardInterrupt:  # it may have struck before anything was done
                self._turnstile.leave(turn)
                raise

    async def run_async(self, work: Work[Result]) -> Result:
        """Return `work(latch)`, done in a thread while the event loop goes on. The latch is set when the task is
        cancelled, by the cancellation, and when the model is closed.
        """
        from .async_stream import AsyncStream, BlockingStream  # brings asyncio

        self._check_open()

        def start(turn: Turn) -> BlockingStream[NoReturn, Result]:
            return _OneResult(work, self._source)

        stream = AsyncStream(self._turnstile, self._timeout, start, self._check_open)
        try:
            return await stream.read()
        except Exception:  # but a cancelled task waits for nothing
            await stream.aclose()
            raise


class _OneResult(Generic[Result]):
    """Work in the form that an `AsyncStream` drives: no pieces, and then the result."""

    def __init__(self, work: Work[Result], source: CancellationLatch | None) -> None:
        self._work = work
        self._source = source
        self._latch = CancellationLatch()
        self._results: list[Result] = []

    def __next__(self) -> NoReturn:
        self._results.append(_linked(self._work, self._latch, self._source))
        raise StopIteration

    @property
    def result(self) -> Result:
        return self._results[0]

    def cancel(self) -> None:
        self._latch.cancel()

    def close(self) -> None:
        """Nothing is held between the work and its end."""


def _linked(work: Work[Result], latch: CancellationLatch, source: CancellationLatch | None) -> Result:
    """Return `work(latch)`; meanwhile `source` sets the latch, too."""
    if source is None:
        return work(latch)
    try:
        source.on_cancel(latch.cancel)
        if source.is_canceled:
            latch.cancel()
        return work(latch)
    finally:
        source.off_cancel(latch.cancel)


@contextmanager
def stopping(latch: CancellationLatch, abort: Callable[[], object], context: str) -> Iterator[None]:
    """Have the latch call `abort` while the block runs; 0x800704C7 where it is set already."""
    try:
        latch.on_cancel(abort)
        check_not_canceled(latch, context)
        yield
    finally:
        latch.off_cancel(abort)


def check_not_canceled(latch: CancellationLatch, context: str) -> None:
    """Raise 0x800704C7 where the latch is set."""
    if latch.is_canceled:
        raise WinMLError(CANCELLED, context, "the call was canceled")
