"""Pixels that planes are sampled from: packed bytes, and what `Runtime.tensor_from_image` takes (tensors §5.1).

A source gives some rows, and of those some columns as float32; so no more of a picture is converted than its tensor
needs.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from enum import Enum
from typing import Any, Protocol, TypeGuard

import numpy as np
import numpy.typing as npt

from ..checks import enum_value, index_value, number_value
from ..errors import E_INVALIDARG, WinMLError
from .options import ImageFormat

Floats = npt.NDArray[np.float32]
Pixels = npt.NDArray[np.uint8]
Index = slice | npt.NDArray[np.intp]

LETTERS = {ImageFormat.RGBA8: "RGBA", ImageFormat.BGRA8: "BGRA", ImageFormat.GRAY8: "L"}
"""The bytes of a pixel."""
_CONTEXT = "IWinMLRuntime.TensorFromImage"
_COPIED = 1 << 18
"""Bytes of a Pillow picture that are copied at a time."""
_WHOLE = 1 << 22
"""Bytes of a Pillow picture up to which it is copied at once."""
_SRGB = {29: ImageFormat.RGBA8, 91: ImageFormat.BGRA8}


class PixelSource(Protocol):
    """What a picture is to the resampler: its values 0..255, of some rows and then of some columns."""

    width: int
    height: int
    letters: str
    """The channels of `values`, of "RGBA" or "L"."""
    is_packed: bool
    """Whether `lines` are the values as bytes (row, column, channel)."""

    def lines(self, rows: Index) -> Any:
        """Return these rows, in whatever form `values` takes."""

    def values(self, lines: Any, columns: Index) -> Floats:
        """Return these columns of some rows in a new array (row, column, channel)."""

    def may_lie_in(self, memory: Pixels) -> bool:
        """Whether writing to `memory` may change the pixels."""


class PackedPixels:
    """Pixels of 8-bit channels in memory, in any strides.

    `data` has shape (height, width, channels), `letters` names the channels: "L", "RGB", "BGR", "RGBA" or "BGRA".
    """

    is_packed = True

    def __init__(self, data: Pixels, letters: str) -> None:
        self.height, self.width = data.shape[:2]
        self.letters = letters
        self._data = data

    def lines(self, rows: Index) -> Pixels:
        return self._data[rows]

    def values(self, lines: Pixels, columns: Index) -> Floats:
        return taken(lines, columns).astype(np.float32, order="C")

    def may_lie_in(self, memory: Pixels) -> bool:
        return np.may_share_memory(self._data, memory)


class RoundedGray(PackedPixels):
    """The gray of colours in memory: their luma, rounded to an integer."""

    is_packed = False

    def __init__(self, data: Pixels, letters: str) -> None:
        super().__init__(data, "L")
        self._places = [letters.index(colour) for colour in "RGB"]

    def values(self, lines: Pixels, columns: Index) -> Floats:
        pixels = taken(lines, columns)
        return rounded_luma(*(pixels[..., place] for place in self._places))[..., None]


class PillowPixels:
    """Pixels of a Pillow picture of mode L, RGB or RGBA; only the rows that are needed are copied from it."""

    is_packed = True

    def __init__(self, picture: Any) -> None:
        self.width, self.height = picture.size
        self.letters: str = picture.mode
        self._picture = picture
        self._line = self.width * len(self.letters)
        self._kept = slice(0, 0)
        self._rows = self._cropped(0, 0)

    def lines(self, rows: Index) -> Pixels:
        if isinstance(rows, slice):
            return self._span(rows)
        begin, end = int(rows.min()), int(rows.max()) + 1
        step = max(1, _COPIED // self._line)
        if end - begin <= step:
            return self._cropped(begin, end)[rows - begin]
        lines = np.empty((len(rows), self.width, len(self.letters)), np.uint8)
        for first in range(begin, end, step):
            inside = np.flatnonzero((rows >= first) & (rows < first + step))
            if len(inside):
                wanted = rows[inside]
                top = int(wanted.min())
                lines[inside] = self._cropped(top, int(wanted.max()) + 1)[wanted - top]
        return lines

    def values(self, lines: Pixels, columns: Index) -> Floats:
        return taken(lines, columns).astype(np.float32, order="C")

    def may_lie_in(self, memory: Pixels) -> bool:
        return bool(getattr(self._picture, "readonly", False))  # so Pillow marks pictures over memory of others

    def _span(self, rows: slice) -> Pixels:
        """Return rows of the part that was copied last, or of the next one: blocks are asked for from the top."""
        first, last = rows.start, rows.stop
        if not self._kept.start <= first <= last <= self._kept.stop:
            end = min(self.height, max(last, first + _COPIED // self._line))
            self._kept, self._rows = slice(first, end), self._cropped(first, end)
        start = self._kept.start
        return self._rows[first - start : last - start : rows.step]

    def _cropped(self, first: int, last: int) -> Pixels:
        part = self._picture.crop((0, first, self.width, last))
        return np.frombuffer(part.tobytes(), np.uint8).reshape(last - first, self.width, len(self.letters))


def taken(lines: Pixels, columns: Index) -> Pixels:
    """Return some columns of rows."""
    return lines[:, columns] if isinstance(columns, slice) else lines.take(columns, axis=1)


def rounded_luma(red: Pixels, green: Pixels, blue: Pixels) -> Floats:
    """Return 0.299 R + 0.587 G + 0.114 B of bytes, rounded half to even.

    The sum in thousandths is an exact integer in float32, so a half is seen as a half.
    """
    total = np.multiply(red, 299, dtype=np.float32, order="C")
    total += np.multiply(green, 587, dtype=np.float32)
    total += np.multiply(blue, 114, dtype=np.float32)
    total /= 1000
    return np.rint(total, out=total)


@dataclass(frozen=True, slots=True)
class RawPicture:
    """What a caller says of his pixels: sizes and row pitch for raw bytes, the format for arrays too."""

    width: int | None = None
    height: int | None = None
    row_pitch: int | None = None
    image_format: ImageFormat | int | None = None


def pixel_source(image: Any, raw: RawPicture, is_gray: bool) -> PixelSource:
    """Interpret the `image` of `Runtime.tensor_from_image` for a gray tensor or one with colours."""
    if isinstance(image, bytes | bytearray | memoryview):
        return _from_bytes(image, raw, is_gray)
    if is_pillow_like(image):
        return _from_pillow(image, raw, is_gray)
    return _from_array(image, raw, is_gray)


def image_format(value: ImageFormat | int) -> ImageFormat:
    """Return a format; sRGB variants are taken for the plain ones, other numbers are ValueError."""
    if not isinstance(value, Enum):
        with suppress(TypeError):  # told below
            value = index_value(value, "image_format")
            value = _SRGB.get(value, value)
    return enum_value(value, ImageFormat, "image_format")


def is_pillow_like(image: Any) -> TypeGuard[Any]:
    """Whether an object can be asked for its bytes as Pillow's pictures can."""
    return all(hasattr(image, name) for name in ("convert", "size", "tobytes"))


