"""Ctrl-C that was caught where it cannot be raised: in callbacks of native code, and in finalizers."""

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
