"""Programs for `test_embedding_lifetime.py`, each run in its own process: `embedding_programs.py PROGRAM MODEL`."""

from __future__ import annotations

import os
import random
import signal
import sys
import threading
import warnings
from pathlib import Path

import psutil

import genai
from winml_lite import WinMLError

CYCLES, WARM_UP = 60, 20
MAX_GROWTH = 8 << 20


def a_forked_child_is_told(path: str) -> None:
    model = genai.load_embedding(path, threads=1)
    model.embed("the cat")
    child = os.fork()
    if child == 0:
        try:
            model.embed("the cat")
        except (RuntimeError, WinMLError):
            os._exit(0)
        os._exit(1)
    assert os.waitpid(child, 0)[1] == 0
    assert model.embed("the cat").shape == (32,)


def states_grow_no_memory(path: str) -> None:
    process, before, state = psutil.Process(), 0, Path(path).with_suffix(".state")
    with genai.load(path, threads=1) as model:
        model.generate("the cat sat on a mat", max_new_tokens=30)
        for cycle in range(10 * CYCLES):
            model.save_state(state)
            model.load_state(state)
            if cycle == 10 * WARM_UP:
                before = process.memory_info().rss
    assert process.memory_info().rss - before < MAX_GROWTH


def interrupts_leave_everything_whole(path: str) -> None:
    state, second = Path(path).with_suffix(".first"), Path(path).with_suffix(".second")
    chance = random.Random(7)
    # Ctrl-C between open() and the `with` that it is for leaves closing to the collector, which tells of it.
    warnings.simplefilter("ignore", ResourceWarning)
    prompt = "the cat sat on a mat " * 8
    with genai.load(path, threads=1) as model:
        wanted = model.generate(prompt, max_new_tokens=5).token_ids
        model.save_state(state)
        scores = model.score(prompt, [" the", " dog"])
        for _ in range(25):
            timer = threading.Timer(chance.uniform(0.003, 0.03), os.kill, (os.getpid(), signal.SIGINT))
            try:
                timer.start()
                while True:
                    model.load_state(state)
                    model.save_state(second)
                    model.score(prompt, [" the", " dog"])
            except KeyboardInterrupt:
                timer.join()
        for file in (state, second):
            model.load_state(file)
            assert model.generate(prompt, max_new_tokens=5).token_ids == wanted
        assert model.score(prompt, [" the", " dog"]) == scores
    assert not list(Path(path).parent.glob(".*.part"))


if __name__ == "__main__":
    globals()[sys.argv[1]](sys.argv[2])
