"""What a caller adds to the logits of single tokens: an immutable mapping (genai §8, `logit_bias`).

Not here: adding it to a row (`row_edits.py`).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from numbers import Real
from typing import Any

from .checks import index_value


class LogitBias(Mapping[int, float]):
    """Token ids and what is added to their logits, in ascending order of ids; minus infinity bans a token.

    It can be hashed and compares equal to any mapping of the same content.
    """

    __slots__ = ("_values",)

    def __init__(self, values: Mapping[Any, Any]) -> None:
        checked: dict[int, float] = {}
        for key, value in values.items():
            token_id = _token_id(key)
            if token_id in checked:
                raise ValueError(f"logit_bias has token {token_id} twice")
            checked[token_id] = _bias(value)
        self._values = dict(sorted(checked.items()))

    def __getitem__(self, token_id: int) -> float:
        return self._values[token_id]

    def __iter__(self) -> Iterator[int]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __hash__(self) -> int:
        return hash(tuple(self._values.items()))

    def __repr__(self) -> str:
        return repr(self._values)


def logit_biases(values: Any) -> LogitBias | None:
    """Check a `logit_bias`; None and an empty mapping are None."""
    if values is None:
        return None
    if not isinstance(values, Mapping):
        raise TypeError(f"logit_bias must be a mapping of token ids to numbers, not {type(values).__name__}")
    return LogitBias(values) if values else None


def _token_id(key: Any) -> int:
    """Return a token id; JSON has them as strings of digits."""
    if not isinstance(key, str):
        return index_value(key, "logit_bias token id")
    if not (key.isascii() and key.isdigit()):
        raise ValueError(f"logit_bias keys must be token ids, not {key!r}")
    return index_value(int(key), "logit_bias token id")


def _bias(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, Real):
        raise TypeError(f"logit_bias values must be numbers, not {type(value).__name__}")
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if math.isnan(number) or number == math.inf:
        raise ValueError(f"logit_bias values must be finite or minus infinity, not {value}")
    return number
