"""Ctrl-C at a random moment of what a program does, and never before or behind it."""

from __future__ import annotations

import _thread
import signal
import sys
import threading
import time
from collections.abc import Iterator


def until_interrupted(seconds: float) -> Iterator[None]:
    """Send the process a SIGINT from another thread after a while, and yield until then.

    The end of the loop waits for one that fell into a finalizer of ours. In any other finalizer it is lost, by Python
    itself: then the loop ends without an exception.
    """

    def send() -> None:
        time.sleep(seconds)
        signal.raise_signal(signal.SIGINT)
        sent.append(seconds)

    sent: list[float] = []
    _thread.start_new_thread(send, ())  # `Thread.start` does not stand SIGINT
    while not sent:
        yield
    await_the_second_strike()


def await_the_second_strike() -> None:
    """Wait for an interrupt that fell into a finalizer of ours: it strikes again a moment later, from a timer."""
    for thread in threading.enumerate():
        if isinstance(thread, threading.Timer):
            thread.join()


def say_nothing_of_lost_interrupts() -> None:
    """Python tells of each interrupt that falls into a finalizer, and goes on."""
    tell = sys.unraisablehook
    sys.unraisablehook = lambda report: None if report.exc_type is KeyboardInterrupt else tell(report)
