"""Waiting for what other threads do, however long that takes on a machine that is busy with something else."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

HANGING = 120.0
"""Seconds after which what has not come is taken for something that never comes."""


def until(condition: Callable[[], object]) -> None:
    """Return as soon as `condition()` is true."""
    latest = time.monotonic() + HANGING
    while not condition():
        assert time.monotonic() < latest, "what the test waits for never came"
        time.sleep(0.001)


@contextmanager
def again_and_again(call: Callable[[], object]) -> Iterator[None]:
    """Another thread makes a call every millisecond until the block is left: one comes while its work is going on."""
    is_over = threading.Event()

    def work() -> None:
        while not is_over.wait(0.001):
            call()

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()
