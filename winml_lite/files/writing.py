"""New files that appear together and whole or not at all, and the codes of failures to write files."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import stat
import tempfile
from typing import Self

from ..errors import DISK_FULL, E_ACCESSDENIED, E_FAIL, E_INVALIDARG, FILENAME_TOO_LONG, PATH_NOT_FOUND, WinMLError

_CODES = {
    errno.ENOSPC: DISK_FULL,
    errno.EDQUOT: DISK_FULL,
    errno.ENOENT: PATH_NOT_FOUND,
    errno.ENOTDIR: PATH_NOT_FOUND,
    errno.EACCES: E_ACCESSDENIED,
    errno.EPERM: E_ACCESSDENIED,
    errno.EROFS: E_ACCESSDENIED,
    errno.EISDIR: E_ACCESSDENIED,
    errno.ENAMETOOLONG: FILENAME_TOO_LONG,
}


def writing_failure(path: str, error: OSError | ValueError, context: str) -> WinMLError:
    """Turn a failure to write a file into the code of its cause; a `WinMLError` is left as it is."""
    if isinstance(error, WinMLError):
        return error
    if isinstance(error, ValueError):  # a NUL in the path
        return WinMLError(E_INVALIDARG, context, f"{path!r}: {error}")
    return WinMLError(_CODES.get(error.errno or 0, E_FAIL), context, f"{path}: {error.strerror or error}")


def check_replaceable(path: str, context: str) -> None:
    """Raise 0x80070057 for a device, a pipe or a socket: a new file would take the place of what is no file."""
    try:
        mode = os.stat(path).st_mode
    except (OSError, ValueError):  # nothing is there, or what is wrong shows when it is written
        return
    if not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):
        raise WinMLError(E_INVALIDARG, context, f"{path} is a device or a pipe, not a file")


class NewFiles:
    """Files in a private folder beside their place, moved there together when all of them are whole.

    A context manager: what is still there when the block ends is deleted.
    """

    def __init__(self, folder: str) -> None:
        """`folder` is where the files shall appear."""
        self._folder = folder
        self._private = tempfile.mkdtemp(prefix=".unfinished-", dir=folder)
        self.path = os.path.join(self._private, "new")
        """The private folder, for the new files and nothing else."""
        os.mkdir(self.path)

    def appear(self, last: str) -> None:
        """Move the files to their place, in place of older ones; `last` comes last. A failure changes nothing."""
        names = sorted(os.listdir(self.path), key=lambda name: (name == last, name))
        for name in names:
            _flush(os.path.join(self.path, name))
        kept = os.path.join(self._private, "old")
        os.mkdir(kept)
        moved: list[str] = []
        try:
            for name in names:
                place = os.path.join(self._folder, name)
                if name != last:
                    with contextlib.suppress(FileNotFoundError):
                        os.replace(place, os.path.join(kept, name))
                    moved.append(name)
                os.replace(os.path.join(self.path, name), place)
        except BaseException:
            for name in moved:
                _put_back(os.path.join(kept, name), os.path.join(self._folder, name))
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        shutil.rmtree(self._private, ignore_errors=True)


def _flush(path: str) -> None:
    """Have the system write a file to the disk, so that not even a power cut leaves an empty one in its place."""
    with open(path, "r+b") as file:
        os.fsync(file.fileno())


def _put_back(kept: str, place: str) -> None:
    if os.path.lexists(kept):
        os.replace(kept, place)
    else:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(place)
