"""The two graphs of a Whisper model: encoder and decoder, with the ports that `genai.whisper_folder` describes.

The operators are those of ONNX opset 20 and the fused ones of ONNX Runtime: attention that never holds all scores at
once, sums with their normalisation, activation with its bias. The decoder gives logits of the last token only.

Not here: what the variables are called (`whisper_architecture.py`), how matrices are stored (`whisper_matrices.py`).
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np

from ..whisper_folder import AUDIO_POSITIONS, FRAME_COUNT
from .ctranslate2 import CTranslate2File
from .graph import MICROSOFT, ExternalData, GraphBuilder
from .whisper_architecture import EMBEDDING, PROJECTION, WhisperArchitecture
from .whisper_matrices import ALL, WhisperMatrices, ranged

Form = Callable[[GraphBuilder, CTranslate2File], WhisperMatrices]
"""Makes what stores the matrices of a graph."""

_OPSET = 20
_EPSILON = 1e-5
_TO_THE_END = (1 << 63) - 1


class _Graph:
    """A graph that is made of the variables of a source."""

    def __init__(self, source: CTranslate2File, architecture: WhisperArchitecture, path: Path, form: Form) -> None:
        self.path = path
        self.data = ExternalData(path.with_name(f"{path.name}.data"))
        self.builder = GraphBuilder(self.data)
        self.architecture = architecture
        self._source = source
        self.matrices = form(self.builder, source)

    def vector(self, name: str, rows: slice = ALL) -> str:
        """A variable of one dimension, or a table of positions, as float32."""
        values = self._source.floats(name, rows)
        stored = self.builder.weight(ranged(name, rows), values.shape, np.float32, [values])
        self._source.report(name)
        return stored

    def product(self, value: str, name: str, rows: slice = ALL) -> str:
        """Multiply [..., inputs] by a matrix, without its bias."""
        return self.matrices.product(value, f"{name}/weight", rows)

    def linear(self, value: str, name: str, rows: slice = ALL) -> str:
        return self.builder.node("Add", [self.product(value, name, rows), self.vector(f"{name}/bias", rows)])

    def norm(self, value: str, name: str) -> str:
        inputs = [value, *self._norm_weights(name)]
        return self.builder.node("LayerNormalization", inputs, axis=-1, epsilon=_EPSILON)

    def add_norm(self, value: str, update: str, bias: str, name: str) -> tuple[str, str]:
        """Return `value + update + bias` and its norm."""
        normed, total = self.builder.nodes(
            "SkipLayerNormalization",
            [value, update, *self._norm_weights(name), bias],
            ["", None, None, ""],
            domain=MICROSOFT,
            epsilon=_EPSILON,
        )
        return total, normed

    def gelu(self, value: str, bias: str) -> str:
        return self.builder.node("BiasGelu", [value, bias], domain=MICROSOFT)

    def heads(self, value: str, output: str) -> None:
        """[batch, rows, width] to [batch, heads, rows, head size], as a cache of the decoder has them."""
        record = self.architecture
        shape = self.builder.integers(0, 0, record.decoder_heads, record.head_size)
        self.builder.node("Transpose", [self.builder.node("Reshape", [value, shape])], output=output, perm=[0, 2, 1, 3])

    def save(self, name: str) -> None:
        self.builder.save(self.path, _OPSET, name)

    def _norm_weights(self, name: str) -> tuple[str, str]:
        return self.vector(f"{name}layer_norm/gamma"), self.vector(f"{name}layer_norm/beta")


def write_encoder(source: CTranslate2File, architecture: WhisperArchitecture, path: Path, form: Form) -> None:
    """Write the encoder, and the keys and values that the decoder's cross-attention has of its result."""
    graph = _Graph(source, architecture, path, form)
    try:
        builder, width = graph.builder, architecture.width
        builder.input("input_features", np.float32, ["batch", architecture.mel_count, FRAME_COUNT])
        builder.output("last_hidden_state", np.float32, ["batch", AUDIO_POSITIONS, width])
        stream = "input_features"
        for name, stride in (("encoder/conv1", 1), ("encoder/conv2", 2)):
            with builder.scope(name):
                stream = builder.node(
                    "Conv",
                    [stream, graph.matrices.kernel(f"{name}/weight"), graph.vector(f"{name}/bias")],
                    pads=[1, 1],
                    strides=[stride],
                )
                stream = builder.node("Gelu", [stream], approximate="none")
        stream = builder.node("Transpose", [stream], perm=[0, 2, 1])
        stream = builder.node("Add", [stream, graph.vector("encoder/position_encodings/encodings")])
        normed = graph.norm(stream, "encoder/layer_0/self_attention/")
        last = architecture.encoder_layers - 1
        for layer in range(architecture.encoder_layers):
            name = f"encoder/layer_{layer}/"
            following = "encoder/" if layer == last else f"encoder/layer_{layer + 1}/self_attention/"
            with builder.scope(name.rstrip("/")):
                mixed = _self_attention(graph, normed, name)
                stream, normed = _rest(graph, name, (stream, mixed, f"{name}self_attention/linear_1"), following)
        builder.node("Identity", [normed], output="last_hidden_state")
        for layer in range(architecture.decoder_layers):
            _cross_caches(graph, layer)
        graph.save("encoder")
    finally:
        graph.data.close()


