"""Attention in operators of the ONNX standard: `plain`, primitives of opset 18, and `std`, whole operators of opset
23."""

from __future__ import annotations

import numpy as np
from onnx import TensorProto

from .operators import OperatorSet

_MASKED = -3.0e38  # finite, so that a row without any visible token gives no NaN


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
