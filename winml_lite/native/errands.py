"""Calls that native code makes into Python, made on the thread that waits for it (tensors §9.6).

Ctrl-C strikes the main thread where Python code begins again. In the middle of a native call that is the first step of
a callback, outside of every `try`: the native side then gets no answer but whatever is in memory. So the native call
gets a thread of its own, whose callbacks only pass on what is to be done, and its caller does it in between.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from queue import Empty, SimpleQueue

from ..interrupts import start_thread

_LONGEST_WAIT_SECONDS = 0.1  # on Windows Ctrl-C is only seen between two waits; elsewhere a lost signal costs no more


class Errands:
    """One native call, `run` by its caller, and the errands that its callbacks `ask` for."""

    def __init__(self) -> None:
        self.errors: list[BaseException] = []
        """What went wrong, in order. After the first, no errand is run."""
        self._wanted: Callable[[], object] | None = None
        self._owner: dict[str, str] = {}
        """Who has the say: the thread, or the caller if he was interrupted before it came to the work. First entry."""
        self._is_alone = self._is_over = False
        self._presence = threading.Lock()
        """Locked while the caller is there. Ctrl-C may come before a `finally`, but not before its release."""
        self._bell: SimpleQueue[None] = SimpleQueue()
        self._answers: SimpleQueue[None] = SimpleQueue()

    def run(self, work: Callable[[], object], stop: Callable[[], object]) -> None:
        """Do `work` on another thread and its errands on this one; return when it has ended.

        What `work`, an errand or Ctrl-C raises is left in `errors`; after the latter two, `stop` ends `work` early.
        """
        with self._presence:
            try:
                start_thread(lambda: self._work(work))
            except RuntimeError:  # no threads any more, as in an exit function
                self._is_alone = True
                self._work(work)
            except BaseException as error:
                if self._owner.setdefault("is", "caller") == "caller":
                    raise
                self._fail(error)
                stop()
            while not self._is_over:
                try:
                    self._serve()
                except BaseException as error:
                    self._fail(error)
                    stop()

    def ask(self, errand: Callable[[], object]) -> bool:
        """Have the caller of `run` run an errand, and wait for that; return whether all is well until now."""
        if self._is_alone and not self.errors:
            try:
                errand()
            except BaseException as error:
                self.errors.append(error)
        elif not self.errors:
            self._wanted = errand
            self._bell.put(None)
            while self._wanted is not None and self._presence.locked():
                with suppress(Empty):
                    self._answers.get(timeout=_LONGEST_WAIT_SECONDS)
        return not self.errors and self._presence.locked()

    def _work(self, work: Callable[[], object]) -> None:
        if self._owner.setdefault("is", "thread") != "thread":
            return
        try:
            work()
        except BaseException as error:
            self.errors.append(error)
        self._is_over = True
        self._bell.put(None)

    def _serve(self) -> None:
        while not self._is_over:
            with suppress(Empty):
                self._bell.get(timeout=_LONGEST_WAIT_SECONDS)
            errand = self._wanted
            if errand is not None:
                if not self.errors:
                    errand()
                self._finish()

    def _fail(self, error: BaseException) -> None:
        self.errors.append(error)
        self._finish()

    def _finish(self) -> None:
        self._wanted = None
        self._answers.put(None)
