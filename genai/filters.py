"""Filters that look at the whole distribution: top-n-sigma and typical-p (genai §8).

Top-n-sigma is a threshold below the highest logit, so it works like min-p; the standard deviation is that of all logits
above minus infinity, which is the same question before and after the temperature.

Typical-p ranks tokens by the distance of their surprise -ln p from its mean, the entropy. With d = (z - highest) / T
and the mean of d under the distribution, that distance is just |d - mean|, so no logarithm of a sum is needed. Without
another filter before it, only the tokens in a band around the mean are sorted; the band grows until it holds the mass.

No products of vectors: NumPy hands them to a library with threads of its own, which would fight with those of the
engine, and whose sums depend on their number.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from operator import neg
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from .candidates import Candidates, Ids, Ranked, TopCandidates, ranked
from .options import TextGenerationOptions

Row: TypeAlias = npt.NDArray[Any]

DEEPEST = -800.0
"""In units of the temperature; exp of it is 0 already. Keeps minus infinity out of the arithmetic."""
REACHES = (2.0, 8.0, 700.0)
"""How far from the mean to look. No token further away than the last one has any weight."""


class FilteredCandidates(Candidates):
    """Draws from what top-n-sigma, top-k and typical-p leave, and then top-p and min-p."""

    def __init__(self, options: TextGenerationOptions, vocabulary_size: int) -> None:
        super().__init__(options, vocabulary_size)
        has_top_k = 0 < options.top_k < vocabulary_size
        self._top = TopCandidates(options, vocabulary_size) if has_top_k else None
        self._sigmas = options.top_n_sigma
        self._typical_p = options.typical_p
        self._work = np.empty(vocabulary_size, np.float64)
        self._shares = np.empty(vocabulary_size, np.float64)
        self._products = np.empty(vocabulary_size, np.float64)

    def _draw_finite(self, row: Row, peak: float, u: float) -> int:
        distance = self._sigmas * self._deviation(row) if self._sigmas else math.inf
        if self._top is not None:
            kept = self._top.top(row)
        elif self._sigmas:
            kept = self._within(row, peak, distance)
        else:
            return self._pick(*self._typical_of_all(row, peak), u)
        values, ids = kept
        count = bisect_right(values, distance - peak, key=neg)
        values, ids = values[:count], ids[:count]
        if self._typical_p < 1:
            values, ids = self._typical(np.asarray(values, np.float64), np.asarray(ids, np.intp))
        return self._pick(values, ids, u)

    def _deviation(self, row: Row) -> float:
        """Return the standard deviation of the logits above minus infinity."""
        values = row if row.min() > -math.inf else row[row > -math.inf]
        work = self._work[: values.size]
        np.subtract(values, values.mean(dtype=np.float64), work, dtype=np.float64)
        return math.sqrt(np.multiply(work, work, work).mean())

    def _typical(self, values: Row, ids: Ids) -> Ranked:
        """Apply typical-p to ranked values that are the whole distribution; they stay ranked."""
        with np.errstate(over="ignore"):
            depths = np.maximum((values - values[0]) / self._temperature, DEEPEST)
        shares = np.exp(depths)
        total = shares.sum()
        order = np.argsort(np.abs(depths - (shares * depths).sum() / total), kind="stable")
        count = int(np.searchsorted(shares[order].cumsum(), self._typical_p * total)) + 1
        kept = np.sort(order[:count])
        return values[kept], ids[kept]

    def _typical_of_all(self, row: Row, peak: float) -> Ranked:
        """Apply typical-p to the whole row; return what stays, ranked."""
        depths, shares = self._work, self._shares
        with np.errstate(over="ignore"):
            np.subtract(row, peak, depths, dtype=np.float64)
            np.divide(depths, self._temperature, depths)
        np.maximum(depths, DEEPEST, out=depths)
        np.exp(depths, shares)
        total = shares.sum()
        mean = np.multiply(shares, depths, self._products).sum() / total
        distances = np.abs(np.subtract(depths, mean, depths), depths)
        for reach in REACHES:
            ids: Ids = np.less_equal(distances, reach, self._mask).nonzero()[0]
            order = np.lexsort((-shares[ids], distances[ids]))  # ids ascend, so ties go to the lower one
            count = int(np.searchsorted(shares[ids[order]].cumsum(), self._typical_p * total)) + 1
            if count <= ids.size:
                break
        return ranked(row, np.sort(ids[order[:count]]))
