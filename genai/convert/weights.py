"""How matrices are stored in the ONNX model, and the operators that multiply by them: float32, float16, 8-bit blocks.

Not here: norm weights, which are always float32 (`operators.py`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from onnx import TensorProto

from .blocks import BLOCK, MIDDLE, Blocks, read_blocks
from .graph import MICROSOFT, GraphBuilder
from .source import ModelSource, Rows, refuse

EMBEDDING, OUTPUT = "token_embd.weight", "output.weight"
_ACCURACY_LEVEL = 4  # multiply in 8 bits: on processors without wide float units, thirty times as fast as level 0


@dataclass(frozen=True, slots=True)
class Matrix:
    """A matrix of the source, its rows taken in `order` (None: as they are)."""

    name: str
    order: Rows | None = None


class WeightFormat(ABC):
    """Stores matrices of a source in a graph and multiplies by them."""

    def __init__(self, graph: GraphBuilder, source: ModelSource) -> None:
        self._graph = graph
        self._source = source

    @abstractmethod
    def linear(self, value: str, *matrices: Matrix) -> str:
        """Multiply [..., columns] by transposed matrices; several are one operation, their results side by side."""

    @abstractmethod
    def embedding(self, ids: str) -> str:
        """Look token ids up in the embedding: int64 [...] to float32 [..., width]."""

    @abstractmethod
    def logits(self, value: str, output: str) -> str:
        """Multiply by the output matrix, or by the embedding in a model without one. Call after `embedding`."""

    def _extent(self, matrices: Sequence[Matrix]) -> tuple[int, int]:
        """Rows of all matrices together, and columns."""
        shapes = [self._source.shapes[matrix.name] for matrix in matrices]
        return sum(rows for rows, _ in shapes), shapes[0][1]


class FloatWeights(WeightFormat):
    """Matrices as float32, or as float16 that the engine widens once when it loads the model."""

    def __init__(self, graph: GraphBuilder, source: ModelSource, dtype: type[np.float32] | type[np.float16]) -> None:
        super().__init__(graph, source)
        self._dtype = dtype

    def linear(self, value: str, *matrices: Matrix) -> str:
        rows, columns = self._extent(matrices)
        floats = [self._stored(matrix.name, matrix.order).T for matrix in matrices]
        name = "+".join(matrix.name for matrix in matrices)
        self._graph.weight(name, (columns, rows), self._dtype, [np.concatenate(floats, axis=1)])
        for matrix in matrices:
            self._source.report(matrix.name)
        return self._graph.node("MatMul", [value, self._widened(name)])

    def embedding(self, ids: str) -> str:
        return self._widened(self._graph.node("Gather", [self._table(EMBEDDING), ids], axis=0))

    def logits(self, value: str, output: str) -> str:
        table = self._table(OUTPUT) if OUTPUT in self._source else EMBEDDING
        matrix = self._widened(self._graph.node("Transpose", [table], perm=[1, 0]))
        return self._graph.node("MatMul", [value, matrix], output=output)

    def _table(self, name: str) -> str:
        """Store a large matrix piece by piece, in the row order of the file."""
        chunks = (self._stored(name, rows) for rows in self._source.row_chunks(name))
        self._graph.weight(name, self._source.shapes[name], self._dtype, chunks)
        self._source.report(name)
        return name

    def _stored(self, name: str, rows: slice | Rows | None) -> npt.NDArray[np.floating]:
        try:
            with np.errstate(over="raise"):
                return self._source.floats(name, rows).astype(self._dtype, copy=False)
        except FloatingPointError:
            raise refuse(self._source.path, f"{name} has values beyond float16; use weights='f32'") from None

    def _widened(self, value: str) -> str:
        return value if self._dtype is np.float32 else self._graph.node("Cast", [value], to=TensorProto.FLOAT)


def multiplied(graph: GraphBuilder, value: str, extent: Sequence[int], blocks: list[str], output: str = "") -> str:
    """Multiply by the transpose of a matrix of `extent` (rows, columns) that is stored in blocks of 8-bit numbers."""
    return graph.node(
        "MatMulNBits",
        [value, *blocks],
        output=output,
        domain=MICROSOFT,
        N=extent[0],
        K=extent[1],
        bits=8,
        block_size=BLOCK,
        accuracy_level=_ACCURACY_LEVEL,
    )


class EightBitWeights(WeightFormat):
    """Matrices as blocks of 32 8-bit values, multiplied by the operators of ONNX Runtime for them."""

    def linear(self, value: str, *matrices: Matrix) -> str:
        return multiplied(self._graph, value, self._extent(matrices), self._store(matrices))

    def embedding(self, ids: str) -> str:
        self._rows = self._store([Matrix(EMBEDDING)], as_rows=True)
        return self._graph.node(
            "GatherBlockQuantized",
            [self._rows[0], ids, *self._rows[1:]],
            domain=MICROSOFT,
            bits=8,
            block_size=BLOCK,
            gather_axis=0,
            quantize_axis=1,
        )

    def logits(self, value: str, output: str) -> str:
        if OUTPUT in self._source:
            matrix = Matrix(OUTPUT)
            return multiplied(self._graph, value, self._extent([matrix]), self._store([matrix]), output)
        rows, columns = self._extent([Matrix(EMBEDDING)])
        shapes = self._shapes(rows, columns, as_rows=False)
        blocks = [
            self._graph.alias(name.replace(EMBEDDING, OUTPUT), name, shape)
            for name, shape in zip(self._rows, shapes, strict=False)
        ]
        return multiplied(self._graph, value, (rows, columns), blocks, output)

    @staticmethod
    def _shapes(rows: int, columns: int, as_rows: bool) -> tuple[tuple[int, ...], ...]:
        """Shapes of values, scales and zero points: as a look-up wants them, or as a product does."""
        count = columns // BLOCK
        if as_rows:
            return (rows, columns), (rows, count), (rows, count)
        return (rows, count, BLOCK), (rows * count,), (rows * count,)

    def _store(self, matrices: Sequence[Matrix], *, as_rows: bool = False) -> list[str]:
        """Store matrices as one; return the names of values, scales and, unless all are 128, zero points."""
        rows, columns = self._extent(matrices)
        name = "+".join(matrix.name for matrix in matrices)
        if columns % BLOCK:
            raise refuse(
                self._source.path, f"{name} has {columns} columns, not a multiple of {BLOCK}; use weights='f16'"
            )
        shapes = self._shapes(rows, columns, as_rows)
        scales: list[npt.NDArray[np.float32]] = []
        zeros: list[npt.NDArray[np.uint8]] = []

        def values() -> Iterator[npt.NDArray[np.uint8]]:
            for blocks in self._blocks(matrices):
                scales.append(blocks.scales)
                zeros.append(blocks.zero_points)
                yield blocks.values

        names = [self._graph.weight(f"{name}.q8", shapes[0], np.uint8, values())]
        names.append(self._graph.weight(f"{name}.scale", shapes[1], np.float32, scales))
        if any((zero != MIDDLE).any() for zero in zeros):
            names.append(self._graph.weight(f"{name}.zero", shapes[2], np.uint8, zeros))
        return names

    def _blocks(self, matrices: Sequence[Matrix]) -> Iterator[Blocks]:
        for matrix in matrices:
            for part in self._source.row_chunks(matrix.name):
                yield read_blocks(self._source, matrix.name, part if matrix.order is None else matrix.order[part])
            self._source.report(matrix.name)
