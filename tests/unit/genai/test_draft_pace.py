"""How many tokens are drafted, by chances and costs."""

from __future__ import annotations

import pytest

from fakes.drafting import SetCosts
from genai.draft_pace import DraftPace
from genai.step_costs import StepCosts


class Measured(SetCosts):
    """The costs of SmolLM2 in Q4_1 on two cores."""

    def __init__(self) -> None:
        super().__init__()
        self._set = [1.0, 1.77, 2.49, 2.79, 3.44, 3.67, 4.1, 4.57, 5.1, 5.6, 6.1, 6.56, 7.0, 7.5, 8.0, 8.54, 9.0]


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
    assert DraftPace(Measured()).length([chance] * 16) == expected


def test_the_last_token_that_is_worth_it() -> None:
    # with chances of 1 each further token costs 0.2 and brings 1; the fourth chance is too low
    assert DraftPace(SetCosts(0.2)).length([1, 1, 1, 0.1, 1]) == 3


def test_no_more_than_there_are_chances() -> None:
    assert DraftPace(SetCosts(0.0)).length([0.9, 0.9]) == 2
    assert DraftPace(SetCosts(0.0)).length([]) == 0


def test_the_first_two_steps_are_single_ones() -> None:
    costs = StepCosts()
    pace = DraftPace(costs)
    assert pace.length([1.0] * 4) == 0
    costs.note(1, 0.01)
    assert pace.length([1.0] * 4) == 0
    costs.note(1, 0.01)
    assert pace.length([1.0] * 4) == 4


def test_a_gain_that_is_hardly_one_is_left() -> None:
    assert DraftPace(SetCosts(0.2)).length([0.25]) == 0  # 1.25 / 1.2 = 1.04
    assert DraftPace(SetCosts(0.2)).length([0.27]) == 1  # 1.27 / 1.2 = 1.06


def test_where_nothing_pays_a_token_is_tried_after_16_steps_then_32() -> None:
    pace = DraftPace(SetCosts(2.0))
    lengths = [pace.length([0.9] * 4) for _ in range(16 + 32 + 64)]
    assert [place for place, length in enumerate(lengths, 1) if length] == [16, 48, 112]
    assert set(lengths) == {0, 1}


def test_nothing_is_tried_with_a_poor_chance() -> None:
    pace = DraftPace(SetCosts(2.0))
    assert not any(pace.length([0.5] * 4) for _ in range(100))


def test_a_draft_that_pays_ends_the_wait() -> None:
    costs = SetCosts(2.0)
    pace = DraftPace(costs)
    for _ in range(40):
        pace.length([0.9])
    costs._set = [1.0] * 17
    assert pace.length([0.9]) == 1
    costs._set = [1.0, 3.0]
    assert [pace.length([0.9]) for _ in range(16)] == [0] * 15 + [1]
