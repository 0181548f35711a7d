"""Finding the few tokens that a draw can reach, exactly, and drawing one of them (genai §5.4, steps 6 to 10, and XTC).

Top-k uses a bound: split the row over some columns; the k-th largest of the column maxima is reached by k different
tokens, so no token below it is among the k largest. About 45 tokens of any vocabulary stay for k=40, and those are
sorted in plain Python.

Without top-k the threshold comes from min-p, or it sinks until the tokens above it hold the probability that top-p or
the drawn number asks for. The mass of the whole row is summed in single precision first; where its rounding could
change the result, again in double.

XTC ("exclude top choices") is by the author p-e-w, text-generation-webui's pull request 6335 (2024).

Not here: top-n-sigma and typical-p (`filters.py`).
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from itertools import accumulate
from operator import itemgetter, neg
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from .options import TextGenerationOptions

Row: TypeAlias = npt.NDArray[Any]
Ids: TypeAlias = npt.NDArray[np.intp]
Numbers: TypeAlias = Sequence[float] | Row
Ranked: TypeAlias = tuple[Numbers, Sequence[int] | Ids]

NO_TOKEN = -1
LIST_LIMIT = 1024
"""Up to so many candidates plain lists are quicker than NumPy calls."""
FOLD_LIMIT = 4096
"""With more tokens at the bound (ties, masks) a partition of the row is quicker."""
MASS_ERROR = 1e-5
"""Relative error of a mass in single precision, with room: the worst of 262,144 terms is about 4e-6."""
DEPTHS = (4.0, 8.0, 16.0, math.inf)
"""How far below the highest logit to look, in units of the temperature; 16 is a factor of 1e-7."""
_VALUE = itemgetter(0)


def without_special(row: Row) -> Row:
    """Return a copy where NaN is minus infinity; with any plus infinity only those survive, all equal."""
    copy = row.copy()
    copy[np.isnan(copy)] = -np.inf
    infinite = copy == np.inf
    if infinite.any():
        copy[:] = -np.inf
        copy[infinite] = 0
    return copy


def ranked(row: Row, ids: Ids, count: int | None = None) -> Ranked:
    """Return values and ids from high to low, ties by lower id; `ids` must ascend among equal values."""
    values = row[ids]
    if ids.size <= LIST_LIMIT:
        # A reversed sort is stable too, so equal values keep their ascending ids.
        pairs = sorted(zip(values.tolist(), ids.tolist(), strict=True), key=_VALUE, reverse=True)[:count]
        if pairs:
            ranked_values, ranked_ids = zip(*pairs, strict=True)
            return ranked_values, ranked_ids
    order = np.argsort(-values, kind="stable")[:count]
    return values[order].astype(np.float64), ids[order]


def _share_behind(sums: Numbers, first: int, total: float, u: float) -> float:
    """Return the running sum that `u` selects behind the first `first` weights; it stays below `total`."""
    below = float(sums[first - 1]) if first else 0.0
    return min(below + u * (total - below), math.nextafter(total, 0.0))


class Candidates:
    """Draws from the whole vocabulary, or from what top-p and min-p keep of it."""

    def __init__(self, options: TextGenerationOptions, vocabulary_size: int) -> None:
        self._temperature = options.temperature
        self._top_p = options.top_p
        self._min_p = options.min_p
        self._min_p_depth = -math.log(options.min_p) if options.min_p > 0 else math.inf
        self._has_plain_temperature = 1e-3 <= options.temperature <= 1e3  # single precision is safe for these
        self._xtc_threshold = options.xtc_threshold
        self.excludes_top = False
        """Whether XTC applies to the next draw."""
        self._mask = np.empty(vocabulary_size, np.bool_)
        self._weights = np.empty(vocabulary_size, np.float32)

    def draw(self, row: Row, u: float) -> int:
        """Return the token that the number `u` in [0, 1) selects, NO_TOKEN when none is above minus infinity."""
        peak = float(row.max())
        if not math.isfinite(peak):
            row = without_special(row)
            peak = float(row.max())
            if peak == -math.inf:
                return NO_TOKEN
        return self._draw_finite(row, peak, u)

    def _draw_finite(self, row: Row, peak: float, u: float) -> int:
        """Draw from a row whose highest logit is finite."""
        if self._top_p == 1 and self._min_p > 0:
            return self._pick(*self._above(row, peak, self._min_p_depth), u)
        if self._top_p == 1 and self.excludes_top:
            return self._draw_below_top(row, peak, u)
        return self._draw_by_mass(row, peak, u)

    def _draw_by_mass(self, row: Row, peak: float, u: float) -> int:
        """Sink the threshold until the tokens above it hold the share of the row's mass that decides."""
        share, find = (self._top_p, bisect_left) if self._top_p < 1 else (u, bisect_right)
        total, error = self._mass(row, peak)
        for depth in DEPTHS if self._min_p == 0 else (self._min_p_depth,):
            values, ids = self._above(row, peak, depth)
            weights, sums = self._ladder(values)
            if depth == math.inf:  # these tokens are the whole distribution
                total, error = float(sums[-1]), 0.0
            index = find(sums, share * total * (1 + error))
            if error and index != find(sums, share * total * (1 - error)):
                total, error = self._exact_mass(row, peak), 0.0
                index = find(sums, share * total)
            if index < len(sums):
                break
        index = min(index, len(sums) - 1)  # min-p may end before the share is reached
        return self._choose(weights, sums, index + 1, ids, u) if self._top_p < 1 else int(ids[index])

    def _draw_below_top(self, row: Row, peak: float, u: float) -> int:
        """Draw from the whole vocabulary without the tokens that XTC excludes: the number lies past their share."""
        total = self._exact_mass(row, peak)
        for depth in DEPTHS:
            values, ids = self._above(row, peak, depth)
            weights, sums = self._ladder(values)
            if depth == math.inf:
                total = float(sums[-1])
            first = self._excluded(weights, total, len(sums))
            index = bisect_right(sums, _share_behind(sums, first, total, u), first)
            if index < len(sums) and first + 1 < len(sums):  # a token below the threshold is among these
                break
        return int(ids[min(index, len(sums) - 1)])

    def _mass(self, row: Row, peak: float) -> tuple[float, float]:
        """Return the sum of the row's weights relative to its highest, and the relative error of that sum."""
        if row.dtype.char != "f" or not self._has_plain_temperature:
            return self._exact_mass(row, peak), 0.0
        weights = self._weights
        with np.errstate(over="ignore"):  # masks often hold the lowest finite number
            np.subtract(row, peak, weights)
            if self._temperature != 1:
                np.divide(weights, self._temperature, weights)
            np.exp(weights, weights)
        return float(weights.sum()), MASS_ERROR

    def _exact_mass(self, row: Row, peak: float) -> float:
        with np.errstate(over="ignore"):
            return float(np.exp((row.astype(np.float64) - peak) / self._temperature).sum())

    def _above(self, row: Row, peak: float, depth: float) -> Ranked:
        """Return the tokens within `depth` temperatures of the highest, and perhaps some just below."""
        return self._within(row, peak, depth * self._temperature)

    def _within(self, row: Row, peak: float, distance: float) -> Ranked:
        """Return the tokens whose logits are at most `distance` below the highest, and perhaps some just below."""
        # Rounding the threshold to single precision never shuts out a token; the slack covers the rounding of this
        # line.
        threshold = peak - distance - 1e-9 * (1 + abs(peak) + distance)
        lowest = float(np.finfo(row.dtype).min)
        return ranked(row, np.greater_equal(row, max(threshold, lowest), self._mask).nonzero()[0])

    def _ladder(self, values: Numbers) -> tuple[Numbers, Numbers]:
        """Return the weights exp((z - highest) / temperature) of ranked values, and their running sums."""
        peak, temperature = values[0], self._temperature
        if isinstance(values, np.ndarray):
            with np.errstate(over="ignore"):
                weights = np.exp((values - peak) / temperature)
            return weights, np.cumsum(weights)
        exp = math.exp
        plain = [exp((value - peak) / temperature) for value in values]
        return plain, list(accumulate(plain))

    def _pick(self, values: Numbers, ids: Sequence[int] | Ids, u: float) -> int:
        """Draw from candidates that are the whole distribution, after top-p and min-p."""
        weights, sums = self._ladder(values)
        count = len(sums)
        if self._top_p < 1:
            count = min(count, bisect_left(sums, self._top_p * sums[-1]) + 1)
        return self._choose(weights, sums, count, ids, u)

    def _choose(self, weights: Numbers, sums: Numbers, count: int, ids: Sequence[int] | Ids, u: float) -> int:
        """Apply min-p and XTC to the first `count` candidates and draw one of those that stay."""
        if self._min_p > 0:
            count = min(count, bisect_right(weights, -self._min_p, key=neg))
        total = sums[count - 1]
        if not self.excludes_top:
            return int(ids[bisect_right(sums, u * total, 0, count - 1)])
        first = self._excluded(weights, total, count)
        return int(ids[bisect_right(sums, _share_behind(sums, first, total, u), first, count - 1)])

    def _excluded(self, weights: Numbers, total: float, count: int) -> int:
        """Return how many of the first `count` tokens XTC leaves out: all with at least the threshold's share of
        `total`, but the last of them.
        """
        return max(bisect_right(weights, -self._xtc_threshold * total, 0, count, key=neg) - 1, 0)


