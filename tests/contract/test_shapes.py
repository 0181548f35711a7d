"""Shapes and element types that a graph takes: rank 0, zero lengths, every NumPy type (runtime 19, tensors 1.2)."""

from __future__ import annotations

import numpy as np
import pytest

from fakes.rig import failing
from models import onnx_models
from winml_lite import Pipeline, Runtime, Stage, Tensor, TensorDataType
from winml_lite.values import NUMPY_NAMES, TO_ONNX_TYPE

T = TensorDataType


def identity(runtime: Runtime, shape: onnx_models.Shape, data_type: T = T.FLOAT32) -> tuple[Stage, Pipeline]:
    """The graph Y = X with Y requested."""
    model = onnx_models.identity(TO_ONNX_TYPE[data_type], shape)
    builder = runtime.create_pipeline_builder()
    stage = builder.add_model_stage(runtime.load_model_from_buffer(model.SerializeToString()))
    stage.request_output(0)
    return stage, builder.build()


def ones(runtime: Runtime, shape: tuple[int, ...], data_type: T = T.FLOAT32) -> Tensor:
    tensor = runtime.create_tensor(data_type, shape)
    tensor.fill(1)
    return tensor


@pytest.mark.parametrize("shape", [(), (0,), (1,), (0, 3), (3, 0, 2), (2, 1, 3)], ids=str)
def test_a_shape_goes_through_a_stage(runtime: Runtime, onnx_engine: str, shape: tuple[int, ...]) -> None:
    stage, pipeline = identity(runtime, shape)
    stage.bind_input(0, ones(runtime, shape))
    pipeline.run()
    assert stage.output(0).to_numpy().shape == shape
    assert stage.output(0).to_numpy().tolist() == np.ones(shape).tolist()


@pytest.mark.parametrize("shape", [(), (0,), (0, 3), (2, 1, 3)], ids=str)
def test_a_shape_goes_into_a_bound_tensor(runtime: Runtime, onnx_engine: str, shape: tuple[int, ...]) -> None:
    stage, pipeline = identity(runtime, shape)
    target = runtime.create_tensor(T.FLOAT32, shape)
    stage.bind_input(0, ones(runtime, shape))
    stage.bind_output(0, target)
    pipeline.run()
    assert target.to_numpy().tolist() == np.ones(shape).tolist()


@pytest.mark.parametrize("data_type", list(NUMPY_NAMES), ids=lambda data_type: data_type.name)
def test_every_numpy_type_goes_through_a_stage(runtime: Runtime, onnx_engine: str, data_type: T) -> None:
    stage, pipeline = identity(runtime, (2,), data_type)
    stage.bind_input(0, ones(runtime, (2,), data_type))
    pipeline.run()
    assert stage.output(0).desc() == (data_type, (2,))
    assert stage.output(0).to_numpy().tolist() == [1, 1]


@pytest.mark.parametrize(("declared", "bound"), [((), (1,)), ((), (0,)), ((1,), ()), ((0,), (1,)), ((1, 1), (1,))])
def test_rank_0_is_neither_empty_nor_a_vector_of_one(
    runtime: Runtime, onnx_engine: str, declared: tuple[int, ...], bound: tuple[int, ...]
) -> None:
    stage, _ = identity(runtime, declared)
    with failing(0x80070057):
        stage.bind_input(0, ones(runtime, bound))


@pytest.mark.parametrize("rows", [0, 1, 7])
def test_r138_a_free_extent_may_be_0(runtime: Runtime, onnx_engine: str, rows: int) -> None:
    stage, pipeline = identity(runtime, ["N", 3])
    stage.bind_input(0, ones(runtime, (rows, 3)))
    pipeline.run()
    assert stage.output(0).desc() == (T.FLOAT32, (rows, 3))


def test_r142_a_bound_tensor_of_as_many_bytes_is_another_shape(runtime: Runtime, onnx_engine: str) -> None:
    stage, pipeline = identity(runtime, ["N", "M"])
    stage.bind_input(0, ones(runtime, (2, 3)))
    stage.bind_output(0, runtime.create_tensor(T.FLOAT32, (3, 2)))
    with failing(0x80070057):
        pipeline.run()


def test_a_strided_and_foreign_array_reaches_the_stage(runtime: Runtime, onnx_engine: str) -> None:
    stage, pipeline = identity(runtime, ["N", "M"])
    source = np.arange(12, dtype=">f4").reshape(3, 4)[::-1, ::2].T
    stage.bind_input(0, runtime.tensor_from_numpy(source))
    pipeline.run()
    assert stage.output(0).to_numpy().tolist() == [[8, 4, 0], [10, 6, 2]]
