"""winml_lite/interrupts.py: an interrupt that was caught in the wrong place reaches the program all the same."""

from __future__ import annotations

import threading

import pytest

from winml_lite.handles import Resource
from winml_lite.interrupts import start_thread, strike_again


def test_an_interrupt_in_a_callback_strikes_again() -> None:
    with pytest.raises(KeyboardInterrupt):
        strike_again()
        threading.Event().wait(20)


def test_an_interrupt_in_a_finalizer_strikes_again() -> None:
    def free(pointer: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        Resource(1, free).close()
        threading.Event().wait(20)


def test_an_interrupt_of_a_start_comes_out_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    def start(thread: threading.Thread) -> None:
        lock = threading.Lock()
        with lock:
            lock.release()  # as an interrupted wait leaves it
            raise KeyboardInterrupt

    monkeypatch.setattr(threading.Thread, "start", start)
    with pytest.raises(KeyboardInterrupt):
        start_thread(threading.Thread())


def test_no_more_threads_are_told_also_while_an_error_is_handled(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    try:
        raise LookupError
    except LookupError:
        with pytest.raises(RuntimeError, match="can't start new thread"):
            start_thread(threading.Thread())
