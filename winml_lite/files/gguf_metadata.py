"""Key-value pairs of a GGUF header, decoded when they are asked for: a vocabulary is not read to look at a context
length.

Not here: finding the pairs in the file (`gguf_header.py`).
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

STRING = 8
BOOL = 7
NUMBERS: dict[int, str] = {
    0: "<B",
    1: "<b",
    2: "<H",
    3: "<h",
    4: "<I",
    5: "<i",
    6: "<f",
    BOOL: "<B",
    10: "<Q",
    11: "<q",
    12: "<d",
}
"""Value type -> format, for `struct` and for NumPy."""


@dataclass(frozen=True, slots=True)
class Span:
    """A string or an array in the file, not decoded yet."""

    code: int
    """Type of the value, or of the elements of an array."""
    is_array: bool
    count: int
    start: int
    stop: int


class Metadata(Mapping[str, object]):
    """Key-value pairs of the header; strings and arrays are decoded at first use and kept."""

    def __init__(self, data: bytes, values: dict[str, object]) -> None:
        self._data: bytes | None = data
        self._values = values

    def close(self) -> None:
        """Give back the memory; values that were read before stay."""
        self._data = None

    def __getitem__(self, key: str) -> object:
        value = self._values[key]
        if isinstance(value, Span):
            value = self._values[key] = self._decode(value)
        return value

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __contains__(self, key: object) -> bool:
        return key in self._values

    def __repr__(self) -> str:
        return f"<GGUF metadata, {len(self)} keys>"

    def _decode(self, span: Span) -> object:
        data = self._data
        if data is None:
            raise RuntimeError("the GGUF file is closed, and this value was not read before")
        content = data[span.start : span.stop]
        if span.code != STRING:
            numbers = np.frombuffer(content, dtype=NUMBERS[span.code])
            return numbers != 0 if span.code == BOOL else numbers
        if not span.is_array:
            return content.decode("utf-8", "surrogateescape")
        length_at = struct.Struct("<Q").unpack_from
        texts: list[str] = []
        start = 8
        for _ in range(span.count):
            stop = start + length_at(content, start - 8)[0]
            texts.append(content[start:stop].decode("utf-8", "surrogateescape"))
            start = stop + 8
        return texts
