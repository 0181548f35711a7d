"""How the matrices of a Whisper model are stored in its graphs, and the operators that multiply by them.

Here: float32, float16, and blocks of 32 8-bit values. Vectors, norms and tables of positions are float32 in all of
them. Not here: what the matrices are for (`whisper_graphs.py`), how numbers are rounded to blocks (`blocks.py`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator

import numpy as np
import numpy.typing as npt
from onnx import TensorProto

from .blocks import BLOCK, round_to_blocks
from .ctranslate2 import CTranslate2File
from .graph import MICROSOFT, GraphBuilder
from .weights import multiplied
from .whisper_architecture import refuse

Floats = npt.NDArray[np.float32]
Shape = tuple[int, ...]

ALL = slice(None)
_CHUNK_ROWS = 4096  # of the embedding, that are widened at a time


class WhisperMatrices(ABC):
    """Stores matrices of a source in a graph and multiplies by them. `name` is that of a variable [outputs, inputs]."""

    def __init__(self, builder: GraphBuilder, source: CTranslate2File) -> None:
        self._builder = builder
        self._source = source

    @abstractmethod
    def kernel(self, name: str) -> str:
        """The weight of a convolution, as float32."""

    @abstractmethod
    def product(self, value: str, name: str, rows: slice = ALL) -> str:
        """Multiply [..., inputs] by a transposed matrix, or by some of its rows."""

    @abstractmethod
    def lookup(self, name: str, count: int, ids: str) -> str:
        """Look token ids up in the first `count` rows: int64 [...] to float32 [..., inputs]."""

    @abstractmethod
    def logits(self, value: str, name: str, count: int, output: str) -> str:
        """Multiply [batch, 1, inputs] by the first `count` rows. Call after `lookup`, whose rows may be the same."""

    def _chunks(self, name: str, count: int) -> Iterator[Floats]:
        """The first rows of a large matrix, some at a time."""
        for start in range(0, count, _CHUNK_ROWS):
            yield self._source.floats(name, slice(start, min(start + _CHUNK_ROWS, count)))


class FloatMatrices(WhisperMatrices):
    """Matrices as float32, or as float16 that the engine widens once when it loads the model."""

    def __init__(
        self, builder: GraphBuilder, source: CTranslate2File, dtype: type[np.float32] | type[np.float16]
    ) -> None:
        super().__init__(builder, source)
        self._dtype = dtype
        self._tables: set[str] = set()

    def kernel(self, name: str) -> str:
        values = self._source.floats(name)
        self._builder.weight(name, values.shape, self._dtype, [self._narrowed(name, values)])
        self._source.report(name)
        return self._widened(name)

    def product(self, value: str, name: str, rows: slice = ALL) -> str:
        values = self._narrowed(name, self._source.floats(name, rows).T)
        stored = self._builder.weight(ranged(name, rows), values.shape, self._dtype, [values])
        self._source.report(name)
        return self._builder.node("MatMul", [value, self._widened(stored)])

    def lookup(self, name: str, count: int, ids: str) -> str:
        return self._widened(self._builder.node("Gather", [self._table(name, count), ids], axis=0))

    def logits(self, value: str, name: str, count: int, output: str) -> str:
        table = self._widened(self._table(name, count))
        width = self._source.variables[name].shape[1]
        flat = self._builder.node("Reshape", [value, self._builder.integers(-1, width)])
        rows = self._builder.node("Gemm", [flat, table], transB=1)
        return self._builder.node("Unsqueeze", [rows, self._builder.integers(1)], output=output)

    def _table(self, name: str, count: int) -> str:
        """Rows as they are stored, one initializer for look-up and logits."""
        if name not in self._tables:
            self._tables.add(name)
            pieces = (self._narrowed(name, chunk) for chunk in self._chunks(name, count))
            self._builder.weight(name, (count, self._source.variables[name].shape[1]), self._dtype, pieces)
            self._source.report(name)
        return name

    def _widened(self, value: str) -> str:
        return value if self._dtype is np.float32 else self._builder.node("Cast", [value], to=TensorProto.FLOAT)

    def _narrowed(self, name: str, values: Floats) -> npt.NDArray[np.floating]:
        try:
            with np.errstate(over="raise"):
                return values.astype(self._dtype, copy=False)
        except FloatingPointError:
            raise refuse(self._source.path, f"{name} has values beyond float16; use weights='f32'") from None


class EightBitMatrices(WhisperMatrices):
    """Matrices as blocks of 32 8-bit values with a scale, symmetric about zero; convolutions as float32."""

    def __init__(self, builder: GraphBuilder, source: CTranslate2File) -> None:
        super().__init__(builder, source)
        self._tables: dict[str, list[str]] = {}

    def kernel(self, name: str) -> str:
        values = self._source.floats(name)
        self._builder.weight(name, values.shape, np.float32, [values])
        self._source.report(name)
        return name

    def product(self, value: str, name: str, rows: slice = ALL) -> str:
        values = self._source.floats(name, rows)
        blocks = self._store(ranged(name, rows), _factor_shapes(*values.shape), [values])
        self._source.report(name)
        return multiplied(self._builder, value, values.shape, blocks)

    def lookup(self, name: str, count: int, ids: str) -> str:
        width = self._source.variables[name].shape[1]
        blocks = self._store(name, ((count, width), (count, width // BLOCK)), self._chunks(name, count))
        self._source.report(name)
        self._tables[name] = blocks
        return self._builder.node(
            "GatherBlockQuantized",
            [blocks[0], ids, blocks[1]],
            domain=MICROSOFT,
            bits=8,
            block_size=BLOCK,
            gather_axis=0,
            quantize_axis=1,
        )

    def logits(self, value: str, name: str, count: int, output: str) -> str:
        extent = (count, self._source.variables[name].shape[1])
        shapes = _factor_shapes(*extent)
        if name in self._tables:
            pairs = zip(self._tables[name], shapes, strict=True)
            blocks = [self._builder.alias(f"{stored}.factor", stored, shape) for stored, shape in pairs]
        else:
            blocks = self._store(name, shapes, self._chunks(name, count))
            self._source.report(name)
        return multiplied(self._builder, value, extent, blocks, output)

    def _store(self, name: str, shapes: tuple[Shape, Shape], chunks: Iterable[Floats]) -> list[str]:
        """Store rows in blocks; return the names of values and scales, which have these shapes."""
        scales: list[Floats] = []

        def values() -> Iterator[npt.NDArray[np.uint8]]:
            for chunk in chunks:
                columns = chunk.shape[1]
                if columns % BLOCK:
                    text = f"{name} has {columns} columns, not a multiple of {BLOCK}; use weights='f16'"
                    raise refuse(self._source.path, text)
                blocks = round_to_blocks(chunk.reshape(-1, columns // BLOCK, BLOCK))
                scales.append(blocks.scales)
                yield blocks.values

        stored = self._builder.weight(f"{name}.q8", shapes[0], np.uint8, values())
        return [stored, self._builder.weight(f"{name}.scale", shapes[1], np.float32, scales)]


def _factor_shapes(rows: int, columns: int) -> tuple[Shape, Shape]:
    """Shapes of values and scales as a product wants them."""
    count = columns // BLOCK
    return (rows, count, BLOCK), (rows * count,)


def float32_matrices(builder: GraphBuilder, source: CTranslate2File) -> FloatMatrices:
    return FloatMatrices(builder, source, np.float32)


def float16_matrices(builder: GraphBuilder, source: CTranslate2File) -> FloatMatrices:
    return FloatMatrices(builder, source, np.float16)


def ranged(name: str, rows: slice) -> str:
    """The name of some rows of a variable."""
    return name if rows == ALL else f"{name}[{rows.start}:{rows.stop}]"
