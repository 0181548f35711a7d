"""Programs for `test_threads.py`, each run in its own process: `thread_programs.py PROGRAM MODEL ENGINE`.

MODEL is the graph `add` for ONNX Runtime and a small decoder for llama.cpp.
"""

from __future__ import annotations

import gc
import random
import signal
import sys
import time
import weakref
from typing import Any

import numpy as np
import numpy.typing as npt
from lifetime.interrupts import await_the_second_strike

from fakes.threads import in_threads
from winml_lite import Model, Pipeline, Runtime, Stage, Vocabulary, WinMLError

BUSY = 0x800700AA


def build(runtime: Runtime, model: Model, engine: str, number: int = 1) -> tuple[Stage, Pipeline]:
    """A pipeline of one stage on one engine thread; `number` is in its inputs."""
    builder = runtime.create_pipeline_builder()
    stage = builder.add_model_stage(model)
    if engine == "ort":
        stage.ort_options().set_thread_count(1)
        for index in (0, 1):
            stage.bind_input(index, runtime.tensor_from_numpy(np.array([number, 2], np.float32)))
    else:
        stage.llama_options().thread_count = 1
        stage.set_sequence_capacity_hint(64)
        stage.bind_input(0, runtime.tensor_from_tokens([number, 3]))
    stage.request_output(0)
    return stage, builder.build()


def result(stage: Stage, pipeline: Pipeline) -> npt.NDArray[Any]:
    """Run from the beginning."""
    pipeline.reset()
    pipeline.run()
    return stage.output(0).to_numpy()


def share_one_pipeline(path: str, engine: str) -> None:
    """A call on a pipeline in use is refused as busy; whoever gets in gets the right result."""
    runtime = Runtime()
    stage, pipeline = build(runtime, runtime.load_model(path), engine)
    expected = result(stage, pipeline)
    done: list[int] = []

    def work(number: int) -> None:
        runs = 0
        for _ in range(300):
            try:
                pipeline.run() if engine == "ort" else pipeline.reset()
                runs += 1
            except WinMLError as error:
                assert error.hresult == BUSY, error
        done.append(runs)

    in_threads(work, 6)
    assert len(done) == 6 and sum(done) > 0
    assert np.array_equal(result(stage, pipeline), expected)


def one_pipeline_each(path: str, engine: str) -> None:
    """Pipelines of one model run at the same time, each with its own numbers."""
    runtime = Runtime()
    model = runtime.load_model(path)
    expected = [result(*build(runtime, model, engine, number)) for number in range(5)]

    def work(number: int) -> None:
        stage, pipeline = build(runtime, model, engine, number)
        for _ in range(100):
            assert np.array_equal(result(stage, pipeline), expected[number])

    in_threads(work, 5)


def build_and_close_at_once(path: str, engine: str) -> None:
    """Threads load, build and close at the same time; one model may be shared or made anew by any of them."""

    def work(number: int) -> None:
        for _ in range(15):
            with Runtime() as runtime, runtime.load_model(path) as model:
                stage, pipeline = build(runtime, model, engine)
            first = result(stage, pipeline)
            assert np.array_equal(result(stage, pipeline), first)
            if engine == "llama":
                with Vocabulary.from_file(path) as vocabulary:
                    assert vocabulary.encode(b"text", True) == vocabulary.encode(b"text", True)

    in_threads(work, 5)


def share_one_vocabulary(path: str, engine: str) -> None:
    with Vocabulary.from_file(path) as vocabulary:
        expected = vocabulary.encode(b"one text after another", True)

        def work(number: int) -> None:
            for _ in range(300):
                assert vocabulary.encode(b"one text after another", True) == expected
                assert vocabulary.piece(number) == vocabulary.piece(number)

        in_threads(work, 6)


def collect_in_another_thread(path: str, engine: str) -> None:
    """Cycles of objects that one thread made are found by the garbage collection of another."""
    gc.disable()
    runtime = Runtime()
    model = runtime.load_model(path)
    cores: list[weakref.ref[Any]] = []

    def make(number: int) -> None:
        for _ in range(5):
            stage, pipeline = build(runtime, model, engine)
            pipeline.run()
            ring: list[object] = [stage, pipeline, stage.output(0)]
            ring.append(ring)
            cores.append(weakref.ref(pipeline.underlying_object))

    in_threads(make, 3)
    assert [core() for core in cores].count(None) == 0
    in_threads(lambda number: gc.collect(), 1)
    assert [core() for core in cores].count(None) == 15


def interrupt_builds(path: str, engine: str) -> None:
    """Each Ctrl-C in a build ends it, none is lost; the next build works."""
    chance = random.Random(3)
    runtime = Runtime()
    model = runtime.load_model(path)
    expected = result(*build(runtime, model, engine))
    begun = time.perf_counter()
    kept = [build(runtime, model, engine)]
    seconds = time.perf_counter() - begun
    fired: list[int] = []
    lost: list[int] = []
    """Those that fell into a finalizer, where Python lets nothing through."""

    def strike(*_: object) -> None:
        fired.append(1)
        raise KeyboardInterrupt

    def note_lost(report: sys.UnraisableHookArgs) -> None:
        if report.exc_type is KeyboardInterrupt:
            lost.append(1)

    signal.signal(signal.SIGALRM, strike)
    sys.unraisablehook = note_lost
    caught = 0
    while len(fired) < 30:
        try:
            kept.clear()
            signal.setitimer(signal.ITIMER_REAL, 0.0001 + chance.random() * seconds)
            kept.append(build(runtime, model, engine))
            signal.setitimer(signal.ITIMER_REAL, 0)
            await_the_second_strike()
        except KeyboardInterrupt:
            caught += 1
        signal.setitimer(signal.ITIMER_REAL, 0)
    assert caught + len(lost) == len(fired), (caught, len(lost), len(fired))
    assert caught > len(lost)
    assert np.array_equal(result(*build(runtime, model, engine)), expected)


if __name__ == "__main__":
    globals()[sys.argv[1]](*sys.argv[2:])
