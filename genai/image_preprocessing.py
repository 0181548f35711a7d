"""From pixels to the array that an image classifier takes: reduction, resizing, cutting, normalisation.

`Runtime.tensor_from_image` does the work (tensors §5.3). It samples pixels and averages none, so a picture of at least
twice the size is first reduced by averaging whole blocks; fine detail would otherwise turn into noise.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from winml_lite import (
    ImageResizeMode,
    ImageTensorOptions,
    Runtime,
    TensorChannelOrder,
    TensorDataType,
    TensorLayout,
    TensorNormalization,
)

from .picture import Pixels

Size: TypeAlias = tuple[int, int]
"""Width and height in pixels."""


@dataclass(frozen=True, slots=True)
class ImagePreprocessing:
    """What a classifier wants done to a picture."""

    size: Size
    """What the model takes."""
    normalization: TensorNormalization
    resize_mode: ImageResizeMode = ImageResizeMode.CENTER_CROP
    resized: Size | None = None
    """What the picture is resized to before its middle of `size` is cut out; None is `size`."""
    channel_order: TensorChannelOrder = TensorChannelOrder.RGB
    layout: TensorLayout = TensorLayout.NCHW
    data_type: TensorDataType = TensorDataType.FLOAT32

    def array(self, runtime: Runtime, pixels: Pixels) -> npt.NDArray[Any]:
        """Return the input of the model for one picture, with a batch dimension of 1."""
        resized = self.resized or self.size
        options = ImageTensorOptions(
            data_type=self.data_type,
            layout=self.layout,
            channel_order=self.channel_order,
            size=resized,
            resize_mode=self.resize_mode,
            normalization=self.normalization,
        )
        pixels = reduced(pixels, *reduction(pixels, resized, self.resize_mode))
        with runtime.tensor_from_image(pixels, options=options) as tensor:
            whole: npt.NDArray[Any] = tensor.to_numpy()
        if resized == self.size:
            return whole
        (width, height), (left, top) = self.size, ((r - s) // 2 for r, s in zip(resized, self.size, strict=True))
        rows, columns = slice(top, top + height), slice(left, left + width)
        return whole[:, :, rows, columns] if self.layout == TensorLayout.NCHW else whole[:, rows, columns]


def reduction(pixels: Pixels, size: Size, mode: ImageResizeMode) -> tuple[int, int]:
    """Return how many columns and how many rows of a picture become one, so that it stays larger than what is sampled
    of it.
    """
    height, width = pixels.shape[:2]
    across, down = width / size[0], height / size[1]
    if mode == ImageResizeMode.CENTER_CROP:
        across = down = min(across, down)
    elif mode == ImageResizeMode.LETTERBOX:
        across = down = max(across, down)
    return min(max(1, int(across)), width), min(max(1, int(down)), height)


def reduced(pixels: Pixels, across: int, down: int) -> Pixels:
    """Average blocks of `across` columns and `down` rows; a remainder is left out, half of it on each side."""
    if across == down == 1:
        return pixels
    height, width = pixels.shape[0] // down, pixels.shape[1] // across
    top, left = (pixels.shape[0] - height * down) // 2, (pixels.shape[1] - width * across) // 2
    pixels = pixels[top : top + height * down, left : left + width * across]
    lines = np.zeros((height, *pixels.shape[1:]), np.uint32)
    for row in range(down):
        lines += pixels[row::down]
    blocks = np.zeros((height, width, pixels.shape[2]), np.uint32)
    for column in range(across):
        blocks += lines[:, column::across]
    count = across * down
    return ((blocks + count // 2) // count).astype(np.uint8)
