"""Decoders whose logits are rows of tables: the same answers from a Python function, an ONNX graph and a GGUF model.

A test says what a model shall answer, and gets a model of each engine that does. Not here: decoders with text of their
own (`gguf_models.py`), names and caching of files (`recipes.py`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from hashlib import sha256
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from .gguf_writer import Tensors

if TYPE_CHECKING:
    import onnx

Table = npt.NDArray[np.float32]

_ANCHOR = 4096.0  # dwarfs the rest of every hidden vector, so that a normalisation divides all vectors by the same


@dataclass(frozen=True, eq=False)
class TableDecoder:
    """The sum of `constant`, the row of `following` for the last token, the row of `by_length` for the number of
    tokens so far (the last row for larger numbers), and the mean of the rows of `mixed` for all tokens so far.

    Tables are float32, as wide as the vocabulary, of values of about 1 to 10; an absent one counts as zeros. The
    models agree with the function to about 1e-5.
    """

    vocabulary_size: int
    constant: Table | None = field(default=None, repr=False)
    following: Table | None = field(default=None, repr=False)
    by_length: Table | None = field(default=None, repr=False)
    mixed: Table | None = field(default=None, repr=False)

    def __call__(self, history: Sequence[int]) -> Table:
        """The logits after `history`, which has at least one token."""
        row = np.zeros(self.vocabulary_size, np.float32)
        if self.constant is not None:
            row = row + self.constant
        if self.following is not None:
            row = row + self.following[history[-1]]
        if self.by_length is not None:
            row = row + self.by_length[min(len(history), len(self.by_length) - 1)]
        if self.mixed is not None:
            row = row + np.mean([self.mixed[token] for token in history], axis=0, dtype=np.float32)
        return row

    @cached_property
    def key(self) -> str:
        """A name for these tables."""
        digest = sha256(str(self.vocabulary_size).encode())
        for table in (self.constant, self.following, self.by_length, self.mixed):
            digest.update(b"-" if table is None else f"{table.shape}".encode() + table.astype("<f4").tobytes())
        return digest.hexdigest()[:16]

    def onnx(self) -> onnx.ModelProto:
        """A graph `input_ids[1,S] -> logits[1,S,V]`; the state `past_key_values.0.key[1,1,P,1]` holds the past ids."""
        from .table_graph import table_graph  # only this needs `onnx`

        return table_graph(self)

    def gguf(self, context_length: int) -> tuple[dict[str, object], Tensors]:
        """Metadata and tensors of a gpt2-type decoder with one layer; it has no vocabulary of its own.

        A hidden vector has places for the last token, for the row that belongs to its position, for the mean over all
        tokens, which attention puts there (queries and keys are zero, so it weighs all alike), and one for the anchor.
        Each value stands in it once more with the other sign, so that the mean is zero for the normalisation.
        """
        size = self.vocabulary_size
        places = _Places(self)
        width, embedding = places.width, np.zeros((size, places.width), np.float32)
        positions = np.zeros((context_length, width), np.float32)
        head = np.zeros((size, width), np.float32)
        if self.following is not None or self.mixed is not None:
            embedding[:, places.token] = np.eye(size)
        if self.following is not None:
            head[:, places.token] = self.following.T
        if self.mixed is not None:
            head[:, places.mean] = self.mixed.T
        positions[:, places.anchor] = _ANCHOR
        if self.constant is not None:
            head[:, places.anchor] = self.constant / _ANCHOR
        if self.by_length is not None:
            lengths = np.minimum(np.arange(1, context_length + 1), len(self.by_length) - 1)
            positions[:, places.row] = self.by_length[lengths]
            head[:, places.row] = np.eye(size)
        scale = np.float32(_ANCHOR * np.sqrt(2 / width))  # what a normalisation divides by
        values = np.zeros((width, width), np.float32)
        mean = np.zeros((width, width), np.float32)
        if self.mixed is not None:
            values[places.token, places.token] = scale * np.eye(size)
            mean[places.mean, places.token] = np.eye(size)
        tensors = {
            "token_embd.weight": places.mirrored(embedding),
            "position_embd.weight": places.mirrored(positions),
            "output_norm.weight": np.ones(width, np.float32),
            "output_norm.bias": np.zeros(width, np.float32),
            "output.weight": head * scale,
            **_layer(values, places.mirrored(mean.T).T, width),
        }
        return _metadata(size, width, context_length), tensors


class _Places:
    """Where what stands in a hidden vector; the second half mirrors the first."""

    def __init__(self, decoder: TableDecoder) -> None:
        size, is_mixing = decoder.vocabulary_size, decoder.mixed is not None
        ends = np.cumsum(
            [
                size * (decoder.following is not None or is_mixing),
                size * is_mixing,
                size * (decoder.by_length is not None),
            ]
        ).tolist()
        self.token, self.mean, self.row = slice(0, ends[0]), slice(ends[0], ends[1]), slice(ends[1], ends[2])
        self.anchor = ends[2]
        self.width = -(-2 * (self.anchor + 1) // 32) * 32

    def mirrored(self, matrix: Table) -> Table:
        """The matrix, whose last axis is a hidden vector, with the second half filled in."""
        half = self.width // 2
        matrix[..., half:] = -matrix[..., :half]
        return matrix


def _metadata(vocabulary_size: int, width: int, context_length: int) -> dict[str, object]:
    return {
        "general.architecture": "gpt2",
        "general.name": "tables",
        "gpt2.context_length": context_length,
        "gpt2.embedding_length": width,
        "gpt2.feed_forward_length": 32,
        "gpt2.block_count": 1,
        "gpt2.attention.head_count": 1,
        "gpt2.attention.layer_norm_epsilon": 1e-5,
        "gpt2.vocab_size": vocabulary_size,
        "tokenizer.ggml.model": "no_vocab",
    }


def _layer(values: Table, output: Table, width: int) -> dict[str, Table]:
    """A layer whose attention adds `output` x mean of (`values` x normalised vector), and whose other half adds
    nothing."""

    def zeros(*shape: int) -> Table:
        return np.zeros(shape, np.float32)

    return {
        "blk.0.attn_norm.weight": np.ones(width, np.float32),
        "blk.0.attn_norm.bias": zeros(width),
        "blk.0.attn_qkv.weight": np.concatenate([zeros(2 * width, width), values]),
        "blk.0.attn_qkv.bias": zeros(3 * width),
        "blk.0.attn_output.weight": np.ascontiguousarray(output),
        "blk.0.attn_output.bias": zeros(width),
        "blk.0.ffn_norm.weight": np.ones(width, np.float32),
        "blk.0.ffn_norm.bias": zeros(width),
        "blk.0.ffn_up.weight": zeros(32, width),
        "blk.0.ffn_up.bias": zeros(32),
        "blk.0.ffn_down.weight": zeros(width, 32),
        "blk.0.ffn_down.bias": zeros(width),
    }
