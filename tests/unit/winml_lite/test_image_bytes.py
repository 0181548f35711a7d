"""Picture tensors back to pixels, over many formats, types and sizes."""

from __future__ import annotations

import numpy as np
import pytest

from fakes.rig import failing
from winml_lite import (
    ImageFormat,
    ImageTensorOptions,
    Runtime,
    TensorChannelOrder,
    TensorDataType,
    TensorLayout,
    TensorLockMode,
    TensorNormalization,
    TensorQuantization,
    TensorQuantizationMode,
)

T = TensorDataType
COLOURS = [TensorChannelOrder.RGB, TensorChannelOrder.BGR, TensorChannelOrder.RGBA, TensorChannelOrder.BGRA]
PIXELS = np.random.default_rng(0).integers(0, 256, (11, 6, 4), np.uint8)
OPAQUE = PIXELS.copy()
OPAQUE[..., 3] = 255


@pytest.mark.parametrize("order", COLOURS)
@pytest.mark.parametrize("layout", [TensorLayout.NCHW, TensorLayout.NHWC])
@pytest.mark.parametrize("data_type", [T.FLOAT32, T.FLOAT16, T.UINT8])
def test_pixels_come_back(runtime: Runtime, order: TensorChannelOrder, layout: TensorLayout, data_type: T) -> None:
    options = ImageTensorOptions(data_type=data_type, layout=layout, channel_order=order)
    tensor = runtime.tensor_from_image(PIXELS, options=options)
    expected = PIXELS if "A" in order.name else OPAQUE
    assert tensor.to_image_bytes(size=(6, 11), options=options) == expected.tobytes()
    found = tensor.to_image_bytes(size=(6, 11), options=options, image_format=ImageFormat.BGRA8)
    assert found == expected[..., [2, 1, 0, 3]].tobytes()


def test_bgra_bytes_come_back(runtime: Runtime) -> None:
    options = ImageTensorOptions(channel_order=TensorChannelOrder.RGBA)
    tensor = runtime.tensor_from_image(
        PIXELS.tobytes(), width=6, height=11, image_format=ImageFormat.BGRA8, options=options
    )
    assert tensor.to_image_bytes(size=(6, 11), image_format=ImageFormat.BGRA8, options=options) == PIXELS.tobytes()


@pytest.mark.parametrize("data_type", [T.INT8, T.UINT8])
def test_affine_steps_come_back(runtime: Runtime, data_type: T) -> None:
    # 0..255 in steps of 1/255, moved by the zero point: every byte has a step of its own
    quantization = TensorQuantization(
        TensorQuantizationMode.ZERO_POINT_AFFINE, 1 / 255, -128 if data_type is T.INT8 else 0
    )
    options = ImageTensorOptions(
        data_type=data_type, normalization=TensorNormalization.unit(), quantization=quantization
    )
    tensor = runtime.tensor_from_image(PIXELS, options=options)
    assert tensor.to_image_bytes(size=(6, 11), options=options) == OPAQUE.tobytes()


def test_large_tensors_are_read_in_blocks(runtime: Runtime) -> None:
    pixels = np.random.default_rng(1).integers(0, 256, (300, 500, 4), np.uint8)
    options = ImageTensorOptions(channel_order=TensorChannelOrder.RGBA)
    tensor = runtime.tensor_from_image(pixels, options=options)
    assert tensor.to_image_bytes(size=(500, 300), options=options) == pixels.tobytes()


def test_halves_go_to_the_even_side(runtime: Runtime) -> None:
    values = np.array([0.5, 1.5, 2.5, 254.5], np.float32).reshape(1, 1, 1, 4)
    tensor = runtime.tensor_from_numpy(values)
    options = ImageTensorOptions(channel_order=TensorChannelOrder.GRAY)
    found = tensor.to_image_bytes(size=(4, 1), image_format=ImageFormat.GRAY8, options=options)
    assert found == bytes([0, 2, 2, 254])


def test_a_scale_of_0_in_a_channel_that_is_not_there(runtime: Runtime) -> None:
    options = ImageTensorOptions(normalization=TensorNormalization(scale=(1, 1, 1, 0)))
    tensor = runtime.tensor_from_image(PIXELS, options=options)
    assert tensor.to_image_bytes(size=(6, 11), options=options) == OPAQUE.tobytes()


def test_a_tensor_that_is_being_written_is_not_read(runtime: Runtime) -> None:
    tensor = runtime.tensor_from_image(PIXELS)
    with tensor.lock(TensorLockMode.WRITE), failing(0x800700D4):
        tensor.to_image_bytes(size=(6, 11))
    assert tensor.to_image_bytes(size=(6, 11)) == OPAQUE.tobytes()


def test_a_huge_size_is_not_allocated(runtime: Runtime) -> None:
    tensor = runtime.tensor_from_image(PIXELS)
    with failing(0x80070057):
        tensor.to_image_bytes(size=(2**32 - 1, 2**32 - 1))
