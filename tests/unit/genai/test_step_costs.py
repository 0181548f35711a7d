"""What steps cost by their width: measured, and estimated from what was measured."""

from __future__ import annotations

import pytest

from genai.step_costs import StepCosts


def noted(**widths: float) -> list[float]:
    costs = StepCosts()
    for name, seconds in widths.items():
        costs.note(int(name[1:]), seconds)
    return costs.present.curve


def test_each_position_is_thought_to_cost_a_quarter_before_anything_was_measured() -> None:
    curve = noted()
    assert curve[:4] == [1.0, 1.25, 1.5, 1.75]
    assert len(curve) == 17


def test_single_steps_alone_tell_nothing_of_wider_ones() -> None:
    assert noted(w1=0.01)[:3] == [1.0, 1.25, 1.5]


def test_a_measured_width_has_its_cost() -> None:
    assert noted(w1=0.01, w4=0.028)[3] == pytest.approx(2.8)


def test_between_measured_widths_costs_lie_on_a_line() -> None:
    assert noted(w1=0.01, w4=0.028)[:4] == pytest.approx([1.0, 1.6, 2.2, 2.8])
    assert noted(w1=0.01, w2=0.02, w4=0.03)[:4] == pytest.approx([1.0, 2.0, 2.5, 3.0])


def test_beyond_the_widest_the_slope_goes_on_with_three_quarters() -> None:
    # (2.8 - 1) / 3 is 0.6 for each position, three quarters of it are 0.45
    assert noted(w1=0.01, w4=0.028)[4:8] == pytest.approx([3.25, 3.7, 4.15, 4.6])


def test_a_wider_step_costs_no_less_than_a_single_one() -> None:
    assert noted(w1=0.01, w2=0.005)[1] == 1.0


def test_the_median_of_the_last_seven_counts() -> None:
    costs = StepCosts()
    costs.note(1, 0.01)
    for seconds in (9, 9, 0.02, 0.03, 0.04, 0.05, 9, 0.06, 9):
        costs.note(2, seconds)
    assert costs.present.curve[1] == pytest.approx(5.0)


def test_of_two_times_the_lower_counts() -> None:
    costs = StepCosts()
    costs.note(1, 0.01)
    costs.note(2, 0.5)  # the first step of a width prepares for it
    costs.note(2, 0.02)
    assert costs.present.curve[1] == pytest.approx(2.0)


def test_times_are_forgotten_after_128_steps() -> None:
    costs = StepCosts()
    costs.note(1, 0.01)
    costs.note(4, 0.09)
    for _ in range(127):
        costs.note(1, 0.01)
        assert costs.present.knows_wide_steps
        assert costs.present.curve[3] == pytest.approx(9.0)
    for _ in range(8):  # single steps are looked at eight by eight
        costs.note(1, 0.01)
    assert not costs.present.knows_wide_steps
    assert costs.present.curve[3] == 1.75


def test_two_single_steps_are_enough_to_compare_with() -> None:
    costs = StepCosts()
    costs.note(1, 0.01)
    assert not costs.present.knows_single_steps
    costs.note(1, 0.01)
    assert costs.present.knows_single_steps
    for _ in range(128):
        costs.note(4, 0.01)
    assert not costs.present.knows_single_steps


def test_drafting_costs_time_for_each_token() -> None:
    costs = StepCosts()
    costs.note(1, 0.01)
    costs.note(3, 0.01)
    costs.note_draft(4, 0.008)
    assert costs.present.curve[:3] == pytest.approx([1.0, 1.2, 1.4])