def _self_attention(graph: _Graph, normed: str, name: str) -> str:
    """Attention of all rows to all rows."""
    joined = f"{name}self_attention/linear_0"
    inputs = [*_query_key_value(graph, normed, joined), graph.vector(f"{joined}/bias")]
    heads = graph.architecture.encoder_heads
    return graph.builder.node("MultiHeadAttention", inputs, domain=MICROSOFT, num_heads=heads)


def _query_key_value(graph: _Graph, normed: str, name: str) -> list[str]:
    """Three products, without the bias, which attention adds."""
    width = graph.architecture.width
    return [graph.product(normed, name, slice(start, start + width)) for start in (0, width, 2 * width)]


def _rest(graph: _Graph, name: str, attended: tuple[str, str, str], following: str) -> tuple[str, str]:
    """Add what attention gives and the feed-forward part of a layer; return the stream and the norm of what follows.

    attended: the stream, the mixed values, and the matrix that they go through.
    """
    stream, mixed, output = attended
    update = graph.product(mixed, output)
    stream, normed = graph.add_norm(stream, update, graph.vector(f"{output}/bias"), f"{name}ffn/")
    inner = graph.gelu(graph.product(normed, f"{name}ffn/linear_0"), graph.vector(f"{name}ffn/linear_0/bias"))
    update = graph.product(inner, f"{name}ffn/linear_1")
    return graph.add_norm(stream, update, graph.vector(f"{name}ffn/linear_1/bias"), following)


def _cross_caches(graph: _Graph, layer: int) -> None:
    record, name = graph.architecture, f"decoder/layer_{layer}/attention/linear_1"
    shape: list[int | str] = ["batch", record.decoder_heads, AUDIO_POSITIONS, record.head_size]
    for index, part in enumerate(("key", "value")):
        output = graph.builder.output(f"present.{layer}.encoder.{part}", np.float32, shape)
        rows = slice(index * record.width, (index + 1) * record.width)
        with graph.builder.scope(f"cross_{layer}"):
            graph.heads(graph.linear("last_hidden_state", name, rows), output)


