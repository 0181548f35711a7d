"""What a Whisper session accepts as sound (genai §10): the checks of waveform and feature tensors.

What is accepted is copied at once, so that the caller may use his tensor again.
"""

from __future__ import annotations

from typing import Any, NoReturn

import numpy as np
import numpy.typing as npt

from winml_lite import Runtime, Tensor, TensorDataType, TensorLockFlags, TensorLockMode, WinMLError

from .codes import E_INVALIDARG
from .log_mel import FRAME_COUNT, SAMPLE_COUNT, SAMPLE_RATE
from .speech_results import AutomaticSpeechRecognitionWaveformMetadata

Samples = npt.NDArray[np.float32]


def valid_samples(runtime: Runtime, waveform: Tensor, metadata: AutomaticSpeechRecognitionWaveformMetadata) -> Samples:
    """Return a copy of the samples that count, float32 (valid_sample_count,).

    WinMLError 0x80070057 for what is not 16 kHz, mono, 1 to 480,000 valid samples, finite and in [-1, 1], in a FLOAT32
    tensor of shape (samples,) or (1, samples) of this Runtime.
    """
    if metadata.sample_rate != SAMPLE_RATE:
        _wrong(f"the model hears {SAMPLE_RATE} Hz, the waveform has {metadata.sample_rate}: resample it")
    if metadata.channel_count != 1:
        _wrong(f"the model hears one channel, the waveform has {metadata.channel_count}: mix them")
    count = metadata.valid_sample_count
    if count > SAMPLE_COUNT:
        _wrong(f"one transcription takes {SAMPLE_COUNT} samples (30 s), not {count}: give a longer one in windows")
    data_type, shape = _desc(runtime, waveform, "waveform")
    if data_type is not TensorDataType.FLOAT32 or len(shape) not in (1, 2) or (len(shape) == 2 and shape[0] != 1):
        _wrong(f"the waveform must be FLOAT32 (samples,) or (1, samples), not {data_type.name}{shape}")
    if shape[-1] < count:
        _wrong(f"{count} samples are said to count, the waveform has {shape[-1]}")
    samples = _copied(waveform, count)
    if not np.isfinite(samples).all() or np.abs(samples).max() > 1:
        _wrong("the samples must be finite numbers in [-1, 1]")
    return samples


def checked_features(runtime: Runtime, features: Tensor, mel_count: int) -> Samples:
    """Return a copy of features, float32 (1, mel_count, 3000).

    WinMLError 0x80070057 for another type or shape, and for NaN and infinities.
    """
    data_type, shape = _desc(runtime, features, "features")
    wanted = (1, mel_count, FRAME_COUNT)
    if data_type is not TensorDataType.FLOAT32 or shape != wanted:
        _wrong(f"the features must be FLOAT32{wanted} (batch, mel, time), not {data_type.name}{shape}")
    numbers = _copied(features, mel_count * FRAME_COUNT)
    if not np.isfinite(numbers).all():
        _wrong("the features must be finite numbers")
    return numbers.reshape(wanted)


def _desc(runtime: Runtime, tensor: Tensor, name: str) -> tuple[TensorDataType, tuple[int, ...]]:
    if not runtime.owns(tensor):
        _wrong(f"the {name} tensor is of another Runtime")
    return tensor.desc()


def _copied(tensor: Tensor, count: int) -> Samples:
    """Copy the first `count` float32 numbers of a tensor."""
    with tensor.lock(TensorLockMode.READ, TensorLockFlags.ALLOW_SYNCHRONIZED_CPU_ACCESS) as lock:
        numbers: npt.NDArray[Any] = np.frombuffer(lock.data(), np.float32, count)
        return numbers.copy()


def _wrong(text: str) -> NoReturn:
    raise WinMLError(E_INVALIDARG, "transcribe", text)
