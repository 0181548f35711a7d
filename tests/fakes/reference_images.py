"""Pictures as tensors by the letter of tensors §5.3: one pixel at a time, in Python's own numbers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt

Four = tuple[float, float, float, float]


@dataclass(frozen=True)
class Wanted:
    """What the picture shall become."""

    letters: str
    size: tuple[int, int]
    """(width, height)."""
    mode: str
    """`"stretch"`, `"crop"` or `"letterbox"`."""
    letterbox_value: Four = (0, 0, 0, 0)
    scale: Four = (1, 1, 1, 1)
    mean: Four = (0, 0, 0, 0)


def channel(pixel: Sequence[int], stored: str, letter: str) -> float:
    """One channel of a pixel."""
    if letter in stored:
        return float(pixel[stored.index(letter)])
    if letter == "A":
        return 255.0
    if stored == "L":
        return float(pixel[0])
    red, green, blue = (int(pixel[stored.index(colour)]) for colour in "RGB")
    return float(round(Fraction(299 * red + 587 * green + 114 * blue, 1000)))  # round goes half to even


def bilinear(plane: Sequence[Sequence[float]], u: float, v: float) -> float:
    """The value of a plane at a place in it."""
    height, width = len(plane), len(plane[0])
    u, v = min(max(u, 0.0), width - 1.0), min(max(v, 0.0), height - 1.0)
    a, b = math.floor(u), math.floor(v)
    f, g = u - a, v - b
    right, below = min(a + 1, width - 1), min(b + 1, height - 1)
    upper = (1 - f) * plane[b][a] + f * plane[b][right]
    lower = (1 - f) * plane[below][a] + f * plane[below][right]
    return (1 - g) * upper + g * lower


def pixel_value(plane: Sequence[Sequence[float]], wanted: Wanted, i: int, j: int) -> float | None:
    """The value at column i and row j of the result; None is the bar."""
    sh, sw = len(plane), len(plane[0])
    dw, dh = wanted.size
    if wanted.mode == "stretch":
        return bilinear(plane, (i + 0.5) * sw / dw - 0.5, (j + 0.5) * sh / dh - 0.5)
    if wanted.mode == "crop":
        r = max(dw / sw, dh / sh)
        cw, ch = dw / r, dh / r
        return bilinear(plane, (sw - cw) / 2 + (i + 0.5) * cw / dw - 0.5, (sh - ch) / 2 + (j + 0.5) * ch / dh - 0.5)
    r = min(dw / sw, dh / sh)
    rw, rh = (min(most, max(1, math.floor(own * r + 0.5))) for own, most in ((sw, dw), (sh, dh)))
    i, j = i - (dw - rw) // 2, j - (dh - rh) // 2
    if not (0 <= i < rw and 0 <= j < rh):
        return None
    return bilinear(plane, (i + 0.5) * sw / rw - 0.5, (j + 0.5) * sh / rh - 0.5)


def reference_image(pixels: npt.NDArray[np.uint8], stored: str, wanted: Wanted) -> npt.NDArray[Any]:
    """The normalized values (channel, row, column) of a picture whose channels are `stored`."""
    width, height = wanted.size
    result = np.empty((len(wanted.letters), height, width))
    for c, letter in enumerate(wanted.letters):
        plane = [[channel(pixel, stored, letter) for pixel in row] for row in pixels.tolist()]
        for j in range(height):
            for i in range(width):
                value = pixel_value(plane, wanted, i, j)
                filled = wanted.letterbox_value[c] if value is None else value
                result[c, j, i] = (filled - wanted.mean[c]) * wanted.scale[c]
    return result
