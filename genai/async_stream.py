"""Streams for asyncio: the model works in a thread of its own, the event loop stays free.

Who waits for a turn at the model waits in its event loop. The thread lives as long as the turn: so there is one at a
time for each model, however many calls wait. It is a daemon: interpreter exit stops the engine under it.

Imported at the first asynchronous call, since asyncio is of no use to anybody else. Not here: the generation itself.
"""

from __future__ import annotations

import asyncio
import threading
import weakref
from collections.abc import Callable
from contextlib import suppress
from queue import SimpleQueue
from time import monotonic
from typing import Any, Generic, Protocol, TypeVar

from winml_lite import WinMLError

from .async_pieces import AsyncPieces, Piece
from .codes import E_NOT_VALID_STATE
from .results import TextGenerationResult
from .thread_calls import Call
from .turnstile import LOOK_AGAIN, Turn, Turnstile, busy

T = TypeVar("T")
Piece_co = TypeVar("Piece_co", covariant=True)
Result = TypeVar("Result")
Result_co = TypeVar("Result_co", covariant=True)


class AsyncTurn(Turn):
    """A turn that a task waits for in its event loop."""

    __slots__ = ("_loop", "_may_look", "_task")

    def __init__(self) -> None:
        super().__init__()
        self._loop = asyncio.get_running_loop()
        self._task = asyncio.current_task()
        self._may_look = asyncio.Event()

    @property
    def is_lost(self) -> bool:
        """Whether the event loop is closed: nobody can read the stream any more."""
        return self._loop.is_closed()

    def check_behind(self, other: Turn) -> None:
        """Refuse to wait for the same task."""
        if isinstance(other, AsyncTurn) and other._task is self._task and not other.is_ending:
            text = "this task has an unfinished stream of the model: read it to its end or close it"
            raise WinMLError(E_NOT_VALID_STATE, "generate", text)

    @property
    def mend(self) -> str:
        """What to do when a call that waits blocks this turn's event loop."""
        return (
            "the event loop of this thread has a stream or a call of the model open: "
            "use astream(), agenerate() or another asynchronous call, which lets the loop go on meanwhile"
        )

    def wake(self) -> None:
        """Tell the waiting task to look."""
        with suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(self._may_look.set)

    async def look(self, seconds: float) -> None:
        """Wait for `wake`, or that long."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._may_look.wait()
        self._may_look.clear()


class BlockingStream(Protocol[Piece_co, Result_co]):
    """What an `AsyncStream` drives: `TextStream`, a stream of several generations, `SpeechStream`.

    One thread reads and closes it; another one may cancel it.
    """

    @property
    def result(self) -> Result_co: ...

    def __next__(self) -> Piece_co: ...

    def cancel(self) -> None: ...

    def close(self) -> None: ...


class _Work(Generic[Piece, Result]):
    """A stream, the turn it begins with, and the thread that drives it. Any thread may end it."""

    def __init__(self, turnstile: Turnstile, start: Callable[[Turn], BlockingStream[Piece, Result]]) -> None:
        self._turnstile = turnstile
        self._start = start
        self._lock = threading.Lock()  # around starting and ending the thread
        self._calls: SimpleQueue[Call[Any] | None] = SimpleQueue()
        self._turn: AsyncTurn | None = None
        self._has_thread = False
        self._is_cancelled = False
        self.has_ended = False
        self._is_told = False
        """Whether all was done that ends the work."""
        self.stream: BlockingStream[Piece, Result] | None = None
        self.closing = Call(self._close)

    async def begin(self, timeout: float | None) -> None:
        """Wait for the turn as `Turnstile.enter` does; nothing comes of it when the work is ended meanwhile."""
        deadline = None if timeout is None else monotonic() + timeout
        self._turn = turn = AsyncTurn()
        turn.stop = self.end
        try:
            self._turnstile.join(turn)
            while not self.has_ended and not self._turnstile.has_come(turn):
                rest = LOOK_AGAIN if deadline is None else min(deadline - monotonic(), LOOK_AGAIN)
                if rest <= 0:
                    raise busy(timeout)
                await turn.look(rest)
        finally:
            if self.has_ended:  # before it was in the queue
                self._turnstile.leave(turn)

    @property
    def has_begun(self) -> bool:
        return self._turn is not None

    def submit(self, function: Callable[[], T]) -> Call[T] | None:
        """Have the thread make a call; None when the work has ended."""
        call = Call(function)
        with self._lock:
            if self.has_ended:
                return None
            if not self._has_thread:
                threading.Thread(target=_work, args=(self._calls,), name="genai", daemon=True).start()
                self._has_thread = True
            self._calls.put(call)
        return call

    def read(self) -> Piece | None:
        """Return the next piece, None at the end. In the thread."""
        return next(self._open(), None)

    def read_all(self) -> None:
        """Go on to the end. In the thread."""
        stream = self._open()
        while next(stream, None) is not None:
            pass

    def _open(self) -> BlockingStream[Piece, Result]:
        """Return the stream; one that was cancelled before has an end and a result, too."""
        if self.stream is None:
            assert self._turn is not None
            self.stream = self._start(self._turn)
            if self._is_cancelled:
                self.stream.cancel()
        return self.stream

    def cancel(self) -> None:
        self._is_cancelled = True
        if self._turn is not None:
            self._turn.latch.cancel()
        if self.stream is not None:
            self.stream.cancel()

    def end(self) -> None:
        """Have the thread close the stream when it is done with its step, give the turn back, and go home.

        Again is fine, and needed when an interrupt cut the first time short.
        """
        with self._lock:
            self.has_ended = True
        if self._is_told:
            return
        if self._turn is not None:
            self._turn.is_ending = True
        self.cancel()
        if self._has_thread:
            self._calls.put(self.closing)
        else:
            self._close()  # by itself first: a call would keep an interrupt for who waits for it
            self.closing.run()
        self._calls.put(None)  # there is a thread, too, if an interrupt has struck while it started
        self._is_told = True

    def _close(self) -> None:
        try:
            if self.stream is not None:
                self.stream.close()
        finally:
            if self._turn is not None:
                self._turnstile.leave(self._turn)
                self._turn.wake()  # should it be waiting still


def _work(calls: SimpleQueue[Call[Any] | None]) -> None:
    while (call := calls.get()) is not None:
        call.run()
        del call  # it refers to a stream that may be dropped meanwhile


class AsyncStream(AsyncPieces[_Work[Piece, Result], Piece]):
    """An asynchronous iterator over a stream that a thread drives; afterwards `result` holds the whole.

    Nothing happens before the first read. Then it waits for its turn at the model, and everything is computed in a
    thread. Cancelling the task that reads, leaving the loop and dropping the stream, or `aclose()` ends the work as
    CANCELED after the step that is being computed. One task at a time may read.
    """

    def __init__(
        self,
        turnstile: Turnstile,
        timeout: float | None,
        start: Callable[[Turn], BlockingStream[Piece, Result]],
        check: Callable[[], object],
    ) -> None:
        """`start` opens the stream in the thread, when its turn has come; `timeout` limits the wait for that. `check`
        raises when the model is closed.
        """
        self._timeout = timeout
        self._check = check
        self._work = _Work(turnstile, start)
        self._is_reading = False
        self._finalizer = weakref.finalize(self, self._work.end)
        self._finalizer.atexit = False

    async def __anext__(self) -> Piece:
        piece = await self._do(self._work.read)
        if piece is None:
            raise StopAsyncIteration
        return piece

    async def _do(self, read: Callable[[], T]) -> T | None:
        """Return `read()` of the thread. None is the end, where the work is ended, as whatever goes wrong ends it."""
        if self._is_reading:
            raise RuntimeError("another task is reading this stream")
        self._is_reading = True
        try:
            if not self._work.has_begun:
                await self._work.begin(self._timeout)
            call = self._work.submit(read)
            if call is None and self._work.stream is None:
                self._check()
            piece = None if call is None else await call.result()
            if piece is None:
                await self.aclose()
            return piece
        except BaseException:
            self._work.end()
            raise
        finally:
            self._is_reading = False

    @property
    def result(self) -> Result:
        """The result of the finished stream; 0x8007139F before its end."""
        stream = self._work.stream
        if stream is None:
            text = (
                "the stream was closed before it began" if self._work.has_ended else "the stream has not begun: read it"
            )
            raise WinMLError(E_NOT_VALID_STATE, f"{type(self).__name__}.result", text)
        return stream.result

    async def read(self) -> Result:
        """Go on to the end, without coming back to the event loop for each piece, and return the result."""
        await self._do(self._work.read_all)
        return self.result

    async def aclose(self) -> None:
        """End the work and wait until the model is free again."""
        self._work.end()
        self._finalizer.detach()
        await self._work.closing.result()


class AsyncTextStream(AsyncStream[str, TextGenerationResult]):
    """An asynchronous iterator of text pieces; afterwards `result` holds the whole. See `AsyncStream`."""
