"""Pictures of a caller become RGB pixels."""

from __future__ import annotations

import builtins
import sys
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from fakes.rig import failing
from genai import NotSupportedError, picture
from genai.picture import picture_png, read_picture

Pixels = npt.NDArray[np.uint8]
PIXELS: Pixels = np.array([[[255, 0, 0], [0, 255, 0]], [[0, 0, 255], [9, 8, 7]], [[1, 2, 3], [4, 5, 6]]], np.uint8)


def pillow() -> Any:
    return pytest.importorskip("PIL.Image", reason="Pillow is not installed")


def saved(image: Any, form: str = "PNG", **options: Any) -> bytes:
    file = BytesIO()
    image.save(file, form, **options)
    return file.getvalue()


def test_an_array_is_copied_and_sealed() -> None:
    given = PIXELS.copy()
    found = read_picture(given)
    given[:] = 0
    assert np.array_equal(found, PIXELS)
    assert not found.flags.writeable


def test_arrays_of_other_channels() -> None:
    gray = np.array([[0, 200]], np.uint8)
    assert read_picture(gray).tolist() == [[[0, 0, 0], [200, 200, 200]]]
    assert read_picture(gray[:, :, None]).tolist() == [[[0, 0, 0], [200, 200, 200]]]
    alpha = np.array([[[10, 20, 30, 255], [10, 20, 30, 0], [0, 0, 0, 128]]], np.uint8)
    assert read_picture(alpha).tolist() == [[[10, 20, 30], [255, 255, 255], [127, 127, 127]]]


def test_views_of_arrays() -> None:
    assert np.array_equal(read_picture(PIXELS[::-1, ::-1]), PIXELS[::-1, ::-1])


@pytest.mark.parametrize("shape", [(3,), (2, 2, 2), (1, 2, 2, 3), (0, 4, 3), (2, 0)])
def test_arrays_that_are_no_pictures(shape: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="pixels have shape"):
        read_picture(np.zeros(shape, np.uint8))


def test_channels_in_front_are_told_of() -> None:
    with pytest.raises(ValueError, match="transpose"):
        read_picture(np.zeros((3, 8, 9), np.uint8))


@pytest.mark.parametrize("dtype", [np.float32, np.int64, np.uint16, np.bool_])
def test_arrays_of_other_numbers(dtype: type) -> None:
    with pytest.raises(TypeError, match="uint8"):
        read_picture(np.zeros((2, 2, 3), dtype))


@pytest.mark.parametrize("source", [None, 5, 1.0, object()])
def test_what_is_no_picture(source: object) -> None:
    with pytest.raises(TypeError, match="a picture is a path"):
        read_picture(source)


def test_a_file_in_every_form(tmp_path: Path) -> None:
    data = saved(pillow().fromarray(PIXELS))
    path = tmp_path / "a picture.png"
    path.write_bytes(data)
    for source in (path, str(path), data, bytearray(data), memoryview(data), BytesIO(data)):
        assert np.array_equal(read_picture(source), PIXELS)
    with open(path, "rb") as file:
        assert np.array_equal(read_picture(file), PIXELS)


def test_an_image_of_pillow() -> None:
    assert np.array_equal(read_picture(pillow().fromarray(PIXELS)), PIXELS)


def test_what_is_transparent_shows_white() -> None:
    image = pillow().new("RGBA", (2, 1), (200, 0, 0, 0))
    image.putpixel((1, 0), (200, 0, 0, 255))
    assert read_picture(image).tolist() == [[[255, 255, 255], [200, 0, 0]]]
    palette = image.convert("P")
    palette.info["transparency"] = palette.getpixel((1, 0))
    assert read_picture(saved(palette)).tolist()[0][1] == [255, 255, 255]


def test_gray_of_16_bits_keeps_its_range() -> None:
    image = pillow().fromarray(np.array([[0, 257, 65535, 32896]], np.uint16))
    for source in (image, saved(image)):
        assert read_picture(source)[0, :, 0].tolist() == [0, 1, 255, 128]


def test_gray_beyond_16_bits_is_refused() -> None:
    with failing(0x80070032, NotSupportedError):
        read_picture(pillow().fromarray(np.array([[0, 70000]], np.int32)))
    with failing(0x80070032, NotSupportedError) as caught:
        read_picture(pillow().fromarray(np.array([[0.5]], np.float32)))
    assert "'F'" in str(caught.value)


@pytest.mark.parametrize("mode", ["L", "1", "CMYK", "YCbCr"])
def test_other_colour_modes(mode: str) -> None:
    image = pillow().new("RGB", (3, 2), (255, 255, 255)).convert(mode)
    assert read_picture(image).tolist() == [[[255, 255, 255]] * 3] * 2


@pytest.mark.parametrize(
    ("orientation", "corner"),
    [
        (1, [255, 0, 0]),
        (2, [0, 255, 0]),
        (3, [4, 5, 6]),
        (4, [1, 2, 3]),
        (5, [255, 0, 0]),
        (6, [1, 2, 3]),
        (7, [4, 5, 6]),
        (8, [0, 255, 0]),
    ],
)
def test_a_picture_is_turned_as_its_camera_has_noted(orientation: int, corner: list[int]) -> None:
    image = pillow().fromarray(PIXELS)
    exif = image.getexif()
    exif[274] = orientation
    found = read_picture(saved(image, exif=exif))
    assert found[0, 0].tolist() == corner
    assert found.shape == ((3, 2, 3) if orientation < 5 else (2, 3, 3))


