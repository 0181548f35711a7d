"""Prompt lookup: tokens per second with and without it, on a text that is copied and on free text.

Steps of different widths have no common median, so whole generations are compared, in pairs that take turns; the ratio
is the median of those of the pairs. The times of the prompt do not count.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import genai

from . import subjects
from .measure import Plan, Row, main

LONGEST = 256
TEXT = """The village of Marlow stands on a low hill between two rivers. Its houses are built of grey stone, and most \
of them are more than three hundred years old. In the middle there is a square with a well, a bakery, and a small shop \
that sells bread, candles, rope and newspapers. Every Saturday the farmers bring apples, cheese, honey and eggs to the \
market, and people from the valley come to buy them. The school has only two rooms. Forty children learn there to \
read, to write and to count, and in the afternoon they play near the old bridge. The teacher, Mrs. Harper, came from \
the city twelve years ago. She wanted to stay for one summer, but she liked the quiet evenings and the smell of the \
fields, and so she never left. In winter the road to the north is often closed by snow. Then the mail comes late, the \
shop runs out of sugar, and the neighbours meet in the evening to play cards and to tell stories about the great flood \
of 1872. That year the water reached the doors of the church, and the bell rang for two nights without a pause. Nobody \
was hurt, yet the mill was lost, and its heavy wheel was found far down the river in spring. Today the wheel lies in \
the garden behind the school, and the children sit on it when the sun is warm."""
COPYING = f"{TEXT}\n\nThe village of Marlow stands on a low hill between two rivers."
"""280 tokens, and the beginning of the same text again: the model goes on with the rest of it."""

Run = Callable[[genai.LanguageModel, int], genai.TextGenerationResult]


def copied(model: genai.LanguageModel, number: int) -> genai.TextGenerationResult:
    """Generate what copies the prompt, of which there is too much for the small models of a quick run."""
    prompt = model.tokenizer.encode(COPYING)[LONGEST - model.context_length :]
    return model.generate(prompt, max_new_tokens=LONGEST, ignore_eos=True)


def free(model: genai.LanguageModel, number: int) -> genai.TextGenerationResult:
    """Generate a story, another one each time."""
    fields = {**subjects.SAMPLING, "seed": number + 1}
    return model.generate(subjects.STORY, max_new_tokens=LONGEST, ignore_eos=True, **fields)


def compare(path: Path, run: Run, plan: Plan) -> tuple[list[float], list[float]]:
    """Tokens per second of each pair, with lookup and without; both have generated once before."""
    speeds: tuple[list[float], list[float]] = ([], [])
    settings: dict[str, Any] = {"threads": plan.threads, "context_length": plan.context_length}
    with genai.load(path, speculation="lookup", **settings) as with_lookup, genai.load(path, **settings) as without:
        sides = list(zip((with_lookup, without), speeds, strict=True))
        for model, _ in sides:
            run(model, 0)
        for number in range(plan.repeats):
            for model, found in sides if number % 2 == 0 else sides[::-1]:
                found.append(run(model, number).timings.decode_tokens_per_second)
    return speeds


def measure(plan: Plan) -> Iterator[Row]:
    """Both texts on both engines."""
    gguf, onnx = subjects.gguf_file(plan.quick), subjects.onnx_folder("gqa", "q8", plan.quick)
    for kind, path, must, aim in (("GGUF", gguf, 1.2, 1.4), ("ONNX gqa q8", onnx, 1.4, 2.0)):
        cases: list[tuple[str, Run, tuple[str, str]]] = [
            ("copied text", copied, (f">= {must}", f">= {aim}")),
            ("free text", free, (">= 0.95", ">= 0.99")),
        ]
        for name, run, bounds in cases:
            ours, other = compare(path, run, plan)
            ratio = statistics.median(one / two for one, two in zip(ours, other, strict=True))
            speed = statistics.median(ours), statistics.median(other)
            yield Row(f"prompt lookup, {kind}, {name}", "without lookup", *speed, "tokens/s", ratio, *bounds)


if __name__ == "__main__":
    main(measure, __doc__)
