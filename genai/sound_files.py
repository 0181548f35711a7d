"""Sound files through libsndfile: the only file that imports the package soundfile, on first use.

Here: opening what a caller gives, frames in chunks of bounded size, writing, and the codes of failures. Not here: what
is done with the samples (`audio.py`).
"""

from __future__ import annotations

import io
import logging
import os
import re
import stat
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any, Protocol, Self

import numpy as np
import numpy.typing as npt

from winml_lite import NotSupportedError, WinMLError

from .checks import index_value
from .codes import (
    E_FAIL,
    E_INVALIDARG,
    FILE_CORRUPT,
    MODULE_NOT_FOUND,
    NOT_SUPPORTED,
    PATH_NOT_FOUND,
)
from .pipe_reader import PipeReader
from .reading import can_seek, is_empty, reading

CHANNELS_MAX = 64
_LENGTH_UNKNOWN = 1 << 62
_CUT_CHUNK = re.compile(r"^ *(?:data|SSND) : (\d+) \(should be (\d+)\)", re.MULTILINE)
"""The note of libsndfile on a chunk of samples that is longer than the file."""
_SIZE_UNKNOWN = 0x7FFF0000
"""From here on a size in a header is that of a stream, which cannot go back and write its length."""
_log = logging.getLogger("genai.audio")
_KEPT_FORMATS = {"int16": "PCM_16", "int24": "PCM_24", "float32": "FLOAT"}
_NOT_WRITTEN = ("RAW", "SD2")
"""Formats that keep rate and channels somewhere else than in the file."""
_LOSSY = ("OGG", "MP3")
_RATES = {"OGG": 200_000}
"""Highest rate of a format; beyond it libvorbis refuses, and libsndfile then ends the process."""
_RATE_MAX = 0x7FFFFFFF
_COPIED_AT_ONCE = 1 << 16
_WRITTEN_AT_ONCE = 1 << 16
"""Frames of one call: libsndfile's encoders need stack for what they are given."""


class BinaryFile(Protocol):
    """A file open for reading bytes; one that cannot seek is read to its end first."""

    def read(self, size: int = ..., /) -> bytes:
        """Return up to `size` bytes, b"" at the end."""


