"""P7: the first token of the second chat turn, when the history of the first turn is still known to the model.

The other side is arithmetic: the first turn's prompt time, times the share of the tokens that are new.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator

import genai

from . import subjects
from .measure import Plan, Row, main, shorter

HISTORY = 1000
"""Tokens of the first prompt."""


def turn_seconds(model: genai.LanguageModel, first: str, second: str) -> tuple[float, float]:
    """Measured and proportional seconds to the first token of the second turn."""
    chat = model.chat()
    one = chat.send(first, max_new_tokens=8)
    two = chat.send(second, max_new_tokens=8)
    new = two.prompt_token_count - one.prompt_token_count
    return two.timings.first_token_seconds, one.timings.prompt_seconds * new / one.prompt_token_count


def measure(plan: Plan) -> Iterator[Row]:
    """P7 on both engines, in milliseconds."""
    for name, path in (
        ("GGUF", subjects.gguf_file(plan.quick)),
        ("ONNX gqa q8", subjects.onnx_folder("gqa", "q8", plan.quick)),
    ):
        with genai.load(path, threads=plan.threads, context_length=2048) as model:
            words = len(model.tokenizer.encode(subjects.STORY))
            count = 2 if plan.quick else HISTORY // words
            runs = [
                turn_seconds(model, f"{number}. " + subjects.STORY * count, f"And what did he say? {subjects.STORY}")
                for number in range(plan.repeats)
            ]
        amounts = [statistics.median(column) * 1e3 for column in zip(*runs, strict=True)]
        pair = (amounts[0], amounts[1])
        yield shorter(f"P7 second chat turn, {name}", "prompt time x new share", pair, "ms", ("<= 1.3", "<= 1.1"))


if __name__ == "__main__":
    main(measure, __doc__)
