"""The one `OrtEnv` of this process, and the log lines that come from it.

Log lines go to `logging.getLogger("winml_lite.native")`; nothing is printed. Set that logger's level before the first
build to see more than warnings.
"""

from __future__ import annotations

import atexit
import ctypes
import logging
import sys
import threading
import time
import weakref
from collections.abc import Callable
from functools import cache, partial
from typing import ClassVar, Final, NoReturn

from ...handles import Resource
from . import api

logger = logging.getLogger("winml_lite.native")
logger.addHandler(logging.NullHandler())  # a program without logging set up sees nothing

_LONGEST_STOP_SECONDS = 10.0

# Positions are ORT's severities: verbose, information, warning, error, fatal.
_LEVELS = (logging.DEBUG, logging.INFO, logging.WARNING, logging.ERROR, logging.CRITICAL)


def _write_log(parameter: int, severity: int, category: bytes, log_id: bytes, location: bytes, message: bytes) -> None:
    try:
        level = _LEVELS[severity] if 0 <= severity < len(_LEVELS) else logging.ERROR
        logger.log(level, "onnxruntime %s: %s", location.decode("utf-8", "replace"), message.decode("utf-8", "replace"))
    except Exception:  # an exception must not pass through C; a lost log line is the lesser evil
        return


_log = api.LoggingFunction(_write_log)  # native code calls it as long as the process lives


class RunState:
    """Whether a stage is inside a run. At interpreter exit, runs of daemon threads are stopped by it."""

    __slots__ = ("__weakref__", "run_options", "running")

    leaving: ClassVar[bool] = False
    """The interpreter is about to end: no run may begin, and a stopped one must not return to its caller.

    Who runs sets `running` first and looks here afterwards, who leaves does it the other way round: so either the run
    is seen and waited for, or it does not begin.
    """

    def __init__(self) -> None:
        self.running = 0
        """Identifier of the thread that is in a run; 0 when none is."""
        self.run_options = 0
        _run_states.add(self)

    @property
    def is_elsewhere(self) -> bool:
        """Whether another thread is in a run. (An interrupted run of this thread may have left its mark.)"""
        return self.running not in (0, threading.get_ident())


_run_states: weakref.WeakSet[RunState] = weakref.WeakSet()


_exiting_thread: Final = [0]
"""Identifier of the thread that ends the interpreter, once it does."""


def _leave() -> None:
    """Stop the runs of daemon threads and let no run begin any more."""
    _exiting_thread[0] = threading.get_ident()
    RunState.leaving = True
    running = [state for state in list(_run_states) if state.is_elsewhere]
    for state in running:
        api.RunOptionsSetTerminate(state.run_options)
    latest = time.monotonic() + _LONGEST_STOP_SECONDS
    while any(state.is_elsewhere for state in running) and time.monotonic() < latest:
        time.sleep(0.005)


def refuse_at_exit() -> NoReturn:
    """End an engine call that comes after `RunState.leaving`: RuntimeError, or no return in another thread.

    A daemon thread would only report that error to nobody, and make more calls: it waits for the end of the process.
    """
    while threading.get_ident() != _exiting_thread[0]:
        time.sleep(60)
    raise RuntimeError("the interpreter is exiting: ONNX models cannot be used any more")


def _free_before_exit(free: Callable[[int], object], pointer: int) -> None:
    """Free in a living program. At exit, tensors and daemon threads may still use it: it goes with the process."""
    if not RunState.leaving:
        free(pointer)


def _free_last(free: Callable[[int], object], pointer: int) -> None:
    """Free at exit as well, which writes profiles and ends the engine's threads, if no other thread is left."""
    if not RunState.leaving or len(sys._current_frames()) == 1:
        free(pointer)


@cache
def environment() -> Resource:
    """Make the environment on first use; it is freed at interpreter exit, after everything made from it."""
    lowest = next(severity for severity, level in enumerate(_LEVELS) if logger.isEnabledFor(level) or severity == 3)
    pointer = ctypes.c_void_p()
    api.CreateEnvWithCustomLogger(_log, None, lowest, b"winml_lite", ctypes.byref(pointer))
    env = Resource(pointer.value or 0, partial(_free_last, api.ReleaseEnv), _log)
    atexit.register(_leave)  # after the first finalizer was made, so it runs before all of them
    return env


@cache
def cpu_memory() -> int:
    """Description of ordinary host memory; shared by all values, never freed."""
    pointer = ctypes.c_void_p()
    api.CreateCpuMemoryInfo(1, 0, ctypes.byref(pointer))  # arena allocator, default memory
    return pointer.value or 0


@cache
def allocator() -> int:
    """The library's default allocator; owned by the library."""
    pointer = ctypes.c_void_p()
    api.GetAllocatorWithDefaultOptions(ctypes.byref(pointer))
    return pointer.value or 0


def owned(pointer: ctypes.c_void_p, free: Callable[[int], object], *needs: object) -> Resource:
    """Own what a call has just put into `pointer`."""
    return Resource(pointer.value or 0, partial(_free_before_exit, free), *needs)


def owned_session(pointer: ctypes.c_void_p) -> Resource:
    """Own a session; it needs the environment."""
    return Resource(pointer.value or 0, partial(_free_last, api.ReleaseSession), environment())
