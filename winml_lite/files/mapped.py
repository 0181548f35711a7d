"""Open files that somebody named: regular files only, with failures as `WinMLError` (runtime §2.1, step 2).

A pipe would be waited for without end, a device could be read without end. Mapped memory ends the process when the
file shrinks under it, so nothing stays mapped that is not needed, and `Identity` tells a file that has changed.
"""

from __future__ import annotations

import errno
import mmap
import os
import stat
from io import FileIO
from typing import NamedTuple

from .. import errors
from ..errors import WinMLError

Data = bytes | mmap.mmap
"""What a walker reads: a model in memory or a mapped file."""

_CONTEXT = "IWinMLRuntime.LoadModelFromFile"


class Identity(NamedTuple):
    """A file at one moment."""

    path: str
    size: int
    modified: int
    """Time of the last change, in ns."""


class RegularFile(FileIO):
    """A regular file, open for reading; a folder, a pipe or a device is E_INVALIDARG, an empty file FILE_CORRUPT.

    `context` is the call that needs it.
    """

    def __init__(self, path: str, context: str = _CONTEXT) -> None:
        try:
            super().__init__(path, "r", opener=_open_without_waiting)
        except ValueError as error:  # a NUL in the path
            raise WinMLError(errors.E_INVALIDARG, context, f"{path!r}: {error}") from error
        except OSError as error:
            raise reading_failure(path, error, context) from error
        status = os.fstat(self.fileno())
        self.identity = Identity(path, status.st_size, status.st_mtime_ns)
        if not stat.S_ISREG(status.st_mode):
            self.close()
            kind = "a pipe" if stat.S_ISFIFO(status.st_mode) else "a device"
            raise WinMLError(errors.E_INVALIDARG, context, f"{path} is {kind}, not a file")
        if not status.st_size:
            self.close()
            raise WinMLError(errors.FILE_CORRUPT, context, f"{path}: the file is empty")

    def map(self) -> mmap.mmap:
        """Map the whole file for reading; the map does not need the file to stay open."""
        try:
            return mmap.mmap(self.fileno(), 0, access=mmap.ACCESS_READ)
        except (OSError, ValueError) as error:  # on a file system without maps, or emptied meanwhile
            raise WinMLError(errors.E_FAIL, _CONTEXT, f"{self.identity.path} cannot be mapped: {error}") from error


class open_mapped:
    """Map a file for reading inside a `with` block."""

    def __init__(self, path: str) -> None:
        with RegularFile(path) as file:
            self.identity = file.identity
            self._mapped = file.map()

    def __enter__(self) -> mmap.mmap:
        return self._mapped

    def __exit__(self, *_: object) -> None:
        self._mapped.close()


def identify(path: str) -> Identity:
    """Look at a file; `OSError` when it cannot be."""
    status = os.stat(path)
    return Identity(path, status.st_size, status.st_mtime_ns)


def is_same_file(one: str, other: str) -> bool:
    """Whether two paths lead to one file, by whatever name or link; of files that are not there, whether they would."""
    try:
        return os.path.samefile(one, other)
    except (OSError, ValueError):
        return os.path.normcase(os.path.abspath(one)) == os.path.normcase(os.path.abspath(other))


def check_unchanged(known: Identity, context: str) -> None:
    """Refuse, with 0x800703EE, a file that is not as it was."""
    try:
        if identify(known.path) == known:
            return
        what = "has changed"
    except OSError as error:
        what = f"cannot be read any more ({error.strerror})"
    raise WinMLError(errors.FILE_INVALID, context, f"{known.path} {what} since it was loaded; load it again")


def _open_without_waiting(path: str, flags: int) -> int:
    return os.open(path, flags | getattr(os, "O_NONBLOCK", 0))


def reading_failure(path: str, error: OSError, context: str = _CONTEXT) -> WinMLError:
    """Turn a failure to read a file into the code of its cause; a `WinMLError` is left as it is."""
    if isinstance(error, WinMLError):
        return error
    return WinMLError(_code(error, path), context, f"{path}: {error.strerror or error}")


def _code(error: OSError, path: str) -> int:
    if error.errno == errno.ENOENT and os.path.isdir(os.path.dirname(path) or os.curdir):
        return errors.FILE_NOT_FOUND
    if error.errno in (errno.ENOENT, errno.ENOTDIR):
        return errors.PATH_NOT_FOUND
    if error.errno == errno.ENAMETOOLONG:
        return errors.FILENAME_TOO_LONG
    if os.path.isdir(path):
        return errors.E_INVALIDARG
    return errors.E_ACCESSDENIED if error.errno in (errno.EACCES, errno.EPERM) else errors.E_FAIL
