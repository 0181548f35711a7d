"""Programs for `test_closing_orders.py`, each run in its own process: `closing_orders.py PROGRAM MODEL ENGINE`."""

from __future__ import annotations

import _thread
import gc
import itertools
import random
import signal
import sys
import threading
import time
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
from lifetime.interrupts import say_nothing_of_lost_interrupts

from winml_lite import Pipeline, Runtime, Stage, TensorDataType, TensorLockFlags, TensorLockMode, Vocabulary, WinMLError

FLOAT32 = TensorDataType.FLOAT32
Objects = dict[str, Any]


NAMES = ("runtime", "model", "stage", "second", "pipeline", "output")


def make(path: str, engine: str) -> Objects:
    """A pipeline of two stages of one model, after a run; in ONNX the first feeds the second."""
    runtime = Runtime()
    model = runtime.load_model(path)
    builder = runtime.create_pipeline_builder()
    stage, second = (builder.add_model_stage(model, name=name) for name in ("first", "second"))
    one_thread(engine, stage, second)
    if engine == "ort":
        builder.connect(stage, 0, second, 0)
    pipeline = builder.build()
    objects = dict(zip(NAMES, (runtime, model, stage, second, pipeline), strict=False))
    run_once(objects, engine)
    return {**objects, "output": second.output(0)}


def one_thread(engine: str, *stages: Stage) -> None:
    """Threads of the engine would only cost time."""
    for stage in stages:
        if engine == "ort":
            stage.ort_options().set_thread_count(1)
        else:
            stage.llama_options().thread_count = 1


def run_once(objects: Objects, engine: str) -> None:
    """Bind the inputs of the pipeline and run it."""
    runtime, stage, second = (objects[name] for name in ("runtime", "stage", "second"))
    if engine == "ort":
        stage.bind_input(0, runtime.tensor_from_numpy(np.array([1, 2], np.float32)))
        stage.bind_input(1, runtime.tensor_from_numpy(np.array([10, 20], np.float32)))
        second.bind_input(1, runtime.tensor_from_numpy(np.array([100, 200], np.float32)))
    else:
        for each in (stage, second):
            each.bind_input(0, runtime.tensor_from_tokens([1, 2, 3]))
    second.request_output(0)
    objects["pipeline"].run()


def close_in_every_order(path: str, engine: str) -> None:
    expected: Any = make(path, engine)["output"].to_numpy()
    for order in itertools.permutations(NAMES):
        objects = make(path, engine)
        output = objects["output"]
        for name in order:
            if name == "output":
                assert np.array_equal(output.to_numpy(), expected), order
            objects[name].close()


def delete_in_every_order(path: str, engine: str) -> None:
    gc.disable()
    expected: Any = make(path, engine)["output"].to_numpy()
    for order in itertools.permutations(NAMES):
        objects = make(path, engine)
        for name in order:
            if name == "output":
                assert np.array_equal(objects["output"].to_numpy(), expected), order
            del objects[name]


def make_everything(path: str, engine: str) -> Objects:
    """Every kind of object around a pipeline of two stages with state, of which one feeds a Python function."""
    runtime = Runtime()
    model = runtime.load_model(path)
    target = runtime.create_cpu_target()
    builder = runtime.create_pipeline_builder()
    stage, second = (builder.add_model_stage(model, target, name) for name in ("first", "second"))
    size = _prepare_state(stage, second, engine)
    double = runtime.create_processor(lambda x: x * 2, [(FLOAT32, (1, size))], [(FLOAT32, (1, size))])
    third = builder.add_processor_stage(double)
    builder.connect(second, 0, third, 0)
    pipeline = builder.build()
    ids = runtime.tensor_from_tokens([1, 2, 3])
    bound = runtime.create_tensor(FLOAT32, (1, size))
    for each in (stage, second):
        each.bind_input(0, ids)
    stage.request_output(0)
    third.bind_output(0, bound)
    execution = pipeline.execution()
    fence = execution.submit()
    fence.wait()
    output = stage.output(0)
    lock = output.lock(TensorLockMode.READ, TensorLockFlags.ALLOW_SYNCHRONIZED_CPU_ACCESS)
    objects: Objects = {
        "runtime": runtime,
        "model": model,
        "schema": model.schema(),
        "target": target,
        "builder": builder,
        "stage": stage,
        "second": second,
        "third": third,
        "stage_schema": stage.schema(),
        "processor": double,
        "pipeline": pipeline,
        "execution": execution,
        "fence": fence,
        "ids": ids,
        "bound": bound,
        "output": output,
        "region": output.region((0, 0), (1, 1)),
        "lock": lock,
        "view": np.asarray(lock.data),
        "array": np.from_dlpack(bound),
    }
    if engine == "ort":
        objects |= {"names": model.ort_schema(), "bindings": stage.ort_bindings()}
    else:
        objects["vocabulary"] = Vocabulary.from_file(path)
    return objects


def _prepare_state(stage: Stage, second: Stage, engine: str) -> int:
    """Give both stages a state; return the length of their output 0."""
    one_thread(engine, stage, second)
    for each in (stage, second):
        if engine == "ort":
            each.add_state_tensor_pair(1, 1)
        else:
            each.set_sequence_capacity_hint(64)
    return 1 if engine == "ort" else 303