def _from_pillow(image: Any, raw: RawPicture, is_gray: bool) -> PixelSource:
    given = raw.image_format
    if not is_gray and given is not None and image_format(given) is not ImageFormat.RGBA8:
        raise ValueError(f"image_format of a Pillow picture is RGBA8 or None, not {given!r}")
    mode = _converted_mode(image, is_gray)
    picture = image if mode == getattr(image, "mode", None) else image.convert(mode)
    width, height = picture.size
    if width < 1 or height < 1:
        raise ValueError(f"the picture is empty: {width} x {height}")
    size = width * height * len(mode)
    if size > _WHOLE and hasattr(picture, "crop") and getattr(picture, "mode", None) == mode:
        return PillowPixels(picture)
    data = np.frombuffer(picture.tobytes(), np.uint8)
    if data.size != size:
        raise ValueError(f"a picture of {width} x {height} pixels in mode {mode} has {size} bytes, not {data.size}")
    return PackedPixels(data.reshape(height, width, len(mode)), mode)


def _converted_mode(image: Any, is_gray: bool) -> str:
    """Return the mode that a picture is brought to; it stays in its own where that makes no difference."""
    if is_gray:
        return "L"
    # Without a transparent colour, converting these to RGBA would repeat the gray and append alpha 255, no more.
    mode = getattr(image, "mode", None)
    return mode if mode in ("L", "RGB") and "transparency" not in getattr(image, "info", ()) else "RGBA"


