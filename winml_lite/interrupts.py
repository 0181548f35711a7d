"""Ctrl-C where it goes astray: in callbacks of native code, in finalizers, and while a thread is started."""

from __future__ import annotations

import _thread
import signal
import sys
import threading
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


def start_thread(thread: threading.Thread) -> None:
    """Start a thread. What a signal raises in the middle of that comes out as it is.

    `Thread.start` waits on a lock, and where a signal breaks that off it may only tell of the lock that it does not
    hold: a RuntimeError, as when there are no threads any more, though the thread runs.
    """
    handled = sys.exc_info()[1]
    struck: BaseException | None = None
    try:
        thread.start()
    except RuntimeError as error:
        if error.__context__ is None or error.__context__ is handled:
            raise
        struck = error.__context__
    if struck is not None:
        raise struck
