"""winml_lite/interrupts.py: an interrupt that was caught in the wrong place reaches the program all the same."""

from __future__ import annotations

import threading

import pytest

from winml_lite.handles import Resource
from winml_lite.interrupts import strike_again


def test_an_interrupt_in_a_callback_strikes_again() -> None:
    with pytest.raises(KeyboardInterrupt):
        strike_again()
        threading.Event().wait(100)


def test_an_interrupt_in_a_finalizer_strikes_again() -> None:
    def free(pointer: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        Resource(1, free).close()
        threading.Event().wait(100)
