"""What a caller asks of one generation (genai §5.3) and the checks of its values (genai §0.3).

Wrong types are TypeError, values out of range ValueError, both before any model runs. Nothing is repaired or clipped.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from numbers import Real
from typing import Any

from .checks import index_value

UINT64_MAX = 0xFFFFFFFFFFFFFFFF


def finite(value: Any, name: str) -> float:
    """Return `value` as a finite float; integers and NumPy scalars are numbers, bool is not (TypeError)."""
    if isinstance(value, bool) or not isinstance(value, Real):
        raise TypeError(f"{name} must be a number, not {type(value).__name__}")
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if not math.isfinite(number):
        raise ValueError(f"{name} must be finite, not {value}")
    return number


def stop_texts(value: Any) -> tuple[str, ...]:
    """Return stop strings as a tuple; one str is one stop, an empty one is ValueError."""
    if value is None:
        raise TypeError("stop must be a str or an iterable of str, not None")
    stops = (value,) if isinstance(value, str) else tuple(value)
    for stop in stops:
        if not isinstance(stop, str):
            raise TypeError(f"stop must hold str, not {type(stop).__name__}")
        if not stop:
            raise ValueError("stop must not hold an empty string: it would match before the first token")
    return stops


@dataclass(frozen=True)
class TextGenerationOptions:
    """Limits, stops and sampling of one operation; the defaults are greedy decoding of up to 256 tokens.

    max_new_tokens: most emitted tokens, 1 to 2**32-1.
    stop_token_ids: ids that end the text beside the end-of-sequence ids; any iterable, stored as a tuple.
    temperature: divides the logits; 0 takes the highest logit and leaves the filters and the seed without effect.
    top_k: keep the k likeliest tokens; 0 is off.
    top_p: keep the shortest list of likeliest tokens with at least this probability, above 0 up to 1; 1 is off.
    min_p: keep tokens with at least this fraction of the highest probability, 0 to 1; 0 is off.
    repetition_penalty: divides positive and multiplies other logits of earlier tokens (prompt too); above 0, 1 is off.
    repetition_penalty_window: how many last tokens count as earlier; 0 means all of them.
    presence_penalty: subtracted once from the logit of each token emitted by this operation; negative values reward.
    frequency_penalty: subtracted once for each time such a token was emitted.
    seed: start of the random numbers, up to 2**64-1; 0 takes a fresh one, which the result reports.
    stop: texts that end the generation; the text before the earliest match is kept. One str is one stop.

    Raises TypeError for wrong types (bool included) and ValueError for values out of range, NaN or infinite.
    """

    max_new_tokens: int = 256
    stop_token_ids: Iterable[int] = ()
    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    repetition_penalty_window: int = 0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    seed: int = 0
    stop: Iterable[str] = field(default=(), kw_only=True)

    def __post_init__(self) -> None:
        checked = {
            "max_new_tokens": index_value(self.max_new_tokens, "max_new_tokens", minimum=1),
            "stop_token_ids": tuple(index_value(token_id, "stop_token_ids") for token_id in self.stop_token_ids),
            "temperature": finite(self.temperature, "temperature"),
            "top_k": index_value(self.top_k, "top_k"),
            "top_p": finite(self.top_p, "top_p"),
            "min_p": finite(self.min_p, "min_p"),
            "repetition_penalty": finite(self.repetition_penalty, "repetition_penalty"),
            "repetition_penalty_window": index_value(self.repetition_penalty_window, "repetition_penalty_window"),
            "presence_penalty": finite(self.presence_penalty, "presence_penalty"),
            "frequency_penalty": finite(self.frequency_penalty, "frequency_penalty"),
            "seed": index_value(self.seed, "seed", UINT64_MAX),
            "stop": stop_texts(self.stop),
        }
        for name, value in checked.items():
            object.__setattr__(self, name, value)
        _require(self.temperature >= 0, "temperature must not be negative", self.temperature)
        _require(0 < self.top_p <= 1, "top_p must be above 0 and at most 1", self.top_p)
        _require(0 <= self.min_p <= 1, "min_p must be in 0..1", self.min_p)
        _require(self.repetition_penalty > 0, "repetition_penalty must be above 0", self.repetition_penalty)


def _require(holds: bool, rule: str, value: float) -> None:
    if not holds:
        raise ValueError(f"{rule}, not {value}")
