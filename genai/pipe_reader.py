"""Reading a pipe as it comes, such that who reads can stop while nothing comes.

Where the system can tell whether there is something, it is asked first, outside of the file object. Inside, a thread
holds the lock of the buffer, and an interpreter that exits then ends with a crash: it cannot close standard input.
"""

from __future__ import annotations

import io
import select
from contextlib import suppress
from typing import Any


class PipeReader:
    """Reads an open file, which need not be one of the system."""

    def __init__(self, file: Any) -> None:
        self._file = file
        self._waiting = _waiting_for(file)

    def has_come(self, seconds: float) -> bool:
        """Whether there is something to read, or the end, within so many seconds; True where that cannot be told."""
        return self._waiting is None or bool(self._waiting.poll(1000 * seconds))

    def read(self, count: int) -> bytes:
        """Return up to `count` bytes as soon as there are any; b"" at the end. TypeError for a file of text."""
        if self._waiting is not None:
            self._waiting.poll()
        read = self._file.read if self._waiting is None else getattr(self._file, "read1", self._file.read)
        data = read(count)
        if not isinstance(data, bytes):
            raise TypeError(f"a sound file must be open in binary mode; read gave {type(data).__name__}")
        return data


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