class TopCandidates(Candidates):
    """Draws from the `top_k` highest logits (at least 2, below the vocabulary size)."""

    def __init__(self, options: TextGenerationOptions, vocabulary_size: int) -> None:
        super().__init__(options, vocabulary_size)
        self._top_k = options.top_k
        columns = 256
        while columns < 4 * self._top_k:
            columns *= 2
        self._can_fold = vocabulary_size >= 4 * columns
        self._folded_size = vocabulary_size - vocabulary_size % columns
        self._columns: Row = np.empty(columns if self._can_fold else 0, np.float32)

    def draw(self, row: Row, u: float) -> int:
        values, ids = self.top(row)
        return self._pick(values, ids, u) if len(values) else NO_TOKEN

    def top(self, row: Row) -> Ranked:
        """Return the `top_k` highest logits and their ids, fewer when there are fewer above minus infinity."""
        ids = self._fold(row) if self._can_fold else None
        if ids is None:
            row = without_special(row)
            ids = self._partition(row)
        values, top_ids = ranked(row, ids, self._top_k)
        if len(values) and values[0] == math.inf:
            row = without_special(row)
            values, top_ids = ranked(row, self._partition(row))
        return values, top_ids

    def _fold(self, row: Row) -> Ids | None:
        """Return a superset of the top-k tokens; None where the bound does not help: NaN, or too many equal logits."""
        if self._columns.dtype != row.dtype:
            self._columns = np.empty(self._columns.size, row.dtype)
        maxima = self._columns
        np.maximum.reduce(row[: self._folded_size].reshape(-1, maxima.size), axis=0, out=maxima)
        maxima.sort()
        bound = maxima[-self._top_k]
        if maxima[-1] != maxima[-1]:  # NaN sorts last; one in the unfolded rest fails the comparison below
            return None
        if bound == -math.inf:
            bound = np.finfo(row.dtype).min
        ids: Ids = np.greater_equal(row, bound, self._mask).nonzero()[0]
        return ids if ids.size <= max(FOLD_LIMIT, 4 * self._top_k) else None

    def _partition(self, row: Row) -> Ids:
        """Return exactly the top-k tokens of a row without NaN, or all above minus infinity when they are fewer."""
        place = row.size - self._top_k
        bound = np.partition(row, place)[place]
        above: Ids = np.greater(row, bound).nonzero()[0]
        if bound == -math.inf:
            return above
        equal: Ids = np.equal(row, bound).nonzero()[0]
        return np.concatenate((above, equal[: self._top_k - above.size]))