def test_a_picture_of_many_rows_is_read_whole() -> None:
    pillow()
    from PIL import Image

    wide = np.random.default_rng(3).integers(0, 256, (41, 5000, 3), np.uint8)
    assert np.array_equal(read_picture(Image.fromarray(wide)), wide)
    alpha = np.dstack([wide, np.full((41, 5000), 255, np.uint8)])
    assert np.array_equal(read_picture(Image.fromarray(alpha)), wide)


@pytest.mark.parametrize("mode", ["RGB", "I;16", "RGBA"])
@pytest.mark.parametrize("size", [(0, 0), (0, 5), (5, 0)])
def test_an_empty_image_of_pillow_is_refused(mode: str, size: tuple[int, int]) -> None:
    with pytest.raises(ValueError, match="the picture is empty"):
        read_picture(pillow().new(mode, size))


def test_an_image_of_pillow_whose_file_is_damaged() -> None:
    whole = saved(pillow().fromarray(np.zeros((50, 60, 3), np.uint8)), "JPEG")
    with failing(0x80070570) as caught:
        read_picture(pillow().open(BytesIO(whole[: len(whole) - 40])))
    assert "the picture is damaged" in str(caught.value)


def test_a_decoder_that_stumbles_over_damage_in_an_odd_way() -> None:
    data = bytearray(saved(pillow().new("RGB", (2, 2)), "DDS"))
    data[80:84] = b"\0\0\x80\0"  # flags of pixels that no decoder knows: NotImplementedError
    for source in (bytes(data), BytesIO(data)):
        with failing(0x80070570) as caught:
            read_picture(source)
        assert "the picture is damaged: Unknown pixel format flags" in str(caught.value)


def test_an_image_of_pillow_whose_decoder_stumbles(monkeypatch: pytest.MonkeyPatch) -> None:
    image = pillow().open(BytesIO(saved(pillow().new("RGB", (2, 2)))))

    def load() -> None:
        raise RuntimeError("no frame")

    monkeypatch.setattr(image, "load", load)
    with failing(0x80070570) as caught:
        read_picture(image)
    assert caught.value.native_message == "the picture is damaged: no frame"


def test_of_several_frames_it_is_the_first() -> None:
    first, second = (pillow().new("RGB", (2, 2), colour) for colour in ("white", "black"))
    data = saved(first, "GIF", save_all=True, append_images=[second])
    assert read_picture(data)[0, 0].tolist() == [255, 255, 255]


@pytest.mark.parametrize("kind", [Path, bytes, BytesIO])
def test_an_empty_file_is_called_so(kind: Any, tmp_path: Path) -> None:
    path = tmp_path / "empty.png"
    path.write_bytes(b"")
    with failing(0x80070570) as caught:
        read_picture(path if kind is Path else kind())
    assert caught.value.native_message == "the file is empty"


def test_files_that_are_damaged_or_none(tmp_path: Path) -> None:
    data = saved(pillow().fromarray(np.tile(PIXELS, (20, 20, 1))))
    path = tmp_path / "damaged.png"
    for content in (b"", b"no picture", data[:60], data[: len(data) // 2], data[:40] + b"\xff" * 40 + data[80:]):
        path.write_bytes(content)
        with failing(0x80070570) as caught:
            read_picture(path)
        assert str(path) in str(caught.value)
    with failing(0x80070570) as caught:
        read_picture(b"no picture")
    assert "the bytes of a picture" in str(caught.value)


def test_paths_that_lead_nowhere(tmp_path: Path) -> None:
    with failing(0x80070002):
        read_picture(tmp_path / "nowhere.png")
    with failing(0x80070057):
        read_picture(tmp_path)
    (tmp_path / "file").touch()
    with failing(0x80070002):
        read_picture(tmp_path / "file" / "below.png")
    for impossible in ("n" * 5000, "zero\0byte"):
        with failing(0x80004005):
            read_picture(impossible)


def test_too_many_pixels(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(picture, "PIXELS_MAX", 5)
    for source in (PIXELS, pillow().fromarray(PIXELS), saved(pillow().fromarray(PIXELS))):
        with failing(0x80070057) as caught:
            read_picture(source)
        assert "2 x 3 pixels" in str(caught.value)


def test_a_file_without_pillow(monkeypatch: pytest.MonkeyPatch) -> None:
    importing = builtins.__import__

    def absent(name: str, *arguments: Any) -> Any:
        if name == "PIL":
            raise ImportError(name)
        return importing(name, *arguments)

    monkeypatch.setattr(builtins, "__import__", absent)
    monkeypatch.delitem(sys.modules, "PIL.Image", raising=False)
    with failing(0x8007007E, NotSupportedError) as caught:
        read_picture(b"a file")
    assert "pip install 'winml-lite[media]'" in str(caught.value)
    assert np.array_equal(read_picture(PIXELS), PIXELS)


def test_a_picture_as_a_file_is_read_as_it_was() -> None:
    pillow()
    assert np.array_equal(read_picture(picture_png(PIXELS)), PIXELS)
