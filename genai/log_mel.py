"""The features that Whisper models hear: the log-mel spectrogram of 30 seconds of sound (genai §10).

Algorithm: the published Whisper recipe. 480,000 samples at 16 kHz; a Fourier transform of 400 samples every 160, with a
periodic Hann window, centred and reflected at both ends; power; triangular filters on Slaney's mel scale; logarithm,
held within 8 decades of the largest value. Not here: reading and resampling sound (`audio.py`).
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Final

import numpy as np
import numpy.typing as npt

SAMPLE_RATE: Final = 16_000
"""Hz."""
SAMPLE_COUNT: Final = 480_000
"""Samples of one window: 30 seconds."""
FRAME_COUNT: Final = 3_000
"""Columns of the features: one every 10 ms."""

_FFT: Final = 400
_HOP: Final = 160
_FLOOR: Final = 1e-10
_BLOCK: Final = 2560
"""Numbers that are made at a time: so few that they stay in the cache of the processor, and that the product does not
wake the threads of NumPy's BLAS, which cost six times as much as they save, and on a busy machine more."""


def log_mel(samples: npt.NDArray[Any], mel_count: int = 80) -> npt.NDArray[np.float32]:
    """Return the features of a mono waveform, float32 (1, mel_count, 3000).

    samples: shape (n,), in [-1, 1] at 16 kHz. Less than 30 seconds count as followed by silence, what comes after them
        is left out.
    mel_count: rows of the features; 80, or 128 for large-v3 and what was made from it.
    """
    waveform = np.asarray(samples)
    if waveform.ndim != 1:
        raise ValueError(f"samples must be mono, of shape (n,), not {waveform.shape}")
    length = min(waveform.size, SAMPLE_COUNT)
    padded = np.zeros(SAMPLE_COUNT + _FFT, np.float64)
    padded[_FFT // 2 : _FFT // 2 + length] = waveform[:length]
    padded[: _FFT // 2] = padded[_FFT : _FFT // 2 : -1]
    padded[-(_FFT // 2) :] = padded[-_FFT // 2 - 2 : -_FFT - 2 : -1]
    sounding = min(FRAME_COUNT, -(-(length + _FFT // 2) // _HOP))  # in all later frames there is nothing
    mel = np.full((FRAME_COUNT, mel_count), _FLOOR, np.float32)
    frames = np.lib.stride_tricks.sliding_window_view(padded, _FFT)[::_HOP][:sounding]
    filters, window = mel_filters(mel_count), _window()
    block = max(1, _BLOCK // mel_count)
    for begin in range(0, sounding, block):
        spectrum = np.fft.rfft(frames[begin : begin + block] * window, axis=1)
        power = (np.square(spectrum.real) + np.square(spectrum.imag)).astype(np.float32)
        np.maximum(power @ filters, np.float32(_FLOOR), out=mel[begin : begin + len(power)])
    np.log10(mel, out=mel)
    np.maximum(mel, mel.max() - np.float32(8), out=mel)
    mel += np.float32(4)
    mel /= np.float32(4)
    return np.ascontiguousarray(mel.T)[np.newaxis]


@lru_cache(maxsize=4)
def mel_filters(mel_count: int) -> npt.NDArray[np.float32]:
    """Return the filters that gather the 201 frequencies of a frame, float32 (201, mel_count); made once.

    Triangles of equal area whose corners are equally spaced on Slaney's mel scale from 0 to 8 kHz.
    """
    frequencies = np.linspace(0, SAMPLE_RATE / 2, _FFT // 2 + 1)
    corners = _frequency(np.linspace(0, _mel_of_highest(), mel_count + 2))
    widths = np.diff(corners)
    distances = corners[np.newaxis] - frequencies[:, np.newaxis]
    rising, falling = -distances[:, :-2] / widths[:-1], distances[:, 2:] / widths[1:]
    triangles = np.maximum(0, np.minimum(rising, falling)) * (2 / (corners[2:] - corners[:-2]))
    filters: npt.NDArray[np.float32] = triangles.astype(np.float32)
    filters.setflags(write=False)
    return filters


# Slaney's scale: linear up to 1 kHz, which is mel 15, logarithmic with 27 steps for a factor of 6.4 above.
_LINEAR_HZ: Final = 200 / 3
_BEND_MEL: Final = 15.0
_BEND_HZ: Final = 1000.0
_STEP: Final = np.log(6.4) / 27


def _mel_of_highest() -> float:
    return float(_BEND_MEL + np.log(SAMPLE_RATE / 2 / _BEND_HZ) / _STEP)


def _frequency(mel: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    above: npt.NDArray[np.float64] = _BEND_HZ * np.exp(_STEP * (mel - _BEND_MEL))
    return np.where(mel < _BEND_MEL, mel * _LINEAR_HZ, above)


@lru_cache(maxsize=1)
def _window() -> npt.NDArray[np.float64]:
    """The periodic Hann window."""
    window: npt.NDArray[np.float64] = np.hanning(_FFT + 1)[:-1]
    return window