def write_decoder(
    source: CTranslate2File, architecture: WhisperArchitecture, path: Path, form: Form, vocabulary_size: int
) -> None:
    """Write the decoder for the first `vocabulary_size` tokens of the embedding."""
    graph = _Graph(source, architecture, path, form)
    try:
        builder = graph.builder
        builder.input("input_ids", np.int64, ["batch", "tokens"])
        builder.output("logits", np.float32, ["batch", 1, vocabulary_size])
        _declare_caches(graph)
        with builder.scope("embedding"):
            rows = graph.matrices.lookup(EMBEDDING, vocabulary_size, "input_ids")
            stream = builder.node("Add", [rows, _positions(graph)])
        normed = graph.norm(stream, "decoder/layer_0/self_attention/")
        last = architecture.decoder_layers - 1
        for layer in range(architecture.decoder_layers):
            with builder.scope(f"decoder/layer_{layer}"):
                stream, normed = _decoder_layer(graph, layer, (stream, normed), layer == last)
        with builder.scope("output"):
            matrix = PROJECTION if architecture.has_projection else EMBEDDING
            graph.matrices.logits(normed, matrix, vocabulary_size, "logits")
        graph.save("decoder")
    finally:
        graph.data.close()


def _declare_caches(graph: _Graph) -> None:
    record = graph.architecture

    def shape(length: int | str) -> list[int | str]:
        return ["batch", record.decoder_heads, length, record.head_size]

    for layer in range(record.decoder_layers):
        for part in ("key", "value"):
            graph.builder.input(f"past_key_values.{layer}.decoder.{part}", np.float32, shape("past"))
            graph.builder.output(f"present.{layer}.decoder.{part}", np.float32, shape("total"))
    for layer in range(record.decoder_layers):
        for part in ("key", "value"):
            graph.builder.input(f"past_key_values.{layer}.encoder.{part}", np.float32, shape(AUDIO_POSITIONS))


def _positions(graph: _Graph) -> str:
    """The position embeddings of the new tokens, [1, tokens, width].

    A sequence that is too long is an error of the look-up. ONNX Runtime would turn the look-up of a mere range into a
    slice, which gives nothing instead.
    """
    builder = graph.builder
    past = builder.node("Shape", ["past_key_values.0.decoder.key"], start=2, end=3)
    end = builder.node("Add", [past, builder.node("Shape", ["input_ids"], start=1, end=2)])
    one, zero = builder.constant(np.array(1, np.int64)), builder.integers(0)
    first, stop = (builder.node("Squeeze", [value, zero]) for value in (past, end))
    table = graph.vector("decoder/position_encodings/encodings")
    positions = builder.node("Unsqueeze", [builder.node("Range", [first, stop, one]), zero])
    return builder.node("Gather", [table, positions], axis=0)


def _decoder_layer(graph: _Graph, layer: int, values: tuple[str, str], prunes: bool) -> tuple[str, str]:
    """Add one layer; `values` and the result are the stream and its norm for what follows.

    With `prunes` only the last token goes on behind the attention of the tokens to each other.
    """
    builder, record, name = graph.builder, graph.architecture, f"decoder/layer_{layer}/"
    (stream, normed), joined, heads = values, f"{name}self_attention/linear_0", record.decoder_heads
    past, present = (
        [f"{side}.{layer}.decoder.{part}" for part in ("key", "value")] for side in ("past_key_values", "present")
    )
    mixed = builder.nodes(
        "MultiHeadAttention",
        [*_query_key_value(graph, normed, joined), graph.vector(f"{joined}/bias"), "", "", *past],
        ["", *present],
        domain=MICROSOFT,
        num_heads=heads,
        unidirectional=1,
    )[0]
    if prunes:
        ends = (builder.integers(-1), builder.integers(_TO_THE_END), builder.integers(1))
        mixed, stream = (builder.node("Slice", [value, *ends]) for value in (mixed, stream))
    output = f"{name}self_attention/linear_1"
    update = graph.product(mixed, output)
    stream, normed = graph.add_norm(stream, update, graph.vector(f"{output}/bias"), f"{name}attention/")
    query = graph.linear(normed, f"{name}attention/linear_0")
    heard = [f"past_key_values.{layer}.encoder.{part}" for part in ("key", "value")]
    mixed = builder.node("MultiHeadAttention", [query, *heard], domain=MICROSOFT, num_heads=heads)
    following = "decoder/" if layer == record.decoder_layers - 1 else f"decoder/layer_{layer + 1}/self_attention/"
    return _rest(graph, name, (stream, mixed, f"{name}attention/linear_2"), following)
