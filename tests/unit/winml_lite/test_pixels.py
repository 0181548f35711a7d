"""What a picture may be: Pillow pictures of every mode and size, objects like them, buffers of every kind."""

from __future__ import annotations

import array
import io
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from winml_lite import ImageFormat, ImageResizeMode, ImageTensorOptions, Runtime, TensorChannelOrder, TensorDataType

Image = pytest.importorskip("PIL.Image", reason="Pillow is not installed")

Order = TensorChannelOrder
PIXELS = np.random.default_rng(0).integers(0, 256, (5, 7, 4), np.uint8)
BYTES = ImageTensorOptions(data_type=TensorDataType.UINT8)
GRAY_BYTES = ImageTensorOptions(data_type=TensorDataType.UINT8, channel_order=Order.GRAY)
RGBA_BYTES = ImageTensorOptions(data_type=TensorDataType.UINT8, channel_order=Order.RGBA)


def stored(runtime: Runtime, image: Any, options: ImageTensorOptions, **raw: Any) -> npt.NDArray[np.uint8]:
    """The bytes of the tensor as (row, column, channel)."""
    return runtime.tensor_from_image(image, options=options, **raw).to_numpy()[0].transpose(1, 2, 0)  # type: ignore[no-any-return]


def pictures() -> dict[str, Any]:
    """A Pillow picture of each mode."""
    colours = Image.fromarray(PIXELS)
    made = {mode: colours.convert(mode) for mode in ("RGBA", "RGB", "L", "P", "CMYK", "YCbCr", "HSV", "1", "F", "I")}
    made["LA"] = Image.fromarray(PIXELS).convert("LA")
    made["PA"] = made["P"].convert("PA")
    made["P with a transparent colour"] = made["P"].copy()
    made["P with a transparent colour"].info["transparency"] = 3
    made["RGB with a transparent colour"] = made["RGB"].copy()
    made["RGB with a transparent colour"].info["transparency"] = tuple(int(value) for value in PIXELS[0, 0, :3])
    made["L with a transparent colour"] = made["L"].copy()
    made["L with a transparent colour"].info["transparency"] = int(np.asarray(made["L"])[0, 0])
    return made


@pytest.mark.parametrize("name", pictures())
def test_pillow_makes_the_colours(runtime: Runtime, name: str) -> None:
    picture = pictures()[name]
    assert stored(runtime, picture, RGBA_BYTES).tolist() == np.asarray(picture.convert("RGBA")).tolist()


@pytest.mark.parametrize("name", pictures())
def test_pillow_makes_the_gray(runtime: Runtime, name: str) -> None:
    picture = pictures()[name]
    assert stored(runtime, picture, GRAY_BYTES)[..., 0].tolist() == np.asarray(picture.convert("L")).tolist()


def test_what_pillow_cannot_convert_is_its_error(runtime: Runtime) -> None:
    with pytest.raises(ValueError, match="LAB"):
        runtime.tensor_from_image(Image.new("LAB", (7, 5), (50, 20, 30)), options=GRAY_BYTES)


def test_16_bit_gray_becomes_what_pillow_makes_of_it(runtime: Runtime) -> None:
    picture = Image.fromarray(np.array([[0, 255, 256, 65535]], np.uint16))
    found = stored(runtime, picture, GRAY_BYTES)[..., 0]
    assert found.tolist() == np.asarray(picture.convert("L")).tolist()


def test_the_picture_itself_is_left_alone(runtime: Runtime) -> None:
    picture = pictures()["P"]
    runtime.tensor_from_image(picture)
    assert picture.mode == "P"


def test_exif_orientation_is_not_looked_at(runtime: Runtime) -> None:
    picture = pictures()["RGB"]
    picture.getexif()[0x0112] = 6
    assert stored(runtime, picture, BYTES).tolist() == PIXELS[..., :3].tolist()


@pytest.mark.parametrize("image_format", [None, ImageFormat.RGBA8, 28, 29])
def test_a_format_says_nothing_new(runtime: Runtime, image_format: Any) -> None:
    assert stored(runtime, pictures()["RGB"], BYTES, image_format=image_format).shape == (5, 7, 3)


@pytest.mark.parametrize("image_format", [ImageFormat.BGRA8, ImageFormat.GRAY8, 91])
def test_another_format_is_refused(runtime: Runtime, image_format: Any) -> None:
    with pytest.raises(ValueError, match="is RGBA8 or None"):
        runtime.tensor_from_image(pictures()["RGB"], image_format=image_format)


def test_sizes_are_the_pictures_own(runtime: Runtime) -> None:
    assert stored(runtime, pictures()["RGB"], BYTES, width=1, height=1, row_pitch=1).shape == (5, 7, 3)


def test_an_empty_picture_is_refused(runtime: Runtime) -> None:
    with pytest.raises(ValueError, match="empty"):
        runtime.tensor_from_image(Image.new("RGB", (0, 3)))


# Large pictures are copied row by row


def large(mode: str) -> tuple[Any, npt.NDArray[np.uint8]]:
    """A picture of more than 4 MiB and its pixels."""
    pixels = np.random.default_rng(1).integers(0, 256, (1100, 1300, len(mode)), np.uint8)
    return Image.fromarray(pixels[..., 0] if mode == "L" else pixels), pixels


