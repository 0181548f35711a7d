"""Constants of old models that are listed as inputs as well, taken off that list (tensors §9).

Before IR version 4 a graph listed all its initializers as inputs, and none could get another value. ONNX Runtime merges
equal ones when it optimises, and writes the inputs of the merged ones down without a value: what it has made then
wants inputs that the model never had. Here such a model is written anew as one of version 4, with its true inputs.
"""

from __future__ import annotations

from collections.abc import Iterator

from .protobuf import BYTES, VARINT, Span, fields, payloads

FIRST_WITHOUT = 4
"""The IR version from which on initializers need not be listed, and those that are may get other values."""
_IR_VERSION, _GRAPH = 1, 7  # members of ModelProto
_INITIALIZER, _INPUT = 5, 11  # members of GraphProto
_TENSOR_NAME, _INPUT_NAME = 8, 1


def without_listed_constants(data: bytes) -> bytes:
    """Return a model before IR version 4 as one of that version, in which no initializer is an input.

    The model is one that `read_onnx_bytes` has accepted.
    """
    graphs = [span for number, span in payloads(data, (0, len(data))) if number == _GRAPH]
    constants = {
        _name(data, span, _TENSOR_NAME)
        for graph in graphs
        for number, span in payloads(data, graph)
        if number == _INITIALIZER
    }
    parts = [_number(_IR_VERSION, FIRST_WITHOUT)]
    for number, wire, start, end in fields(data, (0, len(data))):
        if number == _GRAPH and wire == BYTES:
            parts.append(_payload(number, b"".join(_graph_fields(data, (start, end), constants))))
        elif wire == BYTES:
            parts.append(_payload(number, data[start:end]))
        elif number != _IR_VERSION:
            parts.append(_number(number, start))
    return b"".join(parts)


def _graph_fields(data: bytes, graph: Span, constants: set[bytes]) -> Iterator[bytes]:
    for number, wire, start, end in fields(data, graph):
        if wire == VARINT:
            yield _number(number, start)
        elif number != _INPUT or _name(data, (start, end), _INPUT_NAME) not in constants:
            yield _payload(number, data[start:end])


def _name(data: bytes, span: Span, member: int) -> bytes:
    name = b""
    for number, (start, end) in payloads(data, span):
        if number == member:
            name = data[start:end]
    return name


def _number(number: int, value: int) -> bytes:
    return _varint(number << 3 | VARINT) + _varint(value)


def _payload(number: int, content: bytes) -> bytes:
    return _varint(number << 3 | BYTES) + _varint(len(content)) + content


def _varint(value: int) -> bytes:
    digits = bytearray()
    while value > 0x7F:
        digits.append(value & 0x7F | 0x80)
        value >>= 7
    digits.append(value)
    return bytes(digits)
