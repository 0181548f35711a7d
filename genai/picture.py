"""Pictures of a caller as pixels: files, their bytes, Pillow images and arrays become RGB, 8 bits a channel.

Files are read by Pillow, which is imported at the first one. Not here: what an encoder makes of a picture, and tensors
of pictures (`Runtime.tensor_from_image`).
"""

from __future__ import annotations

import os
import struct
import sys
from io import BytesIO
from types import ModuleType
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from winml_lite import NotSupportedError, WinMLError

from .codes import E_FAIL, E_INVALIDARG, FILE_CORRUPT, FILE_NOT_FOUND, MODULE_NOT_FOUND, NOT_SUPPORTED
from .reading import is_empty

Pixels: TypeAlias = npt.NDArray[np.uint8]
PictureSource: TypeAlias = Any
"""A path, the bytes of a file, a file open in binary mode, a Pillow image, or a uint8 array."""

PIXELS_MAX = 64 << 20
"""Most pixels of a picture: 192 MiB in memory."""
_ROWS_AT_ONCE = 64
_COPIED = 1 << 18
"""Bytes that are copied at a time."""
_DAMAGE = (
    *(OSError, SyntaxError, EOFError, LookupError, TypeError, ArithmeticError),
    *(AttributeError, RuntimeError, struct.error),
)
"""What decoders raise for damaged content; those of rare formats do not expect any."""
_SIXTEEN_BITS = ("I;16", "I;16L", "I;16B", "I;16N", "I")
_WHOLE = ("1", "L", "RGB", "RGBX", "CMYK", "YCbCr", "LAB", "HSV", "P")
_SEE_THROUGH = ("RGBA", "RGBa", "LA", "La", "PA")


def read_picture(source: PictureSource) -> Pixels:
    """Return a picture as uint8 (height, width, 3): red, green, blue, read-only and nobody else's memory.

    `source` is the path of a file, the bytes of one, a file open in binary mode, a Pillow image, or an array: uint8
    (height, width) gray, (height, width, 3) red, green, blue, or (height, width, 4) with alpha. Of several frames it is
    the first. A file is turned upright as its camera has noted, what is transparent shows white, and 16-bit gray is
    divided by 257.

    NotSupportedError 0x8007007E for a file without Pillow, 0x80070032 for pixels that have no usual range. WinMLError
    0x80070002 no such file, 0x80004005 one that cannot be opened, 0x80070570 no picture, or a damaged one, 0x80070057
    more than 64 Mi pixels. ValueError for an empty picture.
    """
    if isinstance(source, np.ndarray):
        return _of_array(source)
    pillow = sys.modules.get("PIL.Image")
    if pillow is not None and isinstance(source, pillow.Image):
        return _of_pillow(pillow, source)
    if isinstance(source, bytes | bytearray | memoryview):
        return _of_file(BytesIO(source), "the bytes of a picture")
    if hasattr(source, "read"):
        return _of_file(source, str(getattr(source, "name", "the picture")))
    if not isinstance(source, str | os.PathLike):
        text = "a path, bytes, a binary file, a Pillow image or a uint8 array"
        raise TypeError(f"a picture is {text}, not {type(source).__name__}")
    path = os.fspath(source)
    try:
        with open(path, "rb") as file:
            return _of_file(file, os.fsdecode(path))
    except (FileNotFoundError, NotADirectoryError):
        raise WinMLError(FILE_NOT_FOUND, os.fsdecode(path), "there is no such file") from None
    except IsADirectoryError:
        raise WinMLError(E_INVALIDARG, os.fsdecode(path), "this is a folder, not a picture") from None
    except WinMLError:
        raise
    except (OSError, ValueError) as error:  # no permission, a name that cannot be
        raise WinMLError(E_FAIL, os.fsdecode(path), str(error)) from error


def picture_png(pixels: Pixels) -> bytes:
    """Return a PNG file of pixels. NotSupportedError 0x8007007E without Pillow."""
    file = BytesIO()
    _pillow("the picture").fromarray(pixels).save(file, "PNG")
    return file.getvalue()


def _of_array(array: npt.NDArray[Any]) -> Pixels:
    if array.dtype != np.uint8:
        raise TypeError(f"an array of pixels is uint8, 0 to 255, not {array.dtype}")
    if array.ndim == 2:
        array = array[:, :, None]
    if array.ndim != 3 or array.shape[2] not in (1, 3, 4) or not array.size:
        mend = "; transpose pixels of shape (3, height, width)" if array.ndim == 3 and array.shape[0] == 3 else ""
        raise ValueError(
            f"pixels have shape (height, width, 3), (height, width, 4) or (height, width), not {array.shape}{mend}"
        )
    _check_size(array.shape[1], array.shape[0], "the array")
    if array.shape[2] == 4:
        return _on_white(array)
    return _finished(np.broadcast_to(array, (*array.shape[:2], 3)).copy())


