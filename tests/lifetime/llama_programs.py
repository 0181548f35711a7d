"""Programs for `test_llama_lifetime.py`, each run in its own process: `llama_programs.py PROGRAM MODEL`."""

from __future__ import annotations

import gc
import os
import signal
import sys
import threading
import time
import weakref
from typing import Any

import numpy as np
from lifetime.held_memory import assert_keeps_nothing

from fakes.llama_stages import PROMPT, build, feed, ids, position
from fakes.waiting import until
from winml_lite import Vocabulary, WinMLError

alive: list[Any] = []
"""What is still there when the interpreter ends."""


def exit_with_everything_alive(path: str) -> None:
    stage = build(path)
    feed(stage, PROMPT[:20])
    alive.extend((stage, stage.output(0), Vocabulary.from_file(path)))


def exit_while_daemon_threads_run(path: str) -> None:
    vocabulary = Vocabulary.from_file(path)

    def decode_forever() -> None:
        stage = build(path)
        while True:
            feed(stage, PROMPT[:100])
            assert stage.sequence is not None
            stage.sequence.reset()

    def encode_forever() -> None:
        while True:
            vocabulary.encode(b"some text " * 1000, True)

    for target in (decode_forever, decode_forever, encode_forever):
        threading.Thread(target=target, daemon=True).start()
    time.sleep(0.5)


def everything_goes_at_once_without_the_collector(path: str) -> None:
    gc.disable()
    stage = build(path)
    feed(stage, [1, 2, 3])
    model = weakref.ref(stage._sequence.model)
    context = weakref.ref(stage._sequence.context._resource)
    row = stage.output(0)
    values = row.array().tolist()
    del stage
    assert context() is not None, "the logits lie in the context"
    assert row.array().tolist() == values
    del row
    assert (context(), model()) == (None, None)


def nothing_grows_over_many_cycles(path: str) -> None:
    def cycle() -> None:
        feed(build(path, hint=64), [1, 2, 3])
        Vocabulary.from_file(path).encode(b"text", True)

    assert_keeps_nothing(cycle, warm_up=60, times=120)


def interrupt_leaves_the_sequence_usable(path: str) -> None:
    expected = feed(build(path), [1, 2, 3])
    stage = build(path, hint=60_000, batch_size=64)
    feed(stage, [1, 2])
    stage.bind_input(0, ids(PROMPT * 250))
    activity = stage._sequence.context._activity

    def strike() -> None:
        until(lambda: activity.running)
        os.kill(os.getpid(), signal.SIGINT)

    try:
        threading.Thread(target=strike).start()
        stage.run()
    except KeyboardInterrupt:
        pass
    else:
        raise AssertionError("the run was not interrupted")
    assert position(stage) == 2
    assert np.allclose(feed(stage, [3]), expected, atol=1e-4)


def a_failed_build_leaves_nothing_behind(path: str) -> None:
    gc.disable()
    for _ in range(20):
        try:
            build(path, hint=2**31 - 1)
        except WinMLError:
            continue
        raise AssertionError("a context of 2**31 - 1 positions was made")
    from winml_lite.native.llama import model

    assert dict(model._models) == {}


if __name__ == "__main__":
    globals()[sys.argv[1]](sys.argv[2])
