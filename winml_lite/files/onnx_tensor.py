"""What a TensorProto says beside its values: name and external data (runtime §2.1, tensors §10)."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from ..values import BITS, FROM_ONNX_TYPE
from .artifact import LargeTensor
from .mapped import Data
from .protobuf import BYTES, VARINT, Span, fields, numbers, payloads, text

_LARGE = (1 << 31) - (1 << 20)
"""Bytes; a protobuf message ends at 2 GiB, with what else is in it."""
_DEFAULT, _EXTERNAL = 0, 1
"""Places of the values; protobuf passes over other numbers."""


@dataclass(slots=True)
class Tensor:
    """A TensorProto without its values. `read` merges what occurs several times, as protobuf does."""

    name: bytes = b""
    element_type: int = 0
    extents: list[int] = field(default_factory=list)
    is_external: bool = False
    entries: dict[str, str] = field(default_factory=dict)
    """Of its external data."""

    def read(self, data: Data, span: Span) -> None:
        for number, wire, start, end in fields(data, span):
            if number == 1:
                self.extents += [start] if wire == VARINT else numbers(data, (start, end))
            elif number == 2 and wire == VARINT:
                self.element_type = start
            elif number == 8 and wire == BYTES:
                self.name = data[start:end]
            elif number == 13 and wire == BYTES:
                key, value = read_entry(data, (start, end))
                self.entries[key] = value
            elif number == 14 and wire == VARINT and start & 0xFFFFFFFF in (_DEFAULT, _EXTERNAL):
                self.is_external = start & 0xFFFFFFFF == _EXTERNAL

    @property
    def location(self) -> str | None:
        """Where its values are; None for those that are in the model."""
        return self.entries.get("location") if self.is_external else None

    @property
    def needed_bytes(self) -> int:
        """Bytes that the external data must have at least."""
        return self._count("offset") + self._count("length")

    def large(self) -> tuple[LargeTensor, ...]:
        """Return itself, if it is external and large; () else, and for element types without counterpart."""
        location, data_type = self.location, FROM_ONNX_TYPE.get(self.element_type)
        if location is None or data_type is None or math.prod(self.extents) * BITS[data_type] < 8 * _LARGE:
            return ()
        return (LargeTensor(self.name.decode(), data_type, tuple(self.extents), location, self._count("offset")),)

    def _count(self, key: str) -> int:
        digits = self.entries.get(key, "0")
        if not (digits.isascii() and digits.isdigit()):
            raise ValueError(f"the {key} of external data is {digits!r}")
        return int(digits)


def read_sparse(data: Data, span: Span, tensors: tuple[Tensor, Tensor]) -> None:
    """Read a SparseTensorProto: values, which carry the name, and indices."""
    for number, part in payloads(data, span):
        if number in (1, 2):
            tensors[number - 1].read(data, part)


def read_entry(data: Data, span: Span) -> tuple[str, str]:
    """Read a StringStringEntryProto."""
    key = value = ""
    for number, part in payloads(data, span):
        if number == 1:
            key = text(data, part)
        elif number == 2:
            value = text(data, part)
    return key, value
