"""What prompt lookup gains and costs, counted in single steps: the costs of wide steps are given, not measured."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest

from genai.draft_pace import draft_length
from genai.prompt_lookup import PromptLookup
from genai.step_costs import StepCosts
from rules.project import text_of

pytestmark = pytest.mark.perf

SLOW = (1.0, 1.77, 2.49, 2.79, 3.44, 3.67, 4.1, 4.57, 5.1, 5.6, 6.1, 6.56, 7.0, 7.5, 8.0, 8.54, 9.0)
"""A step over 1, 2, ... tokens of SmolLM2 in Q4_1 on two cores."""
FAST = tuple(1 + 0.12 * more for more in range(17))
"""About the same model with 8-bit weights on ONNX Runtime."""
USELESS = tuple(float(width) for width in range(1, 18))
"""An engine that takes as long for two tokens together as for two in a row."""


def words(page: str) -> list[int]:
    """The words and signs of a page as token ids."""
    ids: dict[str, int] = {}
    text = text_of(page)
    for sign in ".,:;()`|\"'":
        text = text.replace(sign, f" {sign} ")
    return [ids.setdefault(word, len(ids)) for word in text.split()]


def gain(prompt: Sequence[int], output: Sequence[int], costs: Sequence[float], noise: float = 0.0) -> float:
    """Tokens per single step; each measured time is longer than the true one by a random part."""
    chance = random.Random(1)
    measured, source, sequence = StepCosts(), PromptLookup(), list(prompt)
    source.begin(sequence)
    spent, place = 0.0, 0
    while place < len(output):
        count = draft_length(measured, source.outlook(sequence, min(16, len(output) - place - 1)))
        draft = source.propose(sequence, count)
        right = 0
        while right < len(draft) and draft[right] == output[place + right]:
            right += 1
        cost = costs[len(draft)]
        measured.note(1 + len(draft), cost * (1 + noise * chance.expovariate(1)))
        spent += cost
        sequence += output[place : place + right + 1]
        place += right + 1
    return len(output) / spent


TEXT = random.Random(2).choices(range(500), k=300)
EDITED = [(token + 1000) if place % 40 == 39 else token for place, token in enumerate(TEXT)]


@pytest.mark.parametrize(("costs", "least"), [(SLOW, 1.7), (FAST, 4.5)])
def test_a_copied_text(costs: tuple[float, ...], least: float) -> None:
    assert gain(TEXT, TEXT, costs) > least
    assert gain(TEXT, TEXT, costs, noise=0.3) > least - 0.2


@pytest.mark.parametrize(("costs", "least"), [(SLOW, 1.2), (FAST, 3.0)])
def test_a_text_with_every_fortieth_word_changed(costs: tuple[float, ...], least: float) -> None:
    assert gain(TEXT, EDITED, costs) > least


@pytest.mark.parametrize("costs", [SLOW, FAST, USELESS])
@pytest.mark.parametrize("page", ["docs/generate.md", "docs/errors.md", "docs/pipelines.md", "genai/sequence.py"])
def test_free_text_loses_little(costs: tuple[float, ...], page: str) -> None:
    text = words(page)
    assert gain(text[:100], text[100:], costs) > 0.95


@pytest.mark.parametrize("noise", [0.0, 0.3])
def test_a_copied_text_loses_little_where_wide_steps_gain_nothing(noise: float) -> None:
    assert gain(TEXT, TEXT, USELESS, noise) > 0.93
