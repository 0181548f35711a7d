"""Structure of an `.ort` file (ONNX Runtime's FlatBuffers format), read without a native library (runtime §2.1, 3, 4).

Here: a bounds-checked walker that collects the same facts as `onnx.py`. Not here: weights, which are never touched.

A FlatBuffers table is reached through offsets, and several offsets may lead to one place. So a small hostile file
can describe endless work; each read is paid from a budget that grows with the file, and a file that overdraws it
is refused. Field slots are those of the public schema `ort.fbs`.
"""

from __future__ import annotations

import os
import struct
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace

from ..errors import FILE_CORRUPT, WinMLError
from ..values import FROM_ONNX_TYPE
from .artifact import Dimension, OnnxArtifact, Port, foreign_port, foreign_tensor, model_metadata
from .mapped import Data, open_mapped
from .sharing import cache_pairs, shareable
from .signatures import HEAD_SIZE, foreign_content

IDENTIFIER = b"ORTM"
"""Bytes 4..8 of each ORT format model."""

_U16 = struct.Struct("<H")
_U32 = struct.Struct("<I")
_I32 = struct.Struct("<i")
_I64 = struct.Struct("<q")
_BUDGET_PER_BYTE = 64  # names are shared between nodes, so a real file reads some bytes several times
_TENSOR_TYPE = 1
_FOREIGN_KINDS = {2: "a sequence", 3: "a map"}
"""Members of the union in TypeInfo beside the tensor."""
_FIXED, _SYMBOL = 1, 2


def read_ort(path: str, resources: Mapping[str, memoryview] | None = None) -> OnnxArtifact:
    """Read the structure of the `.ort` file at `path`; same result and failures as `onnx.read_onnx`."""
    path = os.path.abspath(path)
    file = open_mapped(path)
    with file as data:
        artifact = _parse(data, path, "IWinMLRuntime.LoadModelFromFile")
    return replace(artifact, path=path, identity=file.identity, resources=resources or {})


def read_ort_bytes(data: bytes, resources: Mapping[str, memoryview] | None = None) -> OnnxArtifact:
    """Read the structure of an ORT format model in memory; the artifact keeps `data`."""
    artifact = _parse(data, "the model buffer", "IWinMLRuntime.LoadModelFromBuffer")
    return replace(artifact, data=data, resources=resources or {})


def _parse(data: Data, place: str, context: str) -> OnnxArtifact:
    try:
        return _read(Buffer(data))
    except ValueError as error:
        head = data[:HEAD_SIZE]
        found = None if head[4:8] == IDENTIFIER else foreign_content(head)
        why = f"this is {found}" if found else str(error)
        raise WinMLError(FILE_CORRUPT, context, f"{place}: not an ORT model, {why}") from None


class Buffer:
    """The file with checked reads, each paid from the budget."""

    def __init__(self, data: Data) -> None:
        self._data = data
        self._budget = 65536 + _BUDGET_PER_BYTE * len(data)

    def number(self, form: struct.Struct, position: int) -> int:
        self._spend(form.size)
        if position < 0 or position + form.size > len(self._data):
            raise ValueError(
                f"offset {position} leads out of the {len(self._data)} bytes of the file (truncated file?)"
            )
        return int(form.unpack_from(self._data, position)[0])

    def raw(self, position: int, size: int) -> bytes:
        self._spend(size)
        if position < 0 or position + size > len(self._data):
            raise ValueError(f"{size} bytes at {position} reach beyond the file (truncated file?)")
        return self._data[position : position + size]

    def follow(self, position: int) -> int:
        """Where the offset stored at `position` leads."""
        return position + self.number(_U32, position)

    def string(self, position: int) -> bytes:
        return self.raw(position + 4, self.number(_U32, position))

    def root(self) -> Table:
        if self.raw(4, 4) != IDENTIFIER:
            raise ValueError("the identifier ORTM is missing")
        return Table(self, self.follow(0))

    def _spend(self, size: int) -> None:
        self._budget -= size
        if self._budget < 0:
            raise ValueError("its offsets lead to the same places over and over")


