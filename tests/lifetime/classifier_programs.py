"""Programs for `test_classifier_lifetime.py`, each run in its own process: `classifier_programs.py PROGRAM MODEL`."""

from __future__ import annotations

import gc
import sys
import threading
import time
from typing import Any

import numpy as np
import psutil

import genai

alive: list[Any] = []
"""What is still there when the interpreter ends."""

PICTURES = [np.full((20, 30, 3), colour, np.uint8) for colour in ([255, 0, 0], [0, 255, 0], [0, 0, 255])]
CYCLES, WARM_UP = 60, 20
MAX_GROWTH = 8 << 20


def exit_with_a_model_alive(path: str) -> None:
    model = genai.load_classifier(path, threads=1)
    alive.extend((model, model.classify(PICTURES), model.preprocess(PICTURES[0])))


def exit_while_daemon_threads_classify(path: str) -> None:
    model = genai.load_classifier(path, threads=1)

    def classify_forever() -> None:
        while True:
            model.classify(PICTURES)

    for _ in range(2):
        threading.Thread(target=classify_forever, daemon=True).start()
    time.sleep(0.5)


def closing_waits_for_a_call(path: str) -> None:
    model = genai.load_classifier(path, threads=1)
    found: list[Any] = []

    def classify() -> None:
        try:
            while True:
                found.append(model.classify(PICTURES))
        except RuntimeError:
            found.append("closed")

    thread = threading.Thread(target=classify)
    thread.start()
    time.sleep(0.3)
    model.close()
    thread.join()
    assert found[-1] == "closed"
    assert len(found) > 1


def nothing_grows_over_many_cycles(path: str) -> None:
    process, before = psutil.Process(), 0
    for cycle in range(CYCLES):
        with genai.load_classifier(path, threads=1) as model:
            model.classify(PICTURES)
        if cycle == WARM_UP:
            gc.collect()
            before = process.memory_info().rss
    gc.collect()
    grown = process.memory_info().rss - before
    assert grown < MAX_GROWTH, grown


if __name__ == "__main__":
    globals()[sys.argv[1]](sys.argv[2])