def _of_file(file: Any, name: str) -> Pixels:
    pillow = _pillow(name)
    try:
        with pillow.open(file) as image:
            _check_size(image.width, image.height, name)
            return _of_image(pillow, image, name)
    except WinMLError:
        raise
    except pillow.UnidentifiedImageError:
        known = "no picture that can be read: it is none of the formats that Pillow knows"
        text = "the file is empty" if is_empty(file) else known
        raise WinMLError(FILE_CORRUPT, name, text) from None
    except (pillow.DecompressionBombError, pillow.DecompressionBombWarning) as error:
        raise WinMLError(E_INVALIDARG, name, str(error)) from error
    except (ValueError, *_DAMAGE) as error:
        raise WinMLError(FILE_CORRUPT, name, f"the picture is damaged: {error}") from error


def _of_pillow(pillow: ModuleType, image: Any) -> Pixels:
    if not image.width or not image.height:
        raise ValueError(f"the picture is empty: {image.width} x {image.height}")
    try:
        return _of_image(pillow, image, "the picture")
    except WinMLError:
        raise
    except _DAMAGE as error:  # its file is read only now
        raise WinMLError(FILE_CORRUPT, "the picture", f"the picture is damaged: {error}") from error


def _of_image(pillow: ModuleType, image: Any, name: str) -> Pixels:
    _check_size(image.width, image.height, name)
    image.load()  # some files tell only then what their pixels are
    image = _upright(pillow, image)
    if image.mode in _SIXTEEN_BITS:
        return _of_sixteen_bits(np.asarray(image), name)
    if image.mode in _SEE_THROUGH or "transparency" in image.info:
        return _on_white(_copied(image, "RGBA"))
    if image.mode not in _WHOLE:
        text = f"the range of its pixels (Pillow mode {image.mode!r}) is not known; convert it to RGB"
        raise NotSupportedError(NOT_SUPPORTED, name, text)
    return _finished(_copied(image, "RGB"))


def _copied(image: Any, mode: str) -> Pixels:
    """Return the pixels in a mode, "RGB" or "RGBA", a few rows at a time: copies that stay in the cache are quick."""
    image = image if image.mode == mode else image.convert(mode)
    pixels = np.empty((image.height, image.width, len(mode)), np.uint8)
    step = max(1, _COPIED // (image.width * len(mode)))
    for top in range(0, image.height, step):
        bottom = min(top + step, image.height)
        rows = image.crop((0, top, image.width, bottom)).tobytes()
        pixels[top:bottom] = np.frombuffer(rows, np.uint8).reshape(bottom - top, image.width, len(mode))
    return pixels


def _upright(pillow: ModuleType, image: Any) -> Any:
    """Turn a picture as its camera has noted in tag 274, "orientation"."""
    turns = {2: "FLIP_LEFT_RIGHT", 3: "ROTATE_180", 4: "FLIP_TOP_BOTTOM", 5: "TRANSPOSE"}
    turns |= {6: "ROTATE_270", 7: "TRANSVERSE", 8: "ROTATE_90"}
    turn = turns.get(image.getexif().get(274))
    return image if turn is None else image.transpose(getattr(pillow.Transpose, turn))


def _of_sixteen_bits(values: npt.NDArray[Any], name: str) -> Pixels:
    if values.min() < 0 or values.max() > 0xFFFF:
        raise NotSupportedError(NOT_SUPPORTED, name, "its gray is beyond 16 bits; convert it to 8 bits a channel")
    gray = ((values.astype(np.uint32) + 128) // 257).astype(np.uint8)
    return _finished(np.repeat(gray[:, :, None], 3, axis=2))


def _on_white(pixels: Pixels) -> Pixels:
    """Lay pixels with alpha, (height, width, 4), on white."""
    shown = np.empty((*pixels.shape[:2], 3), np.uint8)
    for start in range(0, len(pixels), _ROWS_AT_ONCE):
        rows = pixels[start : start + _ROWS_AT_ONCE]
        alpha = rows[:, :, 3:].astype(np.uint32)
        shown[start : start + len(rows)] = (rows[:, :, :3] * alpha + 255 * (255 - alpha) + 127) // 255
    return _finished(shown)


def _finished(pixels: Pixels) -> Pixels:
    pixels = np.ascontiguousarray(pixels)
    pixels.flags.writeable = False
    return pixels


def _check_size(width: int, height: int, name: str) -> None:
    if width * height > PIXELS_MAX:
        text = f"{width} x {height} pixels are more than {PIXELS_MAX}; make it smaller"
        raise WinMLError(E_INVALIDARG, name, text)


def _pillow(name: str) -> ModuleType:
    try:
        from PIL import Image
    except ImportError as error:
        text = "reading pictures needs Pillow: pip install 'winml-lite[media]'"
        raise NotSupportedError(MODULE_NOT_FOUND, name, text) from error
    return Image