class SoundFile:
    """A sound file open for reading. A context manager; a caller's own file object is left open."""

    def __init__(self, source: Any) -> None:
        """Open a path, the bytes of a file, or a binary file (errors: `genai.read_audio`)."""
        library = _soundfile()
        self._error = library.SoundFileError
        self._opened = ExitStack()
        self._watched: _WatchedFile | None = None
        with ExitStack() as opening:
            self.name, handle = self._handle(source, opening)
            try:
                self._file = opening.enter_context(library.SoundFile(handle))
            except TypeError as error:  # the format of a name that ends with .raw
                raise WinMLError(
                    NOT_SUPPORTED,
                    self.name,
                    "raw samples have no header; read them with np.fromfile and pass (samples, sample_rate)",
                ) from error
            except self._error as error:
                self._reraise()
                text = "the file is empty" if is_empty(handle) else _no_sound(error)
                raise WinMLError(FILE_CORRUPT, self.name, text) from error
            self._reraise()
            self.sample_rate: int = self._file.samplerate
            self.channels: int = self._file.channels
            if self.channels > CHANNELS_MAX:
                text = f"the sound has {self.channels} channels, at most {CHANNELS_MAX} are read"
                raise WinMLError(NOT_SUPPORTED, self.name, text)
            self._opened = opening.pop_all()

    @property
    def duration(self) -> float | None:
        """Seconds that the file announces; some formats only estimate them, or do not say (None)."""
        frames = self._file.frames
        return frames / self.sample_rate if 0 <= frames < _LENGTH_UNKNOWN else None

    def chunks(self, frames: int) -> Iterator[npt.NDArray[np.float32]]:
        """Yield the rest of the file as float32 of shape (1..frames, channels), always in the same memory."""
        buffer = np.empty((frames, self.channels), np.float32)
        position = 0
        while True:
            try:
                chunk: npt.NDArray[np.float32] = self._file.read(out=buffer)
            except self._error as error:
                self._reraise()
                raise self._damaged(position, _reason(error)) from error
            self._reraise()
            if not len(chunk):
                break
            if not np.isfinite(chunk).all():
                first = int(np.argmin(np.isfinite(chunk).all(axis=1)))
                raise self._damaged(position + first, "a sample is not a finite number")
            position += len(chunk)
            yield chunk
        self._compare_length(position)

    def close(self) -> None:
        """Close the file."""
        self._opened.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _handle(self, source: Any, opening: ExitStack) -> tuple[str, Any]:
        """Return how the source is called in errors, and what libsndfile can open."""
        if isinstance(source, (bytes, bytearray, memoryview)):
            return "sound in memory", io.BytesIO(source)
        if hasattr(source, "read"):
            name = str(getattr(source, "name", "sound file"))
            if not can_seek(source):
                return name, _copied(source, opening)
            self._watched = _WatchedFile(source)
            return name, self._watched
        if hasattr(source, "__array__"):
            raise TypeError("samples say nothing of their rate: pass genai.Audio(samples, sample_rate)")
        place: str = os.fspath(source)
        return place, _regular_file(place, opening)

    def _reraise(self) -> None:
        """Raise what the caller's file object raised: libsndfile only saw that it gave nothing."""
        if self._watched is not None and self._watched.failure is not None:
            raise self._watched.failure

    def _damaged(self, frame: int, reason: str) -> WinMLError:
        seconds = frame / self.sample_rate
        return WinMLError(FILE_CORRUPT, self.name, f"the sound is damaged after {seconds:.3f} s: {reason}")

    def _compare_length(self, frames: int) -> None:
        """Tell of a file that ends early; some formats only estimate their length, so it is no failure."""
        announced = self._announced()
        missing = announced - frames
        if missing < _LENGTH_UNKNOWN and missing > self.sample_rate and missing > announced // 50:
            _log.warning(
                "%s: the sound ends after %.1f s, the file announces %.1f s; it may have been cut off",
                self.name,
                frames / self.sample_rate,
                announced / self.sample_rate,
            )

    def _announced(self) -> int:
        """Return the frames of the header; of a cut WAV or AIFF file libsndfile counts only what is left."""
        frames: int = self._file.frames
        cut = _CUT_CHUNK.search(self._file.extra_info)
        size, left = map(int, cut.groups()) if cut is not None else (1, 1)
        return frames * size // left if left and size < _SIZE_UNKNOWN else frames


class _WatchedFile:
    """A caller's file object for libsndfile, whose callbacks would print and forget what it raises."""

    def __init__(self, file: Any) -> None:
        self._file = file
        self.failure: BaseException | None = None
        file.seek(0)

    def read(self, size: int) -> bytes:
        try:
            data = self._file.read(size)
            if not isinstance(data, bytes):
                raise TypeError(f"a sound file must be open in binary mode; read gave {type(data).__name__}")
            if len(data) > size:  # libsndfile's buffer has no room for more
                raise ValueError(f"the file gave {len(data)} bytes when {size} were asked for")
            return data
        except BaseException as error:
            self.failure = self.failure or error
            return b""

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> None:
        try:
            self._file.seek(offset, whence)
        except BaseException as error:
            self.failure = self.failure or error

    def tell(self) -> int:
        try:
            return index_value(self._file.tell(), "the position in the file", _LENGTH_UNKNOWN)
        except BaseException as error:
            self.failure = self.failure or error
            return 0


