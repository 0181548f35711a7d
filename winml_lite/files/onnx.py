"""Structure of an `.onnx` file, read without a native library and without touching weights (runtime §2.1, 3, 4).

Here: a walker over the protobuf messages that collects graph ports, external data locations, metadata and the
state pairs that may share a buffer. Weights are stepped over, so a file of gigabytes takes milliseconds.
Not here: operator semantics and tensor contents; whether a model runs is found out by `build`.

Field numbers are those of the public `onnx.proto`. As protobuf asks, the last occurrence of a scalar wins, repeated
occurrences of a message merge, unknown fields and known fields of another wire type are skipped.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from ..errors import FILE_CORRUPT, WinMLError
from ..values import FROM_ONNX_TYPE
from .artifact import Dimension, LargeTensor, OnnxArtifact, Port, foreign_port, foreign_tensor, model_metadata
from .ep_context import context_source, only_source
from .listed_constants import FIRST_WITHOUT
from .mapped import Data, open_mapped
from .onnx_tensor import Tensor, read_entry, read_sparse
from .protobuf import BYTES, VARINT, Span, fields, payloads, text
from .sharing import cache_pairs, shareable
from .signatures import HEAD_SIZE, foreign_content

_DEEPEST_SUBGRAPH = 32  # protobuf itself stops at 100 nested messages, a subgraph takes three
_LARGEST_IR_VERSION = 0xFFFF  # far above any real one; ONNX Runtime names its maximum at build
_FOREIGN_KINDS = {4: "a sequence", 5: "a map", 7: "an opaque value", 8: "a sparse tensor", 9: "an optional value"}
"""Members of TypeProto's `value` beside the tensor."""


def read_onnx(path: str, resources: Mapping[str, memoryview] | None = None) -> OnnxArtifact:
    """Read the structure of the `.onnx` file at `path`.

    `resources` maps external data locations to bytes, for locations without a file beside the model.
    Raises `WinMLError` with the path in its text: 0x80070570 for anything that is not a complete ONNX model,
    0x80070002 or 0x80070005 when the file cannot be opened.
    """
    path = os.path.abspath(path)
    file = open_mapped(path)
    with file as data:
        artifact = _parse(data, path, "IWinMLRuntime.LoadModelFromFile")
    return replace(artifact, path=path, identity=file.identity, resources=resources or {})


def read_onnx_bytes(data: bytes, resources: Mapping[str, memoryview] | None = None) -> OnnxArtifact:
    """Read the structure of an ONNX model in memory; the artifact keeps `data`. Malformed content is 0x80070570."""
    artifact = _parse(data, "the model buffer", "IWinMLRuntime.LoadModelFromBuffer")
    return replace(artifact, data=data, resources=resources or {})


def _parse(data: Data, place: str, context: str) -> OnnxArtifact:
    model = _Model()
    try:
        model.read(data)
        model.check()
    except ValueError as error:
        found = foreign_content(data[:HEAD_SIZE])
        why = f"this is {found}" if found else str(error)
        raise WinMLError(FILE_CORRUPT, context, f"{place}: not an ONNX model, {why}") from None
    return model.artifact()


@dataclass(slots=True)
class _Value:
    """ValueInfoProto: a graph input or output."""

    name: str = ""
    kind: int = 0
    """Field number of the last set member of TypeProto's `value`; 1 is a tensor."""
    element_type: int = 0
    dimensions: list[Dimension] | None = None

    def read(self, data: Data, span: Span) -> None:
        for number, part in payloads(data, span):
            if number == 1:
                self.name = text(data, part)
            elif number == 2:
                self._read_type(data, part)

    def _read_type(self, data: Data, span: Span) -> None:
        for number, part in payloads(data, span):
            if number == 6:  # denotation: the only member of TypeProto beside its value
                continue
            if number != self.kind:
                self.kind, self.element_type, self.dimensions = number, 0, None
            if number == 1:
                self._read_tensor(data, part)

    def _read_tensor(self, data: Data, span: Span) -> None:
        for number, wire, start, end in fields(data, span):
            if number == 1 and wire == VARINT:
                self.element_type = start
            elif number == 2 and wire == BYTES:
                if self.dimensions is None:
                    self.dimensions = []
                self.dimensions += [_dimension(data, part) for tag, part in payloads(data, (start, end)) if tag == 1]

    def port(self) -> Port:
        if self.kind != 1:
            return foreign_port(self.name, _FOREIGN_KINDS.get(self.kind, ""))
        data_type = FROM_ONNX_TYPE.get(self.element_type)
        if data_type is None:
            return foreign_port(self.name, foreign_tensor(self.element_type))
        return Port(self.name, data_type, tuple(self.dimensions or ()), self.dimensions is not None)


