"""The selection of a token step by step in float64, without any of the shortcuts of the real one (genai 5.4)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import accumulate

import numpy as np
import numpy.typing as npt

from genai.options import TextGenerationOptions

Row = npt.NDArray[np.float64]


def penalised(
    row: npt.NDArray[np.generic], options: TextGenerationOptions, prompt: Sequence[int], emitted: Sequence[int]
) -> Row:
    """Return the row after steps 1 to 3."""
    z = np.array(row, np.float64)
    z[np.isnan(z)] = -math.inf
    history = [*prompt, *emitted]
    if options.repetition_penalty_window:
        history = history[-options.repetition_penalty_window :]
    for token_id in set(history):
        r = options.repetition_penalty
        z[token_id] = z[token_id] / r if z[token_id] > 0 else z[token_id] * r
    for token_id in set(emitted):
        z[token_id] = z[token_id] - options.frequency_penalty * emitted.count(token_id) - options.presence_penalty
    return z


def ranking(z: Row, options: TextGenerationOptions) -> tuple[list[int], list[float]]:
    """Return the tokens that survive steps 5 to 9, likeliest first, and their weights, the highest being 1."""
    if math.inf in z:
        z = np.where(z == math.inf, 0.0, -math.inf)
    order = [int(i) for i in np.argsort(-z, kind="stable") if z[i] > -math.inf]
    if options.top_k:
        order = order[: options.top_k]
    if not order:
        return [], []
    weights = [math.exp((z[i] - z[order[0]]) / options.temperature) for i in order]
    total = math.fsum(weights)
    count = len(order)
    if options.top_p < 1:
        running = 0.0
        for index, weight in enumerate(weights):
            running += weight
            if running >= options.top_p * total:
                count = index + 1
                break
    while weights[count - 1] < options.min_p * weights[0]:
        count -= 1
    return order[:count], weights[:count]


def draw(z: Row, options: TextGenerationOptions, u: float) -> int:
    """Return the token of steps 5 to 10 for the random number `u`, -1 when there is none."""
    if options.temperature == 0:
        best = int(np.argmax(z))
        return best if z[best] > -math.inf else -1
    ids, weights = ranking(z, options)
    sums = list(accumulate(weights))
    return next((token_id for token_id, running in zip(ids, sums, strict=True) if running > u * sums[-1]), -1)
