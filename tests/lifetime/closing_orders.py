"""Programs for `test_closing_orders.py`, each run in its own process: `closing_orders.py PROGRAM MODEL ENGINE`."""

from __future__ import annotations

import _thread
import gc
import itertools
import signal
import sys
import threading
import time
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np

from winml_lite import Pipeline, Runtime, Stage, WinMLError

Objects = dict[str, Any]


def run_once(stage: Stage, pipeline: Pipeline, runtime: Runtime, engine: str) -> None:
    """Bind the inputs of the test model and run it."""
    if engine == "ort":
        stage.bind_input(0, runtime.tensor_from_numpy(np.array([1, 2], np.float32)))
        stage.bind_input(1, runtime.tensor_from_numpy(np.array([10, 20], np.float32)))
    else:
        stage.bind_input(0, runtime.tensor_from_tokens([1, 2, 3]))
    stage.request_output(0)
    pipeline.run()


def make(path: str, engine: str) -> Objects:
    """One object of every kind, after a run."""
    runtime = Runtime()
    model = runtime.load_model(path)
    target = runtime.create_cpu_target()
    builder = runtime.create_pipeline_builder()
    stage = builder.add_model_stage(model, target)
    pipeline = builder.build()
    run_once(stage, pipeline, runtime, engine)
    return {
        "runtime": runtime,
        "model": model,
        "stage": stage,
        "pipeline": pipeline,
        "output": stage.output(0),
    }


def close_in_every_order(path: str, engine: str) -> None:
    expected: Any = make(path, engine)["output"].to_numpy()
    for order in itertools.permutations(("runtime", "model", "stage", "pipeline", "output")):
        objects = make(path, engine)
        output = objects["output"]
        for name in order:
            if name == "output":
                assert np.array_equal(output.to_numpy(), expected), order
            objects[name].close()


def delete_in_every_order(path: str, engine: str) -> None:
    gc.disable()
    expected: Any = make(path, engine)["output"].to_numpy()
    for order in itertools.permutations(("runtime", "model", "stage", "pipeline", "output")):
        objects = make(path, engine)
        for name in order:
            if name == "output":
                assert np.array_equal(objects["output"].to_numpy(), expected), order
            del objects[name]


def free_without_the_collector(path: str, engine: str) -> None:
    gc.disable()
    objects = make(path, engine)
    cores = [weakref.ref(objects[name].underlying_object) for name in ("stage", "pipeline", "output")]
    del objects
    assert [core() for core in cores] == [None, None, None]


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
    run_once(second["stage"], second["pipeline"], second["runtime"], engine)


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
        # One that strikes inside a finalizer is only reported there.
        sys.unraisablehook = lambda report: None
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
    stage, pipeline = objects["stage"], objects["pipeline"]
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
