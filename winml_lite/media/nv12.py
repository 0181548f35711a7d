"""NV12 video frames to and from picture tensors (tensors §12): BT.709, studio range.

A frame is a plane of luma Y', then rows of interleaved chroma U, V, one pair for each 2 x 2 pixels.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from ..checks import number_value
from ..errors import E_INVALIDARG, WinMLError
from ..storage import Storage
from .image_bytes import check_tensor, value_blocks
from .image_layout import ImageLayout
from .options import VideoFrameMetadata
from .pixels import Floats, Index, Pixels, raw_bytes, taken

_TIME_MAX = (1 << 63) - 1
_LUMA = {"R": 0.2126, "G": 0.7152, "B": 0.0722}


class Nv12Pixels:
    """The colours of a frame, not rounded; `is_gray` gives their luma 0.299 R + 0.587 G + 0.114 B instead."""

    is_packed = False

    def __init__(self, luma: Pixels, chroma: Pixels, is_gray: bool) -> None:
        """Take Y' (height, width) and U, V (height / 2, width / 2, 2)."""
        self.height, self.width = luma.shape
        self.letters = "L" if is_gray else "RGB"
        self._luma = luma
        self._chroma = chroma

    def lines(self, rows: Index) -> tuple[Pixels, Pixels]:
        return self._luma[rows], self._chroma[_numbers(rows) // 2]

    def values(self, lines: tuple[Pixels, Pixels], columns: Index) -> Floats:
        luma = taken(lines[0], columns).astype(np.float32)
        chroma = lines[1].take(_numbers(columns) // 2, axis=1).astype(np.float32)
        luma -= 16
        luma *= 255 / 219
        chroma -= 128
        chroma *= 255 / 224
        u, v = chroma[..., 0], chroma[..., 1]
        colours = (luma + 1.5748 * v, luma - 0.187324 * u - 0.468124 * v, luma + 1.8556 * u)
        red, green, blue = (np.clip(colour, 0, 255) for colour in colours)
        if self.letters == "L":
            gray: Floats = np.float32(0.299) * red + np.float32(0.587) * green + np.float32(0.114) * blue
            return gray[..., None]
        return np.stack((red, green, blue), axis=-1)

    def may_lie_in(self, memory: Pixels) -> bool:
        return np.may_share_memory(self._luma, memory) or np.may_share_memory(self._chroma, memory)


def _numbers(index: Index) -> npt.NDArray[np.intp]:
    return np.arange(index.start, index.stop, index.step or 1) if isinstance(index, slice) else index


def frame_metadata(metadata: VideoFrameMetadata | None) -> VideoFrameMetadata:
    """Return the metadata with checked numbers, or the default ones; another class is TypeError."""
    if metadata is None:
        return VideoFrameMetadata()
    if not isinstance(metadata, VideoFrameMetadata):
        raise TypeError(f"metadata must be VideoFrameMetadata or None, not {type(metadata).__name__}")
    times = [
        None if time is None else number_value(time, name, _TIME_MAX, -_TIME_MAX)
        for time, name in ((metadata.timestamp_100ns, "timestamp_100ns"), (metadata.duration_100ns, "duration_100ns"))
    ]
    return VideoFrameMetadata(
        number_value(metadata.source_width, "source_width"),
        number_value(metadata.source_height, "source_height"),
        number_value(metadata.source_stride, "source_stride"),
        *times,
    )


def nv12_source(frame: Any, metadata: VideoFrameMetadata, is_gray: bool, context: str) -> Nv12Pixels:
    """Interpret the bytes of a frame; a stride of 0 means that rows have no gap."""
    width, height = metadata.source_width, metadata.source_height
    if width < 1 or height < 1:
        raise ValueError("metadata must have the source_width and source_height of the frame")
    stride = metadata.source_stride or width
    if width % 2 or height % 2 or stride < width:
        raise WinMLError(
            E_INVALIDARG, context, f"NV12 has an even size and rows of {width} bytes: {width} x {height}, {stride}"
        )
    data = raw_bytes(frame)
    rows = height // 2 * 3
    if data.size < rows * stride:
        raise ValueError(f"the frame takes {rows} rows of {stride} bytes, the buffer has {data.size} bytes")
    planes = data[: rows * stride].reshape(rows, stride)[:, :width]
    return Nv12Pixels(planes[:height], planes[height:].reshape(height // 2, width // 2, 2), is_gray)


def nv12_bytes(storage: Storage, layout: ImageLayout, context: str) -> bytes:
    """Return a tensor as the bytes of a frame without gaps."""
    width, height = layout.width, layout.height
    if width % 2 or height % 2:
        raise WinMLError(E_INVALIDARG, context, f"NV12 has an even size, the tensor has {width} x {height}")
    check_tensor(storage, layout, context)
    frame = np.empty((height // 2 * 3, width), np.uint8)
    chroma = frame[height:].reshape(height // 2, width // 2, 2)
    with np.errstate(all="ignore"):  # overflow and NaN have their defined results
        for rows, planes in value_blocks(storage, layout, step=2):
            luma, blue, red = _luma_and_chroma(planes, layout.letters)
            frame[rows] = _studio(16 + 219 / 255 * luma, 235)
            pairs = chroma[rows.start // 2 : rows.stop // 2]
            pairs[..., 0] = _studio(128 + 224 / (1.8556 * 255) * _halved(blue - luma), 240)
            pairs[..., 1] = _studio(128 + 224 / (1.5748 * 255) * _halved(red - luma), 240)
    return frame.tobytes()


def _luma_and_chroma(planes: list[npt.NDArray[Any]], letters: str) -> tuple[Floats, Floats, Floats]:
    """Return luma, blue and red of pixel values, which are limited to 0..255; NaN is 0."""
    values = [np.nan_to_num(np.clip(plane.astype(np.float32), 0, 255), nan=0.0) for plane in planes]
    if letters == "L":
        return values[0], values[0], values[0]
    named = dict(zip(letters, values, strict=True))
    luma = sum((weight * named[letter] for letter, weight in _LUMA.items()), np.float32(0))
    return np.asarray(luma), named["B"], named["R"]


def _halved(plane: Floats) -> Floats:
    """Return the mean of each 2 x 2 pixels."""
    height, width = plane.shape
    mean: Floats = plane.reshape(height // 2, 2, width // 2, 2).mean(axis=(1, 3))
    return mean


def _studio(plane: Floats, greatest: int) -> Pixels:
    return np.clip(np.rint(plane), 16, greatest).astype(np.uint8)
