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

from winml_lite import WinMLError

from .audio import Audio, Samples, SoundSource, audio_blocks, resampled_blocks
from .checks import index_value
from .codes import FILE_CORRUPT
from .log_mel import SAMPLE_RATE
from .sound_files import SoundFile
from .spoken_sound import TOO_LOUD
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
        return _of_file(source, wave_blocks(source, SAMPLE_RATE)), None
    return _of_file(source, audio_blocks(source, SAMPLE_RATE, _BLOCK_SECONDS)), None


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


def _of_file(source: Any, blocks: Iterator[Samples]) -> Iterator[Samples]:
    """Yield the blocks of a file, in which samples that are too loud are no fault of the caller's."""
    for block in blocks:
        loudest = float(np.abs(block).max(initial=0))
        if loudest > TOO_LOUD:
            name = os.fspath(source) if isinstance(source, str | os.PathLike) else getattr(source, "name", "sound file")
            text = f"full scale of float samples is -1 to 1, and one of the file's is {loudest:.0f}"
            raise WinMLError(FILE_CORRUPT, str(name), text)
        yield block


def _comes_in_blocks(source: Any) -> bool:
    return isinstance(source, Iterable) and not _is_file(source) and not isinstance(source, tuple | Mapping)


def _is_file(source: Any) -> bool:
    return isinstance(source, str | os.PathLike | bytes | bytearray | memoryview) or hasattr(source, "read")
