"""What selection and stop texts cost: memory for each token, and growth with the text."""

from __future__ import annotations

import math
import sys
import tracemalloc
from types import FrameType
from typing import Any

import numpy as np
import pytest

from genai.options import TextGenerationOptions
from genai.sampling import TokenSelector
from genai.stopping import StopText

VOCABULARY_SIZE = 128_000

pytestmark = pytest.mark.perf


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"temperature": 0.8, "top_k": 40, "top_p": 0.95, "min_p": 0.05},
        {"temperature": 0.8, "top_p": 0.95, "min_p": 0.05},
        {"temperature": 0.8, "top_p": 0.95},
        {"temperature": 0.8},
        {"temperature": 0.8, "top_k": 40, "repetition_penalty": 1.1, "presence_penalty": 0.5},
        {"temperature": 0.8, "typical_p": 0.9},
        {"temperature": 0.8, "top_n_sigma": 1.0},
        {"temperature": 0.8, "top_n_sigma": 1.0, "typical_p": 0.9, "top_k": 40},
        {"temperature": 0.8, "xtc_probability": 0.5, "min_p": 0.05},
        {"logit_bias": {7: 1.0, 9: -math.inf}, "min_new_tokens": 100},
        {"no_repeat_ngram_size": 3, "dry_multiplier": 0.8, "dry_sequence_breakers": ()},
    ],
    ids=str,
)
def test_s_prf_01_no_step_makes_anything_as_long_as_the_vocabulary(options: dict[str, Any]) -> None:
    row = (np.random.default_rng(1).standard_normal(VOCABULARY_SIZE) * 3).astype(np.float32)
    row[:50] += 12
    selector = TokenSelector(TextGenerationOptions(seed=1, **options), VOCABULARY_SIZE, range(500), eos_token_ids=[2])
    selector.accept(selector.select(row))
    tracemalloc.start()
    try:
        for _ in range(5):
            selector.accept(selector.select(row))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < VOCABULARY_SIZE  # one byte for each token would be a mask


def lines_of_a_token(prompt: list[int], **options: Any) -> int:
    """Lines of Python that selecting and accepting one token runs through."""
    selector = TokenSelector(TextGenerationOptions(**options), 8, prompt)
    row = np.zeros(8, np.float32)
    count = 0

    def trace(frame: FrameType, event: str, argument: object) -> Any:
        nonlocal count
        count += event == "line"
        return trace

    sys.settrace(trace)
    try:
        selector.accept(selector.select(row))
    finally:
        sys.settrace(None)
    return count


@pytest.mark.parametrize(
    "options",
    [{"no_repeat_ngram_size": 4}, {"dry_multiplier": 0.8, "dry_sequence_breakers": ()}, {"repetition_penalty": 1.1}],
    ids=str,
)
def test_repetitions_are_looked_up_not_searched_for(options: dict[str, Any]) -> None:
    generator = np.random.default_rng(2)
    # "6 7" comes once in each, in front of another token, and at the end.
    short, long = ([*generator.integers(0, 6, count).tolist(), 6, 7, 1, 6, 7] for count in (100, 10_000))
    assert lines_of_a_token(long, **options) == lines_of_a_token(short, **options)


def test_a_long_repetition_is_followed_no_further_than_its_penalty_grows() -> None:
    options = {"dry_multiplier": 0.8, "dry_sequence_breakers": ()}
    assert lines_of_a_token([5] * 3000, **options) == lines_of_a_token([5] * 1000, **options)


def test_what_is_off_costs_no_line() -> None:
    plain = lines_of_a_token([1, 2, 3])
    assert plain <= 20
    assert lines_of_a_token([1, 2, 3], xtc_threshold=0.3, dry_base=2, dry_allowed_length=4, include_stop=True) == plain


def test_s_prf_04_a_stop_text_holds_no_more_than_a_stop() -> None:
    stops = tuple(f"<|stop {index} of fifty|>" for index in range(50))
    text = StopText(stops)
    for _ in range(5000):
        text.push("a <|stop 4")
        assert len(text.held) < len(stops[10])