def _dimension(data: Data, span: Span) -> Dimension:
    found: Dimension = None
    for number, wire, start, end in fields(data, span):
        if number == 1 and wire == VARINT:
            found = start if start < 1 << 63 else None  # exporters write -1 for a free extent
        elif number == 2 and wire == BYTES:
            found = text(data, (start, end)) or None
    return found


@dataclass(slots=True)
class _Graph:
    """GraphProto, with what its subgraphs need from outside."""

    inputs: list[_Value] = field(default_factory=list)
    outputs: list[_Value] = field(default_factory=list)
    initializers: set[bytes] = field(default_factory=set)
    external_sizes: dict[str, int] = field(default_factory=dict)
    """Bytes needed at each external location."""
    large_tensors: tuple[LargeTensor, ...] = ()
    nested_locations: set[str] = field(default_factory=set)
    """Those of all but initializers of the main graph."""
    uses: Counter[bytes] = field(default_factory=Counter)
    """How often each value is read by a node, subgraphs included."""
    caches: list[tuple[bytes, bytes]] = field(default_factory=list)
    """(past, present) names of GroupQueryAttention nodes of the main graph."""
    sources: set[str] = field(default_factory=set)
    """Providers that compiled nodes of the main graph."""

    def read(self, data: Data, span: Span, depth: int = 0) -> None:
        if depth > _DEEPEST_SUBGRAPH:
            raise ValueError(f"subgraphs are nested deeper than {_DEEPEST_SUBGRAPH}")
        for number, part in payloads(data, span):
            if number == 1:
                self._read_node(data, part, depth)
            elif number == 5:
                self._read_tensor(data, part, is_initializer=depth == 0)
            elif number == 15:
                self._read_sparse_tensor(data, part, is_initializer=depth == 0)
            elif number in (11, 12) and depth == 0:
                value = _Value()
                value.read(data, part)
                (self.inputs if number == 11 else self.outputs).append(value)

    def _read_node(self, data: Data, span: Span, depth: int) -> None:
        inputs: list[bytes] = []
        outputs: list[bytes] = []
        operator = domain = b""
        for number, (start, end) in payloads(data, span):
            if number == 1:
                inputs.append(data[start:end])
            elif number == 2:
                outputs.append(data[start:end])
            elif number == 4:
                operator = data[start:end]
            elif number == 5:
                self._read_attribute(data, (start, end), depth)
            elif number == 7:
                domain = data[start:end]
        self.uses.update(inputs)
        if depth == 0:
            self.caches += cache_pairs(domain, operator, inputs, outputs)
        if depth == 0 and (domain, operator) == (b"com.microsoft", b"EPContext"):
            self.sources.add(context_source(data, span))

    def _read_attribute(self, data: Data, span: Span, depth: int) -> None:
        single = sparse = None
        for number, part in payloads(data, span):
            if number == 5:
                single = single or Tensor()
                single.read(data, part)
            elif number == 10:
                self._read_tensor(data, part, is_initializer=False)
            elif number == 22:
                sparse = sparse or (Tensor(), Tensor())
                read_sparse(data, part, sparse)
            elif number == 23:
                self._read_sparse_tensor(data, part, is_initializer=False)
            elif number in (6, 11):
                self.read(data, part, depth + 1)
        if single is not None:
            self._note(single, is_nested=depth > 0)  # in the main graph it is a Constant, an initializer by other means
        for tensor in sparse or ():
            self._note(tensor, is_nested=True)

    def _read_tensor(self, data: Data, span: Span, is_initializer: bool) -> None:
        tensor = Tensor()
        tensor.read(data, span)
        if is_initializer:
            self.initializers.add(tensor.name)
            self.large_tensors += tensor.large()
        self._note(tensor, is_nested=not is_initializer)

    def _read_sparse_tensor(self, data: Data, span: Span, is_initializer: bool) -> None:
        values, indices = Tensor(), Tensor()
        read_sparse(data, span, (values, indices))
        if is_initializer:
            self.initializers.add(values.name)
        self._note(values, is_nested=True)
        self._note(indices, is_nested=True)

    def _note(self, tensor: Tensor, is_nested: bool) -> None:
        location = tensor.location
        if location is not None:
            self.external_sizes[location] = max(tensor.needed_bytes, self.external_sizes.get(location, 0))
            if is_nested:
                self.nested_locations.add(location)

    def read_function(self, data: Data, span: Span) -> None:
        """FunctionProto: only its tensors matter here."""
        for number, part in payloads(data, span):
            if number == 7:
                self._read_node(data, part, depth=1)
            elif number == 11:
                self._read_attribute(data, part, depth=1)


