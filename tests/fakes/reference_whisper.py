"""Whisper in NumPy, in double precision and without any cache: a second opinion on converted models."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

Doubles = npt.NDArray[np.float64]

_EPSILON = 1e-5
_erf = np.vectorize(math.erf)


class ReferenceWhisper:
    """A model of the variables of a CTranslate2 file, by name, with its numbers of heads."""

    def __init__(self, variables: Mapping[str, Doubles]) -> None:
        self._variables = variables
        self._heads = {part: int(variables[f"{part}/num_heads"]) for part in ("encoder", "decoder")}

    def encode(self, features: Doubles) -> Doubles:
        """Hidden states (1500, width) of features (mels, 3000)."""
        first = _gelu(self._convolution(features, "encoder/conv1", 1))
        state = _gelu(self._convolution(first, "encoder/conv2", 2)).T
        state = state + self._variables["encoder/position_encodings/encodings"]
        for layer in range(self._layers("encoder")):
            name = f"encoder/layer_{layer}/"
            query, key, value = self._joined(state, f"{name}self_attention/")
            mixed = self._attend("encoder", (query, key, value), causal=False)
            state = state + self._linear(mixed, f"{name}self_attention/linear_1")
            state = state + self._feed_forward(state, name)
        return self._norm(state, "encoder/")

    def logits(self, hidden: Doubles, ids: list[int]) -> Doubles:
        """Logits (tokens, vocabulary) for a sequence of tokens over hidden states."""
        state = self._variables["decoder/embeddings/weight"][ids]
        state = state + self._variables["decoder/position_encodings/encodings"][: len(ids)]
        for layer in range(self._layers("decoder")):
            name = f"decoder/layer_{layer}/"
            query, key, value = self._joined(state, f"{name}self_attention/")
            mixed = self._attend("decoder", (query, key, value), causal=True)
            state = state + self._linear(mixed, f"{name}self_attention/linear_1")
            query = self._linear(self._norm(state, f"{name}attention/"), f"{name}attention/linear_0")
            key, value = np.split(self._linear(hidden, f"{name}attention/linear_1"), 2, axis=1)
            mixed = self._attend("decoder", (query, key, value), causal=False)
            state = state + self._linear(mixed, f"{name}attention/linear_2")
            state = state + self._feed_forward(state, name)
        output = self._variables.get("decoder/projection/weight", self._variables["decoder/embeddings/weight"])
        return self._norm(state, "decoder/") @ output.T

    def _layers(self, part: str) -> int:
        return sum(name.startswith(f"{part}/layer_") and name.endswith("ffn/linear_0/bias") for name in self._variables)

    def _linear(self, value: Doubles, name: str) -> Doubles:
        return value @ self._variables[f"{name}/weight"].T + self._variables[f"{name}/bias"]

    def _norm(self, value: Doubles, name: str) -> Doubles:
        value = value - value.mean(-1, keepdims=True)
        value = value / np.sqrt((value**2).mean(-1, keepdims=True) + _EPSILON)
        return value * self._variables[f"{name}layer_norm/gamma"] + self._variables[f"{name}layer_norm/beta"]

    def _joined(self, state: Doubles, name: str) -> list[Doubles]:
        return np.split(self._linear(self._norm(state, name), f"{name}linear_0"), 3, axis=1)

    def _attend(self, part: str, values: tuple[Doubles, Doubles, Doubles], causal: bool) -> Doubles:
        heads = self._heads[part]
        query, key, value = (v.reshape(len(v), heads, -1).transpose(1, 0, 2) for v in values)
        scores = query @ key.transpose(0, 2, 1) / math.sqrt(query.shape[-1])
        if causal:
            scores = np.where(np.tri(scores.shape[1], dtype=bool), scores, -np.inf)
        shares = np.exp(scores - scores.max(-1, keepdims=True))
        mixed = (shares / shares.sum(-1, keepdims=True)) @ value
        return np.asarray(mixed.transpose(1, 0, 2).reshape(len(values[0]), -1))

    def _feed_forward(self, state: Doubles, name: str) -> Doubles:
        inner = _gelu(self._linear(self._norm(state, f"{name}ffn/"), f"{name}ffn/linear_0"))
        return self._linear(inner, f"{name}ffn/linear_1")

    def _convolution(self, value: Doubles, name: str, stride: int) -> Doubles:
        """Three taps with one zero on each side: (inputs, frames) to (outputs, frames / stride)."""
        padded = np.pad(value, ((0, 0), (1, 1)))
        weight, bias = self._variables[f"{name}/weight"], self._variables[f"{name}/bias"]
        taps = [padded[:, tap : tap + value.shape[1] : stride] for tap in range(3)]
        return np.asarray(sum(weight[:, :, tap] @ taps[tap] for tap in range(3)) + bias[:, None])


def _gelu(value: Doubles) -> Doubles:
    return np.asarray(value * (1 + _erf(value / math.sqrt(2))) / 2)