@pytest.mark.parametrize("size", [None, (224, 224), (100, 1000), (1300, 7), (1500, 1200), (1, 1)])
def test_a_large_picture_equals_its_array(runtime: Runtime, size: tuple[int, int] | None) -> None:
    picture, pixels = large("RGB")
    options = ImageTensorOptions(size=size)
    found = runtime.tensor_from_image(picture, options=options).to_numpy()
    np.testing.assert_array_equal(found, runtime.tensor_from_image(pixels, options=options).to_numpy())


def test_a_large_picture_with_alpha(runtime: Runtime) -> None:
    picture, pixels = large("RGBA")
    options = ImageTensorOptions(channel_order=Order.BGRA, size=(32, 32))
    found = runtime.tensor_from_image(picture, options=options).to_numpy()
    np.testing.assert_array_equal(found, runtime.tensor_from_image(pixels, options=options).to_numpy())


def test_a_large_picture_as_bytes(runtime: Runtime) -> None:
    picture, pixels = large("RGB")
    np.testing.assert_array_equal(stored(runtime, picture, BYTES), pixels)


def test_a_broken_file_leaves_the_tensor_alone(runtime: Runtime) -> None:
    file = io.BytesIO()
    large("RGB")[0].save(file, "JPEG")
    options = ImageTensorOptions(size=(8, 8), resize_mode=ImageResizeMode.LETTERBOX, letterbox_value=(9, 9, 9, 9))
    destination = runtime.create_tensor(TensorDataType.FLOAT32, (1, 3, 8, 8))
    with pytest.raises(OSError, match="truncated"):
        runtime.write_tensor_from_image(destination, Image.open(io.BytesIO(file.getvalue()[:50_000])), options=options)
    assert not destination.to_numpy().any()


# Objects like Pillow's


class Painted:
    """The least that counts as a Pillow picture."""

    def __init__(self, size: tuple[int, int], content: bytes) -> None:
        self.size = size
        self.asked = ""
        self._content = content

    def convert(self, mode: str) -> Painted:
        """Remember the mode."""
        self.asked = mode
        return self

    def tobytes(self) -> bytes:
        """Give the pixels."""
        return self._content


@pytest.mark.parametrize(("options", "mode", "count"), [(BYTES, "RGBA", 8), (GRAY_BYTES, "L", 2)])
def test_an_object_like_a_picture(runtime: Runtime, options: ImageTensorOptions, mode: str, count: int) -> None:
    picture = Painted((2, 1), bytes(range(count)))
    assert stored(runtime, picture, options).shape[:2] == (1, 2)
    assert picture.asked == mode


def test_an_object_with_too_few_bytes(runtime: Runtime) -> None:
    with pytest.raises(ValueError, match="has 8 bytes, not 7"):
        runtime.tensor_from_image(Painted((2, 1), bytes(7)))


# Buffers


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_kinds_of_bytes(runtime: Runtime, kind: Any) -> None:
    found = stored(runtime, kind(PIXELS.tobytes()), RGBA_BYTES, width=7, height=5, image_format=ImageFormat.RGBA8)
    assert found.tolist() == PIXELS.tolist()


def test_a_memoryview_of_any_shape(runtime: Runtime) -> None:
    every_second = memoryview(array.array("B", range(8)))[::2]
    found = stored(runtime, every_second, RGBA_BYTES, width=1, height=1, image_format=ImageFormat.RGBA8)
    assert found.ravel().tolist() == [0, 2, 4, 6]
    words = memoryview(array.array("I", [0x04030201]))
    found = stored(runtime, words, RGBA_BYTES, width=1, height=1, image_format=ImageFormat.RGBA8)
    assert sorted(found.ravel().tolist()) == [1, 2, 3, 4]


@pytest.mark.parametrize("name", ["width", "height", "row_pitch"])
@pytest.mark.parametrize("value", [0, -1, True, 1.0, "1", 2**32])
def test_sizes_of_bytes_are_positive_integers(runtime: Runtime, name: str, value: Any) -> None:
    raw: dict[str, Any] = {"width": 1, "height": 1, "row_pitch": 4, "image_format": ImageFormat.RGBA8} | {name: value}
    with pytest.raises(ValueError, match=name):
        runtime.tensor_from_image(bytes(4), **raw)


def test_sizes_may_be_numpy_integers(runtime: Runtime) -> None:
    found = stored(runtime, bytes(4), BYTES, width=np.int64(1), height=np.uint8(1), image_format=np.int32(28))
    assert found.shape == (1, 1, 3)


def test_an_empty_buffer_is_too_short(runtime: Runtime) -> None:
    with pytest.raises(ValueError, match="buffer"):
        runtime.tensor_from_image(b"", width=1, height=1, image_format=ImageFormat.GRAY8)


def test_a_buffer_is_free_afterwards(runtime: Runtime) -> None:
    data = bytearray(4)
    runtime.tensor_from_image(data, width=1, height=1, image_format=ImageFormat.RGBA8)
    data.append(1)
    assert len(data) == 5
