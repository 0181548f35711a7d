"""Reading a pipe as it comes, such that who reads can stop while nothing comes.

Where the system can tell whether there is something, it is asked first, outside of the file object. Inside, a thread
holds the lock of the buffer, and an interpreter that exits then ends with a crash: it cannot close standard input. So
it also waits for those that are inside, which takes no time as there is something to read, and lets in no more.
"""

from __future__ import annotations

import atexit
import io
import select
import threading
from contextlib import suppress
from typing import Any
from weakref import WeakSet

_LONGEST_READ = 10.0
"""Seconds to wait for a reader at exit; only where somebody else takes what came does it need more."""


class PipeReader:
    """Reads an open file, which need not be one of the system."""

    def __init__(self, file: Any) -> None:
        self._file = file
        self._waiting = _waiting_for(file)
        self._inside = threading.Lock()
        if self._waiting is not None:
            _readers.add(self)

    def has_come(self, seconds: float) -> bool:
        """Whether there is something to read, or the end, within so many seconds; True where that cannot be told."""
        return self._waiting is None or bool(self._waiting.poll(1000 * seconds))

    def read(self, count: int) -> bytes:
        """Return up to `count` bytes as soon as there are any; b"" at the end. TypeError for a file of text."""
        if self._waiting is None:
            data = self._file.read(count)
        else:
            self._waiting.poll()
            with self._inside:
                data = getattr(self._file, "read1", self._file.read)(count)
        if not isinstance(data, bytes):
            raise TypeError(f"a sound file must be open in binary mode; read gave {type(data).__name__}")
        return data

    def bar(self) -> None:
        """Let nobody read any more, once who reads has what came."""
        self._inside.acquire(timeout=_LONGEST_READ)


_readers: WeakSet[PipeReader] = WeakSet()


@atexit.register
def _bar_all() -> None:
    for reader in list(_readers):
        reader.bar()


def _waiting_for(file: Any) -> Any:
    """Return what waits for a file; None for one that may keep bytes back, as what unpacks does, and on Windows."""
    raw = file.raw if type(file) is io.BufferedReader else file
    if type(raw) is not io.FileIO or not hasattr(select, "poll"):
        return None
    with suppress(OSError, ValueError):  # a closed one tells when it is read
        waiting = select.poll()
        waiting.register(raw.fileno(), select.POLLIN)
        return waiting
    return None
