"""The protobuf wire format: walk the fields of a message without knowing its schema.

Payloads are stepped over by their length and never looked at. Malformed content raises ValueError with the reason.
"""

from __future__ import annotations

from collections.abc import Iterator

from .mapped import Data

Span = tuple[int, int]
"""Where a message starts and ends."""

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5


def _varint(data: Data, position: int, end: int) -> tuple[int, int]:
    """Read a base-128 number (at most 64 bits); return it with the position after it."""
    value = shift = 0
    while position < end and shift < 70:
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value & 0xFFFFFFFFFFFFFFFF, position
        shift += 7
    raise ValueError("a number is cut off or too long (the file may be truncated)")


def fields(data: Data, span: Span) -> Iterator[tuple[int, int, int, int]]:
    """Yield (field number, wire type, value or start, end) of each field of a message.

    Numbers yield their value and 0; payloads yield where they start and end, and are not looked at.
    """
    position, end = span
    while position < end:
        tag = data[position]
        position += 1
        if tag >= 0x80:
            tag, position = _varint(data, position - 1, end)
            tag &= 0xFFFFFFFF  # as protobuf reads it
        number, wire = tag >> 3, tag & 7
        if number == 0:
            raise ValueError("a field has number 0")
        if wire == VARINT:
            value, position = _varint(data, position, end)
            yield number, wire, value, 0
        elif wire == BYTES:
            size, position = _varint(data, position, end)
            if size > end - position:
                raise ValueError(f"a field wants {size} bytes where {end - position} are left (truncated file?)")
            yield number, wire, position, position + size
            position += size
        elif wire in (FIXED32, FIXED64):
            position += 4 if wire == FIXED32 else 8
            if position > end:
                raise ValueError("a number is cut off (truncated file?)")
        else:
            raise ValueError(f"wire type {wire} does not occur in a model")


def payloads(data: Data, span: Span) -> Iterator[tuple[int, Span]]:
    """Yield (field number, span) of the length-delimited fields of a message."""
    for number, wire, start, end in fields(data, span):
        if wire == BYTES:
            yield number, (start, end)


def numbers(data: Data, span: Span) -> Iterator[int]:
    """Yield the numbers of a packed field."""
    position, end = span
    while position < end:
        value, position = _varint(data, position, end)
        yield value


def text(data: Data, span: Span) -> str:
    return data[span[0] : span[1]].decode("utf-8")
