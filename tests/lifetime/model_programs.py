"""Programs for `test_model_lifetime.py`, each run in its own process: `model_programs.py PROGRAM KIND MODEL`.

KIND is what the model does: `generate`, `embed` or `classify`. Calls of such models take turns.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from lifetime.held_memory import assert_keeps_nothing

import genai

alive: list[Any] = []
"""What is still there when the interpreter ends."""

TEXTS = ["the cat sat on a mat", "the dog ran", "the sea is cold"] * 20
PICTURES = [np.full((20, 30, 3), colour, np.uint8) for colour in ([255, 0, 0], [0, 255, 0], [0, 0, 255])]

LOADERS: dict[str, Callable[..., Any]] = {
    "generate": genai.load,
    "embed": genai.load_embedding,
    "classify": genai.load_classifier,
}
CALLS: dict[str, Callable[[Any], object]] = {
    "generate": lambda model: model.generate("the cat sat", max_new_tokens=20),
    "embed": lambda model: model.embed(TEXTS),
    "classify": lambda model: model.classify(PICTURES),
}


def exit_with_a_model_alive(kind: str, path: str) -> None:
    model = LOADERS[kind](path, threads=1)
    alive.extend((model, CALLS[kind](model)))


def exit_while_daemon_threads_call(kind: str, path: str) -> None:
    model = LOADERS[kind](path, threads=1)

    def call_forever() -> None:
        while True:
            CALLS[kind](model)

    for _ in range(2):
        threading.Thread(target=call_forever, daemon=True).start()
    time.sleep(0.5)


def closing_waits_for_a_call(kind: str, path: str) -> None:
    model = LOADERS[kind](path, threads=1)
    found: list[object] = []
    has_answered = threading.Event()

    def call() -> None:
        try:
            while True:
                found.append(CALLS[kind](model))
                has_answered.set()
        except RuntimeError:
            found.append("closed")
        except genai.WinMLError as error:  # of the call that was going on
            found.append(f"0x{error.hresult:08X}")

    thread = threading.Thread(target=call)
    thread.start()
    has_answered.wait()
    model.close()
    thread.join()
    assert found[-1] in ("closed", "0x800704C7"), found[-1]


def nothing_grows_over_many_cycles(kind: str, path: str) -> None:
    def cycle() -> None:
        with LOADERS[kind](path, threads=1) as model:
            CALLS[kind](model)

    assert_keeps_nothing(cycle, warm_up=10, times=20)


if __name__ == "__main__":
    globals()[sys.argv[1]](*sys.argv[2:])
