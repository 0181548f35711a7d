"""Ctrl-C where it goes astray: in callbacks of native code, in finalizers, and while a thread is started."""

from __future__ import annotations

import _thread
import signal
import sys
import threading
from collections.abc import Callable
from contextlib import suppress

_STRIKE_AGAIN_SECONDS = 0.02


def strike_again() -> None:
    """Have Ctrl-C strike once more, a moment later.

    For callbacks and finalizers that caught it: from there it cannot reach the program.
    """
    timer = threading.Timer(_STRIKE_AGAIN_SECONDS, strike)
    timer.daemon = True
    with suppress(RuntimeError):  # no threads any more: the interpreter is exiting anyway
        timer.start()


def strike() -> None:
    """Interrupt the main thread as Ctrl-C does."""
    ident = threading.main_thread().ident
    if sys.platform != "win32" and ident is not None:
        signal.pthread_kill(ident, signal.SIGINT)  # wakes it, too
    else:
        _thread.interrupt_main()


def start_thread(work: Callable[[], object]) -> None:
    """Have a daemon thread do `work`, which raises nothing; RuntimeError where no thread is to be had.

    `Thread.start` waits until the thread says that it runs. Ctrl-C in the middle of that can leave the lock between the
    two locked, so that the thread never comes to its work, or it ends as a RuntimeError though the thread works.
    """
    _thread.start_new_thread(work, ())
