"""P12: what streaming costs outside the model at token 4,000 against token 100: nothing may grow with the answer."""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator
from unittest.mock import patch

import genai
from models.recipes import random_gguf
from winml_lite import Pipeline

from . import subjects
from .measure import Plan, Row, main, shorter

WINDOW = 50
"""Tokens on each side of the two places."""


def costs(model: genai.LanguageModel, tokens: int) -> list[float]:
    """Seconds of each piece of one greedy stream that looks for a stop string which never comes.

    After the prompt the model stands still: its own time grows with the position, and a longer run of it leaves colder
    caches behind, which would count as ours.
    """
    stream = model.stream(subjects.STORY, max_new_tokens=tokens, stop=("never said",))
    next(stream)
    found: list[float] = []
    with patch.object(Pipeline, "run", lambda pipeline: None):
        while True:
            start = time.perf_counter()
            if next(stream, None) is None:
                return found
            found.append(time.perf_counter() - start)


def measure(plan: Plan) -> Iterator[Row]:
    """P12 on the random tiny model, in microseconds per token."""
    late = 400 if plan.quick else 4000
    with genai.load(random_gguf(subjects.scratch("growth")), threads=1, context_length=late + 500) as model:
        runs = [costs(model, late + WINDOW) for _ in range(min(plan.repeats, 5))]
    early = statistics.median(seconds for run in runs for seconds in run[100 - WINDOW : 100 + WINDOW])
    end = statistics.median(seconds for run in runs for seconds in run[-2 * WINDOW :])
    yield shorter(
        f"P12 cost at token {late}", "cost at token 100", (end * 1e6, early * 1e6), "µs", ("<= 1.1", "<= 1.0")
    )


if __name__ == "__main__":
    main(measure, __doc__)
