"""Picture tensors against a computation of one pixel at a time, over many sizes, modes, orders and memory layouts."""

from __future__ import annotations

import random
import tracemalloc
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from fakes.reference_images import Wanted, reference_image
from fakes.rig import failing
from fakes.staged import DeviceStorage
from winml_lite import (
    ImageFormat,
    ImageResizeMode,
    ImageTensorOptions,
    Runtime,
    TensorChannelOrder,
    TensorDataType,
    TensorLayout,
    TensorNormalization,
    TensorQuantization,
    TensorQuantizationMode,
)
from winml_lite.media.image_layout import image_layout
from winml_lite.media.image_tensors import write_image
from winml_lite.media.pixels import PackedPixels

T = TensorDataType
Order = TensorChannelOrder
GRAY = Order.GRAY
LETTERS = {Order.RGB: "RGB", Order.BGR: "BGR", Order.GRAY: "L", Order.RGBA: "RGBA", Order.BGRA: "BGRA"}
MODES = {
    ImageResizeMode.STRETCH: "stretch",
    ImageResizeMode.CENTER_CROP: "crop",
    ImageResizeMode.LETTERBOX: "letterbox",
}
STORED = ["L", "RGB", "BGR", "RGBA", "BGRA"]
SIZES = [(1, 1), (1, 9), (9, 1), (2, 3), (7, 5), (8, 8), (16, 4), (13, 21)]


def noise(size: tuple[int, int], channels: int, seed: int) -> npt.NDArray[np.uint8]:
    """A picture (height, width, channels)."""
    return np.random.default_rng(seed).integers(0, 256, (size[1], size[0], channels), np.uint8)


def planes(runtime: Runtime, image: Any, options: ImageTensorOptions, **raw: Any) -> npt.NDArray[Any]:
    """The elements as (channel, row, column), whatever their layout is."""
    elements: npt.NDArray[Any] = runtime.tensor_from_image(image, options=options, **raw).to_numpy()[0]
    return elements if options.layout == TensorLayout.NCHW else elements.transpose(2, 0, 1)


def format_of(stored: str) -> ImageFormat | None:
    """What tells an array of these channels."""
    return ImageFormat.BGRA8 if stored.startswith("B") else None


@pytest.mark.parametrize("mode", ImageResizeMode)
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("target", SIZES)
def test_every_size_and_mode(
    runtime: Runtime, mode: ImageResizeMode, size: tuple[int, int], target: tuple[int, int]
) -> None:
    picture = noise(size, 1, 1)
    options = ImageTensorOptions(channel_order=GRAY, size=target, resize_mode=mode, letterbox_value=(7, 0, 0, 0))
    wanted = Wanted("L", target, MODES[mode], (7, 0, 0, 0))
    np.testing.assert_allclose(planes(runtime, picture, options), reference_image(picture, "L", wanted), atol=1e-3)


@pytest.mark.parametrize("order", LETTERS)
@pytest.mark.parametrize("stored", STORED)
@pytest.mark.parametrize("layout", [TensorLayout.NCHW, TensorLayout.NHWC])
def test_every_order_from_every_order(runtime: Runtime, order: Order, stored: str, layout: TensorLayout) -> None:
    picture = noise((6, 5), len(stored), 2)
    scale, mean, bars = (1.0, 0.5, 0.25, 2.0), (10.0, 20.0, 30.0, 40.0), (1.0, 2.0, 3.0, 4.5)
    options = ImageTensorOptions(
        layout=layout,
        channel_order=order,
        size=(4, 9),
        resize_mode=ImageResizeMode.LETTERBOX,
        letterbox_value=bars,
        normalization=TensorNormalization(scale, mean),
    )
    wanted = Wanted(LETTERS[order], (4, 9), "letterbox", bars, scale, mean)
    found = planes(runtime, picture, options, image_format=format_of(stored))
    np.testing.assert_allclose(found, reference_image(picture, stored, wanted), atol=1e-3)


def memory_forms(picture: npt.NDArray[np.uint8]) -> dict[str, npt.NDArray[np.uint8]]:
    """The same pixels in arrays of different strides."""
    wide = np.zeros((picture.shape[0], picture.shape[1] + 3, picture.shape[2]), np.uint8)
    wide[:, : picture.shape[1]] = picture
    frozen = picture.copy()
    frozen.flags.writeable = False
    return {
        "contiguous": picture,
        "fortran": np.asfortranarray(picture),
        "upside down": picture[::-1].copy()[::-1],
        "mirrored": picture[:, ::-1].copy()[:, ::-1],
        "reversed channels": picture[..., ::-1].copy()[..., ::-1],
        "pitched": wide[:, : picture.shape[1]],
        "every second": np.repeat(np.repeat(picture, 2, 0), 2, 1)[::2, ::2],
        "read-only": frozen,
        "broadcast": np.broadcast_to(picture, picture.shape),
    }


