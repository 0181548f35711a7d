"""P6: one run of a graph of three nodes, where nearly everything is overhead, against onnxruntime's own Python API."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np
import onnxruntime
from onnx import TensorProto, helper

from winml_lite import Pipeline, Runtime, Stage

from .measure import Plan, Row, Step, alternate, main, shorter

ROUNDS = 200
"""Runs in one step: a single run is too short for the clock."""


def three_nodes() -> bytes:
    """x f32 [4] -> relu(x + x) * x."""
    nodes = [
        helper.make_node("Add", ["x", "x"], ["a"]),
        helper.make_node("Relu", ["a"], ["b"]),
        helper.make_node("Mul", ["b", "x"], ["y"]),
    ]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [4])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [4])
    graph = helper.make_graph(nodes, "three", [x], [y])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    return bytes(model.SerializeToString())


def our_stage(runtime: Runtime, data: bytes) -> tuple[Stage, Pipeline]:
    """Build the graph with one thread and bind its input."""
    with runtime.load_model_from_buffer(data) as model, runtime.create_pipeline_builder() as builder:
        stage = builder.add_model_stage(model, runtime.create_cpu_target())
        stage.ort_options().set_thread_count(1)
        pipeline = builder.build()
    stage.bind_input(0, runtime.tensor_from_numpy(np.ones(4, np.float32)))
    return stage, pipeline


def many(run: Step) -> Step:
    """A step of `ROUNDS` runs."""

    def step() -> None:
        for _ in range(ROUNDS):
            run()

    return step


def bound(data: bytes, pipeline: Pipeline, stage: Stage, runtime: Runtime) -> tuple[Step, Step]:
    """Outputs in the caller's memory: `Pipeline.run` and `run_with_iobinding`."""
    stage.bind_output(0, runtime.tensor_from_numpy(np.zeros(4, np.float32)))
    session = their_session(data)
    binding = session.io_binding()
    binding.bind_ortvalue_input("x", onnxruntime.OrtValue.ortvalue_from_numpy(np.ones(4, np.float32)))
    binding.bind_ortvalue_output("y", onnxruntime.OrtValue.ortvalue_from_numpy(np.zeros(4, np.float32)))
    return pipeline.run, lambda: session.run_with_iobinding(binding)


def owned(data: bytes, pipeline: Pipeline, stage: Stage, read: bool) -> tuple[Step, Step]:
    """Fresh outputs each run, `Pipeline.run` and `InferenceSession.run`; the latter always makes a NumPy array."""
    stage.request_output(0)
    session = their_session(data)
    feeds = {"x": np.ones(4, np.float32)}

    def run_and_read() -> None:
        pipeline.run()
        stage.output(0).to_numpy()

    return run_and_read if read else pipeline.run, lambda: session.run(None, feeds)


def their_session(data: bytes) -> Any:
    """The same graph in onnxruntime, one thread."""
    settings = onnxruntime.SessionOptions()
    settings.intra_op_num_threads = 1
    return onnxruntime.InferenceSession(data, settings, providers=["CPUExecutionProvider"])


def measure(plan: Plan) -> Iterator[Row]:
    """The rows of P6, in microseconds per run."""
    data = three_nodes()
    with Runtime() as runtime:
        stage, pipeline = our_stage(runtime, data)
        for name, other_side, prepare, aim in (
            ("caller-bound", "run_with_iobinding", partial(bound, data, pipeline, stage, runtime), "<= 0.85"),
            ("runtime-owned", "InferenceSession.run", partial(owned, data, pipeline, stage, False), "<= 0.7"),
            ("runtime-owned and read", "InferenceSession.run", partial(owned, data, pipeline, stage, True), "<= 1.0"),
        ):
            ours, other = prepare()
            seconds = alternate(many(ours), many(other), plan)
            micros = (seconds[0] / ROUNDS * 1e6, seconds[1] / ROUNDS * 1e6)
            yield shorter(f"P6 run, 3 nodes, {name} output", other_side, micros, "µs", ("<= 1.0", aim))


if __name__ == "__main__":
    main(measure, __doc__)
