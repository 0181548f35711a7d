"""Streams of the short road, and the order in which calls get their turn at a model.

One generation at a time runs on a model. Any thread may read, close or drop a stream, and a KeyboardInterrupt anywhere
leaves the model usable. Not here: `LanguageModel` (`language_model.py`) and the generation itself (`loop.py`).
"""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable, Iterator
from time import monotonic
from typing import Final

from winml_lite import WinMLError

from .closing import Closing
from .codes import E_NOT_VALID_STATE
from .loop import GenerationLoop
from .results import TextGenerationResult, TextGenerationUpdate

_forks: Final = [0]
"""How many forks lie between the first process and this one."""


def _count_fork() -> None:
    _forks[0] += 1


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_count_fork)

_LOOK_AGAIN = 0.2
"""Seconds after which a waiting call looks for itself; normally the end of a turn wakes it."""


class Turn:
    """One call's claim on a model, and the stream it has opened."""

    __slots__ = ("end", "holder", "is_over")

    def __init__(self) -> None:
        self.holder = threading.current_thread()
        self.end: Callable[[], object] | None = None
        """Ends the stream of this turn, from any thread."""
        self.is_over = threading.Lock()
        self.is_over.acquire()


class Turnstile:
    """Lets one generation at a time through, in any thread; the turn may be given back by another thread.

    Like the gate of a pipeline it holds a claim instead of a lock, so that a KeyboardInterrupt anywhere between `enter`
    and `leave` cannot lose it: `leave` is always safe to call.
    """

    def __init__(self) -> None:
        self._turns: dict[str, Turn] = {}
        self._forks = _forks[0]
        # Two threads may end the same turn. Re-entrant, since garbage collection may end another one meanwhile.
        self._leaving = threading.RLock()

    @property
    def current(self) -> Turn | None:
        """The turn that is on."""
        return self._turns.get("current")

    def enter(self, turn: Turn, timeout: float | None) -> None:
        deadline = None if timeout is None else monotonic() + timeout
        if self._forks != _forks[0]:  # a forked child lacks the thread whose turn it was
            self._forks = _forks[0]
            self._turns.clear()
        while (current := self._turns.setdefault("current", turn)) is not turn:
            if current.holder is turn.holder:
                raise WinMLError(
                    E_NOT_VALID_STATE,
                    "generate",
                    "this thread has an unfinished stream of the model: read it to its end or close it",
                )
            rest = _LOOK_AGAIN if deadline is None else min(deadline - monotonic(), _LOOK_AGAIN)
            if rest <= 0:
                raise TimeoutError(f"the model was busy for {timeout} seconds with another call")
            if current.is_over.acquire(timeout=rest):
                current.is_over.release()  # for the next one who waits

    def leave(self, turn: Turn) -> None:
        """Give the turn back if it is on."""
        with self._leaving:
            if self._turns.get("current") is turn:
                del self._turns["current"]
                turn.end = None
                turn.is_over.release()


OnEnd = Callable[[TextGenerationResult], None]


class Operation:
    """A generation of the short road: read by one thread, ended by any.

    Ending waits for a read that is going on in another thread, which is one step or one piece of the prompt.
    """

    def __init__(self, loop: GenerationLoop, turnstile: Turnstile, turn: Turn, on_end: OnEnd | None) -> None:
        self.loop = loop
        self._turnstile = turnstile
        self._turn = turn
        self._on_end = on_end
        self._lock = threading.RLock()
        self._forks = _forks[0]
        self._is_ending = False

    def read_next(self) -> TextGenerationUpdate | None:
        if self._forks != _forks[0]:
            self._forget_parent()
        with self._lock:
            if self._is_ending:  # a thread that waits for the lock may not get it before the next read
                self.loop.close()
            return self.loop.read_next()

    def _forget_parent(self) -> None:
        """A forked child lacks the thread that may hold the lock."""
        self._forks = _forks[0]
        self._lock = threading.RLock()

    def end(self) -> None:
        """Finish, tell the listener once, and give the turn back. Again is fine."""
        self._is_ending = True
        if self._forks != _forks[0]:
            self._forget_parent()
        try:
            with self._lock:
                self.loop.close()
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

    def __init__(self, operation: Operation) -> None:
        self._operation = operation
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
        return self._operation.loop.reused_token_count

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
