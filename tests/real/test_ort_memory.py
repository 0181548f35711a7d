"""Outputs in memory that a run also reads, shapes that only a run knows, and shapes that the engine gets wrong."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import onnx
import pytest
from onnx import TensorProto, helper

from winml_lite import Pipeline, Runtime, Stage, TensorAccessMode, TensorDataType, WinMLError
from winml_lite.errors import E_INVALIDARG

pytestmark = [pytest.mark.real, pytest.mark.usefixtures("ort")]

FLOAT, INT64 = TensorProto.FLOAT, TensorProto.INT64
F32 = TensorDataType.FLOAT32
Array = npt.NDArray[np.float32]


def reverse() -> onnx.ModelProto:
    """`y[4] = x[::-1]`: an operator that reads what it has written if both lie in one place."""
    return made(
        [
            helper.make_node("Constant", [], ["lengths"], value_ints=[4]),
            helper.make_node("ReverseSequence", ["x", "lengths"], ["y"], batch_axis=1, time_axis=0),
        ],
        [helper.make_tensor_value_info("x", FLOAT, [4, 1])],
        [helper.make_tensor_value_info("y", FLOAT, [4, 1])],
    )


def reshape() -> onnx.ModelProto:
    """`y = x[n]` in the shape `shape`, of which not even the length is known before a run."""
    return made(
        [helper.make_node("Reshape", ["x", "shape"], ["y"])],
        [helper.make_tensor_value_info("x", FLOAT, ["n"]), helper.make_tensor_value_info("shape", INT64, ["rank"])],
        [helper.make_tensor_value_info("y", FLOAT, None)],
    )


def double() -> onnx.ModelProto:
    """`y[2, 2] = x + x`."""
    ports = [helper.make_tensor_value_info(name, FLOAT, [2, 2]) for name in "xy"]
    return made([helper.make_node("Add", ["x", "x"], ["y"])], ports[:1], ports[1:])


def attention() -> onnx.ModelProto:
    """`y` = attention of two heads over `x`, whose width is free: the engine infers a width of 0 for `y`."""
    ports = [helper.make_tensor_value_info(name, FLOAT, [1, "n", "width"]) for name in "xy"]
    node = helper.make_node("Attention", ["x", "x", "x"], ["y"], q_num_heads=2, kv_num_heads=2)
    return made([node], ports[:1], ports[1:], opset=23)


def made(
    nodes: list[onnx.NodeProto],
    inputs: list[onnx.ValueInfoProto],
    outputs: list[onnx.ValueInfoProto],
    opset: int = 18,
) -> onnx.ModelProto:
    graph = helper.make_graph(nodes, "g", inputs, outputs)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10)


def built(runtime: Runtime, proto: onnx.ModelProto) -> tuple[Stage, Pipeline]:
    builder = runtime.create_pipeline_builder()
    stage = builder.add_model_stage(runtime.load_model_from_buffer(proto.SerializeToString()))
    return stage, builder.build()


def column(*values: float) -> Array:
    return np.array(values, np.float32).reshape(-1, 1)


def test_output_bound_to_the_tensor_of_an_input(runtime: Runtime) -> None:
    stage, pipeline = built(runtime, reverse())
    tensor = runtime.tensor_from_numpy(column(1, 2, 3, 4))
    stage.bind_input(0, tensor)
    stage.bind_output(0, tensor)
    pipeline.run()
    assert tensor.to_numpy().ravel().tolist() == [4, 3, 2, 1]
    pipeline.run()
    assert tensor.to_numpy().ravel().tolist() == [1, 2, 3, 4]


def test_output_in_a_part_of_the_memory_of_an_input(runtime: Runtime) -> None:
    memory = np.array([0, 1, 2, 3, 4], np.float32)
    stage, pipeline = built(runtime, reverse())
    stage.bind_input(0, runtime.tensor_from_buffer(memory[1:], F32, (4, 1), access=TensorAccessMode.READ))
    stage.bind_output(0, runtime.tensor_from_buffer(memory[:4], F32, (4, 1), access=TensorAccessMode.READWRITE))
    pipeline.run()
    assert memory[:4].tolist() == [4, 3, 2, 1]


def test_input_that_aliases_the_tensor_of_an_output(runtime: Runtime) -> None:
    stage, pipeline = built(runtime, reverse())
    result = runtime.create_tensor(F32, (4, 1))
    view = np.asarray(result)
    view[:] = column(1, 2, 3, 4)
    stage.bind_output(0, result)
    stage.bind_input(0, runtime.tensor_from_dlpack(view))
    pipeline.run()
    assert result.to_numpy().ravel().tolist() == [4, 3, 2, 1]


def test_input_bound_elsewhere_lets_the_output_be_written_directly(runtime: Runtime) -> None:
    stage, pipeline = built(runtime, reverse())
    tensor = runtime.tensor_from_numpy(column(1, 2, 3, 4))
    stage.bind_input(0, tensor)
    stage.bind_output(0, tensor)
    pipeline.run()
    stage.bind_input(0, runtime.tensor_from_numpy(column(5, 6, 7, 8)))
    pipeline.run()
    assert tensor.to_numpy().ravel().tolist() == [8, 7, 6, 5]


def test_state_of_the_caller_bound_to_its_own_tensor(runtime: Runtime) -> None:
    builder = runtime.create_pipeline_builder()
    stage = builder.add_model_stage(runtime.load_model_from_buffer(reverse().SerializeToString()))
    stage.add_state_tensor_pair(0, 0)
    stage.caller_owns_state_tensors = True
    tensor = runtime.tensor_from_numpy(column(1, 2, 3, 4))
    stage.bind_input(0, tensor)
    stage.bind_output(0, tensor)
    pipeline = builder.build()
    pipeline.run()
    assert tensor.to_numpy().ravel().tolist() == [4, 3, 2, 1]


def test_output_of_unknown_rank_feeds_an_input(runtime: Runtime) -> None:
    builder = runtime.create_pipeline_builder()
    first = builder.add_model_stage(runtime.load_model_from_buffer(reshape().SerializeToString()))
    second = builder.add_model_stage(runtime.load_model_from_buffer(double().SerializeToString()))
    builder.connect(first, 0, second, 0)
    pipeline = builder.build()
    first.bind_input(0, runtime.tensor_from_numpy(np.array([1, 2, 3, 4], np.float32)))
    first.bind_input(1, runtime.tensor_from_numpy(np.array([2, 2])))
    second.request_output(0)
    pipeline.run()
    assert second.output(0).to_numpy().tolist() == [[2, 4], [6, 8]]
    first.bind_input(1, runtime.tensor_from_numpy(np.array([4])))
    with pytest.raises(WinMLError, match=r"expected FLOAT32\[2, 2\], got FLOAT32\[4\]") as caught:
        pipeline.run()
    assert caught.value.hresult == E_INVALIDARG


def test_output_of_unknown_rank_changes_its_rank(runtime: Runtime) -> None:
    stage, pipeline = built(runtime, reshape())
    stage.bind_input(0, runtime.tensor_from_numpy(np.array([7], np.float32)))
    stage.request_output(0)
    for shape in ((), (1,), (1, 1, 1)):
        stage.bind_input(1, runtime.create_tensor(TensorDataType.INT64, (len(shape),), np.array(shape, np.int64)))
        pipeline.run()
        assert stage.output(0).desc() == (F32, shape)


def test_shape_that_the_engine_gets_wrong(runtime: Runtime) -> None:
    stage, pipeline = built(runtime, attention())
    assert stage.schema().output_desc(0)[1][2] == 2**64 - 1
    x = np.arange(12, dtype=np.float32).reshape(1, 3, 4)
    stage.bind_input(0, runtime.tensor_from_numpy(x))
    stage.request_output(0)
    pipeline.run()
    expected = stage.output(0).to_numpy()
    assert expected.shape == (1, 3, 4)
    bound = runtime.create_tensor(F32, (1, 3, 4))
    stage.bind_output(0, bound)
    pipeline.run()
    assert bound.to_numpy().tolist() == expected.tolist()
