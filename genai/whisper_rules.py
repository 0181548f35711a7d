"""What a Whisper decoder may say next: the rules that a row of logits is masked with before a token is chosen.

Algorithm: the published decoding rules of Whisper. Timestamps come in pairs around a piece of text and never decrease,
the first one is soon, and one is forced where all of them together are likelier than the likeliest piece of text. Not
here: running the decoder (`whisper_decoding.py`), choosing from the row (`sampling.py`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from .whisper_folder import TIMESTAMP_SECONDS, WhisperTokens

Row = npt.NDArray[np.float32]
_NEVER = np.float32(-np.inf)


@dataclass(frozen=True, slots=True)
class WhisperRules:
    """How one window of sound is decoded."""

    timestamps: bool = False
    """Whether timestamp tokens frame each piece of text; the prompt must ask for them too."""
    max_initial_timestamp: float | None = 1.0
    """Latest start of the first piece in seconds; None: anywhere."""
    temperature: float = 0.0
    """0: the likeliest token; above, tokens are drawn."""
    seed: int = 0
    """Of the draws; 0: a fresh one."""
    max_new_tokens: int | None = None
    """None: up to the model's last position."""


class RowMask:
    """Applies the rules to one row after the other. `vocabulary_size` is the length of a row."""

    def __init__(self, tokens: WhisperTokens, rules: WhisperRules, vocabulary_size: int) -> None:
        self._tokens = tokens
        self._timestamps = rules.timestamps
        never = {*tokens.suppress, *((tokens.no_timestamps,) if rules.timestamps else ())}
        self._never = _indices(never, vocabulary_size)
        self._never_first = _indices(tokens.suppress_at_begin, vocabulary_size)
        self._last_first_time: int | None = None
        if rules.max_initial_timestamp is not None:
            self._last_first_time = tokens.timestamp_begin + round(rules.max_initial_timestamp / TIMESTAMP_SECONDS)
        self._row = np.empty(vocabulary_size, np.float32)

    def apply(self, row: npt.NDArray[Any], said: Sequence[int]) -> Row:
        """Return a copy of `row` in which what may not follow `said`, the tokens after the prompt, is -inf.

        The copy is written anew by the next call.
        """
        masked = self._row
        np.fmax(row, _NEVER, out=masked, casting="same_kind")  # a copy in which NaN is -inf
        masked[self._never] = _NEVER
        if not said:
            masked[self._never_first] = _NEVER
        if self._timestamps:
            self._frame(masked, said)
        return masked

    def _frame(self, row: Row, said: Sequence[int]) -> None:
        """Have timestamps frame the text."""
        begin, end = self._tokens.timestamp_begin, self._tokens.end
        if not said:
            row[:begin] = _NEVER
            if self._last_first_time is not None:
                row[self._last_first_time + 1 :] = _NEVER
            return
        is_after_time = said[-1] >= begin
        is_open = is_after_time and (len(said) < 2 or said[-2] >= begin)  # the last time starts a piece
        if is_open:
            row[begin:] = _NEVER
        elif is_after_time:
            row[:end] = _NEVER
        latest = next((token_id for token_id in reversed(said) if token_id >= begin), None)
        if latest is not None:
            # A piece has some length; only where one ends may the next start at once.
            row[begin : latest if is_after_time and not is_open else latest + 1] = _NEVER
        if _log_sum(row[begin:]) > row[:begin].max(initial=-np.inf):
            row[:begin] = _NEVER


def log_probability(row: Row, token_id: int) -> float:
    """Return the natural logarithm of a token's probability; -inf for one that the row rules out."""
    return float(row[token_id]) - _log_sum(row)


def _log_sum(values: Row) -> float:
    """Logarithm of the sum of the exponentials."""
    if not values.size:
        return -np.inf
    highest = float(values.max())
    if not np.isfinite(highest):
        return highest
    weights = values - np.float32(highest)
    np.exp(weights, out=weights)
    return highest + float(np.log(weights.sum()))


def _indices(token_ids: Sequence[int] | set[int] | tuple[int, ...], vocabulary_size: int) -> npt.NDArray[np.intp]:
    return np.array(sorted(token_id for token_id in set(token_ids) if token_id < vocabulary_size), np.intp)
