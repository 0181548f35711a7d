"""The order in which calls get their turn at a model: one generation at a time, first come, first served.

Not here: what a turn is used for (`text_stream.py`), and turns that an event loop waits for (`async_stream.py`).
"""

from __future__ import annotations

import os
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from time import monotonic
from typing import Final

from winml_lite import WinMLError

from .cancellation import CancellationLatch
from .codes import E_NOT_VALID_STATE

forks: Final = [0]
"""How many forks lie between the first process and this one."""


def _count_fork() -> None:
    forks[0] += 1


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_count_fork)

LOOK_AGAIN: Final = 0.2
"""Seconds after which a waiting call looks for itself; normally the end of the turn before it wakes it."""


_inside: Final[ContextVar[tuple[Turn, ...]]] = ContextVar("genai_inside", default=())
"""The turns that the running code is part of: it is a tool, or asked whether one may run."""


@contextmanager
def inside(turn: Turn | None) -> Iterator[None]:
    """Mark code that `turn` waits for, also where it goes on in other threads and tasks."""
    before = _inside.get()
    _inside.set(before if turn is None else (*before, turn))
    try:
        yield
    finally:
        _inside.set(before)


class Turn:
    """A call's place in the queue of a model. The thread that makes it is the one that waits."""

    __slots__ = ("_may_go", "is_ending", "latch", "stop", "thread")

    def __init__(self) -> None:
        self.thread = threading.current_thread()
        self.latch = CancellationLatch()
        """Stops what is done in the turn before there is a stream."""
        self.stop: Callable[[], object] | None = None
        """Has what the turn is used for end soon, from any thread and without waiting for it."""
        self.is_ending = False
        """Whether another thread is about to give it back, so that anybody may wait for it."""
        self._may_go = threading.Lock()
        self._may_go.acquire()

    @property
    def is_lost(self) -> bool:
        """Whether whoever should end this turn cannot do it any more."""
        return False

    def check_behind(self, other: Turn) -> None:
        """Refuse to wait for `other` if it would wait for this one: 0x8007139F."""
        if other.thread is self.thread and not other.is_ending:
            raise WinMLError(E_NOT_VALID_STATE, "generate", other.mend)

    @property
    def mend(self) -> str:
        """What to do when a call of the same thread is in the way."""
        return "this thread has an unfinished stream of the model: read it to its end or close it"

    def wake(self) -> None:
        """Tell the waiting call to look; any thread may, also out of garbage collection."""
        with suppress(RuntimeError):  # it was told already
            self._may_go.release()

    def wait(self, seconds: float) -> None:
        """Wait for `wake`, or that long."""
        self._may_go.acquire(timeout=seconds)


class LastTurn(Turn):
    """The turn in which a model is closed."""

    __slots__ = ("_free", "is_left")

    def __init__(self, free: Callable[[], object]) -> None:
        super().__init__()
        self._free = deque([free])
        self.is_left = False
        """Whether nobody waits for it: who leaves the turn before calls `end`."""

    def end(self, turnstile: Turnstile) -> None:
        """Free the model and give the turn back. Once: two threads that leave a turn each may both come here."""
        try:
            free = self._free.pop()
        except IndexError:
            return
        try:
            free()
        finally:
            turnstile.leave(self)


class Turnstile:
    """Lets one turn at a time through; any thread may give it back.

    It holds claims instead of a lock, so that a KeyboardInterrupt anywhere between `enter` and `leave` cannot lose
    one: `leave` is always safe to call. Every change is one call on a deque, which no other thread can see half done.
    """

    def __init__(self) -> None:
        self._turns: deque[Turn] = deque()
        self._forks = forks[0]

    @property
    def current(self) -> Turn | None:
        """The turn that is on."""
        self._forget_parent()
        try:
            return self._turns[0]
        except IndexError:
            return None

    def enter(self, turn: Turn, timeout: float | None) -> None:
        """Wait for the turn. TimeoutError after `timeout` seconds, 0x8007139F where it would never come."""
        deadline = None if timeout is None else monotonic() + timeout
        self.join(turn)
        while not self.has_come(turn):
            rest = LOOK_AGAIN if deadline is None else min(deadline - monotonic(), LOOK_AGAIN)
            if rest <= 0:
                raise busy(timeout)
            turn.wait(rest)

    def join(self, turn: Turn) -> None:
        """Queue up; follow with `leave`, whatever happens."""
        self._forget_parent()
        for other in self._turns.copy():
            if other in _inside.get():
                text = "a tool cannot use the chat that waits for it: it needs a chat of its own"
                raise WinMLError(E_NOT_VALID_STATE, "generate", text)
            if not other.is_lost:
                turn.check_behind(other)
        self._turns.append(turn)

    def close(self, free: Callable[[], object]) -> None:
        """Stop the turn that is on, and call `free` next, when it has ended. Later turns come after that.

        Inside a running event loop nothing may wait: there the thread that makes way calls `free`, unless none has to.
        """
        turn = LastTurn(free)
        try:
            self._forget_parent()
            self._turns.insert(1, turn)
            current = self.current
            if current is not None and current.stop is not None:
                current.stop()
            while not self.has_come(turn):
                if _is_in_event_loop():
                    turn.is_left = True
                    if not self.has_come(turn):  # the last moment for that to pass unseen
                        return
                turn.wait(LOOK_AGAIN)
            turn.end(self)
        except BaseException:
            self.leave(turn)
            raise

    def has_come(self, turn: Turn) -> bool:
        """Whether the turn is on. One that was lost before it is ended here."""
        current = self.current
        if current is not None and current is not turn and current.is_lost and current.stop is not None:
            current.stop()
        return current is turn

    def leave(self, turn: Turn) -> None:
        """Give the turn back, or leave the queue. Again is fine."""
        with suppress(ValueError):
            self._turns.remove(turn)
        current = self.current
        if isinstance(current, LastTurn) and current.is_left:
            current.end(self)
        elif current is not None:
            current.wake()

    def _forget_parent(self) -> None:
        """A forked child lacks the threads whose turns these are."""
        if self._forks != forks[0]:
            self._forks = forks[0]
            self._turns.clear()


def _is_in_event_loop() -> bool:
    asyncio = sys.modules.get("asyncio")  # importing it takes longer than loading a small model
    return asyncio is not None and asyncio._get_running_loop() is not None


def busy(timeout: float | None) -> TimeoutError:
    """The error of a call that waited in vain."""
    return TimeoutError(f"the model was busy for {timeout} seconds with another call")
