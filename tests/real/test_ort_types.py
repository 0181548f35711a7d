"""Every element type of tensors through ONNX Runtime: fresh, bound, fed back and as state; odd and empty shapes."""

from __future__ import annotations

import math

import numpy as np
import onnx
import pytest

from fakes.rig import failing
from models import onnx_models
from winml_lite import (
    Pipeline,
    PipelineBuilder,
    Runtime,
    Stage,
    Tensor,
    TensorAccessMode,
    TensorDataType,
    TensorLockMode,
)
from winml_lite.storage import byte_size
from winml_lite.values import NUMPY_NAMES, TO_ONNX_TYPE

pytestmark = pytest.mark.usefixtures("ort")

T = TensorDataType
TYPES = [
    T.FLOAT32, T.FLOAT16, T.BFLOAT16, T.INT8, T.UINT8, T.INT16, T.UINT16, T.INT32, T.UINT32, T.INT64, T.UINT64,
    T.FLOAT64, T.BOOL, T.INT4, T.UINT4,
]  # fmt: skip
SHAPES: list[tuple[int, ...]] = [(), (0,), (0, 3), (3, 0, 2), (3,), (5, 3), (2, 1, 4)]
NARROW = {T.INT4, T.UINT4}

every_type = pytest.mark.parametrize("data_type", TYPES, ids=lambda data_type: data_type.name)


def pattern(data_type: T, shape: tuple[int, ...], first: int = 1) -> bytes:
    """Bytes that are all different, or as good as the element type allows."""
    size = byte_size(data_type, shape)
    if data_type is T.BOOL:
        return bytes((first + index) % 2 for index in range(size))
    data = bytearray((first + index) % 251 for index in range(size))
    if data_type in NARROW and math.prod(shape) % 2:
        data[-1] &= 0x0F  # the half byte that no element uses is zero
    return bytes(data)


def content(tensor: Tensor) -> bytes:
    with tensor.lock(TensorLockMode.READ) as lock:
        return bytes(lock.data())


def added(runtime: Runtime, model: onnx.ModelProto) -> tuple[PipelineBuilder, Stage]:
    builder = runtime.create_pipeline_builder()
    return builder, builder.add_model_stage(runtime.load_model_from_buffer(model.SerializeToString()))


def delayed(runtime: Runtime, data_type: T, shape: tuple[int, ...]) -> tuple[PipelineBuilder, Stage]:
    """The stage y = past, present = x (inputs step, x, past), with y requested."""
    builder, stage = added(runtime, onnx_models.delay(TO_ONNX_TYPE[data_type], shape))
    stage.bind_input(0, runtime.create_tensor(T.INT64, (1,)))
    stage.request_output(0)
    return builder, stage


def built(runtime: Runtime, model: onnx.ModelProto) -> tuple[Stage, Pipeline]:
    builder, stage = added(runtime, model)
    return stage, builder.build()


@every_type
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_every_type_and_shape_goes_through_a_fresh_output(
    runtime: Runtime, data_type: T, shape: tuple[int, ...]
) -> None:
    stage, pipeline = built(runtime, onnx_models.identity(TO_ONNX_TYPE[data_type], shape))
    data = pattern(data_type, shape)
    stage.bind_input(0, runtime.create_tensor(data_type, shape, data))
    stage.request_output(0)
    pipeline.run()
    assert stage.output(0).desc() == (data_type, shape)
    assert content(stage.output(0)) == data


@every_type
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_every_type_and_shape_goes_into_a_bound_output(runtime: Runtime, data_type: T, shape: tuple[int, ...]) -> None:
    stage, pipeline = built(runtime, onnx_models.identity(TO_ONNX_TYPE[data_type], shape))
    data, room = pattern(data_type, shape), bytearray(byte_size(data_type, shape))
    stage.bind_input(0, runtime.tensor_from_buffer(data, data_type, shape, access=TensorAccessMode.READ))
    stage.bind_output(0, runtime.tensor_from_buffer(room, data_type, shape, access=TensorAccessMode.READWRITE))
    pipeline.run()
    assert room == data


@every_type
def test_free_dimensions_take_every_type(runtime: Runtime, data_type: T) -> None:
    stage, pipeline = built(runtime, onnx_models.identity(TO_ONNX_TYPE[data_type], ["N", 3]))
    stage.request_output(0)
    for rows in (2, 0, 1):
        data = pattern(data_type, (rows, 3))
        stage.bind_input(0, runtime.create_tensor(data_type, (rows, 3), data))
        pipeline.run()
        assert stage.output(0).desc() == (data_type, (rows, 3))
        assert content(stage.output(0)) == data