@pytest.mark.parametrize("form", memory_forms(np.zeros((1, 1, 1), np.uint8)))
@pytest.mark.parametrize("target", [(11, 7), (4, 3), (30, 30)])
def test_strides_make_no_difference(runtime: Runtime, form: str, target: tuple[int, int]) -> None:
    picture = noise((11, 7), 3, 3)
    options = ImageTensorOptions(size=target)
    found = planes(runtime, memory_forms(picture)[form], options)
    assert found.tolist() == planes(runtime, picture, options).tolist()


def random_case(seed: int) -> tuple[tuple[int, int], str, ImageTensorOptions]:
    """A size, stored channels and options."""
    draw = random.Random(seed)
    size, target = ((draw.randint(1, 40), draw.randint(1, 40)) for _ in range(2))
    normalization = TensorNormalization(*(tuple(draw.uniform(0.01, 200) for _ in range(4)) for _ in range(2)))  # type: ignore[arg-type]
    options = ImageTensorOptions(
        layout=draw.choice([TensorLayout.NCHW, TensorLayout.NHWC]),
        channel_order=draw.choice(list(LETTERS)),
        size=target,
        resize_mode=draw.choice(list(ImageResizeMode)),
        letterbox_value=(draw.uniform(0, 255), 0, 255, 8),
        normalization=normalization,
    )
    return size, draw.choice(STORED), options


@pytest.mark.parametrize("seed", range(60))
def test_random_pictures(runtime: Runtime, seed: int) -> None:
    size, stored, options = random_case(seed)
    picture = noise(size, len(stored), seed)
    normalization = options.normalization
    wanted = Wanted(
        LETTERS[options.channel_order],
        options.size or size,
        MODES[options.resize_mode],
        options.letterbox_value,
        normalization.scale,
        normalization.mean,
    )
    found = planes(runtime, picture, options, image_format=format_of(stored))
    # one part in a million of the largest value: float32
    np.testing.assert_allclose(found, reference_image(picture, stored, wanted), atol=1e-6 * 255 * 200)


@pytest.mark.parametrize("seed", range(60))
def test_random_pictures_in_half_precision(runtime: Runtime, seed: int) -> None:
    size, stored, options = random_case(seed)
    picture = noise(size, len(stored), seed)
    raw = {"image_format": format_of(stored)}
    with np.errstate(over="ignore"):
        expected = planes(runtime, picture, options, **raw).astype(np.float16)
    found = planes(runtime, picture, replace(options, data_type=T.FLOAT16), **raw)
    assert found.dtype == np.float16
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("data_type", [T.INT8, T.UINT8])
@pytest.mark.parametrize("mode", TensorQuantizationMode)
@pytest.mark.parametrize("seed", range(6))
def test_random_quantizations(runtime: Runtime, seed: int, mode: TensorQuantizationMode, data_type: T) -> None:
    draw = random.Random(seed)
    scale, zero_point = draw.uniform(0.3, 3), draw.uniform(-20, 20)
    affine = mode is TensorQuantizationMode.ZERO_POINT_AFFINE
    divided = affine or mode is TensorQuantizationMode.SYMMETRIC_PER_TENSOR
    size, target = (9, 8), (5, 13)
    picture = noise(size, 3, seed)
    quantization = TensorQuantization(mode, scale, zero_point if affine else None)
    options = ImageTensorOptions(
        data_type=data_type,
        size=target,
        normalization=TensorNormalization(mean=(100, 90, 80, 0)),
        quantization=None if mode is TensorQuantizationMode.NONE else quantization,
    )
    values = reference_image(picture, "RGB", Wanted("RGB", target, "stretch", mean=(100, 90, 80, 0)))
    quotients = values / scale if divided else values
    low, high = (-128, 127) if data_type is T.INT8 else (0, 255)
    expected = np.clip(np.rint(quotients) + (round(zero_point) if affine else 0), low, high)
    found = planes(runtime, picture, options).astype(int)
    # A value within 1e-4 of a half may go to either side.
    is_clear = np.abs(np.abs(quotients - np.trunc(quotients)) - 0.5) > 1e-4
    np.testing.assert_array_equal(found[is_clear], expected[is_clear])
    assert np.abs(found - expected).max() <= 1


# Numbers that go wrong


def gray_options(data_type: T, scale: float, mean: float = 0.0) -> ImageTensorOptions:
    """Options of a gray tensor."""
    return ImageTensorOptions(
        data_type=data_type,
        channel_order=GRAY,
        normalization=TensorNormalization((scale, 1, 1, 1), (mean, 0, 0, 0)),
    )


