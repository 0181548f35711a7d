"""Programs for `test_memory.py`, each run in its own process: `memory_programs.py PROGRAM MODEL ENGINE`.

MODEL is a graph for ONNX Runtime (`add`, or `grow` where there is a state) or a small decoder for llama.cpp.
"""

from __future__ import annotations

import ctypes
import gc
import itertools
import sys
from collections.abc import Callable

import numpy as np
from lifetime.held_memory import assert_keeps_nothing

from winml_lite import Pipeline, Runtime, Stage, TensorDataType, TensorLockFlags, TensorLockMode, Vocabulary

FLOAT32 = TensorDataType.FLOAT32


def build(path: str, engine: str) -> tuple[Runtime, Stage, Pipeline]:
    """A pipeline of one stage with everything bound."""
    runtime = Runtime()
    builder = runtime.create_pipeline_builder()
    stage = builder.add_model_stage(runtime.load_model(path))
    if engine == "ort":
        stage.ort_options().set_thread_count(1)
        for index in (0, 1):
            stage.bind_input(index, runtime.tensor_from_numpy(np.array([1, 2], np.float32)))
    else:
        stage.llama_options().thread_count = 1
        stage.set_sequence_capacity_hint(64)
        stage.bind_input(0, runtime.tensor_from_tokens([1, 2, 3]))
    stage.request_output(0)
    return runtime, stage, builder.build()


def cycle(path: str, engine: str) -> None:
    """Build, run and close."""
    runtime, stage, pipeline = build(path, engine)
    pipeline.run()
    pipeline.execution().submit().wait()
    stage.output(0).to_numpy()
    if engine == "llama":
        with Vocabulary.from_file(path) as vocabulary:
            vocabulary.encode(b"some text", True)
    for thing in (runtime, stage, pipeline):
        thing.close()


def cycles(path: str, engine: str) -> None:
    """A thousand times building, running and closing."""
    assert_keeps_nothing(lambda: cycle(path, engine), warm_up=200, times=500, each=512)


def garbage(path: str, engine: str) -> None:
    """Nothing of ours waits for the collector: no object of these packages, and no array that refers to itself."""
    cycle(path, engine)
    gc.collect()
    gc.disable()
    cycle(path, engine)
    gc.set_debug(gc.DEBUG_SAVEALL)
    gc.collect()
    gc.set_debug(0)
    ours = [
        thing
        for thing in gc.garbage
        if isinstance(thing, ctypes.Array) or type(thing).__module__.startswith(("winml_lite", "genai"))
    ]
    gc.garbage.clear()
    assert ours == [], [type(thing) for thing in ours]


def heavy(path: str, engine: str) -> None:
    """200 times loading weights of 4 MB, with nobody collecting garbage."""
    gc.disable()

    def once() -> None:
        with Runtime() as runtime, runtime.load_model(path) as model:
            with runtime.create_pipeline_builder() as builder, builder.add_model_stage(model) as stage:
                stage.bind_input(0, runtime.tensor_from_numpy(np.ones(1, np.float32)))
                stage.request_output(0)
                with builder.build() as pipeline:
                    pipeline.run()
                    assert stage.output(0).to_numpy()[-1] == 8

    assert_keeps_nothing(once, warm_up=20, times=90)


def runs(path: str, engine: str) -> None:
    """10,000 runs whose outputs are read."""
    runtime, stage, pipeline = build(path, engine)
    tensors = [runtime.tensor_from_tokens([1, 2, 3]), runtime.tensor_from_tokens([4])]

    def run(number: int) -> None:
        if engine == "llama":
            pipeline.reset()
            stage.bind_input(0, tensors[number % 2])
        else:
            stage.bind_input(0, runtime.tensor_from_numpy(np.array([number, 2], np.float32)))
        pipeline.run()
        output = stage.output(0)
        output.to_numpy()
        with output.lock(TensorLockMode.READ, TensorLockFlags.ALLOW_SYNCHRONIZED_CPU_ACCESS) as lock:
            lock.data()[0]

    keeps_nothing(run)


def submissions(path: str, engine: str) -> None:
    """10,000 runs in the background."""
    _, stage, pipeline = build(path, engine)
    execution = pipeline.execution()

    def submit(number: int) -> None:
        if engine == "llama":
            pipeline.reset()
        execution.submit().wait()
        stage.output(0)

    keeps_nothing(submit)


def speculation(path: str, engine: str) -> None:
    """10,000 steps over several positions."""
    _, stage, pipeline = build(path, engine)
    pipeline.run()

    def step(number: int) -> None:
        stage.step_all_positions([5, 6, 7, 8])
        stage.commit_accepted_prefix(number % 4)
        if stage.sequence_position > 50:
            stage.rewind(3)

    keeps_nothing(step)


def processors(path: str, engine: str) -> None:
    """10,000 runs that go through a Python function."""
    runtime = Runtime()
    builder = runtime.create_pipeline_builder()
    stage = builder.add_model_stage(runtime.load_model(path))
    double = runtime.create_processor(lambda x: x * 2, [(FLOAT32, (2,))], [(FLOAT32, (2,))])
    function = builder.add_processor_stage(double)
    builder.connect(stage, 0, function, 0)
    function.request_output(0)
    pipeline = builder.build()
    for index in (0, 1):
        stage.bind_input(index, runtime.tensor_from_numpy(np.array([1, 2], np.float32)))

    def run(number: int) -> None:
        pipeline.run()
        assert function.output(0).to_numpy().tolist() == [4, 8]

    keeps_nothing(run)


def keeps_nothing(work: Callable[[int], object]) -> None:
    """Do 1,000 and then twice 5,000 runs; `work` is told their numbers."""
    numbers = itertools.count()
    assert_keeps_nothing(lambda: work(next(numbers)), warm_up=1000, times=5000, each=16)


if __name__ == "__main__":
    globals()[sys.argv[1]](*sys.argv[2:])
