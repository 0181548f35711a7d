"""A small builder of ONNX graphs whose large tensors are streamed into an external data file.

Here: nodes with unique names, constants, initializers, inputs and outputs, the finished model. Not here: what is built.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt
import onnx
from onnx import TensorProto, helper

Array = npt.NDArray[Any]
Dimensions = Sequence[int | str]

_ALIGNMENT = 4096  # a page, so that the engine can map each tensor
_INLINE_BYTES = 1024
_PROTOBUF_LIMIT = (1 << 31) - 1
_PRODUCER = "winml-lite"
MICROSOFT = "com.microsoft"


class ExternalData:
    """The file beside the model that holds its weights."""

    def __init__(self, path: Path) -> None:
        self.location = path.name
        self._stream: BinaryIO = path.open("wb")

    def write(self, chunks: Iterable[Array]) -> tuple[int, int]:
        """Append arrays as one tensor; return offset and length in bytes."""
        self._stream.write(bytes(-self._stream.tell() % _ALIGNMENT))
        offset = self._stream.tell()
        for chunk in chunks:
            self._stream.write(np.ascontiguousarray(chunk).data)
        return offset, self._stream.tell() - offset

    def close(self) -> None:
        self._stream.close()


class GraphBuilder:
    """Collects a graph; every method that makes a value returns its name."""

    def __init__(self, data: ExternalData | None) -> None:
        self._data = data
        self._nodes: list[onnx.NodeProto] = []
        self._initializers: dict[str, TensorProto] = {}
        self._places: dict[str, tuple[int, int]] = {}
        self._inputs: list[onnx.ValueInfoProto] = []
        self._outputs: list[onnx.ValueInfoProto] = []
        self._scope: list[str] = []
        self._counts: dict[str, int] = {}

    @contextmanager
    def scope(self, name: str) -> Iterator[None]:
        """Put `name` in front of the names of nodes made inside."""
        self._scope.append(name)
        try:
            yield
        finally:
            self._scope.pop()

    def node(self, kind: str, inputs: Sequence[str], *, output: str = "", domain: str = "", **attributes: Any) -> str:
        """Add a node with one output."""
        return self.nodes(kind, inputs, [output], domain=domain, **attributes)[0]

    def nodes(
        self, kind: str, inputs: Sequence[str], outputs: Sequence[str | None], *, domain: str = "", **attributes: Any
    ) -> list[str]:
        """Add a node and return the outputs that are wanted; "" is one that gets a name of its own, None is not
        wanted."""
        base = "/".join([*self._scope, kind])
        count = self._counts[base] = self._counts.get(base, -1) + 1
        name = f"{base}_{count}" if count else base
        named = ["" if output is None else output or f"{name}:{index}" for index, output in enumerate(outputs)]
        self._nodes.append(helper.make_node(kind, list(inputs), named, name=name, domain=domain, **attributes))
        return [output for output in named if output]

    def integers(self, *values: int) -> str:
        """A constant int64 vector."""
        return self.constant(np.array(values, np.int64))

    def number(self, value: float) -> str:
        """A constant float32 scalar."""
        return self.constant(np.array(value, np.float32))

    def constant(self, array: Array) -> str:
        """A small constant inside the model; equal ones are one."""
        shape = "x".join(map(str, array.shape))
        name = f"constant/{array.dtype}[{shape}]/{','.join(map(str, array.ravel().tolist()))}"
        if name not in self._initializers:
            self._initializers[name] = onnx.numpy_helper.from_array(array, name)
        return name

    def weight(self, name: str, shape: Sequence[int], dtype: npt.DTypeLike, chunks: Iterable[Array]) -> str:
        """An initializer, streamed from `chunks` whose elements follow each other in memory order."""
        kind, size = np.dtype(dtype), int(np.prod(shape, dtype=np.int64)) * np.dtype(dtype).itemsize
        if self._data is None or size < _INLINE_BYTES:
            data = b"".join(np.ascontiguousarray(chunk).tobytes() for chunk in chunks)
            tensor = TensorProto(name=name, data_type=helper.np_dtype_to_tensor_dtype(kind), dims=shape, raw_data=data)
            self._initializers[name] = tensor
            length = len(data)
        else:
            offset, length = self._data.write(chunks)
            self._initializers[name] = self._external(name, shape, kind, offset, length)
            self._places[name] = offset, length
        if length != size:
            raise AssertionError(f"{name}: {length} bytes were written for a tensor of {size}")
        return name

    def alias(self, name: str, original: str, shape: Sequence[int]) -> str:
        """The elements of another initializer in another shape; in an external file both share one region."""
        tensor = self._initializers[original]
        kind = helper.tensor_dtype_to_np_dtype(tensor.data_type)
        if original in self._places:
            self._initializers[name] = self._external(name, shape, kind, *self._places[original])
            return name
        return self.weight(name, shape, kind, [np.frombuffer(tensor.raw_data, np.uint8)])

    def input(self, name: str, dtype: npt.DTypeLike, dimensions: Dimensions) -> str:
        self._inputs.append(self._value_info(name, dtype, dimensions))
        return name

    def output(self, name: str, dtype: npt.DTypeLike, dimensions: Dimensions) -> str:
        """Declare a graph output; the node that makes it names its output so."""
        self._outputs.append(self._value_info(name, dtype, dimensions))
        return name

    def save(self, path: Path, opset: int, name: str = "decoder") -> None:
        """Write the model, whose graph gets a name, and close the data file."""
        domains = {node.domain for node in self._nodes} - {""}
        graph = helper.make_graph(self._nodes, name, self._inputs, self._outputs, list(self._initializers.values()))
        model = helper.make_model(
            graph,
            opset_imports=[helper.make_opsetid("", opset), *(helper.make_opsetid(name, 1) for name in sorted(domains))],
            ir_version=11 if opset >= 23 else 10,
            producer_name=_PRODUCER,
        )
        if self._data is not None:
            self._data.close()
        if model.ByteSize() > _PROTOBUF_LIMIT:
            raise ValueError(f"{path.name} would be larger than 2 GB; use external_data=True")
        onnx.save_model(model, path)

    def _external(self, name: str, shape: Sequence[int], kind: np.dtype[Any], offset: int, length: int) -> TensorProto:
        assert self._data is not None
        tensor = TensorProto(name=name, data_type=helper.np_dtype_to_tensor_dtype(kind), dims=shape)
        tensor.data_location = TensorProto.EXTERNAL
        for key, value in (("location", self._data.location), ("offset", offset), ("length", length)):
            tensor.external_data.add(key=key, value=str(value))
        return tensor

    @staticmethod
    def _value_info(name: str, dtype: npt.DTypeLike, dimensions: Dimensions) -> onnx.ValueInfoProto:
        return helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(np.dtype(dtype)), dimensions)
