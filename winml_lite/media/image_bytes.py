"""Tensor elements to pixels (tensors §5.5)."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ..errors import E_INVALIDARG, E_OUTOFMEMORY, WinMLError
from ..storage import Storage, StorageLock, descriptor_text
from ..values import TensorDataType, TensorLockMode
from .image_layout import ImageLayout, image_layout, image_options, image_size
from .image_tensors import Elements, channels_first
from .options import ImageFormat, ImageTensorOptions
from .pixels import LETTERS, Pixels, image_format, rounded_luma

_BLOCK = 1 << 15
"""Elements of a channel that are worked on at a time."""


def image_bytes(
    storage: Storage, size: tuple[int, int], kind: ImageFormat | int, options: ImageTensorOptions | None
) -> bytes:
    """Return the packed pixels of a tensor (see `Runtime.image_bytes_from_tensor`)."""
    context = "IWinMLRuntime.ImageBytesFromTensor"
    width, height = image_size(size)
    wanted = image_options(options)
    if wanted.size is not None and image_size(wanted.size) != (width, height):
        raise ValueError(f"size is {(width, height)}, options.size is {wanted.size}")
    letters = LETTERS[image_format(kind)]
    layout = image_layout(wanted, (width, height), context)
    check_tensor(storage, layout, context)
    try:
        pixels = np.empty((height, width, len(letters)), np.uint8)
        with np.errstate(all="ignore"):  # overflow and NaN have their defined results
            for rows, planes in value_blocks(storage, layout):
                _place([_rounded(plane) for plane in planes], layout.letters, pixels[rows], letters)
        return pixels.tobytes()
    except MemoryError:
        raise WinMLError(E_OUTOFMEMORY, context, f"no memory for {width} x {height} pixels") from None


def check_tensor(storage: Storage, layout: ImageLayout, context: str) -> None:
    """Raise 0x80070057 for a tensor unlike its description, and for a normalization that cannot be undone."""
    if storage.descriptor != layout.descriptor:
        wanted, found = descriptor_text(layout.descriptor), descriptor_text(storage.descriptor)
        raise WinMLError(E_INVALIDARG, context, f"the options describe {wanted}, the tensor is {found}")
    if 0.0 in layout.scale[: len(layout.letters)]:
        raise WinMLError(E_INVALIDARG, context, "a normalization with scale 0 cannot be undone")


def value_blocks(storage: Storage, layout: ImageLayout, step: int = 1) -> Iterator[tuple[slice, list[Elements]]]:
    """Yield the pixel values of each channel, in blocks of rows from the top whose number is a multiple of `step`."""
    height = step * max(1, _BLOCK // (layout.width * step))
    with StorageLock(storage, TensorLockMode.READ):
        storage.fetch()
        elements = channels_first(storage.array(), layout)
        for first in range(0, layout.height, height):
            rows = slice(first, min(first + height, layout.height))
            yield rows, [_values(plane[rows], layout, channel) for channel, plane in enumerate(elements)]


def _values(plane: Elements, layout: ImageLayout, channel: int) -> Elements:
    """Undo quantization and normalization."""
    if layout.is_identity and layout.data_type is TensorDataType.UINT8:
        return plane
    values: Elements = plane.astype(np.float32 if layout.divisor is None else np.float64)
    if layout.divisor is not None:
        values -= layout.zero_point
        values *= layout.divisor
    values /= layout.scale[channel]
    values += layout.mean[channel]
    return values


def _rounded(values: Elements) -> Pixels:
    """Return values as bytes, saturated."""
    if values.dtype == np.uint8:
        return values
    limited: Elements = np.clip(np.rint(values), 0, 255)
    limited[np.isnan(limited)] = 0
    pixels: Pixels = limited.astype(np.uint8)
    return pixels


def _place(planes: list[Pixels], letters: str, pixels: Pixels, wanted: str) -> None:
    """Put channels where the format has them. Gray stands for each colour, a missing alpha is 255."""
    for place, letter in enumerate(wanted):
        if letter in letters:
            pixels[..., place] = planes[letters.index(letter)]
        elif letter == "A":
            pixels[..., place] = 255
        elif letter == "L":
            pixels[..., place] = rounded_luma(*(planes[letters.index(colour)] for colour in "RGB"))
        else:
            pixels[..., place] = planes[0]
