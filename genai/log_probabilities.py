"""Log probabilities of the emitted tokens (genai §8, `top_logprobs`)."""

from __future__ import annotations

import math
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from .results import TokenLogprob

Row: TypeAlias = npt.NDArray[Any]


def token_logprob(row: Row, token_id: int, count: int) -> TokenLogprob:
    """Return the log probability of `token_id` and of the `count` likeliest tokens of a row of logits, shape
    (vocabulary,).

    It is the natural logarithm of the softmax, in double precision. NaN counts as minus infinity; beside plus infinity
    everything else is impossible. Of equal logits the lower id comes first; impossible tokens are not among the
    likeliest.
    """
    z = np.array(row, np.float64)
    z[np.isnan(z)] = -np.inf
    peak = z.max()
    if peak == np.inf:
        z = np.where(z == np.inf, 0.0, -np.inf)
        peak = z.max()
    z -= peak
    total = math.log(float(np.exp(z).sum()))
    best = [(index, float(z[index]) - total) for index in _likeliest(z, count)] if count else []
    return TokenLogprob(token_id, float(z[token_id]) - total, tuple(best))


def _likeliest(z: Row, count: int) -> list[int]:
    """Return the ids of the `count` highest values above minus infinity, highest first, lower ids first among ties."""
    if count < z.size:
        bound = np.partition(z, z.size - count)[z.size - count]
        above: npt.NDArray[np.intp] = np.greater(z, bound).nonzero()[0]
        equal: npt.NDArray[np.intp] = np.equal(z, bound).nonzero()[0]
        ids = np.sort(np.concatenate((above, equal[: count - above.size])))
    else:
        ids = np.arange(z.size)
    ids = ids[z[ids] > -np.inf]
    return [int(index) for index in ids[np.argsort(-z[ids], kind="stable")]]
