"""Pixels to tensor elements (tensors §5.3 and 5.4): place in the tensor, normalization, and how elements are stored."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from ..errors import E_INVALIDARG, E_OUTOFMEMORY, WinMLError
from ..storage import Storage, StorageLock, allocate, descriptor_text
from ..values import TensorDataType, TensorLockMode
from .image_layout import ImageLayout
from .options import ImageResizeMode
from .pixels import PixelSource, taken
from .resampling import Window, axis_of, evenly, resampled_blocks

Elements = npt.NDArray[Any]

_OPAQUE = np.full((1, 1), 255, np.float32)
_LARGEST = 1e30
"""Numbers beyond this one, or their inverses, are worked with in float64, so that float32 never overflows between."""


def image_storage(source: PixelSource, layout: ImageLayout) -> Storage:
    """Make a tensor of a picture."""
    storage = allocate(*layout.descriptor)
    _convert(source, layout, storage)
    return storage


def write_image(source: PixelSource, layout: ImageLayout, storage: Storage, context: str) -> None:
    """Write a picture into a tensor of exactly the shape and type, else 0x80070057."""
    if storage.descriptor != layout.descriptor:
        wanted, found = descriptor_text(layout.descriptor), descriptor_text(storage.descriptor)
        raise WinMLError(E_INVALIDARG, context, f"the picture becomes {wanted}, the tensor is {found}")
    storage.settle()
    with StorageLock(storage, TensorLockMode.WRITE):
        if source.may_lie_in(storage.data):
            np.copyto(storage.data, image_storage(source, layout).data)
        else:
            _convert(source, layout, storage)
        storage.publish()


def _convert(source: PixelSource, layout: ImageLayout, storage: Storage) -> None:
    try:
        with np.errstate(all="ignore"):  # overflow and NaN have their defined results
            _fill(source, layout, channels_first(storage.array(), layout))
    except MemoryError:
        size = f"{layout.width} x {layout.height}"
        raise WinMLError(E_OUTOFMEMORY, "IWinMLRuntime.TensorFromImage", f"no memory to make {size} pixels") from None


def channels_first(elements: Elements, layout: ImageLayout) -> Elements:
    """View the elements of a picture tensor as (channel, row, column)."""
    pixels: Elements = elements[0]
    return pixels if layout.is_planar else pixels.transpose(2, 0, 1)


def _fill(source: PixelSource, layout: ImageLayout, out: Elements) -> None:
    across, down, left, top = _windows(source, layout)
    inside = out[:, top : top + down.length, left : left + across.length]
    if inside.shape != out.shape:
        _fill_bars(layout, out, left, top, inside.shape)
    if _copy_bytes(source, layout, across, down, inside):
        return
    places = _places(source.letters, layout.letters)
    for rows, values in resampled_blocks(source, across, down):
        for channel, place in enumerate(places):
            plane = _OPAQUE if place is None else values[..., place]
            store(plane, layout, channel, inside[channel, rows])


def _places(stored: str, wanted: str) -> list[int | None]:
    """Return where each wanted channel is stored; None is an alpha of 255. Gray stands for each colour."""
    if stored == "L":
        return [None if letter == "A" else 0 for letter in wanted]
    return [stored.find(letter) if letter in stored else None for letter in wanted]


def _windows(source: PixelSource, layout: ImageLayout) -> tuple[Window, Window, int, int]:
    """Return what part of the picture goes where: the windows across and down, and the left and top bars."""
    width, height = source.width, source.height
    wide, high = layout.width / width, layout.height / height
    if layout.resize_mode is ImageResizeMode.CENTER_CROP:
        ratio = max(wide, high)
        across = _centred(width, layout.width / ratio, layout.width)
        return across, _centred(height, layout.height / ratio, layout.height), 0, 0
    if layout.resize_mode is ImageResizeMode.STRETCH:
        return Window(width, 0.0, width, layout.width), Window(height, 0.0, height, layout.height), 0, 0
    ratio = min(wide, high)
    across = Window(width, 0.0, width, min(max(1, int(width * ratio + 0.5)), layout.width))
    down = Window(height, 0.0, height, min(max(1, int(height * ratio + 0.5)), layout.height))
    return across, down, (layout.width - across.length) // 2, (layout.height - down.length) // 2


def _centred(source: int, extent: float, length: int) -> Window:
    return Window(source, (source - extent) / 2, extent, length)


def _fill_bars(layout: ImageLayout, out: Elements, left: int, top: int, inside: tuple[int, ...]) -> None:
    _, height, width = inside
    for channel, plane in enumerate(out):
        value = np.empty(1, out.dtype)
        store(np.array([layout.letterbox_value[channel]]), layout, channel, value)
        plane[:top] = value
        plane[top + height :] = value
        plane[top : top + height, :left] = value
        plane[top : top + height, left + width :] = value


def _copy_bytes(source: PixelSource, layout: ImageLayout, across: Window, down: Window, out: Elements) -> bool:
    """Copy pixels into a UINT8 tensor as they are, where they are to stay as they are; return whether they are."""
    if layout.data_type is not TensorDataType.UINT8 or not layout.is_identity or not source.is_packed:
        return False
    columns, rows = axis_of(across), axis_of(down)
    if columns.fraction is not None or rows.fraction is not None:
        return False
    pixels = taken(source.lines(evenly(rows.low)), evenly(columns.low))
    for plane, place in zip(out, _places(source.letters, layout.letters), strict=True):
        plane[...] = 255 if place is None else pixels[..., place]
    return True


def store(plane: npt.NDArray[Any], layout: ImageLayout, channel: int, out: Elements) -> None:
    """Normalize and quantize pixel values of a channel, and put them into `out`."""
    mean, scale = layout.mean[channel], layout.scale[channel]
    if layout.divisor is not None or _needs_float64(mean) or _needs_float64(scale):
        plane = plane.astype(np.float64)
    values = plane - mean
    limits = layout.limits
    if limits is None:
        np.multiply(values, scale, out=out, casting="same_kind")
        return
    values *= scale
    if layout.divisor is not None:
        values /= layout.divisor
    np.rint(values, out=values)
    values += layout.zero_point
    np.clip(values, *limits, out=values)
    values[np.isnan(values)] = 0
    np.copyto(out, values, casting="unsafe")


def _needs_float64(number: float) -> bool:
    return number != 0 and not 1 / _LARGEST < abs(number) < _LARGEST
