"""What can be transcribed, brought to blocks of mono samples at 16 kHz: files, pipes, samples, and blocks as they come.

Not here: files and resampling (`audio.py`), WAV out of a pipe (`wave_stream.py`), what the model hears of it
(`spoken_sound.py`).
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from .audio import Audio, Samples, SoundSource, audio_blocks, resampled_blocks
from .checks import index_value
from .log_mel import SAMPLE_RATE
from .sound_files import SoundFile
from .wave_stream import is_stream, wave_blocks

SpeechSource: TypeAlias = "SoundSource | npt.NDArray[Any] | Iterable[npt.ArrayLike]"
"""What can be transcribed: a sound file, samples, or blocks of samples as they come."""

_BLOCK_SECONDS = 5.0
_FLOAT = (float, np.floating)


def sound_blocks(
    source: Any, sample_rate: int | None, *, is_live: bool = False
) -> tuple[Iterator[Samples], float | None]:
    """Return blocks of mono float32 samples at 16 kHz, and the length in seconds where it is known.

    source: what `SpeechModel.transcribe` takes. sample_rate: that of samples which do not say it; None is 16 kHz.
    is_live: whether a pipe is read as it comes, not to its end first. TypeError for what is no sound, ValueError for a
    rate that is given twice.
    """
    rate = SAMPLE_RATE if sample_rate is None else index_value(sample_rate, "sample_rate", minimum=1)
    if hasattr(source, "__array__") or (isinstance(source, list) and source and isinstance(source[0], _FLOAT)):
        return _of_samples(Audio(source, rate))
    if sample_rate is not None and not _comes_in_blocks(source):
        raise ValueError("sample_rate is for samples alone: files, Audio and (samples, rate) say their own")
    if isinstance(source, Audio):
        return _of_samples(source)
    if isinstance(source, tuple):
        if len(source) != 2 or np.ndim(source[1]) or not np.ndim(source[0]):
            raise TypeError("a tuple must be (samples, sample_rate)")
        return _of_samples(Audio(*source))
    if isinstance(source, list) and any(_is_file(item) for item in source):
        raise TypeError("audio is one recording, not a list of files: call it for each")
    if _comes_in_blocks(source):
        return resampled_blocks(iter(source), rate, SAMPLE_RATE), None
    if not _is_file(source):
        raise TypeError(f"audio must be a sound file, samples, or blocks of samples, not {type(source).__name__}")
    if is_live and is_stream(source):
        return wave_blocks(source, SAMPLE_RATE), None
    return audio_blocks(source, SAMPLE_RATE, _BLOCK_SECONDS), None


def announced_duration(source: Any) -> float | None:
    """Return the seconds that a file says it has; None for what is no file, and where it does not say.

    WinMLError as `read_audio` raises it.
    """
    if not isinstance(source, str | os.PathLike) or not os.path.isfile(source):
        return None
    with SoundFile(source) as sound:
        return sound.duration


def _of_samples(audio: Audio) -> tuple[Iterator[Samples], float | None]:
    return audio_blocks(audio, SAMPLE_RATE, _BLOCK_SECONDS), audio.duration


def _comes_in_blocks(source: Any) -> bool:
    return isinstance(source, Iterable) and not _is_file(source) and not isinstance(source, tuple | Mapping)


def _is_file(source: Any) -> bool:
    return isinstance(source, str | os.PathLike | bytes | bytearray | memoryview) or hasattr(source, "read")
