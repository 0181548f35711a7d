"""What selection and stop texts cost: memory for each token, and growth with the text."""

from __future__ import annotations

import tracemalloc

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
    ],
    ids=str,
)
def test_s_prf_01_no_step_makes_anything_as_long_as_the_vocabulary(options: dict[str, float]) -> None:
    row = (np.random.default_rng(1).standard_normal(VOCABULARY_SIZE) * 3).astype(np.float32)
    row[:50] += 12
    selector = TokenSelector(TextGenerationOptions(seed=1, **options), VOCABULARY_SIZE, range(500))  # type: ignore[arg-type]
    selector.accept(selector.select(row))
    tracemalloc.start()
    try:
        for _ in range(5):
            selector.accept(selector.select(row))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < VOCABULARY_SIZE  # one byte for each token would be a mask


def test_s_prf_04_a_stop_text_holds_no_more_than_a_stop() -> None:
    stops = tuple(f"<|stop {index} of fifty|>" for index in range(50))
    text = StopText(stops)
    for _ in range(5000):
        text.push("a <|stop 4")
        assert len(text.held) < len(stops[10])
