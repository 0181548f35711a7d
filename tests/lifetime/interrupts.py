"""Ctrl-C at a random moment of what a program does, and never before or behind it."""

from __future__ import annotations

import _thread
import io
import signal
import sys
import threading
import time
from collections.abc import Iterator

from winml_lite.interrupts import strike


def until_interrupted(seconds: float) -> Iterator[None]:
    """Send the process a SIGINT from another thread after a while, and yield until then.

    The end of the loop waits for one that fell into a finalizer of ours. In any other finalizer it is lost, by Python
    itself: then the loop ends without an exception.
    """

    def send() -> None:
        time.sleep(seconds)
        signal.raise_signal(signal.SIGINT)
        sent.append(seconds)

    say_nothing_of_lost_interrupts()
    sent: list[float] = []
    _thread.start_new_thread(send, ())  # `Thread.start` does not stand SIGINT
    while not sent:
        yield
    await_the_second_strike()


def await_the_second_strike() -> None:
    """Wait for an interrupt that fell into a finalizer of ours: it strikes again a moment later, from a timer."""
    for thread in threading.enumerate():
        if isinstance(thread, threading.Timer) and thread.function is strike:  # others may not have come to their start
            thread.join()


def say_nothing_of_lost_interrupts() -> None:
    """Silence what Python tells of an interrupt between two steps of its own, and goes on: one that falls into a
    finalizer, and a file that it left open between `open` and `with` (an import opens its module so).
    """
    sys.unraisablehook = _tell_of_others


def _tell_of_others(report: sys.UnraisableHookArgs) -> None:
    is_of_python = report.exc_type is KeyboardInterrupt or (
        report.exc_type is ResourceWarning and isinstance(report.object, io.IOBase)
    )
    if not is_of_python:
        sys.__unraisablehook__(report)