def end_in_random_orders(path: str, engine: str) -> None:
    """Each object is closed or deleted, or closed and deleted later, in 500 seeded orders."""
    chance = random.Random(11)
    for number in range(500):
        objects = make_everything(path, engine)
        array, bound = objects["array"].copy(), objects["array"]
        order = list(objects) * 2
        chance.shuffle(order)
        for name in order:
            thing = objects.get(name)
            if thing is not None and hasattr(thing, "close") and chance.random() < 0.5:
                thing.close()
            else:
                objects.pop(name, None)
            del thing
        assert np.array_equal(array, bound), number
        if number % 50 == 0:
            gc.collect()


def free_without_the_collector(path: str, engine: str) -> None:
    gc.disable()
    objects = make(path, engine)
    cores = [weakref.ref(objects[name].underlying_object) for name in ("stage", "second", "pipeline", "output")]
    del objects
    assert [core() for core in cores] == [None] * 4


def keep_an_output(path: str, engine: str) -> None:
    output = make(path, engine)["output"]
    expected = output.to_numpy()
    gc.collect()
    blocks = [np.full(1_000_000, 255, np.uint8) for _ in range(50)]
    assert np.array_equal(output.to_numpy(), expected)
    assert len(blocks) == 50


def leave_everything_open(path: str, engine: str) -> None:
    globals()["kept"] = make(path, engine)


def fail_half_way(path: str, engine: str) -> None:
    runtime = Runtime()
    builder = runtime.create_pipeline_builder()
    stage = builder.add_model_stage(runtime.load_model(path))
    stage.request_output(9) if engine == "llama" else stage.add_state_tensor_pair(9, 9)
    try:
        builder.build()
    except WinMLError as error:
        assert error.hresult == 0x80070057
    else:
        raise AssertionError("the build must fail")


def reopen(path: str, engine: str) -> None:
    for _ in range(20):
        for thing in make(path, engine).values():
            thing.close()
    first, second = make(path, engine), make(path, engine)
    for thing in first.values():
        thing.close()
    run_once(second, engine)


def close_on_another_thread_while_running(path: str, engine: str) -> None:
    for _ in range(20):
        objects = make(path, engine)
        pipeline = objects.pop("pipeline")

        def run(pipeline: Pipeline = pipeline) -> None:
            for _ in range(20):
                try:
                    pipeline.run()
                except RuntimeError:
                    return

        thread = threading.Thread(target=run)
        thread.start()
        for thing in objects.values():
            thing.close()
        pipeline.close()
        thread.join()


class Interrupts:
    """Raises KeyboardInterrupt in the main thread every millisecond, but only while `armed`."""

    def __init__(self) -> None:
        self.armed = False
        say_nothing_of_lost_interrupts()
        signal.signal(signal.SIGINT, self._strike)
        threading.Thread(target=self._tick, daemon=True).start()

    def _strike(self, number: int, frame: object) -> None:
        if self.armed:
            self.armed = False
            raise KeyboardInterrupt

    def _tick(self) -> None:
        while True:
            time.sleep(0.001)
            if self.armed:
                _thread.interrupt_main()


def interrupt_often(path: str, engine: str) -> None:
    """Ctrl-C at any moment of a run leaves the pipeline free and the results right."""
    objects = make(path, engine)
    stage, pipeline = objects["second"], objects["pipeline"]
    expected = objects["output"].to_numpy()
    interrupts = Interrupts()
    for _ in range(200):
        try:
            interrupts.armed = True
            while interrupts.armed:
                pipeline.reset()
                pipeline.run()
        except KeyboardInterrupt:
            pass
        pipeline.reset()
        pipeline.run()
        assert np.array_equal(stage.output(0).to_numpy(), expected)


def interrupt_stateful_runs(path: str, engine: str) -> None:
    """Ctrl-C at any moment moves position and state both, or neither: the sum of n ones is n."""
    runtime = Runtime()
    builder = runtime.create_pipeline_builder()
    stage = builder.add_model_stage(runtime.load_model(path))
    stage.add_state_tensor_pair(1, 1)
    stage.request_output(0)
    stage.bind_input(0, runtime.tensor_from_tokens([1]))
    pipeline = builder.build()
    interrupts = Interrupts()
    for _ in range(500):
        try:
            interrupts.armed = True
            while interrupts.armed:
                pipeline.run()
        except KeyboardInterrupt:
            pass
        position = stage.sequence_position
        pipeline.run()
        assert stage.sequence_position == position + 1
        assert stage.output(0).to_numpy().item() == position + 1
        pipeline.reset()


def use_closed_objects(path: str, engine: str) -> None:
    objects = make(path, engine)
    calls: dict[str, Callable[[Any], object]] = {
        "runtime": lambda runtime: runtime.create_cpu_target(),
        "model": lambda model: model.schema(),
        "stage": lambda stage: stage.output(0),
        "second": lambda stage: stage.output(0),
        "pipeline": lambda pipeline: pipeline.run(),
        "output": lambda output: output.to_numpy(),
    }
    for name, call in calls.items():
        objects[name].close()
        objects[name].close()
        try:
            call(objects[name])
        except RuntimeError as error:
            assert "is closed" in str(error), error
        else:
            raise AssertionError(f"{name} works after closing")


if __name__ == "__main__":
    program, model_path, engine_name = sys.argv[1:]
    globals()[program](model_path, engine_name)
