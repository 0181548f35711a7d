"""A pipe without a system: bytes that can be read once, and how many of them were."""

from __future__ import annotations

import io


class Pipe(io.RawIOBase):
    """Gives its bytes, at most `at_once` with each read, and cannot seek."""

    def __init__(self, content: bytes, at_once: int = 1 << 30) -> None:
        self._content = content
        self._at_once = at_once
        self.taken = 0

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1, /) -> bytes:
        size = min(len(self._content) if size is None or size < 0 else size, self._at_once)
        data = self._content[self.taken : self.taken + size]
        self.taken += len(data)
        return data
