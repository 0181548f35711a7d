"""The tiny encoder of `models/encoder_models.py` in NumPy, in double precision: a second opinion on both engines."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from models.encoder_models import EPSILON, SHAPE, encoder_weights

Doubles = npt.NDArray[np.float64]

_erf = np.vectorize(math.erf)


def hidden_states(ids: list[int]) -> Doubles:
    """The last hidden state of one text, (tokens, width)."""
    weights = {name: array.astype(np.float64) for name, array in encoder_weights().items()}
    count, size = len(ids), SHAPE.width // SHAPE.heads

    def linear(value: Doubles, name: str) -> Doubles:
        return value @ weights[f"{name}.weight"].T + weights[f"{name}.bias"]

    def norm(value: Doubles, name: str) -> Doubles:
        value = value - value.mean(-1, keepdims=True)
        value = value / np.sqrt((value**2).mean(-1, keepdims=True) + EPSILON)
        return value * weights[f"{name}.weight"] + weights[f"{name}.bias"]

    words = (
        weights["token_embd.weight"][ids] + weights["token_types.weight"][0] + weights["position_embd.weight"][:count]
    )
    state = norm(words, "token_embd_norm")
    for layer in range(SHAPE.layers):
        name = f"blk.{layer}."
        query, key, value = (
            linear(state, f"{name}attn_{part}").reshape(count, SHAPE.heads, size).transpose(1, 0, 2) for part in "qkv"
        )
        scores = query @ key.transpose(0, 2, 1) / np.sqrt(size)
        shares = np.exp(scores - scores.max(-1, keepdims=True))
        mixed = (shares / shares.sum(-1, keepdims=True)) @ value
        mixed = mixed.transpose(1, 0, 2).reshape(count, SHAPE.width)
        state = norm(state + linear(mixed, f"{name}attn_output"), f"{name}attn_output_norm")
        inner = linear(state, f"{name}ffn_up")
        inner = inner * (1 + _erf(inner / np.sqrt(2))) / 2
        state = norm(state + linear(inner, f"{name}ffn_down"), f"{name}layer_output_norm")
    return state
