"""New files that appear together and whole or not at all, and the codes of failures to write files."""

from __future__ import annotations

import contextlib
import errno
import os
import re
import secrets
import shutil
import stat
import threading
import time
from typing import Self

from ..errors import DISK_FULL, E_ACCESSDENIED, E_FAIL, E_INVALIDARG, FILENAME_TOO_LONG, PATH_NOT_FOUND, WinMLError
from ..handles import finalizer, free_in_child
from .locks import LOCK_NAME, lock_at_once, locked

_moving = threading.Lock()
"""Two results for one place shall not mix."""
free_in_child(_moving)

_PRIVATE = re.compile(r"\.unfinished-[0-9a-f]{16}")
_NEW, _OLD = "new", "old"
_LEFT_SECONDS = 3600.0
"""Private folders in which nothing has happened for so long may be leftovers."""

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

    A context manager: what is still there when the block ends is deleted, but older files that cannot be put back.
    Private folders of processes that were killed are deleted by a later one.
    """

    def __init__(self, folder: str) -> None:
        """`folder` is where the files shall appear."""
        _clear_away(folder)
        self._folder = folder
        self._private = os.path.join(folder, f".unfinished-{secrets.token_hex(8)}")
        self._finalizer = finalizer(self, shutil.rmtree, self._private, True)  # where Ctrl-C strikes before the block
        os.mkdir(self._private, 0o700)
        self._sign_of_life = lock_at_once(self._private)
        self.path = os.path.join(self._private, _NEW)
        """The private folder, for the new files and nothing else."""
        self._kept = os.path.join(self._private, _OLD)
        os.mkdir(self.path)
        os.mkdir(self._kept)
        self._keeps_old = False

    def appear(self, last: str) -> None:
        """Move the files to their place, in place of older ones; `last` comes last. A failure changes nothing."""
        others = sorted(set(os.listdir(self.path)) - {last})
        for name in (*others, last):
            _flush(os.path.join(self.path, name))
        with _moving, locked(self._folder):
            try:
                if any(os.path.lexists(os.path.join(self._folder, name)) for name in others):
                    for name in (last, *others):  # `last` first: no crash shall leave it with other files than its own
                        self._set_aside(name)
                for name in (*others, last):
                    os.replace(os.path.join(self.path, name), os.path.join(self._folder, name))
            except BaseException:
                if os.path.lexists(os.path.join(self.path, last)):  # else everything is in its place
                    for name in (*others, last):
                        with contextlib.suppress(OSError):
                            self._put_back(name)
                    self._keeps_old = bool(os.listdir(self._kept))
                raise

    def _set_aside(self, name: str) -> None:
        with contextlib.suppress(FileNotFoundError):
            os.replace(os.path.join(self._folder, name), os.path.join(self._kept, name))

    def _put_back(self, name: str) -> None:
        place, kept = os.path.join(self._folder, name), os.path.join(self._kept, name)
        if os.path.lexists(kept):
            os.replace(kept, place)
        elif not os.path.lexists(os.path.join(self.path, name)):
            with contextlib.suppress(FileNotFoundError):
                os.unlink(place)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._finalizer.detach()
        if self._sign_of_life is not None:
            self._sign_of_life.close()
        if self._keeps_old:
            return
        try:
            shutil.rmtree(self._private, ignore_errors=True)
        except KeyboardInterrupt:
            shutil.rmtree(self._private, ignore_errors=True)
            raise


def _flush(path: str) -> None:
    """Have the system write a file to the disk, so that not even a power cut leaves an empty one in its place."""
    with open(path, "r+b") as file:
        os.fsync(file.fileno())


def _clear_away(folder: str) -> None:
    """Delete the private folders of processes that were killed."""
    with contextlib.suppress(OSError, ValueError):
        for name in os.listdir(folder):
            path = os.path.join(folder, name)
            if _PRIVATE.fullmatch(name) and _is_left(path):
                shutil.rmtree(path, ignore_errors=True)  # a link stays


def _is_left(private: str) -> bool:
    """Whether a private folder is old, nobody's, and without older files that were to be put back."""
    new, old = os.path.join(private, _NEW), os.path.join(private, _OLD)
    try:
        if not {_NEW, _OLD, LOCK_NAME}.issuperset(os.listdir(private)) or (os.path.exists(old) and os.listdir(old)):
            return False
        made = [new, *(os.path.join(new, name) for name in os.listdir(new))] if os.path.exists(new) else []
        if max(os.stat(path).st_mtime for path in (private, *made)) > time.time() - _LEFT_SECONDS:
            return False
    except OSError:  # another user's, or it has just gone
        return False
    lock = lock_at_once(private)
    if lock is None:
        return False
    lock.close()
    return True