PAIR = np.array([[0, 2]], np.uint8)


def test_half_precision_overflows_to_infinity(runtime: Runtime) -> None:
    assert planes(runtime, PAIR, gray_options(T.FLOAT16, 40000)).ravel().tolist() == [0, float("inf")]


def test_single_precision_overflows_to_infinity(runtime: Runtime) -> None:
    assert planes(runtime, PAIR, gray_options(T.FLOAT32, 3e38)).ravel().tolist() == [0, float("inf")]


def test_numbers_beyond_single_precision_are_worked_with(runtime: Runtime) -> None:
    # (0 - 1e40) * 1e-40 is -1; in float32 it would be no number
    found = planes(runtime, PAIR, gray_options(T.FLOAT32, 1e-40, 1e40)).ravel().tolist()
    assert found == [-1, -1]


@pytest.mark.parametrize("data_type", [T.INT8, T.UINT8])
def test_what_is_no_number_is_stored_as_0(runtime: Runtime, data_type: T) -> None:
    assert planes(runtime, PAIR, gray_options(data_type, float("nan"))).ravel().tolist() == [0, 0]
    # 0 * inf is no number, 2 * inf saturates
    greatest = 127 if data_type is T.INT8 else 255
    assert planes(runtime, PAIR, gray_options(data_type, float("inf"))).ravel().tolist() == [0, greatest]


def test_what_is_no_number_stays_so_in_floats(runtime: Runtime) -> None:
    assert np.isnan(planes(runtime, PAIR, gray_options(T.FLOAT32, float("nan")))).all()


@pytest.mark.parametrize(("value", "stored"), [(-1, 0), (-3, -2), (-5, -2), (1, 0), (3, 2)])
def test_halves_go_to_the_even_side(runtime: Runtime, value: int, stored: int) -> None:
    # value / 2, by way of a mean of 100
    options = ImageTensorOptions(
        data_type=T.INT8,
        channel_order=GRAY,
        normalization=TensorNormalization(mean=(100, 0, 0, 0)),
        quantization=TensorQuantization(TensorQuantizationMode.SYMMETRIC_PER_TENSOR, 2.0),
    )
    assert planes(runtime, np.array([[100 + value]], np.uint8), options).ravel().tolist() == [stored]


# Large and hostile


def test_a_large_reduction_reads_little_of_the_picture(runtime: Runtime) -> None:
    picture = np.zeros((3000, 4000, 3), np.uint8)
    options = ImageTensorOptions(size=(224, 224))
    runtime.tensor_from_image(picture, options=options)
    tracemalloc.start()
    try:
        runtime.tensor_from_image(picture, options=options)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    # The tensor has 0.6 MB, the picture 36 MB, in float32 it would have 144 MB.
    assert peak < 6_000_000


@pytest.mark.parametrize("size", [(2**31, 2**31), (2**32 - 1, 2**32 - 1)])
def test_a_tensor_beyond_all_memory_is_refused_at_once(runtime: Runtime, size: tuple[int, int]) -> None:
    with failing(0x80070216):
        runtime.tensor_from_image(PAIR, options=ImageTensorOptions(size=size))


def test_a_tensor_beyond_this_memory_is_refused_at_once(runtime: Runtime) -> None:
    with failing(0x8007000E):
        runtime.tensor_from_image(PAIR, options=ImageTensorOptions(size=(2**26, 2**26)))


def test_bytes_that_claim_a_huge_picture_are_refused(runtime: Runtime) -> None:
    with pytest.raises(ValueError, match="the buffer has 4"):
        runtime.tensor_from_image(bytes(4), width=2**32 - 1, height=2**32 - 1, image_format=ImageFormat.RGBA8)


def test_one_pixel_may_become_a_long_line(runtime: Runtime) -> None:
    options = ImageTensorOptions(channel_order=GRAY, size=(100_000, 1))
    found = planes(runtime, np.array([[7]], np.uint8), options)
    assert found.shape == (1, 1, 100_000)
    assert found.min() == found.max() == 7


def test_memory_of_a_device_is_written_at_the_end() -> None:
    device = DeviceStorage(bytes(4), T.UINT8, (1, 1, 2, 2))
    options = ImageTensorOptions(data_type=T.UINT8, channel_order=GRAY)
    source = PackedPixels(np.array([[[1], [2]], [[3], [4]]], np.uint8), "L")
    write_image(source, image_layout(options, (2, 2), "Test"), device, "Test")
    assert bytes(device.memory) == bytes([1, 2, 3, 4])
