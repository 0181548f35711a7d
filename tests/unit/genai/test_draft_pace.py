"""How many tokens are drafted, by chances and costs."""

from __future__ import annotations

import pytest

from fakes.drafting import SetCosts
from genai.draft_pace import draft_length
from genai.step_costs import StepCosts

MEASURED = [1.0, 1.77, 2.49, 2.79, 3.44, 3.67, 4.1, 4.57, 5.1, 5.6, 6.1, 6.56, 7.0, 7.5, 8.0, 8.54, 9.0]
"""The costs of SmolLM2 in Q4_1 on two cores."""


@pytest.mark.parametrize(
    ("chance", "expected"),
    [
        (0.6, 0),  # 1.60 / 1.77, 1.96 / 2.49, 2.18 / 2.79: none is a gain
        (0.78, 0),  # 1.78 / 1.77 = 1.01, 2.86 / 2.79 = 1.03: hardly any
        (0.9, 5),  # 3.44 / 2.79 = 1.23, 4.69 / 3.67 = 1.28, 5.70 / 4.57 = 1.25
        (1.0, 16),
    ],
)
def test_the_length_with_the_most_tokens_for_the_time(chance: float, expected: int) -> None:
    assert draft_length(SetCosts(curve=MEASURED), [chance] * 16) == expected


def test_the_last_token_that_is_worth_it() -> None:
    # with chances of 1 each further token costs 0.2 and brings 1; the fourth chance is too low
    assert draft_length(SetCosts(0.2), [1, 1, 1, 0.1, 1]) == 3


def test_no_more_than_there_are_chances() -> None:
    assert draft_length(SetCosts(0.0), [0.9, 0.9]) == 2
    assert draft_length(SetCosts(0.0), []) == 0


def test_what_is_hardly_possible_is_not_looked_at() -> None:
    assert draft_length(SetCosts(0.0), [0.2, 0.2, 1.0, 1.0]) == 2


def test_nothing_where_wide_steps_cost_what_they_bring() -> None:
    assert draft_length(SetCosts(1.0), [1.0] * 16) == 0


def test_a_gain_that_is_hardly_one_is_left() -> None:
    assert draft_length(SetCosts(0.2), [0.31]) == 0  # 1.31 / 1.2 = 1.09
    assert draft_length(SetCosts(0.2), [0.33]) == 1  # 1.33 / 1.2 = 1.11


def test_two_single_steps_come_first_and_then_a_short_draft() -> None:
    costs = StepCosts()
    assert draft_length(costs, [1.0] * 8) == 0
    costs.note(1, 0.01)
    assert draft_length(costs, [1.0] * 8) == 0
    costs.note(1, 0.01)
    assert draft_length(costs, [1.0] * 8) == 2
    costs.note(3, 0.01)
    assert draft_length(costs, [1.0] * 8) == 8


def test_a_cost_that_was_high_is_tried_again_when_it_is_forgotten() -> None:
    costs = StepCosts()
    for _ in range(2):
        costs.note(1, 0.01)
    costs.note(3, 0.09)
    assert draft_length(costs, [1.0] * 8) == 0
    for _ in range(127):
        costs.note(1, 0.01)
        assert draft_length(costs, [1.0] * 8) == 0
    for _ in range(8):
        costs.note(1, 0.01)
    assert draft_length(costs, [1.0] * 8) == 2
