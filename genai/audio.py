"""Sound in memory and from files: samples with their rate, whole or in blocks, at the rate that a model wants.

Here: `Audio`, reading, writing, and blocks of bounded size. Not here: the files themselves (`sound_files.py`), and
tensors of samples, which `Runtime.tensor_from_audio` makes. The package soxr resamples; it is imported on first use.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from winml_lite import NotSupportedError

from .checks import index_value
from .codes import MODULE_NOT_FOUND
from .sound_files import CHANNELS_MAX, BinaryFile, SoundFile, write_sound

Samples: TypeAlias = npt.NDArray[np.float32]
SoundFileSource: TypeAlias = str | os.PathLike[str] | bytes | bytearray | memoryview | BinaryFile
"""A sound file: its path, its content, or the file open in binary mode."""
SoundSource: TypeAlias = "SoundFileSource | Audio | tuple[npt.ArrayLike, int]"
"""A sound file, or samples in memory with their rate."""
SampleFormat: TypeAlias = Literal["int16", "int24", "float32"]

_CHUNK_SAMPLES = 1 << 16
"""Samples of one step of reading: 256 KiB in memory."""
_RESAMPLED_MAX = 1 << 20
"""Samples that one step of resampling may give: a file may say that its rate is 1 Hz."""


@dataclass(frozen=True, slots=True, init=False, eq=False, repr=False)
class Audio:
    """Samples and their rate (in Hz).

    `samples`, an array or anything array-like, becomes float32 of shape (frames,), or (frames, channels) with two or
    more channels, read-only. Floats are taken as they are, full scale being -1 to 1; integers are scaled to that: uint8
    (s - 128) / 128, int16 s / 2**15, int32 s / 2**31. float32 samples are not copied. ValueError for other shapes and
    dtypes, more than 64 channels, and samples that are no finite numbers.
    """

    samples: Samples
    """float32, (frames,) or (frames, channels)."""
    sample_rate: int
    """Frames a second."""

    def __init__(self, samples: npt.ArrayLike, sample_rate: int) -> None:
        object.__setattr__(self, "samples", _as_samples(samples))
        object.__setattr__(self, "sample_rate", index_value(sample_rate, "sample_rate", minimum=1))

    def __repr__(self) -> str:
        channels = f"{self.channels} channel{'s' if self.channels > 1 else ''}"
        return f"<Audio {self.duration:.3f} s, {self.sample_rate} Hz, {channels}>"

    @property
    def duration(self) -> float:
        """Length in seconds."""
        return len(self.samples) / self.sample_rate

    @property
    def channels(self) -> int:
        """Number of channels."""
        return 1 if self.samples.ndim == 1 else self.samples.shape[1]

    def mono(self) -> Audio:
        """Return one channel: the arithmetic mean of all."""
        return self if self.samples.ndim == 1 else Audio(_mean(self.samples), self.sample_rate)

    def resampled(self, sample_rate: int) -> Audio:
        """Return the sound at another rate, with frames * sample_rate / self.sample_rate frames, half a one rounded up.

        Frequencies that the new rate cannot carry are filtered out. NotSupportedError 0x8007007E without the package
        soxr.
        """
        rate = index_value(sample_rate, "sample_rate", minimum=1)
        if rate == self.sample_rate:
            return self
        pieces = list(_resampled(_chunks(self, rate), (self.sample_rate, rate), self.channels))
        return Audio(np.concatenate(pieces), rate)


def read_audio(source: SoundFileSource) -> Audio:
    """Read a sound file whole: WAV, FLAC, OGG (Vorbis, Opus), MP3, AIFF and what else libsndfile knows.

    `source` is a path, the bytes of a file, or a file open in binary mode, which is read from its beginning and left
    open; pipes are read to their end first. Rate and channels stay as they are in the file. A file that was cut off
    gives the sound that is left, and a warning in the log where the format tells. For long files `audio_blocks` takes
    less memory.

    Needs the packages of `pip install 'winml-lite[media]'`, without which it is NotSupportedError 0x8007007E.
    WinMLError 0x80070002 no such file, 0x80070057 a folder or a device, 0x80070570 no sound, or damaged sound,
    0x80070032 more than 64 channels.
    """
    with SoundFile(source) as sound:
        chunks = [chunk.copy() for chunk in sound.chunks(_frames_at_once(sound.channels))]
        samples = np.concatenate(chunks) if chunks else np.zeros((0, sound.channels), np.float32)
        return Audio(samples, sound.sample_rate)


def write_audio(
    path: str | os.PathLike[str],
    audio: Audio | tuple[npt.ArrayLike, int],
    *,
    sample_format: SampleFormat | None = None,
) -> None:
    """Write a sound file, in the format that the name ends with: `.wav`, `.flac`, `.ogg`, `.mp3`, `.aiff`, ...

    `sample_format` is for formats that keep samples: "int16" (what None means there), "int24", or "float32" (not in
    FLAC). Integer formats clip samples beyond -1 to 1. The file appears when it is whole and then replaces another of
    that name.

    NotSupportedError 0x8007007E without the package soundfile; ValueError for an ending or a sample format that cannot
    be written; WinMLError 0x80070003 no such folder, 0x80004005 when it cannot be written.
    """
    if not isinstance(audio, Audio) and not (isinstance(audio, tuple) and len(audio) == 2):
        raise TypeError(f"audio must be genai.Audio, or a tuple (samples, sample_rate), not {type(audio).__name__}")
    sound = audio if isinstance(audio, Audio) else Audio(*audio)
    samples = sound.samples.reshape(len(sound.samples), sound.channels)
    write_sound(os.fsdecode(path), samples, sound.sample_rate, sample_format)


def audio_blocks(source: SoundSource, sample_rate: int = 16000, block_seconds: float = 30.0) -> Iterator[Samples]:
    """Yield sound as mono float32 blocks at `sample_rate`, all of `block_seconds` but the last, which may be shorter.

    Channels are averaged, other rates resampled while reading; joined, the blocks are what `read_audio`, `mono` and
    `resampled` give. Memory is bounded: one block and a little more, however long the sound is. Each block is a new
    array. Errors are those of `read_audio`; `Audio` and (samples, rate) need no package, and the same rate no soxr.
    """
    rate = index_value(sample_rate, "sample_rate", minimum=1)
    if not block_seconds > 0 or not math.isfinite(block_seconds):
        raise ValueError(f"block_seconds must be above 0, not {block_seconds!r}")
    size = max(1, round(block_seconds * rate))
    return _blocks(Audio(*source) if isinstance(source, tuple) else source, rate, size)


def resampled_blocks(blocks: Iterable[npt.ArrayLike], source_rate: int, sample_rate: int) -> Iterator[Samples]:
    """Yield blocks of samples of any length, as they come, as mono float32 at another rate.

    A block is what `Audio` takes: floats or integers of shape (frames,) or (frames, channels). ValueError for others.
    It is copied, so its memory may be used again. NotSupportedError 0x8007007E where the rate changes and the package
    soxr is missing.
    """
    pieces = (_mean(_as_samples(np.array(block))) for block in blocks)
    return _resampled(pieces, (source_rate, sample_rate), 1)


def _blocks(source: SoundFileSource | Audio, rate: int, size: int) -> Iterator[Samples]:
    """Yield the blocks of `audio_blocks`; a file is open from the first to the last."""
    if isinstance(source, Audio):
        yield from _filled(_resampled(map(_mean, _chunks(source, rate)), (source.sample_rate, rate), 1), size)
        return
    with SoundFile(source) as sound:
        chunks = sound.chunks(_frames_at_once(sound.channels, sound.sample_rate, rate))
        yield from _filled(_resampled(map(_mean, chunks), (sound.sample_rate, rate), 1), size)


def _filled(pieces: Iterator[Samples], size: int) -> Iterator[Samples]:
    """Yield the pieces cut anew into blocks of `size` samples."""
    block, filled = np.empty(size, np.float32), 0
    for piece in pieces:
        start = 0
        while start < len(piece):
            taken = min(size - filled, len(piece) - start)
            block[filled : filled + taken] = piece[start : start + taken]
            start, filled = start + taken, filled + taken
            if filled == size:
                yield block
                block, filled = np.empty(size, np.float32), 0
    if filled:
        yield block[:filled].copy()


def _resampled(pieces: Iterator[Samples], rates: tuple[int, int], channels: int) -> Iterator[Samples]:
    """Yield the pieces at another rate: those of a stream, so that no border between them is heard."""
    source_rate, rate = rates
    if source_rate == rate:
        yield from pieces
        return
    stream = _soxr().ResampleStream(source_rate, rate, channels, dtype="float32")
    resample: Callable[..., Samples] = stream.resample_chunk
    empty = np.zeros(0 if channels == 1 else (0, channels), np.float32)
    for piece in pieces:
        yield resample(piece)
    yield resample(empty, last=True)


def _chunks(audio: Audio, rate: int) -> Iterator[Samples]:
    """Yield views of the samples, of a length for one step."""
    frames = _frames_at_once(audio.channels, audio.sample_rate, rate)
    for start in range(0, len(audio.samples), frames):
        yield audio.samples[start : start + frames]


def _frames_at_once(channels: int, source_rate: int = 1, rate: int = 1) -> int:
    """Frames of one step, such that neither they nor what they become at another rate take much memory."""
    return max(1, min(_CHUNK_SAMPLES, _RESAMPLED_MAX * source_rate // rate) // channels)


def _mean(samples: Samples) -> Samples:
    """Return the mean of the channels of (frames, channels); (frames,) has one already."""
    if samples.ndim == 1:
        return samples
    if samples.shape[1] == 1:
        return np.ascontiguousarray(samples[:, 0])
    with np.errstate(over="ignore"):  # what becomes infinite is refused, or known as too loud
        mean: Samples = samples.mean(axis=1)
    return mean


def _as_samples(samples: Any) -> Samples:
    """Return what `Audio` is given as it keeps it."""
    array = np.asarray(samples)
    if array.ndim == 2 and array.shape[1] == 1:
        array = array[:, 0]
    if array.ndim not in (1, 2):
        raise ValueError(f"samples have shape (frames,) or (frames, channels), not {array.shape}")
    if array.ndim == 2 and not 1 <= array.shape[1] <= CHANNELS_MAX:
        mend = "; transpose samples of shape (channels, frames)" if array.shape[0] <= CHANNELS_MAX else ""
        raise ValueError(f"{array.shape[1]} channels are not in 1..{CHANNELS_MAX}{mend}")
    result = np.ascontiguousarray(_as_floats(array)).view()
    if not np.isfinite(result).all():
        raise ValueError("samples must be finite numbers; there are NaN or infinite ones")
    result.flags.writeable = False
    return result


def _as_floats(array: npt.NDArray[Any]) -> Samples:
    kind = array.dtype.newbyteorder("=")
    if kind == np.uint8:
        return (array.astype(np.float32) - np.float32(128)) * np.float32(1 / 128)
    if kind == np.int16:
        return array.astype(np.float32) * np.float32(1 / 32768)
    if kind == np.int32:
        return (array * (1 / 2147483648)).astype(np.float32)
    if kind.kind == "f":
        with np.errstate(over="ignore", invalid="ignore"):  # what float32 cannot hold is refused later
            return array.astype(np.float32, copy=False)
    raise ValueError(f"samples are floats, uint8, int16 or int32, not {kind}")


def _soxr() -> Any:
    try:
        import soxr
    except ImportError as error:
        raise NotSupportedError(
            MODULE_NOT_FOUND, "genai.audio", "changing the sample rate needs soxr: pip install 'winml-lite[media]'"
        ) from error
    return soxr
