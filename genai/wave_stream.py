"""WAV from a pipe as it comes: what recorders write to standard output, whose header cannot know the length.

Not here: sound files, which libsndfile reads with seeks (`sound_files.py`).
"""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Generator, Iterator
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from typing import Any, Final, Self, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt

from winml_lite import WinMLError

from .audio import Samples, resampled_blocks
from .codes import FILE_CORRUPT, NOT_SUPPORTED
from .pipe_reader import PipeReader
from .reading import can_seek, reading
from .sound_files import CHANNELS_MAX

if sys.platform == "linux":
    import fcntl

_BLOCKS_A_SECOND = 10
_FRAMES_AT_ONCE = 1 << 14
"""Frames of a block at most, whatever rate the header says."""
_SKIPPED_AT_ONCE = 1 << 16
_HEADER_BYTES = 1 << 24
"""What may stand before the samples at most: a wrong length must not swallow what a microphone hears for days."""
_LOOK_AGAIN = 0.2
"""Seconds after which a block without samples is yielded, where nothing comes."""
_LENGTH_UNKNOWN = 0x7FFF0000
"""Bytes from which a length is none, as is 0: recorders write 0x7FFFF000, 0x7FFFFF00, 0x80000000 or 0xFFFFFFFF."""
_PIPE_BYTES = 1 << 20
"""32 s of 16 bit samples at 16 kHz. As pipes are made, they hold 2 s."""
_INTEGERS, _FLOATS, _EXTENSIBLE = 1, 3, 0xFFFE
_TYPES = {
    (_INTEGERS, 8): "u1",
    (_INTEGERS, 16): "<i2",
    (_INTEGERS, 24): "u1",
    (_INTEGERS, 32): "<i4",
    (_FLOATS, 32): "<f4",
    (_FLOATS, 64): "<f8",
}
T = TypeVar("T")
Waiting: TypeAlias = Generator[Samples, None, T]
"""Work that yields `_NOTHING` now and then, while it waits for the pipe."""
_NOTHING: Final = np.zeros(0, np.float32)


def is_stream(source: Any) -> bool:
    """Whether a sound comes out of a pipe: an open file that cannot seek, or the path of a named pipe."""
    if hasattr(source, "read"):
        return not can_seek(source)
    if not isinstance(source, str | os.PathLike):
        return False
    try:
        return stat.S_ISFIFO(os.stat(source).st_mode)
    except (OSError, ValueError):
        return False


def wave_blocks(source: Any, sample_rate: int) -> Iterator[Samples]:
    """Yield a tenth of a second after the other of the WAV that comes out of a pipe, as mono float32 at `sample_rate`.

    source: as `is_stream` takes it; an open file is left open. It ends where the header says, or with the pipe where
    that does not know. While nothing comes there are blocks without samples, so that who reads can stop.

    WinMLError 0x80070032 for what is no WAV, or not of 8 to 32 bit integers or floats, 0x80070570 for a header that is
    cut off and samples that are no finite numbers. NotSupportedError 0x8007007E where the rate changes without soxr.
    """
    is_open = hasattr(source, "read")
    name = str(getattr(source, "name", "sound file")) if is_open else os.fsdecode(source)
    with reading(name):
        opened = nullcontext(source) if is_open else open(source, "rb")
    with opened as file:
        _widen(file)
        wave = yield from _WaveStream.opened(PipeReader(file), name)
        yield from resampled_blocks(wave.blocks(), wave.sample_rate, sample_rate)


def _widen(pipe: Any) -> None:
    """Have a pipe hold more, where the system knows how: what a recorder writes while a model computes waits there."""
    if sys.platform == "linux":
        with suppress(AttributeError, OSError):
            fcntl.fcntl(pipe.fileno(), fcntl.F_SETPIPE_SZ, _PIPE_BYTES)


@dataclass(frozen=True, slots=True)
class _Format:
    """What the chunk `fmt ` says."""

    kind: int
    channels: int
    sample_rate: int
    frame_size: int
    """Bytes of the samples of one moment."""
    bits: int

    @classmethod
    def of(cls, chunk: bytes) -> _Format:
        kind, channels, rate, _, frame_size, bits = np.frombuffer(chunk[:16], _FORMAT_CHUNK)[0].tolist()
        if kind == _EXTENSIBLE and len(chunk) >= 26:
            kind = int.from_bytes(chunk[24:26], "little")
        return cls(kind, channels, rate, frame_size, bits)


_FORMAT_CHUNK = np.dtype("<u2, <u2, <u4, <u4, <u2, <u2")


