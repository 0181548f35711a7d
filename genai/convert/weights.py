"""How matrices are stored in the ONNX model, and the operators that multiply by them: float32, float16, 8-bit blocks.

Not here: norm weights, which are always float32 (`operators.py`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
from onnx import TensorProto

from .blocks import BLOCK, MIDDLE, read_blocks
from .graph import MICROSOFT, GraphBuilder
from .source import ModelSource, Rows, refuse

EMBEDDING, OUTPUT = "token_embd.weight", "output.weight"
_ACCURACY_LEVEL = 4  # multiply in 8 bits: on processors without wide float units, thirty times as fast as level 0


class WeightFormat(ABC):
    """Stores matrices of a source in a graph and multiplies by them."""

    def __init__(self, graph: GraphBuilder, source: ModelSource) -> None:
        self._graph = graph
        self._source = source

    @abstractmethod
    def linear(self, value: str, name: str, order: Rows | None = None) -> str:
        """Multiply [..., columns] by the transposed matrix `name`, its rows taken in `order`."""

    @abstractmethod
    def embedding(self, ids: str) -> str:
        """Look token ids up in the embedding: int64 [...] to float32 [..., width]."""

    @abstractmethod
    def logits(self, value: str, output: str) -> str:
        """Multiply by the output matrix, or by the embedding in a model without one. Call after `embedding`."""


class FloatWeights(WeightFormat):
    """Matrices as float32, or as float16 that the engine widens once when it loads the model."""

    def __init__(self, graph: GraphBuilder, source: ModelSource, dtype: type[np.float32] | type[np.float16]) -> None:
        super().__init__(graph, source)
        self._dtype = dtype

    def linear(self, value: str, name: str, order: Rows | None = None) -> str:
        rows, columns = self._source.shapes[name]
        floats = self._source.floats(name, order)
        matrix = self._graph.weight(name, (columns, rows), self._dtype, [floats.T.astype(self._dtype, copy=False)])
        self._source.report(name)
        return self._graph.node("MatMul", [value, self._widened(matrix)])

    def embedding(self, ids: str) -> str:
        return self._widened(self._graph.node("Gather", [self._table(EMBEDDING), ids], axis=0))

    def logits(self, value: str, output: str) -> str:
        table = self._table(OUTPUT) if OUTPUT in self._source else EMBEDDING
        matrix = self._widened(self._graph.node("Transpose", [table], perm=[1, 0]))
        return self._graph.node("MatMul", [value, matrix], output=output)

    def _table(self, name: str) -> str:
        """Store a large matrix piece by piece, in the row order of the file."""
        chunks = (
            self._source.floats(name, rows).astype(self._dtype, copy=False) for rows in self._source.row_chunks(name)
        )
        self._graph.weight(name, self._source.shapes[name], self._dtype, chunks)
        self._source.report(name)
        return name

    def _widened(self, value: str) -> str:
        return value if self._dtype is np.float32 else self._graph.node("Cast", [value], to=TensorProto.FLOAT)


class EightBitWeights(WeightFormat):
    """Matrices as blocks of 32 8-bit values, multiplied by the operators of ONNX Runtime for them."""

    def linear(self, value: str, name: str, order: Rows | None = None) -> str:
        return self._multiply(value, name, self._store(name, order))

    def embedding(self, ids: str) -> str:
        count, width = self._source.shapes[EMBEDDING]
        blocks = self._store(EMBEDDING)
        shapes = [(count, width), (count, width // BLOCK), (count, width // BLOCK)]
        flat = [
            self._graph.alias(name.replace(EMBEDDING, "token_embd.lookup"), name, shape)
            for name, shape in zip(blocks, shapes, strict=False)
        ]
        return self._graph.node(
            "GatherBlockQuantized",
            [flat[0], ids, *flat[1:]],
            domain=MICROSOFT,
            bits=8,
            block_size=BLOCK,
            gather_axis=0,
            quantize_axis=1,
        )

    def logits(self, value: str, output: str) -> str:
        if OUTPUT in self._source:
            return self._multiply(value, OUTPUT, self._store(OUTPUT), output)
        return self._multiply(value, EMBEDDING, self._stored[EMBEDDING], output)

    def __init__(self, graph: GraphBuilder, source: ModelSource) -> None:
        super().__init__(graph, source)
        self._stored: dict[str, list[str]] = {}

    def _multiply(self, value: str, name: str, blocks: list[str], output: str = "") -> str:
        rows, columns = self._source.shapes[name]
        return self._graph.node(
            "MatMulNBits",
            [value, *blocks],
            output=output,
            domain=MICROSOFT,
            K=columns,
            N=rows,
            bits=8,
            block_size=BLOCK,
            accuracy_level=_ACCURACY_LEVEL,
        )

    def _store(self, name: str, order: Rows | None = None) -> list[str]:
        """Store a matrix; return the names of values, scales and, unless all are 128, zero points."""
        rows, columns = self._source.shapes[name]
        if columns % BLOCK:
            raise refuse(
                self._source.path, f"{name} has {columns} columns, not a multiple of {BLOCK}; use weights='f16'"
            )
        scales: list[npt.NDArray[np.float32]] = []
        zeros: list[npt.NDArray[np.uint8] | None] = []

        def values() -> Iterator[npt.NDArray[np.uint8]]:
            for part in self._source.row_chunks(name):
                blocks = read_blocks(self._source, name, part if order is None else order[part])
                scales.append(blocks.scales)
                zeros.append(blocks.zero_points)
                yield blocks.values

        count = columns // BLOCK
        names = [self._graph.weight(f"{name}.q8", (rows, count, BLOCK), np.uint8, values())]
        names.append(self._graph.weight(f"{name}.scale", (rows * count,), np.float32, scales))
        given = [zero for zero in zeros if zero is not None]
        if any((zero != MIDDLE).any() for zero in given):
            names.append(self._graph.weight(f"{name}.zero", (rows * count,), np.uint8, given))
        self._source.report(name)
        self._stored[name] = names
        return names
