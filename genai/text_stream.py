"""Streams of the short road. Any thread may read, close or drop one; a KeyboardInterrupt anywhere leaves the model
usable.

Not here: `LanguageModel` (`language_model.py`), whose turn it is (`turnstile.py`), the generation itself (`loop.py`).
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Iterator
from typing import Generic, Protocol, TypeVar

from winml_lite import WinMLError

from .cancellation import CancellationLatch
from .closing import Closing
from .codes import E_NOT_VALID_STATE
from .loop import GenerationLoop
from .results import TextGenerationResult, TextGenerationUpdate
from .turnstile import Turn, Turnstile, forks

OnEnd = Callable[[TextGenerationResult], None]
UpdateT = TypeVar("UpdateT")
ResultT = TypeVar("ResultT")
UpdateT_co = TypeVar("UpdateT_co", covariant=True)
ResultT_co = TypeVar("ResultT_co", covariant=True)


class Running(Protocol[UpdateT_co, ResultT_co]):
    """What an operation drives: a generation, a transcription."""

    @property
    def latch(self) -> CancellationLatch:
        """What cancels it."""

    @property
    def result(self) -> ResultT_co | None:
        """The result; None before the end."""

    def read_next(self) -> UpdateT_co | None:
        """Go on and return the next update; None at the end and ever after."""

    def close(self) -> None:
        """End it without running a model again. Again is fine."""


class Operation(Generic[UpdateT, ResultT]):
    """A generation or a transcription of the short road: read by one thread, ended by any.

    Ending waits for a read that is going on in another thread, which is one step or one piece of the prompt. `source`
    is a latch of others that cancels this generation, too.
    """

    def __init__(
        self,
        loop: Running[UpdateT, ResultT],
        turnstile: Turnstile,
        turn: Turn,
        on_end: Callable[[ResultT], None] | None = None,
        source: CancellationLatch | None = None,
    ) -> None:
        self.loop = loop
        self._turnstile = turnstile
        self._turn = turn
        self._on_end = on_end
        self._source = source
        self._lock = threading.RLock()
        self._forks = forks[0]
        self._is_ending = False
        if source is not None:
            source.on_cancel(loop.latch.cancel)
            if source.is_canceled:
                loop.latch.cancel()

    def read_next(self) -> UpdateT | None:
        if self._forks != forks[0]:
            self._forget_parent()
        with self._lock:
            if self._is_ending:  # a thread that waits for the lock may not get it before the next read
                self.loop.close()
            update = self.loop.read_next()
        if self._is_ending:  # who asked for it does not wait
            self.end()
        return update

    def _forget_parent(self) -> None:
        """A forked child lacks the thread that may hold the lock."""
        self._forks = forks[0]
        self._lock = threading.RLock()

    def stop(self) -> None:
        """Cancel, and end as soon as nobody reads: now, or when the read that is going on has ended."""
        self._is_ending = True
        self.loop.latch.cancel()
        if self._lock.acquire(blocking=False):
            try:
                self.end()
            finally:
                self._lock.release()

    def end(self) -> None:
        """Finish, tell the listener once, and give the turn back. Again is fine."""
        self._is_ending = True
        if self._forks != forks[0]:
            self._forget_parent()
        try:
            with self._lock:
                self.loop.close()
                if self._source is not None:
                    self._source.off_cancel(self.loop.latch.cancel)
                on_end, self._on_end = self._on_end, None
                if on_end is not None and self.loop.result is not None:
                    on_end(self.loop.result)
        finally:
            self._turnstile.leave(self._turn)


class TextStream(Closing):
    """An iterator of text pieces; afterwards `result` holds the whole.

    Leaving the loop early and dropping the stream, or `close()`, ends the generation as CANCELED. A failing model
    raises its WinMLError from the iteration; `result` then holds the text so far. Any thread may read or close it.
    """

    def __init__(self, operation: Operation[TextGenerationUpdate, TextGenerationResult], loop: GenerationLoop) -> None:
        self._operation = operation
        self._loop = loop
        self._finalizer = weakref.finalize(self, operation.end)
        self._finalizer.atexit = False

    def __repr__(self) -> str:
        result = self._operation.loop.result
        state = "unfinished" if result is None else result.finish_reason.name
        return f"<TextStream {state}>"

    def __iter__(self) -> Iterator[str]:
        return self

    def __next__(self) -> str:
        try:
            while (update := self._operation.read_next()) is not None:
                if update.fragment:
                    return update.fragment
        except BaseException:  # KeyboardInterrupt: the model stays usable
            self.close()
            raise
        self.close()
        self.result.raise_for_error()
        raise StopIteration

    @property
    def result(self) -> TextGenerationResult:
        """The result of the finished stream; 0x8007139F before its end."""
        result = self._operation.loop.result
        if result is None:
            raise WinMLError(
                E_NOT_VALID_STATE, "TextStream.result", "the stream is not at its end: read it or close it"
            )
        return result

    @property
    def reused_token_count(self) -> int:
        """Prompt tokens that the model still knew from the call before."""
        return self._loop.reused_token_count

    def read(self) -> TextGenerationResult:
        """Generate to the end and return the result."""
        with self:
            for _ in self:
                pass
        return self.result

    def cancel(self) -> None:
        """Ask the generation to stop; any thread may."""
        self._operation.loop.latch.cancel()

    def close(self) -> None:
        """End the generation now; what was not read is never generated."""
        self._operation.end()
        self._finalizer.detach()

    def _check_open(self) -> None:
        """A stream may be entered at any time: closing it keeps its result."""
