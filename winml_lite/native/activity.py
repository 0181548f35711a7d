"""Who is inside native code, and who may still enter: the end of the interpreter, and forks (runtime §1.2).

At interpreter exit daemon threads may be in the middle of a native call, and native code must neither be torn down
under them nor call back into an interpreter that is gone. So exit first bars every native object, stops the calls that
are running and waits for them. From then on a daemon thread that wants to enter waits for the end of the process, and
the exiting thread (its `atexit` functions, its `__del__`) gets a RuntimeError.

A forked child has the memory of its parent but not the threads. Native objects of the parent are barred in it, with a
RuntimeError that says how to mend that; `Resource` does not free them there.

Not here: what is freed when (`handles.py`), the calls themselves.
"""

from __future__ import annotations

import atexit
import os
import sys
import threading
import time
import weakref
from collections.abc import Callable
from threading import get_ident
from typing import Final, Generic, NoReturn, TypeVar

from ..interrupts import start_thread

Result = TypeVar("Result")

SOME_THREAD: Final = -1
_LONGEST_STOP_SECONDS = 10.0
_MEND = (
    "start the process with multiprocessing.get_context('spawn'), or fork before the parent uses a model and load in "
    "the child"
)


class Engine:
    """One native library of this process.

    `models` is what messages call its models. `keeps_threads`: its threads are a part of the library, so a forked
    child, which has none of them, cannot use it any more once the parent `is_used` it.
    """

    __slots__ = ("_problem", "is_used", "keeps_threads", "models")

    def __init__(self, models: str, keeps_threads: bool) -> None:
        self.models = models
        self.keeps_threads = keeps_threads
        self.is_used = False
        """Whether it may have started threads."""
        self._problem = ""
        _engines.append(self)

    @property
    def is_barred(self) -> bool:
        """Whether the library must not be called any more."""
        return _exit.has_begun or bool(self._problem)

    def check(self) -> None:
        """Refuse a first use that comes too late: after the exit handlers, or in the wrong process."""
        if _exit.has_begun:
            _refuse(self.models)
        if self._problem:
            raise RuntimeError(f"{self._problem}: {_MEND}")

    def after_fork(self, was_busy: bool) -> None:
        """Look, in the child, whether the library can be used."""
        if was_busy:
            self._problem = f"{self.models} were in use by another thread when this process was forked"
        elif self.is_used and self.keeps_threads:
            self._problem = f"{self.models} were used before this process was forked, and their threads are missing"


class Activity:
    """Whether a native object is in a call, and whether calls are allowed.

    Who calls sets `running` first and looks at `barred` afterwards, who bars does it the other way round: so a call is
    either seen and waited for, or it does not begin. In short calls use it as a context manager.
    """

    __slots__ = ("__weakref__", "barred", "engine", "running", "stop")

    def __init__(self, engine: Engine, stop: Callable[[], object] = int) -> None:
        """`stop` makes a running call end early, from any thread; it must not refer to the owner of this object."""
        self.engine = engine
        self.stop = stop
        self.running = 0
        """Identifier of the thread that is in a call; 0 when none is. `SOME_THREAD`, which costs no call, is for those
        who cannot be interrupted before they clear it again."""
        with _lock:
            self.barred = _exit.has_begun
            """No call may begin, and one that was stopped must not return: call `refuse`."""
            _activities.add(self)

    @property
    def is_elsewhere(self) -> bool:
        """Whether another thread is in a call. (An interrupted call of this thread may have left its mark.)"""
        return self.running not in (0, get_ident())

    def refuse(self) -> NoReturn:
        """End a call on a barred object: RuntimeError, or no return in a daemon thread at exit."""
        self.running = 0
        if _exit.has_begun:
            _refuse(self.engine.models)
        raise RuntimeError(f"these {self.engine.models} were loaded before this process was forked: {_MEND}")

    def after_fork(self) -> None:
        """Bar the object in the child."""
        self.barred = True
        self.running = 0

    def __enter__(self) -> None:
        self.running = get_ident()
        if self.barred:
            self.refuse()

    def __exit__(self, *_: object) -> None:
        self.running = 0
        if self.barred and _exit.has_begun and get_ident() != _exit.thread:
            self.refuse()


class _Exit:
    """The end of the interpreter."""

    def __init__(self) -> None:
        self.has_begun = False
        self.thread = 0
        """Identifier of the thread that ends the interpreter."""
        self.last_acts: list[Callable[[], None]] = []


_exit: Final = _Exit()
_lock = threading.RLock()  # around additions to the set and walks over it
_activities: weakref.WeakSet[Activity] = weakref.WeakSet()
_engines: list[Engine] = []


