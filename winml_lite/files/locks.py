"""Locks on folders against other threads and processes. The system ends those of a process that dies.

On Windows, which locks no folders, an empty file in the folder stands for it and goes with the lock. Not here: what is
done under a lock (`writing.py`).
"""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Iterator

from ..handles import finalizer

LOCK_NAME = ".winml-lite.lock"
"""The file that stands for a folder on Windows."""
_POLL_SECONDS = 0.02
_LONGEST_SECONDS = 10.0
"""Far longer than files take to be moved."""


class FolderLock:
    """The lock of a folder; `close`, and at the latest the end of the object, gives it back."""

    def __init__(self, folder: str) -> None:
        """Open the lock without taking it. OSError where the folder cannot be opened."""
        self._handle = _open(folder)
        self._finalizer = finalizer(self, _close, folder, self._handle)

    def take(self) -> bool:
        """Take the lock if nobody has it. OSError where the file system has no locks."""
        return _take(self._handle)

    def close(self) -> None:
        """Give the lock back. Again is fine."""
        self._finalizer()


def lock_at_once(folder: str) -> FolderLock | None:
    """Return the lock of a folder, taken; None where another has it, or where there is none to be had."""
    with contextlib.suppress(OSError):
        lock = FolderLock(folder)
        if lock.take():
            return lock
        lock.close()
    return None


@contextlib.contextmanager
def locked(folder: str) -> Iterator[None]:
    """Hold the lock of a folder, after whoever has it; hold nothing where the file system has no locks.

    Nor is it waited for without end: `flock folder command` holds it for as long as this very command runs.
    """
    latest = time.monotonic() + _LONGEST_SECONDS
    with contextlib.ExitStack() as stack:
        with contextlib.suppress(OSError):
            lock = FolderLock(folder)
            stack.callback(lock.close)
            while not lock.take() and time.monotonic() < latest:
                time.sleep(_POLL_SECONDS)
        yield


if sys.platform == "win32":
    import msvcrt

    def _open(folder: str) -> int:
        return os.open(os.path.join(folder, LOCK_NAME), os.O_RDWR | os.O_CREAT)

    def _take(handle: int) -> bool:
        try:
            msvcrt.locking(handle, msvcrt.LK_NBLCK, 1)
        except PermissionError:
            return False
        return True

    def _close(folder: str, handle: int) -> None:
        with contextlib.suppress(OSError):  # it was not taken
            msvcrt.locking(handle, msvcrt.LK_UNLCK, 1)
        os.close(handle)
        with contextlib.suppress(OSError):  # another has it open, and removes it
            os.unlink(os.path.join(folder, LOCK_NAME))

else:
    import fcntl

    def _open(folder: str) -> int:
        return os.open(folder, os.O_RDONLY)

    def _take(handle: int) -> bool:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def _close(folder: str, handle: int) -> None:
        with contextlib.suppress(OSError):
            fcntl.flock(handle, fcntl.LOCK_UN)  # closing is not enough while a forked child has the handle, too
        os.close(handle)
