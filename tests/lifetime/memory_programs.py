"""Programs for `test_memory.py`, each run in its own process: `memory_programs.py PROGRAM MODEL ENGINE`. They print.

MODEL is a graph for ONNX Runtime (`add`, or `grow` where there is a state) or a small decoder for llama.cpp.
"""

from __future__ import annotations

import ctypes
import gc
import statistics
import sys
from collections.abc import Callable

import numpy as np
import psutil

from winml_lite import Pipeline, Runtime, Stage, TensorDataType, TensorLockFlags, TensorLockMode, Vocabulary

FLOAT32 = TensorDataType.FLOAT32
WARM_UP, WINDOWS, CYCLES = 200, 5, 200
RUNS = 10_000


def resident() -> int:
    """Bytes of memory in use, once everything that is free was given back; without pages of files, where known."""
    gc.collect()
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
    memory = psutil.Process().memory_info()
    return int(memory.rss - getattr(memory, "shared", 0))


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


def cycles(path: str, engine: str) -> None:
    """Print the bytes that one cycle of building, running and closing keeps: the median of five windows."""

    def cycle() -> None:
        runtime, stage, pipeline = build(path, engine)
        pipeline.run()
        pipeline.execution().submit().wait()
        stage.output(0).to_numpy()
        if engine == "llama":
            with Vocabulary.from_file(path) as vocabulary:
                vocabulary.encode(b"some text", True)
        for thing in (runtime, stage, pipeline):
            thing.close()

    repeat(cycle, WARM_UP)
    slopes = []
    for _ in range(WINDOWS):
        before = resident()
        repeat(cycle, CYCLES)
        slopes.append((resident() - before) / CYCLES)
    print(statistics.median(slopes))


def runs(path: str, engine: str) -> None:
    """Print how much memory grows over 10,000 runs whose outputs are read."""
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

    growth(run)


def submissions(path: str, engine: str) -> None:
    """Print how much memory grows over 10,000 runs in the background."""
    _, stage, pipeline = build(path, engine)
    execution = pipeline.execution()

    def submit(number: int) -> None:
        if engine == "llama":
            pipeline.reset()
        execution.submit().wait()
        stage.output(0)

    growth(submit)


def speculation(path: str, engine: str) -> None:
    """Print how much memory grows over 10,000 steps over several positions."""
    _, stage, pipeline = build(path, engine)
    pipeline.run()

    def step(number: int) -> None:
        stage.step_all_positions([5, 6, 7, 8])
        stage.commit_accepted_prefix(number % 4)
        if stage.sequence_position > 50:
            stage.rewind(3)

    growth(step)


def processors(path: str, engine: str) -> None:
    """Print how much memory grows over 10,000 runs that go through a Python function."""
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

    growth(run)


def growth(work: Callable[[int], object]) -> None:
    for number in range(RUNS // 10):
        work(number)
    before = resident()
    for number in range(RUNS):
        work(number)
    print(resident() - before)


def repeat(work: Callable[[], object], count: int) -> None:
    for _ in range(count):
        work()


if __name__ == "__main__":
    globals()[sys.argv[1]](*sys.argv[2:])
