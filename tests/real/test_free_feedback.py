"""A small value of a free shape that is fed back: it gets a place for good, and loses it when its shape changes."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from onnx import TensorProto, helper

from fakes.rig import failing, floats
from winml_lite import Model, Pipeline, Runtime, Stage
from winml_lite.native.ort.executor import OrtExecutor

pytestmark = [pytest.mark.real, pytest.mark.usefixtures("ort")]


@pytest.fixture
def model(runtime: Runtime) -> Model:
    """`total[n] = sum(before[?]) + x[n]`: as long as `x`."""
    ports = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [name]) for name in ("before", "x", "total")]
    nodes = [
        helper.make_node("ReduceSum", ["before"], ["sum"], keepdims=1),
        helper.make_node("Add", ["sum", "x"], ["total"]),
    ]
    graph = helper.make_graph(nodes, "total", ports[:2], ports[2:])
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    return runtime.load_model_from_buffer(made.SerializeToString())


@pytest.fixture
def looped(runtime: Runtime, model: Model) -> tuple[Stage, Pipeline]:
    """The stage with `x` = (1, 2), beginning with `before` = (0,), and its pipeline."""
    builder = runtime.create_pipeline_builder()
    stage = builder.add_model_stage(model, runtime.create_cpu_target())
    builder.connect_next_iteration(stage, 0, stage, 0)
    stage.bind_input(0, floats(runtime, 0))
    stage.bind_input(1, floats(runtime, 1, 2))
    return stage, builder.build()


def total(stage: Stage, pipeline: Pipeline) -> list[float]:
    """What one more run makes."""
    stage.request_output(0)
    pipeline.run()
    values: list[float] = stage.output(0).to_numpy().tolist()
    stage.reset_output(0)
    return values


def test_a_constant_shape_is_bound_and_never_again(
    looped: tuple[Stage, Pipeline], monkeypatch: pytest.MonkeyPatch
) -> None:
    stage, pipeline = looped
    for _ in range(3):
        pipeline.run()  # (1, 2), (4, 5), (10, 11)
    seen: Counter[str] = Counter()
    prepare = OrtExecutor._prepare

    def counted(executor: OrtExecutor) -> None:
        seen["prepare"] += 1
        prepare(executor)

    monkeypatch.setattr(OrtExecutor, "_prepare", counted)
    pipeline.run()  # (22, 23): what the third run had settled is prepared
    for _ in range(9):
        pipeline.run()
    assert seen["prepare"] <= 1
    monkeypatch.undo()
    assert total(stage, pipeline) == [3 * 2**13 - 2, 3 * 2**13 - 1]


def test_a_shape_that_changes_late(runtime: Runtime, looped: tuple[Stage, Pipeline]) -> None:
    stage, pipeline = looped
    for _ in range(4):
        pipeline.run()
    stage.bind_input(1, floats(runtime, 1, 2, 3))
    pipeline.run()  # 22 + 23 + (1, 2, 3)
    assert pipeline.run_count == 5
    assert total(stage, pipeline) == [142, 143, 144]
    stage.bind_input(1, floats(runtime, 1))
    assert total(stage, pipeline) == [430]


def test_a_shape_that_changes_each_time(runtime: Runtime, looped: tuple[Stage, Pipeline]) -> None:
    stage, pipeline = looped
    for count in range(1, 5):
        stage.bind_input(1, floats(runtime, *[1] * count))
        pipeline.run()  # 1, 2 2, 5 5 5, 16 16 16 16
    assert total(stage, pipeline) == [65, 65, 65, 65]


def test_nothing_is_a_shape_too(runtime: Runtime, looped: tuple[Stage, Pipeline]) -> None:
    stage, pipeline = looped
    for _ in range(4):
        pipeline.run()
    stage.bind_input(1, runtime.tensor_from_numpy(np.zeros(0, np.float32)))
    pipeline.run()  # nothing is left
    assert total(stage, pipeline) == []
    with failing(0x80070057):
        stage.bind_input(1, runtime.tensor_from_numpy(np.zeros((1, 1), np.float32)))
    stage.bind_input(1, floats(runtime, 5))
    assert total(stage, pipeline) == [5]


def test_reset_begins_again(looped: tuple[Stage, Pipeline]) -> None:
    stage, pipeline = looped
    for _ in range(4):
        pipeline.run()
    pipeline.reset()
    assert total(stage, pipeline) == [1, 2]