class _WaveStream:
    """A WAV whose header is read."""

    def __init__(self, pipe: PipeReader, name: str) -> None:
        self._pipe = pipe
        self._name = name
        self._format = _Format(0, 0, 0, 0, 0)
        self._length: int | None = None

    @classmethod
    def opened(cls, pipe: PipeReader, name: str) -> Waiting[Self]:
        """Read the header."""
        wave = cls(pipe, name)
        riff = yield from wave._read(12)
        if not riff:
            raise wave._error(FILE_CORRUPT, "no sound that can be read: nothing came before the end")
        wave._check_whole(riff, 12)
        if riff[:4] != b"RIFF" or riff[8:] != b"WAVE":
            mend = "`ffmpeg -i INPUT -f wav -` makes it of other formats"
            raise wave._error(NOT_SUPPORTED, f"sound that is heard as it comes must be WAV; {mend}")
        wave._format, wave._length = yield from wave._find_data()
        return wave

    @property
    def sample_rate(self) -> int:
        """Frames a second."""
        return self._format.sample_rate

    def blocks(self) -> Iterator[npt.NDArray[Any]]:
        """Yield the samples as `Audio` takes them, of shape (frames, channels)."""
        size = self._format.frame_size
        frames = min(max(1, self.sample_rate // _BLOCKS_A_SECOND), _FRAMES_AT_ONCE)
        left, done = self._length, 0
        while left is None or left > 0:
            wanted = frames * size if left is None else min(frames * size, left)
            data = yield from self._read(wanted)
            if len(data) >= size:
                yield self._samples(data[: len(data) // size * size], done)
            if len(data) < wanted:
                return
            done += frames
            left = None if left is None else left - wanted

    def _find_data(self) -> Waiting[tuple[_Format, int | None]]:
        """Read up to the samples; return their format and the bytes of them, None where the header does not know."""
        found: _Format | None = None
        passed = 0
        while True:
            chunk = yield from self._take(8)
            name, size = chunk[:4], int.from_bytes(chunk[4:], "little")
            if name == b"data":
                break
            passed += 8 + size
            if passed > _HEADER_BYTES:
                text = f"no sound that can be read: there is none in the first {_HEADER_BYTES >> 20} MiB of the WAV"
                raise self._error(FILE_CORRUPT, text)
            kept = (yield from self._take(min(size, 40))) if name == b"fmt " else b""
            if len(kept) >= 16:
                found = _Format.of(kept)
            yield from self._skip(size + size % 2 - len(kept))
        if found is None:
            raise self._error(FILE_CORRUPT, "no sound that can be read: the WAV does not say its format")
        is_known = (found.kind, found.bits) in _TYPES and found.frame_size == found.channels * found.bits // 8
        if not is_known or not found.sample_rate or not 1 <= found.channels <= CHANNELS_MAX:
            shown = f"{found.channels} channels of {found.bits} bits at {found.sample_rate} Hz, format {found.kind}"
            raise self._error(NOT_SUPPORTED, f"the samples are of a kind that is not read as it comes: {shown}")
        return found, size if 0 < size < _LENGTH_UNKNOWN else None

    def _samples(self, data: bytes, done: int) -> npt.NDArray[Any]:
        kind, bits, channels = self._format.kind, self._format.bits, self._format.channels
        values = np.frombuffer(data, _TYPES[kind, bits])
        if (kind, bits) == (_INTEGERS, 24):
            wide = np.zeros((len(values) // 3, 4), np.uint8)
            wide[:, 1:] = values.reshape(-1, 3)
            values = wide.view("<i4")
        if kind == _FLOATS:
            with np.errstate(over="ignore", invalid="ignore"):  # what float32 cannot hold is refused below
                values = values.astype(np.float32)
            if not np.isfinite(values).all():
                place = f"after {done / self.sample_rate:.1f} s"
                raise self._error(FILE_CORRUPT, f"the sound is damaged {place}: a sample is not a finite number")
        return values.reshape(-1, channels)

    def _take(self, count: int) -> Waiting[bytes]:
        data = yield from self._read(count)
        self._check_whole(data, count)
        return data

    def _check_whole(self, data: bytes, count: int) -> None:
        if len(data) < count:
            raise self._error(FILE_CORRUPT, "no sound that can be read: it ends within the header of a WAV")

    def _skip(self, count: int) -> Waiting[None]:
        while count > 0:
            taken = yield from self._take(min(count, _SKIPPED_AT_ONCE))
            count -= len(taken)

    def _read(self, count: int) -> Waiting[bytes]:
        """Return the next bytes; fewer only at the end."""
        parts: list[bytes] = []
        while count > 0:
            while not self._pipe.has_come(_LOOK_AGAIN):
                yield _NOTHING
            data = self._pipe.read(count)
            if not data:
                break
            parts.append(data)
            count -= len(data)
        return b"".join(parts)

    def _error(self, code: int, text: str) -> WinMLError:
        return WinMLError(code, self._name, text)
