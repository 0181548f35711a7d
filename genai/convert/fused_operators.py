"""The dialect `gqa`: fused operators of ONNX Runtime, in which past and present can be one buffer."""

from __future__ import annotations

from onnx import TensorProto

from .graph import MICROSOFT
from .operators import OperatorSet


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

    def attention(self, layer: int, joined: str) -> str:
        if self._architecture.is_gemma3:  # its norms come between the product and the operator
            return super().attention(layer, joined)
        return self._attend(layer, joined, "", "")

    def _attend(self, layer: int, query: str, key: str, value: str) -> str:
        record = self._architecture
        window = record.window if record.is_local(layer) and record.window is not None else -1
        tables = self._rotary_tables(layer)
        # Since ONNX Runtime 1.24 the window counts the query itself, as llama.cpp does; 1.23 let one more token in.
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