def write_sound(place: str, samples: npt.NDArray[np.float32], sample_rate: int, sample_format: str | None) -> None:
    """Write (frames, channels) samples into a file that appears when it is whole (errors: `genai.write_audio`)."""
    library = _soundfile()
    name = os.path.basename(place)
    file_format, subtype = _format_of(library, name, sample_format)
    highest = _RATES.get(file_format, _RATE_MAX)
    if sample_rate > highest:
        text = f"the sound cannot be written: {file_format} has at most {highest} Hz, not {sample_rate}"
        raise WinMLError(E_FAIL, place, text)
    try:
        with tempfile.TemporaryDirectory(prefix=".unfinished-", dir=os.path.dirname(place) or os.curdir) as folder:
            unfinished = os.path.join(folder, name)
            handle = _path(unfinished)
            with library.SoundFile(handle, "w", sample_rate, samples.shape[1], subtype, format=file_format) as file:
                for start in range(0, len(samples), _WRITTEN_AT_ONCE):
                    file.write(samples[start : start + _WRITTEN_AT_ONCE])
            os.replace(unfinished, place)
    except FileNotFoundError:
        raise WinMLError(PATH_NOT_FOUND, place, "there is no such folder") from None
    except library.SoundFileError as error:
        raise WinMLError(E_FAIL, place, f"the sound cannot be written: {_reason(error)}") from error
    except OSError as error:
        raise WinMLError(E_FAIL, place, error.strerror or str(error)) from error


def _format_of(library: Any, name: str, sample_format: str | None) -> tuple[str, str | None]:
    """Return libsndfile's names for the format of a file and of its samples."""
    ending = os.path.splitext(name)[1][1:].upper()
    file_format = {"AIF": "AIFF", "OGA": "OGG"}.get(ending, ending)
    if file_format in _NOT_WRITTEN or file_format not in library.available_formats():
        raise ValueError(f"{name!r} must end with .wav, .flac, .ogg, .mp3 or another format of sound")
    if sample_format is not None and sample_format not in _KEPT_FORMATS:
        raise ValueError(f"sample_format must be one of {', '.join(_KEPT_FORMATS)}, or None, not {sample_format!r}")
    if file_format in _LOSSY:
        if sample_format is not None:
            raise ValueError(f"{file_format} does not keep samples: leave sample_format out")
        return file_format, None
    subtype = _KEPT_FORMATS[sample_format or "int16"]
    if not library.check_format(file_format, subtype):
        raise ValueError(f"{file_format} has no sample_format {sample_format or 'int16'!r}")
    return file_format, subtype


def _regular_file(place: str, opening: ExitStack) -> Any:
    """Return a path for libsndfile, or a copy of what comes out of a pipe."""
    with reading(place), open(place, "rb") as file:
        mode = os.fstat(file.fileno()).st_mode
        if stat.S_ISFIFO(mode):
            return _copied(file, opening)
        if not stat.S_ISREG(mode):
            raise WinMLError(E_INVALIDARG, place, "this is a device, not a file")
    return _path(place)


def _path(place: str) -> str | bytes:
    """Return a path as libsndfile takes it, whatever its letters are."""
    return place if os.name == "nt" else os.fsencode(place)


def _copied(file: Any, opening: ExitStack) -> Any:
    """Copy a pipe to a temporary file, since sound formats are read with seeks."""
    copy = opening.enter_context(tempfile.TemporaryFile())
    pipe = PipeReader(file)
    while data := pipe.read(_COPIED_AT_ONCE):
        copy.write(data)
    copy.seek(0)
    return copy


def _no_sound(error: Exception) -> str:
    reason = _reason(error)
    # libsndfile says this of some content, too; whether there is a file was looked at before
    told = "" if reason.startswith("File does not exist") else f" ({reason})"
    return (
        f"no sound that can be read{told}. WAV, FLAC, OGG, MP3 and AIFF can be; "
        "convert other formats and the sound of films, for example with `ffmpeg -i INPUT OUTPUT.wav`"
    )


def _reason(error: Exception) -> str:
    return str(getattr(error, "error_string", error)).removeprefix("Error : ").rstrip(".")


def _soundfile() -> Any:
    try:
        import soundfile
    except (ImportError, OSError) as error:  # OSError: the package is there, libsndfile is not
        raise NotSupportedError(
            MODULE_NOT_FOUND, "genai.audio", "sound files need soundfile: pip install 'winml-lite[media]'"
        ) from error
    return soundfile
