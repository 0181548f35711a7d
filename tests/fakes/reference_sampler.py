"""The selection of a token step by step in float64, without any of the shortcuts of the real one (genai 5.4 and 8)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import accumulate

import numpy as np
import numpy.typing as npt

from genai.options import TextGenerationOptions
from genai.random_numbers import split_mix64, unit_interval

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


def repeated(history: Sequence[int], size: int) -> set[int]:
    """Return the tokens that would complete an n-gram of `size` tokens that the history has already."""
    last = tuple(history[len(history) - size + 1 :]) if size > 1 else ()
    return {
        history[i + size - 1]
        for i in range(len(history) - size + 1)
        if len(last) == size - 1 and tuple(history[i : i + size - 1]) == last
    }


def prolonged(history: Sequence[int], allowed: int, breakers: Sequence[int] = ()) -> dict[int, int]:
    """Return the tokens that would prolong a repetition, and its length so far; breakers are token ids."""
    n = len(history)
    since = next((i for i in range(n) if history[n - 1 - i] in breakers), n)
    found: dict[int, int] = {}
    for place in range(1, n):
        length = 0
        while length < min(since, place) and history[place - 1 - length] == history[n - 1 - length]:
            length += 1
        if length >= allowed and history[place] not in breakers:
            found[history[place]] = max(found.get(history[place], 0), length)
    return found


def deviation(z: Row) -> float:
    """Return the standard deviation of what is above minus infinity."""
    values = [float(value) for value in z if value > -math.inf]
    mean = math.fsum(values) / len(values)
    return math.sqrt(math.fsum((value - mean) ** 2 for value in values) / len(values))


def typical(order: list[int], weights: list[float], p: float) -> list[int]:
    """Return the places in `order` that typical-p keeps."""
    total = math.fsum(weights)
    shares = [weight / total for weight in weights]
    entropy = -math.fsum(share * math.log(share) for share in shares if share > 0)
    surprise = [abs(-math.log(share) - entropy) if share > 0 else math.inf for share in shares]
    running, kept = 0.0, []
    for place in sorted(range(len(order)), key=surprise.__getitem__):
        kept.append(place)
        running += weights[place]
        if running >= p * total:
            break
    return sorted(kept)


def ranking(z: Row, options: TextGenerationOptions, excludes_top: bool = False) -> tuple[list[int], list[float]]:
    """Return the tokens that survive steps 5 to 9, likeliest first, and their weights, the highest being 1."""
    if math.inf in z:
        z = np.where(z == math.inf, 0.0, -math.inf)
    order = [int(i) for i in np.argsort(-z, kind="stable") if z[i] > -math.inf]
    if options.top_n_sigma and order:
        floor = z[order[0]] - options.top_n_sigma * deviation(z)
        order = [i for i in order if z[i] >= floor]
    if options.top_k:
        order = order[: options.top_k]
    if not order:
        return [], []
    weights = [math.exp((z[i] - z[order[0]]) / options.temperature) for i in order]
    if options.typical_p < 1:
        places = typical(order, weights, options.typical_p)
        order = [order[place] for place in places]
        weights = [weights[place] / weights[places[0]] for place in places]
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
    order, weights = order[:count], weights[:count]
    if excludes_top:
        total = math.fsum(weights)
        likely = sum(weight >= options.xtc_threshold * total for weight in weights)
        first = max(likely - 1, 0)
        order, weights = order[first:], weights[first:]
    return order, weights


def numbers(seed: int, place: int = 0) -> tuple[float, float]:
    """Return the random number of one place, and the one that goes with it for XTC."""
    number = split_mix64(seed, place)
    return unit_interval(number), unit_interval(split_mix64(number))


def draw(z: Row, options: TextGenerationOptions, u: float, excludes_top: bool = False) -> int:
    """Return the token of steps 5 to 10 for the random number `u`, -1 when there is none."""
    if options.temperature == 0:
        best = int(np.argmax(z))
        return best if z[best] > -math.inf else -1
    ids, weights = ranking(z, options, excludes_top)
    sums = list(accumulate(weights))
    return next((token_id for token_id, running in zip(ids, sums, strict=True) if running > u * sums[-1]), -1)
