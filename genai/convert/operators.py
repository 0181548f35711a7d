"""Three ways to write the parts of a decoder block that are not plain matrix products.

`plain` uses primitives of ONNX opset 18 and runs anywhere; `std` uses the standard Attention, RotaryEmbedding and
RMSNormalization of opset 23; `gqa` uses the fused operators of ONNX Runtime, which also let past and present share a
buffer. Not here: matrices (`weights.py`), the order of the parts (`decoder.py`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod

import numpy as np
from onnx import TensorProto

from .architecture import DecoderArchitecture
from .graph import MICROSOFT, GraphBuilder
from .source import Floats, ModelSource

_MASKED = -3.0e38  # finite, so that a row without any visible token gives no NaN


class OperatorSet(ABC):
    """Norms, activation and attention in one dialect. Declares the graph inputs that its attention needs."""

    opset: int
    takes_positions: bool
    """Whether the model has the input `position_ids`."""
    shares_buffers: bool
    """Whether past and present may be one buffer."""

    def __init__(self, graph: GraphBuilder, source: ModelSource, architecture: DecoderArchitecture) -> None:
        self._graph = graph
        self._source = source
        self._architecture = architecture
        self._rope_factors: Floats | None = None
        if architecture.has_rope_factors:
            self._rope_factors = source.floats("rope_freqs.weight")
            source.report("rope_freqs.weight")
        self._tables: dict[float, tuple[str, str]] = {}
        graph.input("attention_mask", np.int64, ["batch_size", "total_sequence_length"])
        if self.takes_positions:
            graph.input("position_ids", np.int64, ["batch_size", "sequence_length"])
        self._prepare()

    @abstractmethod
    def _prepare(self) -> None:
        """Add what all layers share: masks or lengths."""

    @abstractmethod
    def _normalize(self, value: str, weight: str) -> str:
        """Divide by the root of the mean square over the last axis, and multiply by `weight`."""

    @abstractmethod
    def _attend(self, layer: int, query: str, key: str, value: str) -> str:
        """Rotate, extend the cache, attend: [batch, sequence, heads * head_size] in and out."""

    @abstractmethod
    def gelu(self, value: str) -> str:
        """The tanh approximation of GELU."""

    def norm(self, value: str, name: str) -> str:
        """RMS norm with the weight `name`."""
        return self._normalize(value, self._vector(name))

    def add_norm(self, value: str, update: str, name: str) -> tuple[str, str]:
        """Return `value + update` and its RMS norm."""
        total = self._graph.node("Add", [value, update])
        return total, self.norm(total, name)

    def attention(self, layer: int, query: str, key: str, value: str) -> str:
        """Attention of one layer over its cache; queries and keys are normalised per head where the model does so."""
        if self._architecture.is_gemma3:
            query = self._norm_heads(query, f"blk.{layer}.attn_q_norm.weight", self._architecture.head_count)
            key = self._norm_heads(key, f"blk.{layer}.attn_k_norm.weight", self._architecture.kv_head_count)
        return self._attend(layer, query, key, value)

    def _norm_heads(self, value: str, name: str, heads: int) -> str:
        normed = self.norm(self._heads(value, heads), name)
        return self._graph.node("Reshape", [normed, self._graph.integers(0, 0, heads * self._architecture.head_size)])

    def _heads(self, value: str, heads: int) -> str:
        shape = self._graph.integers(0, 0, heads, self._architecture.head_size)
        return self._graph.node("Reshape", [value, shape])

    def _vector(self, name: str) -> str:
        self._graph.weight(name, self._source.shapes[name], np.float32, [self._source.floats(name)])
        self._source.report(name)
        return name

    def _rotary_tables(self, layer: int) -> tuple[str, str]:
        """Return cosine and sine of every position and frequency, float32 [context length, head_size / 2]."""
        base = self._architecture.rope_base_of(layer)
        if base not in self._tables:
            size, context = self._architecture.head_size, self._architecture.context_length
            frequencies = base ** -(np.arange(0, size, 2, dtype=np.float64) / size)
            if self._rope_factors is not None:
                frequencies /= self._rope_factors
            angles = np.outer(np.arange(context, dtype=np.float64), frequencies)
            self._tables[base] = (
                self._graph.weight(f"rope/{base:g}/cos", angles.shape, np.float32, [np.cos(angles).astype(np.float32)]),
                self._graph.weight(f"rope/{base:g}/sin", angles.shape, np.float32, [np.sin(angles).astype(np.float32)]),
            )
        return self._tables[base]

    def _past(self, layer: int) -> tuple[str, str]:
        return f"past_key_values.{layer}.key", f"past_key_values.{layer}.value"

    def _present(self, layer: int) -> tuple[str, str]:
        return f"present.{layer}.key", f"present.{layer}.value"


class _MaskedOperators(OperatorSet):
    """What `plain` and `std` share: positions as an input, and a mask added to the scores."""

    takes_positions = True
    shares_buffers = False

    def _prepare(self) -> None:
        graph, window = self._graph, self._architecture.window
        with graph.scope("mask"):
            zero, one = graph.constant(np.array(0, np.int64)), graph.constant(np.array(1, np.int64))
            length, total = self._extent("input_ids"), self._extent("attention_mask")
            queries = graph.node("Add", [graph.node("Range", [zero, length, one]), graph.node("Sub", [total, length])])
            queries = graph.node("Unsqueeze", [queries, graph.integers(1)])
            keys = graph.node("Unsqueeze", [graph.node("Range", [zero, total, one]), graph.integers(0)])
            causal = graph.node("LessOrEqual", [keys, queries])
            real = graph.node("Cast", ["attention_mask"], to=TensorProto.BOOL)
            real = graph.node("Unsqueeze", [real, graph.integers(1, 2)])
            self._mask = self._scores_mask(causal, real)
            self._local_mask = self._mask
            if window is not None:
                distance = graph.node("Sub", [queries, keys])
                near = graph.node("Less", [distance, graph.constant(np.array(window, np.int64))])
                self._local_mask = self._scores_mask(graph.node("And", [causal, near]), real)

    def _extent(self, value: str) -> str:
        """The extent of axis 1, a scalar."""
        shape = self._graph.node("Shape", [value], start=1, end=2)
        return self._graph.node("Squeeze", [shape, self._graph.integers(0)])

    def _scores_mask(self, visible: str, real: str) -> str:
        """0 where a query sees a token that is not padding, else a large negative number: [batch, 1, queries, keys]."""
        both = self._graph.node("And", [visible, real])
        return self._graph.node("Where", [both, self._graph.number(0.0), self._graph.number(_MASKED)])

    def _mask_of(self, layer: int) -> str:
        return self._local_mask if self._architecture.is_local(layer) else self._mask

    def _joined(self, value: str) -> str:
        """[batch, heads, sequence, head_size] to [batch, sequence, heads * head_size]."""
        value = self._graph.node("Transpose", [value], perm=[0, 2, 1, 3])
        return self._graph.node("Reshape", [value, self._graph.integers(0, 0, self._architecture.query_width)])

    def _split(self, value: str, heads: int) -> str:
        return self._graph.node("Transpose", [self._heads(value, heads)], perm=[0, 2, 1, 3])


class PlainOperators(_MaskedOperators):
    """Primitives of opset 18."""

    opset = 18

    def _normalize(self, value: str, weight: str) -> str:
        graph = self._graph
        square = graph.node("Mul", [value, value])
        mean = graph.node("ReduceMean", [square, graph.integers(-1)], keepdims=1)
        root = graph.node("Sqrt", [graph.node("Add", [mean, graph.number(self._architecture.norm_epsilon)])])
        return graph.node("Mul", [graph.node("Div", [value, root]), weight])

    def gelu(self, value: str) -> str:
        graph = self._graph  # 0.5 x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3)))
        cube = graph.node("Mul", [graph.node("Mul", [value, value]), value])
        inner = graph.node("Add", [value, graph.node("Mul", [cube, graph.number(0.044715)])])
        tanh = graph.node("Tanh", [graph.node("Mul", [inner, graph.number((2 / np.pi) ** 0.5)])])
        half = graph.node("Mul", [value, graph.number(0.5)])
        return graph.node("Mul", [half, graph.node("Add", [tanh, graph.number(1.0)])])

    def _attend(self, layer: int, query: str, key: str, value: str) -> str:
        graph, record = self._graph, self._architecture
        query = self._rotated(layer, self._split(query, record.head_count))
        key = self._rotated(layer, self._split(key, record.kv_head_count))
        (past_key, past_value), (new_key, new_value) = self._past(layer), self._present(layer)
        graph.node("Concat", [past_key, key], output=new_key, axis=2)
        graph.node("Concat", [past_value, self._split(value, record.kv_head_count)], output=new_value, axis=2)
        # A fifth axis lets each key-value head serve its group of query heads by broadcasting.
        group = record.head_count // record.kv_head_count
        query = graph.node("Mul", [query, graph.number(record.attention_scale)])
        query = graph.node("Reshape", [query, graph.integers(0, record.kv_head_count, group, -1, record.head_size)])
        keys = graph.node("Unsqueeze", [new_key, graph.integers(2)])
        values = graph.node("Unsqueeze", [new_value, graph.integers(2)])
        mask = graph.node("Unsqueeze", [self._mask_of(layer), graph.integers(2)])
        scores = graph.node("MatMul", [query, graph.node("Transpose", [keys], perm=[0, 1, 2, 4, 3])])
        shares = graph.node("Softmax", [graph.node("Add", [scores, mask])], axis=-1)
        mixed = graph.node("MatMul", [shares, values])
        mixed = graph.node("Reshape", [mixed, graph.integers(0, record.head_count, -1, record.head_size)])
        return self._joined(mixed)

    def _rotated(self, layer: int, value: str) -> str:
        """Rotate the pairs (first half, second half) of every head by the angle of its position."""
        graph = self._graph
        cosine, sine = (self._at_positions(table) for table in self._rotary_tables(layer))
        first, second = graph.nodes("Split", [value], ["", ""], axis=-1, num_outputs=2)
        real = graph.node("Sub", [graph.node("Mul", [first, cosine]), graph.node("Mul", [second, sine])])
        imaginary = graph.node("Add", [graph.node("Mul", [second, cosine]), graph.node("Mul", [first, sine])])
        return graph.node("Concat", [real, imaginary], axis=-1)

    def _prepare(self) -> None:
        super()._prepare()
        self._position_rows: dict[str, str] = {}

    def _at_positions(self, table: str) -> str:
        """The rows of a rotary table at `position_ids`: [batch, 1, sequence, head_size / 2], made once per table."""
        if table not in self._position_rows:
            rows = self._graph.node("Gather", [table, "position_ids"], axis=0)
            self._position_rows[table] = self._graph.node("Unsqueeze", [rows, self._graph.integers(1)])
        return self._position_rows[table]


class StandardOperators(_MaskedOperators):
    """Attention, RotaryEmbedding, RMSNormalization and Gelu of opset 23."""

    opset = 23

    def _normalize(self, value: str, weight: str) -> str:
        epsilon = self._architecture.norm_epsilon
        return self._graph.node("RMSNormalization", [value, weight], axis=-1, epsilon=epsilon)

    def gelu(self, value: str) -> str:
        return self._graph.node("Gelu", [value], approximate="tanh")

    def _attend(self, layer: int, query: str, key: str, value: str) -> str:
        record = self._architecture
        query = self._rotated(layer, self._split(query, record.head_count))
        key = self._rotated(layer, self._split(key, record.kv_head_count))
        value = self._split(value, record.kv_head_count)
        mixed = self._graph.nodes(
            "Attention",
            [query, key, value, self._mask_of(layer), *self._past(layer)],
            ["", *self._present(layer)],
            scale=record.attention_scale,
        )[0]
        return self._joined(mixed)

    def _rotated(self, layer: int, value: str) -> str:
        return self._graph.node("RotaryEmbedding", [value, *self._rotary_tables(layer), "position_ids"])


class FusedOperators(OperatorSet):
    """GroupQueryAttention and the normalisations of ONNX Runtime. Batches must be padded on the right."""

    opset = 21
    takes_positions = False
    shares_buffers = True

    def _prepare(self) -> None:
        graph = self._graph
        with graph.scope("lengths"):
            count = graph.node("ReduceSum", ["attention_mask", graph.integers(1)], keepdims=0)
            last = graph.node("Sub", [count, graph.integers(1)])
            self._last_positions = graph.node("Cast", [last], to=TensorProto.INT32)
            total = graph.node("Shape", ["attention_mask"], start=1, end=2)
            total = graph.node("Squeeze", [total, graph.integers(0)])
            self._total_length = graph.node("Cast", [total], to=TensorProto.INT32)

    def _normalize(self, value: str, weight: str) -> str:
        epsilon = self._architecture.norm_epsilon
        return self._graph.node("SimplifiedLayerNormalization", [value, weight], axis=-1, epsilon=epsilon, stash_type=1)

    def add_norm(self, value: str, update: str, name: str) -> tuple[str, str]:
        normed, total = self._graph.nodes(
            "SkipSimplifiedLayerNormalization",
            [value, update, self._vector(name)],
            ["", None, None, ""],
            domain=MICROSOFT,
            epsilon=self._architecture.norm_epsilon,
        )
        return total, normed

    def gelu(self, value: str) -> str:
        return self._graph.node("Gelu", [value], approximate="tanh")

    def _attend(self, layer: int, query: str, key: str, value: str) -> str:
        record = self._architecture
        window = record.window if record.is_local(layer) and record.window is not None else -1
        tables = self._rotary_tables(layer)
        return self._graph.nodes(
            "GroupQueryAttention",
            [query, key, value, *self._past(layer), self._last_positions, self._total_length, *tables],
            ["", *self._present(layer)],
            domain=MICROSOFT,
            num_heads=record.head_count,
            kv_num_heads=record.kv_head_count,
            scale=record.attention_scale,
            do_rotary=1,
            rotary_interleaved=0,
            local_window_size=window,
        )[0]


OPERATOR_SETS: dict[str, type[OperatorSet]] = {
    "plain": PlainOperators,
    "std": StandardOperators,
    "gqa": FusedOperators,
}
