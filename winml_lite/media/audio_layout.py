"""Where sound comes from and what its tensor looks like: arguments checked in the order of tensors §6.1."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from ..checks import UINT32_MAX, member_of, number_value
from ..errors import E_INVALIDARG, WinMLError
from ..values import Descriptor, TensorDataType
from .options import AudioTensorOptions, TensorLayout

Array = npt.NDArray[Any]

CHANNELS_MAX = 64
SAMPLE_TYPES = {"uint8": "u1", "int16": "<i2", "int32": "<i4", "float32": "<f4"}
"""Sample formats, and how their bytes lie in memory."""
FLOATS = (TensorDataType.FLOAT32, TensorDataType.FLOAT16)
_CONTEXT = "IWinMLRuntime.TensorFromAudio"


@dataclass(frozen=True, slots=True)
class AudioSource:
    """Samples as a caller gave them, and how they are to be read."""

    data: Array
    """Frames and channels of an array, or bytes."""
    dtype: np.dtype[Any]
    channels: int

    def frames(self) -> Array:
        """Return (frames, channels), without a copy; 0x80070057 for half a frame at the end, or no frame at all."""
        size = self.dtype.itemsize * self.channels
        if self.data.nbytes % size:
            count = self.data.nbytes
            raise WinMLError(E_INVALIDARG, _CONTEXT, f"{count} bytes are no whole number of frames of {size} bytes")
        if not self.data.nbytes:
            raise WinMLError(E_INVALIDARG, _CONTEXT, "there is no frame at all")
        data = self.data if self.data.dtype == self.dtype else self.data.view(self.dtype)
        return data.reshape(-1, self.channels)


@dataclass(frozen=True, slots=True)
class AudioLayout:
    """A sound tensor, settled but for its length."""

    data_type: TensorDataType
    channels: int
    has_channel_axis: bool
    """NCT, else NT."""
    window: int = 0
    hop: int = 0

    def descriptor(self, frames: int) -> Descriptor:
        """Return element type and shape of the tensor of so many frames."""
        first, last = (self.window_count(frames), self.window) if self.window else (1, frames)
        if self.has_channel_axis:
            return self.data_type, (first, self.channels, last)
        return self.data_type, (first, last)

    def window_count(self, frames: int) -> int:
        """Return the number of windows that hold every frame; the last one may reach beyond the end."""
        return max(1, 1 + -(-(frames - self.window) // self.hop))


def audio_options(options: AudioTensorOptions | None) -> AudioTensorOptions:
    """Return the options or the default ones; another class is TypeError."""
    if options is None:
        return AudioTensorOptions()
    if not isinstance(options, AudioTensorOptions):
        raise TypeError(f"options must be AudioTensorOptions or None, not {type(options).__name__}")
    return options


def audio_source(samples: Any, channels: int | None, sample_format: str | None) -> AudioSource:
    """Check what the sound is; ValueError for what it cannot be."""
    if isinstance(samples, (bytes, bytearray, memoryview)):
        return _source_of_bytes(samples, channels, sample_format)
    if isinstance(samples, np.ma.MaskedArray):
        raise ValueError("sound has no mask; pass samples.filled(0), or samples.data")
    array = np.asarray(samples)
    if array.dtype.kind in "USO":
        mend = "read files with genai.read_audio, and pass its samples and sample_rate"
        raise ValueError(f"samples must be an array of numbers or bytes, not {type(samples).__name__}; {mend}")
    if array.ndim not in (1, 2):
        raise ValueError(f"samples have shape (frames,) or (frames, channels), not {array.shape}")
    if array.dtype.name not in SAMPLE_TYPES:
        raise ValueError(f"samples are {', '.join(SAMPLE_TYPES)}, not {array.dtype}; convert them with astype")
    own = array.shape[1] if array.ndim == 2 else 1
    if channels is not None and number_value(channels, "channels", CHANNELS_MAX, 1) != own:
        raise ValueError(f"channels is {channels}, the array has {own}")
    if not 1 <= own <= CHANNELS_MAX:
        mend = "; transpose samples of shape (channels, frames)" if own > CHANNELS_MAX else ""
        raise ValueError(f"an array of shape {array.shape} has {own} channels, not 1..{CHANNELS_MAX}{mend}")
    return AudioSource(array, array.dtype, own)


def _source_of_bytes(samples: Any, channels: int | None, sample_format: str | None) -> AudioSource:
    if channels is None or sample_format is None:
        raise ValueError("bytes of sound need channels and sample_format")
    dtype = np.dtype(SAMPLE_TYPES[sample_format_name(sample_format, tuple(SAMPLE_TYPES))])
    count = number_value(channels, "channels", CHANNELS_MAX, 1)
    with memoryview(samples) as view:
        data = np.frombuffer(samples if view.c_contiguous else view.tobytes(), np.uint8)
    return AudioSource(data, dtype, count)


def sample_format_name(name: Any, known: tuple[str, ...]) -> str:
    """Return a sample format when it is one of the known ones, else ValueError."""
    if not isinstance(name, str) or name not in known:
        raise ValueError(f"sample_format must be one of {', '.join(known)}, not {name!r}")
    return name


def audio_layout(options: AudioTensorOptions, channels: int) -> AudioLayout:
    """Check all options against a source of so many channels."""
    wanted = number_value(options.channels, "options.channels", CHANNELS_MAX) or channels
    layout = TensorLayout.UNSPECIFIED if options.layout is None else member_of(options.layout, TensorLayout)
    if layout is TensorLayout.UNSPECIFIED:
        layout = TensorLayout.NT if wanted == 1 else TensorLayout.NCT
    if layout not in (TensorLayout.NT, TensorLayout.NCT):
        raise ValueError(f"the layout of sound is NT or NCT of TensorLayout, not {options.layout!r}")
    if layout is TensorLayout.NT and wanted != 1:
        raise ValueError(f"layout NT has one channel, not {wanted}; use NCT, or options.channels=1")
    window = number_value(options.window_frames, "window_frames", UINT32_MAX)
    hop = number_value(options.hop_frames, "hop_frames", UINT32_MAX)
    if window and wanted != 1:
        raise ValueError(f"windows have one channel, not {wanted}; use options.channels=1")
    if hop and not window:
        raise ValueError("hop_frames needs window_frames")
    data_type = member_of(options.data_type, TensorDataType)
    if data_type is None or data_type not in FLOATS:
        known = "FLOAT32 or FLOAT16 of TensorDataType"
        raise WinMLError(E_INVALIDARG, _CONTEXT, f"sound is {known}, not {options.data_type!r}")
    if wanted != channels and 1 not in (wanted, channels):
        raise WinMLError(E_INVALIDARG, _CONTEXT, f"{channels} channels cannot be made {wanted}, only one or all of one")
    return AudioLayout(data_type, wanted, layout is TensorLayout.NCT, window, hop or window)