@dataclass(slots=True)
class _Model:
    """ModelProto."""

    ir_version: int = 0
    producer: str = ""
    has_graph: bool = False
    graph: _Graph = field(default_factory=_Graph)
    opsets: dict[str, int] = field(default_factory=dict)
    properties: dict[str, str] = field(default_factory=dict)

    def read(self, data: Data) -> None:
        for number, wire, start, end in fields(data, (0, len(data))):
            if number == 1 and wire == VARINT:
                self.ir_version = start
            elif wire != BYTES:
                continue
            elif number == 2:
                self.producer = text(data, (start, end))
            elif number == 7:
                self.has_graph = True
                self.graph.read(data, (start, end))
            elif number == 8:
                self._read_opset(data, (start, end))
            elif number == 14:
                key, value = read_entry(data, (start, end))
                self.properties[key] = value
            elif number == 25:
                self.graph.read_function(data, (start, end))

    def _read_opset(self, data: Data, span: Span) -> None:
        domain, version = "", 0
        for number, wire, start, end in fields(data, span):
            if number == 1 and wire == BYTES:
                domain = text(data, (start, end))
            elif number == 2 and wire == VARINT:
                version = start
        self.opsets[domain or "ai.onnx"] = version

    def check(self) -> None:
        """Refuse what parses by chance: each real model has a version and a graph."""
        if not 1 <= self.ir_version <= _LARGEST_IR_VERSION:
            raise ValueError(f"its IR version is {self.ir_version or 'missing'}")
        if not self.has_graph:
            raise ValueError("it has no graph")

    def artifact(self) -> OnnxArtifact:
        graph = self.graph
        open_inputs = [value for value in graph.inputs if value.name.encode() not in graph.initializers]
        inputs = tuple(value.port() for value in open_inputs)
        outputs = tuple(value.port() for value in graph.outputs)
        return OnnxArtifact(
            inputs=inputs,
            outputs=outputs,
            format="onnx",
            external_locations=tuple(graph.external_sizes),
            external_sizes=graph.external_sizes,
            nested_locations=frozenset(graph.nested_locations),
            large_tensors=graph.large_tensors,
            compiled_for=only_source(graph.sources),
            has_listed_constants=self.ir_version < FIRST_WITHOUT and len(open_inputs) < len(graph.inputs),
            shareable_pairs=shareable(
                graph.caches, graph.uses, [port.name for port in inputs], [port.name for port in outputs]
            ),
            metadata=model_metadata(self.properties, self.producer, self.opsets),
        )