class Table:
    """A FlatBuffers table; absent fields read as zero, empty or None."""

    __slots__ = ("_buffer", "_position", "_size", "_vtable")

    def __init__(self, buffer: Buffer, position: int) -> None:
        self._buffer = buffer
        self._position = position
        self._vtable = position - buffer.number(_I32, position)
        self._size = buffer.number(_U16, self._vtable)

    def _field(self, slot: int) -> int | None:
        entry = 4 + 2 * slot
        if entry + 2 > self._size:
            return None
        offset = self._buffer.number(_U16, self._vtable + entry)
        return self._position + offset if offset else None

    def integer(self, slot: int, form: struct.Struct) -> int:
        position = self._field(slot)
        return 0 if position is None else self._buffer.number(form, position)

    def byte(self, slot: int) -> int:
        position = self._field(slot)
        return 0 if position is None else self._buffer.raw(position, 1)[0]

    def string(self, slot: int) -> bytes:
        position = self._field(slot)
        return b"" if position is None else self._buffer.string(self._buffer.follow(position))

    def text(self, slot: int) -> str:
        return self.string(slot).decode("utf-8")

    def table(self, slot: int) -> Table | None:
        position = self._field(slot)
        return None if position is None else Table(self._buffer, self._buffer.follow(position))

    def _elements(self, slot: int) -> Iterator[int]:
        position = self._field(slot)
        if position is not None:
            start = self._buffer.follow(position)
            for index in range(self._buffer.number(_U32, start)):
                yield self._buffer.follow(start + 4 + 4 * index)

    def tables(self, slot: int) -> Iterator[Table]:
        return (Table(self._buffer, position) for position in self._elements(slot))

    def strings(self, slot: int) -> list[bytes]:
        return [self._buffer.string(position) for position in self._elements(slot)]


def _read(buffer: Buffer) -> OnnxArtifact:
    model = buffer.root().table(1)
    graph = model.table(7) if model is not None else None
    if model is None or graph is None:
        raise ValueError("it has no model with a graph")
    ports = {table.string(0): _port(table) for table in graph.tables(1)}
    initializers = {table.string(0) for table in graph.tables(0)}
    initializers |= {values.string(0) for sparse in graph.tables(7) if (values := sparse.table(0)) is not None}
    inputs = [_named(ports, name) for name in graph.strings(5) if name not in initializers]
    outputs = [_named(ports, name) for name in graph.strings(6)]
    return OnnxArtifact(
        inputs=tuple(inputs),
        outputs=tuple(outputs),
        format="ort",
        shareable_pairs=_shareable_pairs(graph, [port.name for port in inputs], [port.name for port in outputs]),
        metadata=_metadata(model),
    )


def _named(ports: Mapping[bytes, Port], name: bytes) -> Port:
    port = ports.get(name)
    return port if port is not None else foreign_port(name.decode("utf-8"), "")


def _port(value: Table) -> Port:
    """ValueInfo: name, then TypeInfo with a union member and its value."""
    name = value.text(0)
    type_info = value.table(2)
    kind = type_info.byte(1) if type_info is not None else 0
    tensor = type_info.table(2) if type_info is not None and kind == _TENSOR_TYPE else None
    if tensor is None:
        return foreign_port(name, _FOREIGN_KINDS.get(kind, ""))
    element_type = tensor.integer(0, _I32)
    data_type = FROM_ONNX_TYPE.get(element_type)
    if data_type is None:
        return foreign_port(name, foreign_tensor(element_type))
    shape = tensor.table(1)
    if shape is None:
        return Port(name, data_type, (), rank_known=False)
    return Port(name, data_type, tuple(_dimension(dimension) for dimension in shape.tables(0)))


def _dimension(dimension: Table) -> Dimension:
    value = dimension.table(0)
    if value is None:
        return None
    kind = value.byte(0)
    if kind == _FIXED:
        extent = value.integer(1, _I64)
        return extent if extent >= 0 else None
    return (value.text(2) or None) if kind == _SYMBOL else None


def _shareable_pairs(graph: Table, inputs: list[str], outputs: list[str]) -> frozenset[tuple[int, int]]:
    uses: Counter[bytes] = Counter()
    caches: list[tuple[bytes, bytes]] = []
    for node in graph.tables(2):
        node_inputs = node.strings(8)
        uses.update(node_inputs)
        uses.update(node.strings(12))  # what subgraphs read from outside
        caches += cache_pairs(node.string(2), node.string(5), node_inputs, node.strings(9))
    return shareable(caches, uses, inputs, outputs)


def _metadata(model: Table) -> dict[str, str]:
    properties = {entry.text(0): entry.text(1) for entry in model.tables(9)}
    opsets = {opset.text(0) or "ai.onnx": opset.integer(1, _I64) for opset in model.tables(1)}
    return model_metadata(properties, model.text(2), opsets)