def _from_array(image: Any, raw: RawPicture, is_gray: bool) -> PackedPixels:
    if isinstance(image, np.ma.MaskedArray):
        raise ValueError("pixels have no mask; pass image.filled(value), or image.data")
    array = np.asarray(image)
    if array.dtype != np.uint8:
        raise ValueError(
            f"image must be a Pillow picture, bytes, or an array of uint8, not {_kind_of(image, array)}; "
            "open files with PIL.Image.open, and bring other numbers to 0..255"
        )
    if array.ndim == 2:
        array = array[..., None]
    if array.ndim != 3 or array.shape[2] not in (1, 3, 4) or 0 in array.shape:
        shape = np.shape(image)
        mend = "; transpose pixels of shape (channels, H, W)" if len(shape) == 3 and shape[0] in (3, 4) else ""
        raise ValueError(f"an image array has shape (H, W), (H, W, 1), (H, W, 3) or (H, W, 4), not {shape}{mend}")
    if array.shape[2] == 1:
        return PackedPixels(array, "L")
    kind = ImageFormat.RGBA8 if raw.image_format is None else image_format(raw.image_format)
    if kind is ImageFormat.GRAY8:
        raise ValueError(f"image_format GRAY8 does not fit an array of {array.shape[2]} channels")
    letters = LETTERS[kind][: array.shape[2]]
    return RoundedGray(array, letters) if is_gray else PackedPixels(array, letters)


def _kind_of(image: Any, array: npt.NDArray[Any]) -> str:
    return f"an array of {array.dtype}" if array.ndim else type(image).__name__


def _from_bytes(image: bytes | bytearray | memoryview, raw: RawPicture, is_gray: bool) -> PackedPixels:
    if raw.width is None or raw.height is None or raw.image_format is None:
        raise ValueError("raw bytes need width, height and image_format; open files with PIL.Image.open")
    width = number_value(raw.width, "width", minimum=1)
    height = number_value(raw.height, "height", minimum=1)
    kind = image_format(raw.image_format)
    if is_gray and kind is not ImageFormat.GRAY8:
        raise ValueError(f"raw bytes for a GRAY tensor must be GRAY8, not {kind.name}")
    letters = LETTERS[kind]
    line = width * len(letters)
    pitch = line if raw.row_pitch is None else number_value(raw.row_pitch, "row_pitch", minimum=1)
    data = raw_bytes(image)
    if data.size < pitch * height:
        raise ValueError(f"{height} rows of {pitch} bytes take {pitch * height} bytes, the buffer has {data.size}")
    if pitch < line:
        raise WinMLError(E_INVALIDARG, _CONTEXT, f"a row of {width} pixels takes {line} bytes, row_pitch is {pitch}")
    rows = data[: pitch * height].reshape(height, pitch)[:, :line]
    return PackedPixels(rows.reshape(height, width, len(letters)), letters)


def raw_bytes(buffer: bytes | bytearray | memoryview) -> Pixels:
    """View a buffer as bytes; what is not contiguous is packed."""
    view = memoryview(buffer)
    return np.frombuffer(view if view.c_contiguous else view.tobytes(), np.uint8)
