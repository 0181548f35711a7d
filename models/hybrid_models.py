"""A tiny hybrid decoder: a layer with recurrent state, a layer of attention, and a predictor of later tokens.

Its state cannot be cut at any position, as that of a plain decoder can, and it drafts its own continuation. Not here:
other decoders (`gguf_models.py`).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from .gguf_models import DecoderShape, decoder_metadata, norm_weight, normal_weights
from .gguf_writer import Tensors
from .vocabularies import byte_level_vocabulary

Floats = npt.NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class RecurrentShape:
    """Extents of a gated delta net."""

    key_heads: int
    value_heads: int
    head_size: int
    kernel: int
    """Tokens that the convolution looks at."""


_ADDED = 0.4  # size of what a layer adds, relative to what it is given
SHAPE = DecoderShape(width=64, layers=2, heads=4, kv_heads=2, head_size=16, hidden=96)
RECURRENT = RecurrentShape(key_heads=2, value_heads=4, head_size=16, kernel=4)


def hybrid_model(predictor: bool = True) -> tuple[dict[str, object], Tensors]:
    """Return metadata and tensors of a random qwen35-type decoder; with one predictor layer, or without.

    What the layers add to the embedding is small, so that the newest token decides most. The predictor, which looks at
    that token much more than at the hidden state before it, is often right and sometimes wrong.
    """
    vocabulary, shape = byte_level_vocabulary(), SHAPE
    count = len(vocabulary.tokens)
    rng = np.random.default_rng(11)
    output = normal_weights(rng, count, shape.width, scale=2.0)
    output[count - 3 :] = 0  # the control tokens never win
    tensors = {
        "token_embd.weight": normal_weights(rng, count, shape.width, scale=np.sqrt(shape.width)),
        "output_norm.weight": norm_weight(rng, shape.width, 0.1),
        "output.weight": output,
        **_recurrent_layer(rng, "blk.0."),
        **_feed_forward(rng, "blk.0."),
        **_attention_layer(rng, "blk.1."),
        **_feed_forward(rng, "blk.1."),
    }
    metadata = decoder_metadata("qwen35", "tiny-random-hybrid", shape, vocabulary) | {
        "qwen35.rope.freq_base": 10000.0,
        "qwen35.rope.dimension_sections": np.array([2, 3, 3, 0], np.int32),
        "qwen35.full_attention_interval": 2,
        "qwen35.ssm.conv_kernel": RECURRENT.kernel,
        "qwen35.ssm.state_size": RECURRENT.head_size,
        "qwen35.ssm.group_count": RECURRENT.key_heads,
        "qwen35.ssm.time_step_rank": RECURRENT.value_heads,
        "qwen35.ssm.inner_size": RECURRENT.value_heads * RECURRENT.head_size,
    }
    if predictor:
        metadata |= {"qwen35.block_count": shape.layers + 1, "qwen35.nextn_predict_layers": 1}
        tensors |= _predictor_layer(rng, "blk.2.")
    return metadata, tensors


def _recurrent_layer(rng: np.random.Generator, name: str) -> dict[str, Floats]:
    width, heads, size = SHAPE.width, RECURRENT.value_heads, RECURRENT.head_size
    values = heads * size
    mixed = 2 * RECURRENT.key_heads * size + values
    return {
        f"{name}attn_qkv.weight": normal_weights(rng, mixed, width),
        f"{name}attn_gate.weight": normal_weights(rng, values, width),
        f"{name}ssm_conv1d.weight": normal_weights(rng, mixed, RECURRENT.kernel),
        f"{name}ssm_dt.bias": rng.uniform(-1, 1, heads).astype(np.float32),
        f"{name}ssm_a": -rng.uniform(0.2, 1, heads).astype(np.float32),
        f"{name}ssm_beta.weight": normal_weights(rng, heads, width),
        f"{name}ssm_alpha.weight": normal_weights(rng, heads, width),
        f"{name}ssm_norm.weight": norm_weight(rng, size, 0.1),
        f"{name}ssm_out.weight": normal_weights(rng, width, values, scale=_ADDED),
    }


def _attention_layer(rng: np.random.Generator, name: str) -> dict[str, Floats]:
    query, key = SHAPE.heads * SHAPE.head_size, SHAPE.kv_heads * SHAPE.head_size
    return {
        f"{name}attn_q.weight": normal_weights(rng, 2 * query, SHAPE.width),  # and a gate for each
        f"{name}attn_k.weight": normal_weights(rng, key, SHAPE.width),
        f"{name}attn_v.weight": normal_weights(rng, key, SHAPE.width),
        f"{name}attn_output.weight": normal_weights(rng, SHAPE.width, query, scale=_ADDED),
        f"{name}attn_q_norm.weight": norm_weight(rng, SHAPE.head_size, 0.1),
        f"{name}attn_k_norm.weight": norm_weight(rng, SHAPE.head_size, 0.1),
    }


def _feed_forward(rng: np.random.Generator, name: str) -> dict[str, Floats]:
    return {
        f"{name}attn_norm.weight": norm_weight(rng, SHAPE.width, 0.1),
        f"{name}post_attention_norm.weight": norm_weight(rng, SHAPE.width, 0.1),
        f"{name}ffn_gate.weight": normal_weights(rng, SHAPE.hidden, SHAPE.width),
        f"{name}ffn_up.weight": normal_weights(rng, SHAPE.hidden, SHAPE.width),
        f"{name}ffn_down.weight": normal_weights(rng, SHAPE.width, SHAPE.hidden, scale=_ADDED),
    }


def _predictor_layer(rng: np.random.Generator, name: str) -> dict[str, Floats]:
    width = SHAPE.width
    token, hidden = np.eye(width, dtype=np.float32), normal_weights(rng, width, width, scale=0.1)
    return {
        **_attention_layer(rng, name),
        **_feed_forward(rng, name),
        f"{name}nextn.eh_proj.weight": np.concatenate((token, hidden), axis=1),
        f"{name}nextn.enorm.weight": norm_weight(rng, width, 0.1),
        f"{name}nextn.hnorm.weight": norm_weight(rng, width, 0.1),
        f"{name}nextn.shared_head_norm.weight": norm_weight(rng, width, 0.1),
    }