def at_exit(act: Callable[[], None]) -> Callable[[], None]:
    """Decorate what to do at interpreter exit, when no native call is running any more and nothing is freed yet."""
    _exit.last_acts.append(act)
    return act


def _leave() -> None:
    """Bar everything, and stop and await the calls of other threads."""
    with _lock:
        _exit.thread = get_ident()
        _exit.has_begun = True
        activities = list(_activities)
    for activity in activities:
        activity.barred = True
    running = [activity for activity in activities if activity.is_elsewhere]
    for activity in running:
        activity.stop()
    latest = time.monotonic() + _LONGEST_STOP_SECONDS
    while any(activity.is_elsewhere for activity in running) and time.monotonic() < latest:
        time.sleep(0.005)
    for act in _exit.last_acts:
        act()


def _refuse(models: str) -> NoReturn:
    """A daemon thread would only report an error to nobody and make more calls: it waits for the end of the process."""
    while get_ident() != _exit.thread:
        time.sleep(60)
    raise RuntimeError(f"the interpreter is exiting: {models} cannot be used any more")


def refuse_at_exit() -> None:
    """Refuse to begin work in the background once interpreter exit has begun: it would never end."""
    if _exit.has_begun:
        _refuse("models")


def is_leaving() -> bool:
    """Whether interpreter exit has begun."""
    return _exit.has_begun


def free_before_exit(free: Callable[[int], object], pointer: int) -> None:
    """Free in a living program. At exit, tensors and daemon threads may still use it: it goes with the process."""
    if not _exit.has_begun:
        free(pointer)


def free_last(free: Callable[[int], object], pointer: int) -> None:
    """Free at exit as well, for libraries that want it, if no other thread is left."""
    if not _exit.has_begun or len(sys._current_frames()) == 1:
        free(pointer)


def _after_fork_in_child() -> None:
    busy = {id(activity.engine) for activity in _activities if activity.is_elsewhere}
    for activity in list(_activities):
        activity.after_fork()
    _activities.clear()
    for engine in _engines:
        engine.after_fork(id(engine) in busy)
    _lock.release()


def apart(work: Callable[[], Result], stop: Callable[[], object], may_leave: bool = True) -> Result:
    """Return `work()`, which makes long native calls with callbacks into Python.

    In the main thread Ctrl-C would strike inside such a callback and be lost there. So the work gets a thread of its
    own, and the main thread waits for it: an interruption calls `stop`, waits until the work has ended, and goes on.
    A second one leaves without waiting, unless the work is on something that is used again.
    """
    if _exit.has_begun or threading.current_thread() is not threading.main_thread():
        return work()
    task = _Task(work)
    try:
        start_thread(task.run)
        task.wait()
    except RuntimeError:  # no threads any more, as in an exit function
        return work()
    except BaseException:
        if task.is_begun:
            stop()
            task.wait_on(may_leave)
        raise
    if task.errors:
        raise task.errors.pop()
    return task.results.pop()


class _Task(Generic[Result]):
    """Work of another thread. `Thread.join` is not used: Ctrl-C inside it marks a running thread as ended."""

    def __init__(self, work: Callable[[], Result]) -> None:
        self._work = work
        self._owner: dict[str, str] = {}
        """Who has the say: the thread, or the caller if he was interrupted before it came to the work. First entry."""
        self._is_over = False
        self._end = threading.Lock()  # held until then
        self._end.acquire()
        self.results: list[Result] = []
        self.errors: list[BaseException] = []

    def run(self) -> None:
        if self._owner.setdefault("is", "thread") != "thread":
            return
        try:
            self.results.append(self._work())
        except BaseException as error:
            self.errors.append(error)
        self._is_over = True
        self._end.release()

    @property
    def is_begun(self) -> bool:
        """Whether the thread has come to the work; if not, it never will."""
        return self._owner.setdefault("is", "caller") == "thread"

    def wait(self) -> None:
        while not self._is_over:
            self._end.acquire(timeout=0.1)  # on Windows, Ctrl-C is only seen between two waits

    def wait_on(self, may_leave: bool) -> None:
        """Wait after an interruption."""
        while not self._is_over:
            try:
                self.wait()
            except KeyboardInterrupt:
                if may_leave:
                    raise


# weakref registers its own exit handler with the first finalizer: it must run after `_leave`, so it comes before.
weakref.finalize(_exit, int).atexit = False
atexit.register(_leave)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_lock.acquire, after_in_parent=_lock.release, after_in_child=_after_fork_in_child)
