"""What a caller changes in a row of logits: biases, own functions, tokens that may not end the text (genai §8).

Penalties are in `penalties.py`, repetitions in `repetitions.py`. All of them change a float64 row in place and hear of
every token that was chosen.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

Row: TypeAlias = npt.NDArray[Any]


class RowEdit(Protocol):
    """One step between the row of the model and the choice of a token."""

    def apply(self, row: Row) -> None:
        """Change the row in place."""

    def accept(self, token_id: int) -> None:
        """Count a token as emitted."""


class Bias:
    """Adds to the logits of some tokens; minus infinity bans them, whatever their logit."""

    def __init__(self, values: Mapping[int, float], vocabulary_size: int) -> None:
        check_bias(values, vocabulary_size)
        self._ids = np.array([token_id for token_id, value in values.items() if value > -np.inf], np.intp)
        self._values = np.array([value for value in values.values() if value > -np.inf], np.float64)
        self._banned = np.array([token_id for token_id, value in values.items() if value == -np.inf], np.intp)

    def apply(self, row: Row) -> None:
        if self._ids.size:
            row[self._ids] += self._values
        if self._banned.size:
            row[self._banned] = -np.inf

    def accept(self, token_id: int) -> None:
        """Biases are the same for every token."""


def check_bias(values: Mapping[Any, float], vocabulary_size: int) -> None:
    """Raise ValueError for a bias on a token that the vocabulary does not have."""
    largest = max(values)
    if largest >= vocabulary_size:
        raise ValueError(f"logit_bias: token id {largest} is outside the vocabulary of {vocabulary_size}")


class Processors:
    """Hands the row to the functions of the caller, one after the other."""

    def __init__(self, functions: Iterable[Callable[[tuple[int, ...], Any], Any]], prompt_ids: Iterable[int]) -> None:
        self._functions = tuple(functions)
        self._ids = list(prompt_ids)

    def apply(self, row: Row) -> None:
        row[np.isnan(row)] = -np.inf
        ids = tuple(self._ids)
        for index, function in enumerate(self._functions):
            changed = function(ids, row)
            if changed is not row:
                np.copyto(row, _checked(changed, row, f"logits_processors[{index}]"))

    def accept(self, token_id: int) -> None:
        self._ids.append(token_id)


def _checked(changed: Any, row: Row, name: str) -> Row:
    if changed is None:
        raise TypeError(f"{name} returned None; it must return the row")
    array = np.asarray(changed, np.float64)
    if array.shape != row.shape:
        raise ValueError(f"{name} must return a row of shape {row.shape}, not {array.shape}")
    return array


class EndBan:
    """Bans the tokens that end a text, for the first `count` tokens or (None) for all."""

    def __init__(self, token_ids: Iterable[int], count: int | None, vocabulary_size: int) -> None:
        self._ids = np.array([token_id for token_id in token_ids if token_id < vocabulary_size], np.intp)
        self._left = count
        self._saved: Row | None = None

    def apply(self, row: Row) -> None:
        self._saved = None
        if self._left != 0:
            self._saved = row[self._ids]
            row[self._ids] = -np.inf

    def lift(self, row: Row) -> bool:
        """Undo the last `apply`; False when it banned nothing."""
        if self._saved is None:
            return False
        row[self._ids] = self._saved
        return True

    def accept(self, token_id: int) -> None:
        if self._left:
            self._left -= 1
