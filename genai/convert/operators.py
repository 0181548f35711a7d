"""The parts of a decoder that are not matrix products: norms, activation, attention with a cache.

Here: the abstract operator set, and what its dialects share: rotary tables, norm weights, names of the cache. Not here:
the dialects (`portable_operators.py`, `fused_operators.py`), matrices (`weights.py`), the order of parts
(`decoder.py`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod

import numpy as np

from .architecture import DecoderArchitecture
from .graph import GraphBuilder
from .source import Floats, ModelSource

_TABLE_ROWS = 8192  # of a rotary table at a time


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

    def attention(self, layer: int, joined: str) -> str:
        """Attention of one layer over its cache: queries, keys and values side by side in, mixed values out.

        Queries and keys are normalised per head where the model does so.
        """
        record = self._architecture
        widths = self._graph.integers(record.query_width, record.kv_width, record.kv_width)
        query, key, value = self._graph.nodes("Split", [joined, widths], ["", "", ""], axis=-1)
        if record.is_gemma3:
            query = self._norm_heads(query, f"blk.{layer}.attn_q_norm.weight", record.head_count)
            key = self._norm_heads(key, f"blk.{layer}.attn_k_norm.weight", record.kv_head_count)
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
        base, divisor = self._architecture.rope_of(layer)
        if base not in self._tables:
            size, context = self._architecture.head_size, self._architecture.context_length
            frequencies = base ** -(np.arange(0, size, 2, dtype=np.float64) / size) / divisor
            if self._rope_factors is not None:
                frequencies /= self._rope_factors

            def table(name: str, function: np.ufunc) -> str:
                pieces = (
                    np.arange(start, min(start + _TABLE_ROWS, context)) for start in range(0, context, _TABLE_ROWS)
                )
                values = (function(np.outer(positions, frequencies)).astype(np.float32) for positions in pieces)
                return self._graph.weight(f"rope/{base:g}/{name}", (context, size // 2), np.float32, values)

            self._tables[base] = table("cos", np.cos), table("sin", np.sin)
        return self._tables[base]

    def _past(self, layer: int) -> tuple[str, str]:
        return f"past_key_values.{layer}.key", f"past_key_values.{layer}.value"

    def _present(self, layer: int) -> tuple[str, str]:
        return f"present.{layer}.key", f"present.{layer}.value"
