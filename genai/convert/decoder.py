"""The decoder graph: embedding, blocks, output norm, logits; the same order of parts for all formats and dialects.

Inputs and outputs have the names and shapes that onnxruntime-genai and Hugging Face exports use: `input_ids` int64
[batch, sequence], `attention_mask` int64 [batch, total], `past_key_values.N.key` and `.value` float32 [batch, kv
heads, past, head size]; `logits` float32 [batch, 1 or sequence, vocabulary], `present.N.key` and `.value`, and
`token_logits` float32 [batch, rows, vocabulary].
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .architecture import DecoderArchitecture
from .fused_operators import FusedOperators
from .graph import GraphBuilder
from .operators import OperatorSet
from .portable_operators import PlainOperators, StandardOperators
from .source import ModelSource, Rows
from .weights import EightBitWeights, FloatWeights, Matrix, WeightFormat

STEP_TOKENS = 17
"""Most tokens of an input whose logits are all given: a step over a pending token and a draft of 16."""
_TO_THE_END = (1 << 63) - 1

OPERATOR_SETS: dict[str, type[OperatorSet]] = {
    "plain": PlainOperators,
    "std": StandardOperators,
    "gqa": FusedOperators,
}


def build_decoder(
    graph: GraphBuilder,
    source: ModelSource,
    architecture: DecoderArchitecture,
    operators: str,
    weights: str,
    all_logits: bool,
) -> OperatorSet:
    """Add the whole decoder to `graph` and return the operator set, which knows opset and inputs.

    Without `all_logits` only the last token of the input gets logits, and the last block computes no other row after
    its attention: a prompt costs less time and no memory for rows nobody reads. An input of at most 17 tokens also
    gets those of every token, as `token_logits`, whose second dimension is named so: speculative decoding verifies
    drafts with them.
    """
    graph.input("input_ids", np.int64, ["batch_size", "sequence_length"])
    dialect = OPERATOR_SETS[operators](graph, source, architecture)
    rows = "sequence_length" if all_logits else 1
    graph.output("logits", np.float32, ["batch_size", rows, architecture.vocabulary_size])
    _declare_cache(graph, architecture)
    if not all_logits:
        graph.output(
            "token_logits", np.float32, ["batch_size", f"tokens_up_to_{STEP_TOKENS}", architecture.vocabulary_size]
        )
    matrices = _weight_format(graph, source, weights)
    with graph.scope("embedding"):
        stream = matrices.embedding("input_ids")
        if architecture.is_gemma3:
            stream = graph.node("Mul", [stream, graph.number(architecture.width**0.5)])
    with graph.scope("block.0"):
        normed = dialect.norm(stream, "blk.0.attn_norm.weight")
    parts = _Parts(graph, architecture, dialect, matrices)
    for layer in range(architecture.layer_count):
        prunes = layer == architecture.layer_count - 1 and not all_logits
        with graph.scope(f"block.{layer}"):
            stream, normed = _block(parts, layer, (stream, normed), prunes)
    with graph.scope("output"):
        if all_logits:
            matrices.logits(normed, "logits")
        else:
            rows = matrices.logits(normed, "token_logits")
            graph.node("Gather", [rows, graph.integers(-1)], output="logits", axis=1)
    return dialect


@dataclass(frozen=True, slots=True)
class _Parts:
    """What a block is made with."""

    graph: GraphBuilder
    architecture: DecoderArchitecture
    dialect: OperatorSet
    matrices: WeightFormat


def _block(parts: _Parts, layer: int, values: tuple[str, str], prunes: bool) -> tuple[str, str]:
    """Add one block; `values` and the result are the residual stream and its norm for the next part.

    With `prunes` only rows that get logits go on behind the attention.
    """
    architecture, dialect, matrices = parts.architecture, parts.dialect, parts.matrices
    (stream, normed), name = values, f"blk.{layer}."
    joined = matrices.linear(
        normed,
        Matrix(f"{name}attn_q.weight", _half_order(architecture, architecture.head_count)),
        Matrix(f"{name}attn_k.weight", _half_order(architecture, architecture.kv_head_count)),
        Matrix(f"{name}attn_v.weight"),
    )
    mixed = dialect.attention(layer, joined)
    if prunes:
        mixed, stream = _last_rows(parts.graph, mixed, stream)
    update = matrices.linear(mixed, Matrix(f"{name}attn_output.weight"))
    if architecture.is_gemma3:
        update = dialect.norm(update, f"{name}post_attention_norm.weight")
    stream, normed = dialect.add_norm(stream, update, f"{name}ffn_norm.weight")
    joined = matrices.linear(normed, Matrix(f"{name}ffn_gate.weight"), Matrix(f"{name}ffn_up.weight"))
    gate, up = parts.graph.nodes("Split", [joined], ["", ""], axis=-1, num_outputs=2)
    active = dialect.gelu(gate) if architecture.is_gemma3 else _silu(parts.graph, gate)
    update = matrices.linear(parts.graph.node("Mul", [active, up]), Matrix(f"{name}ffn_down.weight"))
    if architecture.is_gemma3:
        update = dialect.norm(update, f"{name}post_ffw_norm.weight")
    is_last = layer == architecture.layer_count - 1
    return dialect.add_norm(stream, update, "output_norm.weight" if is_last else f"blk.{layer + 1}.attn_norm.weight")


def _last_rows(graph: GraphBuilder, *values: str) -> list[str]:
    """Cut values [batch, sequence, ...] to the rows of all tokens where they are few, else to that of the last one."""
    count = graph.node("Shape", [values[-1]], start=1, end=2)
    is_long = graph.node("Greater", [count, graph.integers(STEP_TOKENS)])
    start = graph.node("Where", [is_long, graph.integers(-1), graph.integers(-STEP_TOKENS)])
    return [graph.node("Slice", [value, start, graph.integers(_TO_THE_END), graph.integers(1)]) for value in values]


def _silu(graph: GraphBuilder, value: str) -> str:
    return graph.node("Mul", [value, graph.node("Sigmoid", [value])])


def _half_order(architecture: DecoderArchitecture, heads: int) -> Rows | None:
    """Return the row order that undoes the pairing of llama files.

    They keep the two members of a rotary pair side by side (0, 1), (2, 3), ...; the operators expect them half a head
    apart.
    """
    if architecture.name != "llama":
        return None
    size = architecture.head_size
    rows = np.arange(heads * size, dtype=np.int64)
    return rows.reshape(heads, size // 2, 2).swapaxes(1, 2).reshape(-1)


def _declare_cache(graph: GraphBuilder, architecture: DecoderArchitecture) -> None:
    def shape(length: str) -> list[int | str]:
        return ["batch_size", architecture.kv_head_count, length, architecture.head_size]

    for layer in range(architecture.layer_count):
        for part in ("key", "value"):
            graph.input(f"past_key_values.{layer}.{part}", np.float32, shape("past_sequence_length"))
            graph.output(f"present.{layer}.{part}", np.float32, shape("total_sequence_length"))


def _weight_format(graph: GraphBuilder, source: ModelSource, weights: str) -> WeightFormat:
    if weights == "q8":
        return EightBitWeights(graph, source)
    return FloatWeights(graph, source, np.float16 if weights == "f16" else np.float32)