@every_type
def test_every_type_is_fed_back(runtime: Runtime, data_type: T) -> None:
    shape = (1, 3)
    builder, stage = delayed(runtime, data_type, shape)
    builder.connect_next_iteration(stage, 1, stage, 2)
    seed, first = pattern(data_type, shape, 1), pattern(data_type, shape, 100)
    stage.bind_input(1, runtime.create_tensor(data_type, shape, first))
    stage.bind_input(2, runtime.create_tensor(data_type, shape, seed))
    pipeline = builder.build()
    pipeline.run()
    assert content(stage.output(0)) == seed
    pipeline.run()
    assert content(stage.output(0)) == first


@every_type
def test_every_type_is_kept_as_state(runtime: Runtime, data_type: T) -> None:
    shape = (1, 1, 3, 1)
    builder, stage = delayed(runtime, data_type, shape)
    stage.add_state_tensor_pair(2, 1)
    first, second = pattern(data_type, shape, 1), pattern(data_type, shape, 100)
    pipeline = builder.build()
    stage.bind_input(1, runtime.create_tensor(data_type, shape, first))
    pipeline.run()
    assert content(stage.output(0)) == bytes(len(first))
    stage.bind_input(1, runtime.create_tensor(data_type, shape, second))
    pipeline.run()
    assert content(stage.output(0)) == first
    pipeline.reset()
    pipeline.run()
    assert content(stage.output(0)) == bytes(len(first))


@every_type
@pytest.mark.parametrize("shape", [(1, 3), (3, 0, 2), (5,)], ids=str)
def test_every_type_is_state_of_the_caller(runtime: Runtime, data_type: T, shape: tuple[int, ...]) -> None:
    builder, stage = delayed(runtime, data_type, shape)
    stage.add_state_tensor_pair(2, 1)
    stage.caller_owns_state_tensors = True
    first, state = pattern(data_type, shape), runtime.create_tensor(data_type, shape)
    stage.bind_input(1, runtime.create_tensor(data_type, shape, first))
    stage.bind_input(2, state)
    pipeline = builder.build()
    pipeline.run()
    assert content(state) == first
    pipeline.run()
    assert content(stage.output(0)) == first


@pytest.mark.parametrize("data_type", list(NUMPY_NAMES), ids=lambda data_type: data_type.name)
def test_numbers_keep_their_value(runtime: Runtime, data_type: T) -> None:
    stage, pipeline = built(runtime, onnx_models.cast(TO_ONNX_TYPE[data_type], [4]))
    stage.bind_input(0, runtime.tensor_from_numpy(np.array([0, 1, 1, 0], np.float32)))
    stage.request_output(0)
    stage.request_output(1)
    pipeline.run()
    assert stage.output(0).to_numpy().dtype == NUMPY_NAMES[data_type]
    assert stage.output(0).to_numpy().tolist() == [0, 1, 1, 0]
    assert stage.output(1).to_numpy().tolist() == [0, 1, 1, 0]


@pytest.mark.parametrize(
    ("data_type", "numbers", "packed"),
    [
        (T.BFLOAT16, [1.0, -2.0, 0.5], "803f00c0003f"),
        (T.INT4, [1.0, -8.0, 7.0], "8107"),
        (T.UINT4, [1.0, 15.0, 7.0], "f107"),
    ],
)
def test_t8_types_that_numpy_lacks_lie_as_documented(
    runtime: Runtime, data_type: T, numbers: list[float], packed: str
) -> None:
    stage, pipeline = built(runtime, onnx_models.cast(TO_ONNX_TYPE[data_type], [3]))
    stage.bind_input(0, runtime.tensor_from_numpy(np.array(numbers, np.float32)))
    stage.request_output(0)
    stage.request_output(1)
    pipeline.run()
    assert stage.output(0).desc() == (data_type, (3,))
    assert content(stage.output(0)).hex() == packed
    assert stage.output(1).to_numpy().tolist() == numbers


@every_type
def test_another_type_of_the_same_size_is_refused(runtime: Runtime, data_type: T) -> None:
    other = T.UINT8 if data_type is T.INT8 else T.INT8
    stage, _ = built(runtime, onnx_models.identity(TO_ONNX_TYPE[data_type], [2]))
    with failing(0x80070057):
        stage.bind_input(0, runtime.create_tensor(other, (2,)))
