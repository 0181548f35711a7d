"""Pictures to tensors and back: statements 32-48 of tensors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from fakes.rig import failing
from winml_lite import (
    ImageFormat,
    ImageResizeMode,
    Runtime,
    Tensor,
    TensorAccessMode,
    TensorChannelOrder,
    TensorDataType,
    TensorLayout,
    TensorLockMode,
    TensorNormalization,
    TensorQuantization,
    TensorQuantizationMode,
    WinMLError,
)
from winml_lite import ImageTensorOptions as Options

T = TensorDataType
Order, Mode = TensorChannelOrder, TensorQuantizationMode
INVALID = 0x80070057

# red, green / blue, white
FOUR = np.array(
    [[[255, 0, 0, 255], [0, 255, 0, 255]], [[0, 0, 255, 255], [255, 255, 255, 255]]],
    np.uint8,
)
GRAY_ROW = np.array([[0, 100]], np.uint8)


def elements(runtime: Runtime, image: Any, options: Options | None = None, **raw: Any) -> npt.NDArray[Any]:
    """The elements of the tensor of a picture."""
    return runtime.tensor_from_image(image, options=options, **raw).to_numpy()


def column(values: list[int]) -> npt.NDArray[np.uint8]:
    """A gray picture of one column."""
    return np.array(values, np.uint8)[:, None]


# Channels and layouts


def test_t32_the_default_is_planes_of_red_green_and_blue(runtime: Runtime) -> None:
    tensor = runtime.tensor_from_image(FOUR)
    assert tensor.desc() == (T.FLOAT32, (1, 3, 2, 2))
    assert tensor.to_numpy().reshape(3, 4).tolist() == [[255, 0, 0, 255], [0, 255, 0, 255], [0, 0, 255, 255]]


def test_t33_bgr_swaps_the_first_and_the_last_plane(runtime: Runtime) -> None:
    planes = elements(runtime, FOUR, Options(channel_order=Order.BGR)).reshape(3, 4)
    assert planes.tolist() == [[0, 0, 255, 255], [0, 255, 0, 255], [255, 0, 0, 255]]


def test_t33_nhwc_has_the_channels_of_a_pixel_together(runtime: Runtime) -> None:
    tensor = runtime.tensor_from_image(FOUR, options=Options(layout=TensorLayout.NHWC))
    assert tensor.desc() == (T.FLOAT32, (1, 2, 2, 3))
    assert tensor.to_numpy().reshape(4, 3).tolist() == [[255, 0, 0], [0, 255, 0], [0, 0, 255], [255, 255, 255]]


def test_t33_rgba_has_a_fourth_plane_of_255(runtime: Runtime) -> None:
    planes = elements(runtime, FOUR[..., :3], Options(channel_order=Order.RGBA)).reshape(4, 4)
    assert planes.tolist() == [[255, 0, 0, 255], [0, 255, 0, 255], [0, 0, 255, 255], [255, 255, 255, 255]]


def test_t33_bgra_keeps_alpha_last(runtime: Runtime) -> None:
    pixel = np.array([[[1, 2, 3, 4]]], np.uint8)
    assert elements(runtime, pixel, Options(channel_order=Order.BGRA)).ravel().tolist() == [3, 2, 1, 4]


def test_t33_an_unspecified_layout_is_nchw(runtime: Runtime) -> None:
    assert elements(runtime, FOUR, Options(layout=TensorLayout.UNSPECIFIED)).shape == (1, 3, 2, 2)


def test_t34_bgra_bytes_and_rgba_bytes_of_one_picture_give_one_tensor(runtime: Runtime) -> None:
    rgba = elements(runtime, FOUR.tobytes(), width=2, height=2, image_format=ImageFormat.RGBA8)
    bgra = elements(runtime, FOUR[..., [2, 1, 0, 3]].tobytes(), width=2, height=2, image_format=ImageFormat.BGRA8)
    assert rgba.ravel().tolist() == [255, 0, 0, 255, 0, 255, 0, 255, 0, 0, 255, 255]
    assert bgra.tolist() == rgba.tolist()


@pytest.mark.parametrize(("number", "expected"), [(28, [1, 2, 3]), (29, [1, 2, 3]), (87, [3, 2, 1]), (91, [3, 2, 1])])
def test_t34_srgb_numbers_are_the_plain_formats(runtime: Runtime, number: int, expected: list[int]) -> None:
    found = elements(runtime, b"\1\2\3\4", width=1, height=1, image_format=number)
    assert found.ravel().tolist() == expected


# Normalization


def test_t35_imagenet(runtime: Runtime) -> None:
    options = Options(normalization=TensorNormalization.imagenet())
    red = elements(runtime, np.array([[[255, 0, 0], [0, 0, 0]]], np.uint8), options)[0, 0, 0]
    assert red == pytest.approx([2.2489083, -2.1179039], abs=1e-5)


def test_t35_unit(runtime: Runtime) -> None:
    options = Options(normalization=TensorNormalization.unit())
    assert elements(runtime, FOUR, options)[0, 0].ravel() == pytest.approx([1, 0, 0, 1], abs=1e-7)


def test_t35_channels_are_normalized_by_their_place_in_the_tensor(runtime: Runtime) -> None:
    normalization = TensorNormalization(scale=(1, 2, 3, 4), mean=(10, 20, 30, 40))
    options = Options(channel_order=Order.BGRA, normalization=normalization)
    # blue (30 - 10) * 1, green (20 - 20) * 2, red (10 - 30) * 3, alpha (44 - 40) * 4
    pixel = np.array([[[10, 20, 30, 44]]], np.uint8)
    assert elements(runtime, pixel, options).ravel().tolist() == [20, 0, -60, 16]


# Sizes


def test_t36_enlarging_blends_at_half_pixel_centres(runtime: Runtime) -> None:
    options = Options(channel_order=Order.GRAY, size=(4, 1))
    assert elements(runtime, GRAY_ROW, options).ravel().tolist() == [0, 25, 75, 100]


def test_t36_the_same_size_is_an_exact_copy(runtime: Runtime) -> None:
    picture = np.arange(256, dtype=np.uint8).reshape(16, 16)
    options = Options(channel_order=Order.GRAY, size=(16, 16))
    assert elements(runtime, picture, options).ravel().tolist() == list(range(256))


def test_t36_reducing_looks_at_the_neighbours_of_the_centre_only(runtime: Runtime) -> None:
    # 8 to 2: centres at 1.5 and 5.5, so the means of pixels 1, 2 and of 5, 6
    options = Options(channel_order=Order.GRAY, size=(1, 2))
    assert elements(runtime, column([9, 10, 20, 9, 9, 30, 50, 9]), options).ravel().tolist() == [15, 40]


def test_t37_center_crop_takes_the_middle(runtime: Runtime) -> None:
    picture = np.array([[1, 2, 3, 4], [5, 6, 7, 8]], np.uint8)
    options = Options(channel_order=Order.GRAY, size=(2, 2), resize_mode=ImageResizeMode.CENTER_CROP)
    assert elements(runtime, picture, options)[0, 0].tolist() == [[2, 3], [6, 7]]


def test_t37_center_crop_may_begin_inside_a_pixel(runtime: Runtime) -> None:
    # of a width of 3, the middle 2 begin at 0.5: centres at 0.5 and 1.5
    picture = np.array([[0, 10, 30], [0, 10, 30]], np.uint8)
    options = Options(channel_order=Order.GRAY, size=(2, 2), resize_mode=ImageResizeMode.CENTER_CROP)
    assert elements(runtime, picture, options)[0, 0].tolist() == [[5, 20], [5, 20]]


def test_t38_letterbox_has_the_odd_bar_below(runtime: Runtime) -> None:
    picture = np.array([[10, 20, 30, 40]], np.uint8)
    options = Options(
        channel_order=Order.GRAY, size=(4, 4), resize_mode=ImageResizeMode.LETTERBOX, letterbox_value=(7, 7, 7, 7)
    )
    assert elements(runtime, picture, options)[0, 0].tolist() == [[7] * 4, [10, 20, 30, 40], [7] * 4, [7] * 4]


def test_t38_bars_are_normalized_like_pixels(runtime: Runtime) -> None:
    options = Options(
        channel_order=Order.GRAY,
        size=(4, 4),
        resize_mode=ImageResizeMode.LETTERBOX,
        letterbox_value=(7, 7, 7, 7),
        normalization=TensorNormalization(scale=(2, 1, 1, 1), mean=(1, 0, 0, 0)),
    )
    rows = elements(runtime, np.array([[10, 20, 30, 40]], np.uint8), options)[0, 0]
    assert rows.tolist() == [[12] * 4, [18, 38, 58, 78], [12] * 4, [12] * 4]


def test_t38_bars_have_a_value_for_each_output_channel(runtime: Runtime) -> None:
    options = Options(
        size=(1, 3),
        channel_order=Order.BGR,
        layout=TensorLayout.NHWC,
        resize_mode=ImageResizeMode.LETTERBOX,
        letterbox_value=(1, 2, 3, 0),
    )
    picture = np.array([[[50, 60, 70]]], np.uint8)
    assert elements(runtime, picture, options).reshape(3, 3).tolist() == [[1, 2, 3], [70, 60, 50], [1, 2, 3]]


def test_t38_quantized_bars(runtime: Runtime) -> None:
    options = Options(
        data_type=T.UINT8,
        size=(1, 3),
        channel_order=Order.GRAY,
        resize_mode=ImageResizeMode.LETTERBOX,
        letterbox_value=(20, 0, 0, 0),
        quantization=TensorQuantization(Mode.ZERO_POINT_AFFINE, 2.0, 10),
    )
    assert elements(runtime, column([100]), options).ravel().tolist() == [20, 60, 20]


def test_t39_size_is_width_and_height(runtime: Runtime) -> None:
    picture = np.zeros((2, 4, 3), np.uint8)
    assert elements(runtime, picture, Options(size=(6, 3))).shape == (1, 3, 3, 6)


# What a picture may be


def test_t40_bytes_between_the_rows_are_skipped(runtime: Runtime) -> None:
    data = bytes([1, 2, 99, 3, 4, 99])
    options = Options(channel_order=Order.GRAY)
    found = elements(runtime, data, options, width=2, height=2, row_pitch=3, image_format=ImageFormat.GRAY8)
    assert found.ravel().tolist() == [1, 2, 3, 4]


def test_t40_the_last_row_has_its_pitch_too(runtime: Runtime) -> None:
    with pytest.raises(ValueError, match="take 6 bytes, the buffer has 5"):
        runtime.tensor_from_image(bytes(5), width=2, height=2, row_pitch=3, image_format=ImageFormat.GRAY8)


def test_t40_bytes_behind_the_picture_are_ignored(runtime: Runtime) -> None:
    data = bytes([1, 2, 3, 4, 5])
    found = elements(runtime, data, width=1, height=1, image_format=ImageFormat.RGBA8)
    assert found.ravel().tolist() == [1, 2, 3]


def test_t40_a_pitch_below_the_row_is_refused(runtime: Runtime) -> None:
    with failing(INVALID):
        runtime.tensor_from_image(bytes(64), width=2, height=2, row_pitch=7, image_format=ImageFormat.RGBA8)


@pytest.mark.parametrize("missing", ["width", "height", "image_format"])
def test_t41_bytes_need_sizes_and_a_format(runtime: Runtime, missing: str) -> None:
    raw: dict[str, Any] = {"width": 1, "height": 1, "image_format": ImageFormat.RGBA8}
    del raw[missing]
    with pytest.raises(ValueError, match="need width, height and image_format"):
        runtime.tensor_from_image(bytes(4), **raw)


def test_t41_colour_bytes_do_not_become_gray(runtime: Runtime) -> None:
    with pytest.raises(ValueError, match="must be GRAY8"):
        runtime.tensor_from_image(
            bytes(4), width=1, height=1, image_format=ImageFormat.RGBA8, options=Options(channel_order=Order.GRAY)
        )


def test_t41_gray_bytes_become_colours(runtime: Runtime) -> None:
    options = Options(channel_order=Order.RGBA)
    found = elements(runtime, b"\7", options, width=1, height=1, image_format=ImageFormat.GRAY8)
    assert found.ravel().tolist() == [7, 7, 7, 255]


@pytest.mark.parametrize(
    ("image", "message"),
    [
        (np.zeros((2, 2, 3), np.float32), "not an array of float32"),
        (np.zeros((2, 2, 2), np.uint8), r"not \(2, 2, 2\)"),
        (np.zeros((2, 2, 5), np.uint8), r"not \(2, 2, 5\)"),
        (np.zeros(4, np.uint8), r"not \(4,\)"),
        (np.zeros((1, 2, 2, 3), np.uint8), r"not \(1, 2, 2, 3\)"),
        (np.zeros((0, 2, 3), np.uint8), r"not \(0, 2, 3\)"),
        (np.zeros((2, 2), bool), "not an array of bool"),
        (np.zeros((2, 2), ">u2"), "not an array of >u2"),
        (np.ma.masked_array(np.zeros((2, 2), np.uint8)), "pixels have no mask"),
        ([[0, 1], [2, 3]], "not an array of int"),
        ("cat.jpg", "not str"),
        (None, "not NoneType"),
    ],
)
def test_t41_other_arrays_are_refused(runtime: Runtime, image: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        runtime.tensor_from_image(image)


def test_t41_planes_are_to_be_transposed(runtime: Runtime) -> None:
    with pytest.raises(ValueError, match=r"not \(3, 8, 9\); transpose pixels of shape \(channels, H, W\)"):
        runtime.tensor_from_image(np.zeros((3, 8, 9), np.uint8))


def test_t41_gray8_is_no_format_of_colours(runtime: Runtime) -> None:
    with pytest.raises(ValueError, match="does not fit"):
        runtime.tensor_from_image(FOUR, image_format=ImageFormat.GRAY8)


def test_t42_gray_of_colours_is_rounded_luma(runtime: Runtime) -> None:
    # 0.299 * 10 + 0.587 * 20 + 0.114 * 30 = 18.15
    picture = np.array([[[10, 20, 30]]], np.uint8)
    assert elements(runtime, picture, Options(channel_order=Order.GRAY)).tolist() == [[[[18]]]]


def test_t42_gray_of_bgra(runtime: Runtime) -> None:
    picture = np.array([[[30, 20, 10, 77]]], np.uint8)
    options = Options(channel_order=Order.GRAY)
    assert elements(runtime, picture, options, image_format=ImageFormat.BGRA8).tolist() == [[[[18]]]]


def test_t42_half_a_gray_goes_to_the_even_one(runtime: Runtime) -> None:
    # 299 * 5 + 587 * 0 + 114 * 0 = 1495; 299 * 0 + 587 * 0 + 114 * 250 = 28500: 1.495 and 28.5
    picture = np.array([[[5, 0, 0], [0, 0, 250]]], np.uint8)
    assert elements(runtime, picture, Options(channel_order=Order.GRAY)).ravel().tolist() == [1, 28]


def test_t42_one_channel_is_repeated_for_colours(runtime: Runtime) -> None:
    picture = np.array([[7]], np.uint8)
    assert elements(runtime, picture, Options(channel_order=Order.RGBA)).ravel().tolist() == [7, 7, 7, 255]
    assert elements(runtime, picture[..., None]).ravel().tolist() == [7, 7, 7]


# Integers


def test_t43_uint8_keeps_the_bytes(runtime: Runtime) -> None:
    options = Options(data_type=T.UINT8, layout=TensorLayout.NHWC, channel_order=Order.RGBA)
    assert elements(runtime, FOUR, options).tobytes() == FOUR.tobytes()


def test_t43_int8_saturates(runtime: Runtime) -> None:
    options = Options(data_type=T.INT8, channel_order=Order.GRAY)
    assert elements(runtime, column([0, 127, 128, 255]), options).ravel().tolist() == [0, 127, 127, 127]


def test_t43_raw_rounds_and_ignores_its_scale(runtime: Runtime) -> None:
    quantization = TensorQuantization(Mode.RAW, 5.0, 3)
    options = Options(
        data_type=T.UINT8,
        channel_order=Order.GRAY,
        quantization=quantization,
        normalization=TensorNormalization(scale=(0.5, 1, 1, 1)),
    )
    # 0.5, 1.5, 2.5 half to even
    assert elements(runtime, column([1, 3, 5, 255]), options).ravel().tolist() == [0, 2, 2, 128]


def test_t44_symmetric_divides_rounds_and_saturates(runtime: Runtime) -> None:
    quantization = TensorQuantization(Mode.SYMMETRIC_PER_TENSOR, 2.0)
    options = Options(data_type=T.INT8, channel_order=Order.GRAY, quantization=quantization)
    assert elements(runtime, column([255, 5, 7]), options).ravel().tolist() == [127, 2, 4]


def test_t44_affine_adds_the_zero_point_after_rounding(runtime: Runtime) -> None:
    quantization = TensorQuantization(Mode.ZERO_POINT_AFFINE, 2.0, 10)
    options = Options(data_type=T.UINT8, channel_order=Order.GRAY, quantization=quantization)
    assert elements(runtime, column([5, 7, 255]), options).ravel().tolist() == [12, 14, 138]


@pytest.mark.parametrize(("zero_point", "stored"), [(0.5, 3), (1.5, 5), (None, 3), (-300, 0), (300, 255)])
def test_t44_the_zero_point_is_rounded_half_to_even(runtime: Runtime, zero_point: float | None, stored: int) -> None:
    quantization = TensorQuantization(Mode.ZERO_POINT_AFFINE, 1.0, zero_point)
    options = Options(data_type=T.UINT8, channel_order=Order.GRAY, quantization=quantization)
    assert elements(runtime, column([3]), options).ravel().tolist() == [stored]


def test_t44_a_symmetric_zero_point_is_0(runtime: Runtime) -> None:
    zero, one = (TensorQuantization(Mode.SYMMETRIC_PER_TENSOR, 2.0, point) for point in (0, 1))
    options = Options(data_type=T.INT8, channel_order=Order.GRAY, quantization=zero)
    assert elements(runtime, column([8]), options).ravel().tolist() == [4]
    with failing(INVALID):
        runtime.tensor_from_image(FOUR, options=Options(data_type=T.INT8, quantization=one))


@pytest.mark.parametrize(
    "quantization",
    [
        TensorQuantization(Mode.RAW),
        TensorQuantization(Mode.NONE, 1.0),
        TensorQuantization(Mode.NONE, None, 0),
        TensorQuantization(Mode.SYMMETRIC_PER_TENSOR, 0),
        TensorQuantization(Mode.ZERO_POINT_AFFINE, -1.0),
        TensorQuantization(Mode.ZERO_POINT_AFFINE, float("nan")),
        TensorQuantization(Mode.ZERO_POINT_AFFINE),
    ],
)
def test_t45_quantizations_that_are_none(runtime: Runtime, quantization: TensorQuantization) -> None:
    with pytest.raises(ValueError, match="scale"):
        runtime.tensor_from_image(FOUR, options=Options(data_type=T.UINT8, quantization=quantization))


def test_t45_floats_are_not_quantized(runtime: Runtime) -> None:
    with failing(INVALID):
        runtime.tensor_from_image(FOUR, options=Options(quantization=TensorQuantization(Mode.RAW, 1.0)))


def test_t45_a_wrong_scale_is_told_before_a_wrong_type(runtime: Runtime) -> None:
    with pytest.raises(ValueError, match="needs a scale"):
        runtime.tensor_from_image(FOUR, options=Options(quantization=TensorQuantization(Mode.RAW)))


def test_t45_mode_none_is_no_quantization(runtime: Runtime) -> None:
    options = Options(quantization=TensorQuantization())
    assert elements(runtime, FOUR, options).tolist() == elements(runtime, FOUR).tolist()


# Options


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("channel_order", Order.UNSPECIFIED, "channel_order must be"),
        ("letterbox_value", (0, 0, 0), "letterbox_value must be four numbers"),
        ("letterbox_value", "1234", "letterbox_value must be four numbers"),
        ("normalization", TensorNormalization(scale=(1, 1, 1, 1, 1)), "scale must be four numbers"),  # type: ignore[arg-type]
        ("normalization", TensorNormalization(mean=(0,)), "mean must be four numbers"),  # type: ignore[arg-type]
        ("normalization", TensorNormalization(mean=(0, 0, 0, "x")), "mean must be four numbers"),  # type: ignore[arg-type]
        ("resize_mode", 9, "resize_mode must be a member of ImageResizeMode"),
        ("size", (0, 1), "width must be in 1"),
        ("size", (1, 2**32), "height must be in 1"),
        ("size", (True, 1), "width must be an integer, not bool"),
        ("size", (1.0, 1), "width must be an integer, not float"),
        ("size", (1, 1, 1), r"size must be \(width, height\)"),
        ("size", 7, r"size must be \(width, height\)"),
    ],
)
def test_t46_options_of_wrong_values(runtime: Runtime, field: str, value: object, message: str) -> None:
    given: dict[str, Any] = {field: value}
    with pytest.raises(ValueError, match=message):
        runtime.tensor_from_image(FOUR, options=Options(**given))


@pytest.mark.parametrize("data_type", [T.UNDEFINED, T.INT32, T.FLOAT64, T.BFLOAT16, T.INT16, T.BOOL, 99])
def test_t46_other_element_types(runtime: Runtime, data_type: Any) -> None:
    with failing(INVALID):
        runtime.tensor_from_image(FOUR, options=Options(data_type=data_type))


@pytest.mark.parametrize("layout", [TensorLayout.NT, TensorLayout.NCT, TensorLayout.NL, 5])
def test_t46_layouts_of_sound_and_tokens(runtime: Runtime, layout: Any) -> None:
    with failing(INVALID):
        runtime.tensor_from_image(FOUR, options=Options(layout=layout))


def test_t46_options_of_another_class(runtime: Runtime) -> None:
    with pytest.raises(TypeError, match="ImageTensorOptions"):
        runtime.tensor_from_image(FOUR, options={"size": (1, 1)})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("field", "value", "mend"),
    [
        ("channel_order", "RGB", "TensorChannelOrder"),
        ("layout", "NCHW", "TensorLayout"),
        ("data_type", np.float32, "TensorDataType"),
        ("resize_mode", "STRETCH", "ImageResizeMode"),
    ],
)
def test_t46_a_name_in_place_of_a_member_is_told_the_enumeration(
    runtime: Runtime, field: str, value: object, mend: str
) -> None:
    given: dict[str, Any] = {field: value}
    with pytest.raises((ValueError, WinMLError), match=mend):
        runtime.tensor_from_image(FOUR, options=Options(**given))


def test_t46_the_picture_is_looked_at_before_the_options(runtime: Runtime) -> None:
    with pytest.raises(ValueError, match="not an array of float64"):
        runtime.tensor_from_image(np.zeros((1, 1)), options=Options(channel_order=Order.UNSPECIFIED))


@pytest.mark.parametrize("value", [True, 1.0, np.True_, TensorAccessMode.READ])
@pytest.mark.parametrize("field", ["data_type", "layout", "channel_order", "resize_mode"])
def test_t46_what_equals_a_number_and_means_no_member(runtime: Runtime, field: str, value: object) -> None:
    given: dict[str, Any] = {field: value}
    with pytest.raises((ValueError, WinMLError)):
        runtime.tensor_from_image(FOUR, options=Options(**given))


@pytest.mark.parametrize("value", [True, 1.0])
def test_t45_what_equals_a_number_and_means_no_mode(runtime: Runtime, value: Any) -> None:
    quantization = TensorQuantization(value, 1.0)
    with pytest.raises(ValueError, match="TensorQuantizationMode"):
        runtime.tensor_from_image(FOUR, options=Options(data_type=T.UINT8, quantization=quantization))


@pytest.mark.parametrize(
    "options",
    [
        Options(letterbox_value=(True, 0, 0, 0)),
        Options(normalization=TensorNormalization(scale=(1, 1, True, 1))),
        Options(normalization=TensorNormalization(mean=("1", 0, 0, 0))),  # type: ignore[arg-type]
        Options(data_type=T.UINT8, quantization=TensorQuantization(Mode.RAW, True)),
        Options(data_type=T.UINT8, quantization=TensorQuantization(Mode.RAW, 1.0, zero_point=False)),
    ],
)
def test_t46_what_counts_as_a_number_and_is_none(runtime: Runtime, options: Options) -> None:
    with pytest.raises(ValueError, match="number"):
        runtime.tensor_from_image(FOUR, options=options)


@pytest.mark.parametrize("image_format", [True, 28.0, 29.0, "RGBA8", [28]])
def test_what_is_no_image_format(runtime: Runtime, image_format: Any) -> None:
    with pytest.raises(ValueError, match="ImageFormat"):
        runtime.tensor_from_image(bytes(4), width=1, height=1, image_format=image_format)


@pytest.mark.parametrize("image_format", [np.int64(28), np.uint8(29)])
def test_numbers_of_numpy_are_image_formats(runtime: Runtime, image_format: Any) -> None:
    tensor = runtime.tensor_from_image(bytes([7, 8, 9, 255]), width=1, height=1, image_format=image_format)
    assert tensor.to_numpy().ravel().tolist() == [7, 8, 9]


# Into a tensor that is there


def test_t47_writing_equals_making(runtime: Runtime) -> None:
    options = Options(size=(3, 5), normalization=TensorNormalization.imagenet())
    destination = runtime.create_tensor(T.FLOAT32, (1, 3, 5, 3))
    result: Any = runtime.write_tensor_from_image(destination, FOUR, options=options)  # type: ignore[func-returns-value]
    assert result is None
    assert destination.to_numpy().tolist() == elements(runtime, FOUR, options).tolist()


@pytest.mark.parametrize(
    ("data_type", "shape"), [(T.FLOAT32, (1, 3, 2, 3)), (T.FLOAT16, (1, 3, 2, 2)), (T.INT8, (12,))]
)
def test_t47_another_shape_or_type_is_refused(runtime: Runtime, data_type: T, shape: tuple[int, ...]) -> None:
    destination = runtime.create_tensor(data_type, shape)
    with failing(INVALID):
        runtime.write_tensor_from_image(destination, FOUR)
    assert not destination.to_numpy().any()


def test_t47_a_read_view_is_not_written(runtime: Runtime) -> None:
    view = runtime.tensor_from_buffer(bytes(48), T.FLOAT32, (1, 3, 2, 2), access=TensorAccessMode.READ)
    with failing(0x80070005):
        runtime.write_tensor_from_image(view, FOUR)
    assert not view.to_numpy().any()


def test_t47_a_locked_tensor_is_not_written(runtime: Runtime) -> None:
    destination = runtime.create_tensor(T.FLOAT32, (1, 3, 2, 2))
    with destination.lock(TensorLockMode.READ), failing(0x800700D4):
        runtime.write_tensor_from_image(destination, FOUR)
    assert not destination.to_numpy().any()
    runtime.write_tensor_from_image(destination, FOUR)
    assert destination.to_numpy()[0, 0].tolist() == [[255, 0], [0, 255]]


def test_t47_into_a_buffer_of_the_caller(runtime: Runtime) -> None:
    buffer = np.zeros((1, 3, 2, 2), np.float32)
    view = runtime.tensor_from_buffer(buffer, T.FLOAT32, buffer.shape, access=TensorAccessMode.READWRITE)
    runtime.write_tensor_from_image(view, FOUR)
    assert buffer[0, 1].tolist() == [[0, 255], [0, 255]]


def upside_down_into_itself(runtime: Runtime, turned: Callable[[npt.NDArray[np.uint8]], Any]) -> None:
    """Write a picture, halved, into the tensor that its own pixels lie in; it takes several blocks of rows."""
    rows = np.arange(1200).astype(np.uint8)[:, None, None]
    memory = np.ascontiguousarray(np.broadcast_to(rows, (1200, 1000, 4)))
    view = runtime.tensor_from_buffer(memory, T.UINT8, (1, 1200, 1000, 4), access=TensorAccessMode.READWRITE)
    half = TensorNormalization(scale=(0.5, 0.5, 0.5, 0.5))
    options = Options(data_type=T.UINT8, layout=TensorLayout.NHWC, channel_order=Order.RGBA, normalization=half)
    runtime.write_tensor_from_image(view, turned(memory), options=options)
    assert memory[[0, 1, 599, 1198, 1199], 7, 2].tolist() == [88, 87, 44, 0, 0]  # 1199 mod 256 is 175, its half 88


def test_t47_a_picture_that_lies_in_the_tensor_is_read_before_it_is_overwritten(runtime: Runtime) -> None:
    upside_down_into_itself(runtime, lambda memory: memory[::-1])


def test_t47_a_pillow_picture_that_lies_in_the_tensor_is_read_before_it_is_overwritten(runtime: Runtime) -> None:
    image = pytest.importorskip("PIL.Image", reason="Pillow pictures need it: pip install 'winml-lite[media]'")
    upside_down_into_itself(
        runtime, lambda memory: image.frombuffer("RGBA", (1000, 1200), memory, "raw", "RGBA", 0, -1)
    )


# Back to pixels


def test_t48_there_and_back(runtime: Runtime) -> None:
    assert runtime.image_bytes_from_tensor(runtime.tensor_from_image(FOUR), size=(2, 2)) == FOUR.tobytes()


def test_t48_a_missing_alpha_is_255(runtime: Runtime) -> None:
    picture = np.array([[[1, 2, 3, 4]]], np.uint8)
    tensor = runtime.tensor_from_image(picture)
    assert runtime.image_bytes_from_tensor(tensor, size=(1, 1)) == bytes([1, 2, 3, 255])
    assert tensor.to_image_bytes(size=(1, 1), image_format=ImageFormat.BGRA8) == bytes([3, 2, 1, 255])


def one_pixel(runtime: Runtime, *values: float) -> Tensor:
    """A tensor (1, 3, 1, 1)."""
    return runtime.tensor_from_numpy(np.array(values, np.float32).reshape(1, 3, 1, 1))


def test_t48_values_are_rounded_and_limited(runtime: Runtime) -> None:
    assert one_pixel(runtime, 300, -5, 2.5).to_image_bytes(size=(1, 1)) == bytes([255, 0, 2, 255])


def test_t48_what_is_no_number_is_0(runtime: Runtime) -> None:
    found = one_pixel(runtime, np.nan, np.inf, -np.inf).to_image_bytes(size=(1, 1))
    assert found == bytes([0, 255, 0, 255])


def test_t48_sizes_must_agree(runtime: Runtime) -> None:
    tensor = one_pixel(runtime, 1, 2, 3)
    with pytest.raises(ValueError, match=r"options.size is \(2, 1\)"):
        tensor.to_image_bytes(size=(1, 1), options=Options(size=(2, 1)))
    assert tensor.to_image_bytes(size=(1, 1), options=Options(size=(1, 1))) == bytes([1, 2, 3, 255])


@pytest.mark.parametrize("size", [(0, 1), (1, -1), (True, 1), 1, (1,), "11", None])
def test_t48_a_size_is_two_positive_numbers(runtime: Runtime, size: Any) -> None:
    with pytest.raises(ValueError, match=r"width|height"):
        one_pixel(runtime, 1, 2, 3).to_image_bytes(size=size)


def test_t48_every_value_survives_imagenet(runtime: Runtime) -> None:
    ramp = np.repeat(np.arange(256, dtype=np.uint8), 4).reshape(16, 16, 4)
    ramp[..., 3] = 255
    options = Options(normalization=TensorNormalization.imagenet())
    assert runtime.tensor_from_image(ramp, options=options).to_image_bytes(size=(16, 16), options=options) == (
        ramp.tobytes()
    )


@pytest.mark.parametrize(
    "quantization",
    [TensorQuantization(Mode.SYMMETRIC_PER_TENSOR, 2.0), TensorQuantization(Mode.ZERO_POINT_AFFINE, 2.0, 10)],
)
def test_t48_quantization_is_undone(runtime: Runtime, quantization: TensorQuantization) -> None:
    options = Options(data_type=T.UINT8, channel_order=Order.GRAY, quantization=quantization)
    tensor = runtime.tensor_from_image(column([0, 8, 200]), options=options)
    found = tensor.to_image_bytes(size=(1, 3), options=options, image_format=ImageFormat.GRAY8)
    assert found == bytes([0, 8, 200])


def test_t48_gray_stands_for_each_colour(runtime: Runtime) -> None:
    options = Options(channel_order=Order.GRAY)
    tensor = runtime.tensor_from_image(column([9]), options=options)
    assert tensor.to_image_bytes(size=(1, 1), options=options) == bytes([9, 9, 9, 255])


def test_t48_colours_become_gray_by_their_luma(runtime: Runtime) -> None:
    assert one_pixel(runtime, 10, 20, 30).to_image_bytes(size=(1, 1), image_format=ImageFormat.GRAY8) == bytes([18])


@pytest.mark.parametrize("shape", [(3, 1, 1), (2, 3, 1, 1), (1, 4, 1, 1), (1, 3, 1, 2), (1, 1, 1, 3)])
def test_t48_a_tensor_unlike_its_description(runtime: Runtime, shape: tuple[int, ...]) -> None:
    with failing(INVALID):
        runtime.create_tensor(T.FLOAT32, shape).to_image_bytes(size=(1, 1))


def test_t48_a_type_unlike_its_description(runtime: Runtime) -> None:
    with failing(INVALID):
        runtime.create_tensor(T.FLOAT16, (1, 3, 1, 1)).to_image_bytes(size=(1, 1))


def test_t48_scale_0_cannot_be_undone(runtime: Runtime) -> None:
    options = Options(normalization=TensorNormalization(scale=(1, 1, 0, 1)))
    with failing(INVALID):
        one_pixel(runtime, 1, 2, 3).to_image_bytes(size=(1, 1), options=options)


@pytest.mark.parametrize("image_format", [0, 99, True, "RGBA8", None, ImageResizeMode.STRETCH])
def test_t48_other_formats(runtime: Runtime, image_format: Any) -> None:
    with pytest.raises(ValueError, match="ImageFormat"):
        one_pixel(runtime, 1, 2, 3).to_image_bytes(size=(1, 1), image_format=image_format)


# Objects


def test_a_picture_tensor_keeps_its_target(runtime: Runtime) -> None:
    with runtime.create_cpu_target() as target:
        tensor = runtime.tensor_from_image(FOUR, target=target)
    assert tensor.region((0, 0, 0, 0), (1, 1, 1, 1)).to_numpy().tolist() == [[[[255]]]]


def test_a_closed_runtime_makes_none() -> None:
    runtime = Runtime()
    tensor = runtime.tensor_from_image(FOUR)
    runtime.close()
    with pytest.raises(RuntimeError, match="Runtime is closed"):
        runtime.tensor_from_image(FOUR)
    with pytest.raises(RuntimeError, match="Runtime is closed"):
        runtime.write_tensor_from_image(tensor, FOUR)
    with pytest.raises(RuntimeError, match="Runtime is closed"):
        runtime.image_bytes_from_tensor(tensor, size=(2, 2))
    assert tensor.to_image_bytes(size=(2, 2)) == FOUR.tobytes()


def test_a_closed_tensor_is_neither_written_nor_read(runtime: Runtime) -> None:
    tensor = runtime.tensor_from_image(FOUR)
    tensor.close()
    with pytest.raises(RuntimeError, match="Tensor is closed"):
        runtime.write_tensor_from_image(tensor, FOUR)
    with pytest.raises(RuntimeError, match="Tensor is closed"):
        tensor.to_image_bytes(size=(2, 2))
