"""Samples to tensor elements and back (tensors §6): scale, channels, windows. No resampling, no window function."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from numpy.lib.stride_tricks import sliding_window_view

from ..checks import number_value
from ..errors import E_INVALIDARG, E_OUTOFMEMORY, WinMLError
from ..storage import Storage, StorageLock, allocate
from ..values import TensorLockMode
from .audio_layout import CHANNELS_MAX, FLOATS, SAMPLE_TYPES, AudioLayout, sample_format_name

Array = npt.NDArray[Any]

_BLOCK = 1 << 16
"""Frames of one step where a step needs memory of its own."""
_SCALES = {"uint8": 1 / 128, "int16": 1 / 32768, "int32": 1 / 2147483648, "float32": 1.0}
_UINT8_VALUES = (np.arange(256, dtype=np.float32) - 128) / 128
_WRITTEN_FORMATS = ("int16", "int32", "float32")


def audio_storage(frames: Array, layout: AudioLayout) -> Storage:
    """Make a tensor of (frames, channels) samples."""
    storage = allocate(*layout.descriptor(len(frames)))
    out = storage.array()
    try:
        with np.errstate(over="ignore", invalid="ignore"):  # too large for FLOAT16 is infinite, NaN stays NaN
            if layout.window:
                samples = np.empty((1, len(frames)), out.dtype)
                _fill(frames, samples)
                _cut(samples[0], layout, out.reshape(-1, layout.window))
            else:
                _fill(frames, out.reshape(layout.channels, -1))
    except MemoryError:
        message = f"no memory to convert {len(frames)} frames"
        raise WinMLError(E_OUTOFMEMORY, "IWinMLRuntime.TensorFromAudio", message) from None
    return storage


def _fill(frames: Array, planes: Array) -> None:
    """Write samples (frames, channels) as planes (channels, frames) of floats."""
    if len(planes) == 1 and frames.shape[1] > 1:
        _fill_mean(frames, planes[0])
        return
    name = frames.dtype.name
    if name == "float32":
        np.copyto(planes, frames.T, casting="same_kind")
    elif name == "uint8":
        np.copyto(planes, _UINT8_VALUES[frames.T], casting="same_kind")
    else:
        # float32 holds s / 2**15 exactly, so that FLOAT16 is rounded once; int32 takes a double for that.
        exact = np.float32 if name == "int16" else np.float64
        np.multiply(frames.T, exact(_SCALES[name]), out=planes, dtype=exact, casting="same_kind")


def _fill_mean(frames: Array, plane: Array) -> None:
    """Write the mean of the channels, taken in double."""
    count = frames.shape[1]
    name = frames.dtype.name
    scale = _SCALES[name] / count
    for start in range(0, len(frames), _BLOCK):
        block = frames[start : start + _BLOCK]
        total = block[:, 0].astype(np.float64)
        for channel in range(1, count):
            total += block[:, channel]
        if name == "uint8":
            total -= 128 * count
        np.multiply(total, scale, out=plane[start : start + _BLOCK], casting="same_kind")


def _cut(samples: Array, layout: AudioLayout, windows: Array) -> None:
    """Copy samples into windows, which are zero where there are no samples."""
    window, hop = layout.window, layout.hop
    whole = max(0, (len(samples) - window) // hop + 1)
    if whole:
        np.copyto(windows[:whole], sliding_window_view(samples, window)[::hop])
    for index in range(whole, len(windows)):
        rest = samples[index * hop :]
        windows[index, : len(rest)] = rest


def audio_bytes(storage: Storage, sample_rate: int, channels: int, sample_format: str) -> bytes:
    """Return interleaved samples of a (1, T) or (1, C, T) tensor (see `Runtime.audio_bytes_from_tensor`)."""
    number_value(sample_rate, "sample_rate", minimum=1)
    count = number_value(channels, "channels", CHANNELS_MAX, 1)
    name = sample_format_name(sample_format, _WRITTEN_FORMATS)
    shape = storage.shape
    if len(shape) not in (2, 3):
        raise ValueError(f"sound has shape (1, T) or (1, C, T), not {shape}")
    if shape[0] != 1:
        raise ValueError(f"{shape} is a batch or a row of windows; take one with region")
    own = shape[1] if len(shape) == 3 else 1
    if count != own:
        raise ValueError(f"channels is {count}, the tensor has {own}")
    if storage.data_type not in FLOATS:
        message = f"sound is FLOAT32 or FLOAT16, not {storage.data_type.name}"
        raise WinMLError(E_INVALIDARG, "IWinMLRuntime.AudioBytesFromTensor", message)
    storage.settle()
    with StorageLock(storage, TensorLockMode.READ):
        storage.fetch()
        planes = storage.array().reshape(own, shape[-1])
        samples = np.empty((shape[-1], own), SAMPLE_TYPES[name])
        for start in range(0, len(samples), _BLOCK):
            samples[start : start + _BLOCK] = _encoded(planes[:, start : start + _BLOCK].T, name)
    return samples.tobytes()


def _encoded(values: Array, name: str) -> Array:
    """Return float samples in a sample format: rounded half to even, clamped, NaN as 0."""
    if name == "float32":
        return values
    limit = 32768 if name == "int16" else 2147483648
    with np.errstate(over="ignore", invalid="ignore"):
        scaled = values.astype(np.float64) * limit
        np.rint(scaled, out=scaled)
        np.clip(scaled, -limit, limit - 1, out=scaled)
        scaled[np.isnan(scaled)] = 0
    return scaled
