"""JSON schemas: what a constraint costs of the decode speed, and how many of 200 answers finish and are right."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import genai

from . import subjects
from .bounded_schemas import SCHEMAS, record, several, text, whole
from .measure import Plan, Row, alternate, faster, main

RUNS_PER_SCHEMA = 10
LONGEST = 256
ENDLESS = several(record(name=text(20), age=whole(0, 120), story={"type": "string"}), 1000, 2000)
"""A schema whose answers never end: objects with bounded and unbounded strings and numbers."""


def speed(plan: Plan) -> Iterator[Row]:
    """Tokens per second with and without a schema, the same sampling on both sides."""
    path = subjects.gguf_file(plan.quick)
    for mode, options in (("greedy", dict[str, Any]()), ("sampled", subjects.SAMPLING)):
        with (
            genai.load(path, threads=plan.threads, context_length=plan.context_length) as one,
            genai.load(path, threads=plan.threads, context_length=plan.context_length) as other,
        ):
            constrained = subjects.stream_step(one, plan, json_schema=ENDLESS, **options)
            seconds = alternate(constrained, subjects.stream_step(other, plan, **options), plan)
        yield faster(f"constrained decode, {mode}", "without a schema", seconds, 1, (">= 0.9", ">= 0.95"))


def answers(plan: Plan) -> Iterator[Row]:
    """The share of answers at temperature 1 that finish within 256 tokens; each of them is checked."""
    from jsonschema import Draft202012Validator

    runs = finished = wrong = 0
    with genai.load(subjects.gguf_file(plan.quick), threads=plan.threads, context_length=plan.context_length) as model:
        for question, schema in SCHEMAS[:2] if plan.quick else SCHEMAS:
            validator = Draft202012Validator(schema, format_checker=Draft202012Validator.FORMAT_CHECKER)
            for seed in range(1, 2 if plan.quick else RUNS_PER_SCHEMA + 1):
                result = model.generate(
                    f"{question}\nAnswer in JSON:\n",
                    json_schema=schema,
                    temperature=1,
                    seed=seed,
                    max_new_tokens=LONGEST,
                )
                runs += 1
                if result.constraint_complete:
                    finished += 1
                    wrong += not validator.is_valid(json.loads(result.text))
    yield Row("JSON answers that finish", "all runs", finished, runs, "answers", finished / runs, ">= 0.95", ">= 1")
    yield Row(
        "JSON answers that are wrong", "finished", wrong, finished, "answers", wrong / max(finished, 1), "<= 0", "<= 0"
    )


def measure(plan: Plan) -> Iterator[Row]:
    """Speed, then answers."""
    yield from speed(plan)
    yield from answers(plan)


if __name__ == "__main__":
    main(measure, __doc__)
