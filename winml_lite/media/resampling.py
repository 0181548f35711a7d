"""Bilinear resampling (tensors §5.3): half-pixel centres, clamped edges, no filter before a reduction.

Separable and in blocks of rows that stay in the cache: a block gathers the pixels it needs while they are bytes, blends
columns, then rows. Positions and weights of an axis are prepared once per window and kept for the next picture.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from .pixels import Floats, Index, PixelSource

_BLOCK = 1 << 15
"""Numbers that are worked on at a time: few enough for the cache, and many for one call."""
_LINES = 1 << 19
"""Numbers in the source rows of a block."""
_WHOLE = 1e-8
"""Distance from the centre of a pixel that is an error of rounding."""
_KEPT_LENGTH = 1 << 14
"""Longest axis whose positions are kept: 20 bytes an element."""


@dataclass(frozen=True, slots=True)
class Window:
    """A part of one axis of a picture, in pixels and fractions of them, and the number of pixels it becomes."""

    source: int
    """Pixels of the whole axis."""
    start: float
    extent: float
    length: int


@dataclass(frozen=True, slots=True)
class Axis:
    """Where the pixels of one axis come from: each is `low + fraction * (high - low)` of two source pixels."""

    low: npt.NDArray[np.intp]
    high: npt.NDArray[np.intp]
    fraction: Floats | None
    """None when every pixel is one of the source."""


def axis_of(window: Window) -> Axis:
    """Return the positions and weights of an axis."""
    return _kept_axis(window) if window.length <= _KEPT_LENGTH else _axis(window)


def _axis(window: Window) -> Axis:
    centres = np.arange(window.length, dtype=np.float64)
    centres += 0.5
    centres *= window.extent
    centres /= window.length
    centres += window.start - 0.5
    nearest = np.rint(centres)  # 3.9999999999 is 4: whole pixels are copied, not blended
    np.copyto(centres, nearest, where=np.abs(centres - nearest) < _WHOLE)
    np.clip(centres, 0, window.source - 1, out=centres)
    low = centres.astype(np.intp)
    high = np.minimum(low + 1, window.source - 1)
    fraction = (centres - low).astype(np.float32)
    for array in (low, high, fraction):
        array.flags.writeable = False  # several pictures and threads share them
    return Axis(low, high, fraction) if fraction.any() else Axis(low, low, None)


_kept_axis = lru_cache(maxsize=32)(_axis)


def resampled_blocks(source: PixelSource, across: Window, down: Window) -> Iterator[tuple[slice, Floats]]:
    """Yield a window of a picture from the top, in blocks: the rows, and their values (row, column, channel)."""
    columns, lines = axis_of(across), axis_of(down)
    channels = len(source.letters)
    step = max(1, min(_BLOCK // (across.length * channels), _LINES // (2 * source.width * channels)))
    for first in range(0, down.length, step):
        place = slice(first, min(first + step, down.length))
        rows, upper, lower = _rows(lines, place)
        values = _blend_columns(source, rows, columns)
        if lines.fraction is not None:
            values = _blend(values[upper], values[lower], lines.fraction[place, None])
        yield place, values.reshape(-1, across.length, channels)


def _rows(axis: Axis, place: slice) -> tuple[Index, Index, Index]:
    """Return the source rows of a block, and where its upper and lower neighbours lie among them."""
    low, high = axis.low[place], axis.high[place]
    if axis.fraction is None:
        return evenly(low), slice(None), slice(None)
    first, last, count = int(low[0]), int(high[-1]), len(low)
    if last - first < 2 * count:  # neighbours share rows: take the whole span
        return slice(first, last + 1), low - first, high - first
    return np.concatenate((low, high)), slice(0, count), slice(count, 2 * count)


def evenly(positions: npt.NDArray[np.intp]) -> Index:
    """Return ascending positions as a slice when they are evenly spaced."""
    first = int(positions[0])
    if len(positions) == 1:
        return slice(first, first + 1)
    step = int(positions[1]) - first
    if step > 0 and (np.diff(positions) == step).all():
        return slice(first, int(positions[-1]) + 1, step)
    return positions


def _blend_columns(source: PixelSource, rows: Index, axis: Axis) -> Floats:
    """Return the rows with their columns blended, the channels of a pixel side by side in a row."""
    lines = source.lines(rows)
    if axis.fraction is None:
        values = source.values(lines, evenly(axis.low))
        return values.reshape(len(values), -1)
    left, right = source.values(lines, axis.low), source.values(lines, axis.high)
    weights = np.repeat(axis.fraction, left.shape[2])
    return _blend(left.reshape(len(left), -1), right.reshape(len(right), -1), weights)


def _blend(first: Floats, second: Floats, weights: Floats) -> Floats:
    """Return `first + weights * (second - first)`, in the memory of `second` when that is a fresh array."""
    second -= first
    second *= weights
    second += first
    return second
