"""The one `OrtEnv` of this process, and the log lines that come from it.

Log lines go to `logging.getLogger("winml_lite.native")`; nothing is printed. Set that logger's level before the first
build to see more than warnings.
"""

from __future__ import annotations

import ctypes
import logging
import os
from collections.abc import Callable
from functools import cache, partial
from typing import Final

from ...handles import Resource
from ...interrupts import strike_again
from ..activity import Engine, free_before_exit, free_last
from . import api

logger = logging.getLogger("winml_lite.native")
logger.addHandler(logging.NullHandler())  # a program without logging set up sees nothing

# Positions are ORT's severities: verbose, information, warning, error, fatal.
_LEVELS = (logging.DEBUG, logging.INFO, logging.WARNING, logging.ERROR, logging.CRITICAL)


def _write_log(parameter: int, severity: int, category: bytes, log_id: bytes, location: bytes, message: bytes) -> None:
    try:
        level = _LEVELS[severity] if 0 <= severity < len(_LEVELS) else logging.ERROR
        logger.log(level, "onnxruntime %s: %s", location.decode("utf-8", "replace"), message.decode("utf-8", "replace"))
    except KeyboardInterrupt:
        strike_again()
    except Exception:  # an exception must not pass through C; a lost log line is the lesser evil
        return


_log = api.LoggingFunction(_write_log)  # native code calls it as long as the process lives


ENGINE: Final = Engine("ONNX models", keeps_threads=False)
"""Its threads belong to sessions, so a forked child can make sessions of its own."""


@cache
def environment() -> Resource:
    """Make the environment on first use; it is freed at interpreter exit, after everything made from it.

    A forked child goes on with that of its parent, which has no threads.
    """
    ENGINE.is_used = True
    lowest = next(severity for severity, level in enumerate(_LEVELS) if logger.isEnabledFor(level) or severity == 3)
    pointer = ctypes.c_void_p()
    api.CreateEnvWithCustomLogger(_log, None, lowest, b"winml_lite", ctypes.byref(pointer))
    return Resource(pointer.value or 0, partial(free_last, api.ReleaseEnv), _log)


def _end_child_early() -> None:
    """Let a forked child end before the exit code of the library, which would wait for threads of the parent.

    Where there is no `on_exit` (other systems than Linux with glibc) that code does not wait.
    """
    if environment.cache_info().currsize:
        library = ctypes.CDLL(None)
        on_exit = getattr(library, "on_exit", None)
        if on_exit is not None:
            on_exit(library._exit, None)  # called with the exit status, before everything registered earlier


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_end_child_early)


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
    return Resource(pointer.value or 0, partial(free_before_exit, free), *needs)


def owned_session(pointer: ctypes.c_void_p, weights: object = None) -> Resource:
    """Own a session; it needs the environment, and the weights that it may use where they are."""
    return Resource(pointer.value or 0, partial(free_last, api.ReleaseSession), environment(), weights)
