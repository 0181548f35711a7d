"""Selection of one token: the numbered statements and the worked numbers of genai 5.4, and the sampling cases.

S-SMP-05 wants seed 0 to be an ordinary seed, and S-SMP-06 window 0 to be off and -1 to be all. That does not apply: the
official options say that seed 0 is a fresh seed, that window 0 is the whole sequence, and that -1 is out of range.
S-SMP-04 is in `test_sampling_extensions.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from fakes.legal_tokens import Only
from genai.options import TextGenerationOptions
from genai.random_numbers import split_mix64, unit_interval
from genai.sampling import TokenSelector
from winml_lite import WinMLError

Z = (2.0, 1.0, 0.5, -1.0)


def row(values: Sequence[float]) -> npt.NDArray[np.float32]:
    return np.array(values, np.float32)


def select(values: Sequence[float], prompt: Sequence[int] = (), emitted: Sequence[int] = (), **options: Any) -> int:
    """Select one token after a prompt and emitted tokens."""
    selector = TokenSelector(TextGenerationOptions(**options), len(values), prompt)
    for token_id in emitted:
        selector.accept(token_id)
    return selector.select(row(values))


def draws(values: Sequence[float], count: int, **options: Any) -> list[int]:
    """Select `count` tokens of one operation from the same row."""
    return chosen(TokenSelector(TextGenerationOptions(**options), len(values)), values, count)


def chosen(selector: TokenSelector, values: Sequence[float], count: int, legal: Only | None = None) -> list[int]:
    """Select and accept `count` tokens from the same row."""
    picks = []
    for _ in range(count):
        picks.append(selector.select(row(values), legal))
        selector.accept(picks[-1])
    return picks


def test_generator_vectors_of_seed_1() -> None:
    assert [split_mix64(1), split_mix64(1, 1)] == [0x910A2DEC89025CC1, 0xBEEB8DA1658EEC67]


def test_generator_numbers_of_seed_1() -> None:
    assert unit_interval(split_mix64(1)) == pytest.approx(0.566561575172, abs=1e-12)


def test_generator_numbers_of_seed_42() -> None:
    numbers = [unit_interval(split_mix64(42, place)) for place in range(3)]
    assert numbers == pytest.approx([0.741564878772, 0.159910392877, 0.278601130255], abs=1e-12)


def test_g64_of_equal_logits_greedy_takes_the_lower_id() -> None:
    assert select([1, 3, 3]) == 1


def test_g65_repetition_penalty_makes_a_tie() -> None:
    # r=2 with history {0, 3}: [1, 1, .5, -2]
    assert select(Z, prompt=[0, 3], repetition_penalty=2) == 0


def test_g65_a_stronger_penalty_changes_the_winner() -> None:
    assert select(Z, prompt=[0, 3], repetition_penalty=2.1) == 1


def test_g66_a_negative_logit_is_multiplied() -> None:
    # -1 * 2 = -2 lies below -1.5; divided it would be -0.5 and win.
    assert select([-1, -1.5], prompt=[0], repetition_penalty=2) == 1


def test_g66_a_positive_logit_is_divided_once_however_often_it_occurred() -> None:
    # 2 / 2 = 1 stays above 0.9; divided five times it would be 0.06.
    assert select([2, 0.9], prompt=[0, 0, 0, 0, 0], repetition_penalty=2) == 0


def test_g67_window_zero_reaches_to_the_start_of_the_prompt() -> None:
    prompt = [0] + [2] * 1000
    assert select([2, 1.9, -9], prompt, repetition_penalty=2, repetition_penalty_window=0) == 1


def test_g67_window_one_reaches_the_last_token_only() -> None:
    assert select([2, 1.9, -9], [0, 2], repetition_penalty=2, repetition_penalty_window=1) == 0
    assert select([2, 1.9, -9], [2, 0], repetition_penalty=2, repetition_penalty_window=1) == 1


def test_g67_the_window_counts_emitted_tokens_too() -> None:
    assert select([2, 1.9, -9], [0], emitted=[2], repetition_penalty=2, repetition_penalty_window=2) == 1
    assert select([2, 1.9, -9], [0], emitted=[2, 2], repetition_penalty=2, repetition_penalty_window=2) == 0


def test_g68_presence_and_frequency_ignore_the_prompt() -> None:
    logits = [0, 0, 0, 0, 0, 0, 0, 1]
    assert select(logits, prompt=[7] * 50, presence_penalty=5, frequency_penalty=5) == 7


def test_g69_frequency_counts_each_emission() -> None:
    # 0.5 * 3 = 1.5: 2 becomes 0.5, between 0.4 and 0.6.
    assert select([2, 0.4], emitted=[0, 0, 0], frequency_penalty=0.5) == 0
    assert select([2, 0.6], emitted=[0, 0, 0], frequency_penalty=0.5) == 1


def test_g69_presence_counts_once() -> None:
    assert select([2, 1.4], emitted=[0, 0, 0], presence_penalty=0.5) == 0
    assert select([2, 1.6], emitted=[0, 0, 0], presence_penalty=0.5) == 1


def test_g69_a_negative_presence_penalty_rewards() -> None:
    assert select([1, 1.4], emitted=[0], presence_penalty=-0.5) == 0


def test_g70_temperature_comes_before_top_p() -> None:
    # u = .5666. T=2 keeps .4344 .2635 .2052, sum .9031: u * .9031 = .5117 is past .4344, token 1.
    # T=1 keeps .6095 .2242, sum .8337: u * .8337 = .4723, token 0.
    assert select(Z, temperature=2, top_p=0.8, seed=1) == 1
    assert select(Z, temperature=1, top_p=0.8, seed=1) == 0


def test_g70_top_p_keeps_the_crossing_token() -> None:
    assert set(draws(Z, 400, temperature=1, top_p=0.8, seed=5)) == {0, 1}
    assert set(draws(Z, 400, temperature=2, top_p=0.8, seed=5)) == {0, 1, 2}


def test_top_p_stops_where_the_sum_is_reached_exactly() -> None:
    assert set(draws([0, 0, 0, 0], 400, temperature=1, top_p=0.5, seed=3)) == {0, 1}


def test_top_p_never_keeps_nothing() -> None:
    assert set(draws(Z, 50, temperature=1, top_p=1e-9, seed=3)) == {0}


def test_draws_follow_the_probabilities() -> None:
    counts = np.bincount(draws(Z, 20_000, temperature=1, seed=11), minlength=4)
    assert counts / 20_000 == pytest.approx([0.609460, 0.224208, 0.135989, 0.030343], abs=0.012)


def test_g71_top_k_of_one_takes_the_highest() -> None:
    assert draws([1, 3, 2, 3], 50, temperature=5, top_k=1, seed=9) == [1] * 50


def test_top_k_ties_at_the_boundary_go_to_the_lower_id() -> None:
    assert set(draws([1, 2, 1, 1], 200, temperature=1, top_k=2, seed=4)) == {0, 1}


def test_g72_min_p_of_one_keeps_the_ties_of_the_maximum() -> None:
    assert set(draws([3, 1, 3, 2.9999], 200, temperature=1, min_p=1, seed=2)) == {0, 2}


def test_min_p_is_a_share_of_the_highest_probability() -> None:
    # exp(-1) = .368 and exp(-1.5) = .223 of the highest
    assert set(draws(Z, 400, temperature=1, min_p=0.3, seed=2)) == {0, 1}
    assert set(draws(Z, 400, temperature=1, min_p=0.2, seed=2)) == {0, 1, 2}


def test_g73_the_same_seed_gives_the_same_tokens() -> None:
    assert draws([0] * 50, 40, temperature=1, seed=7) == draws([0] * 50, 40, temperature=1, seed=7)


def test_g73_another_seed_gives_other_tokens() -> None:
    assert draws([0] * 50, 40, temperature=1, seed=7) != draws([0] * 50, 40, temperature=1, seed=8)


def test_g74_seed_zero_is_fresh_each_time() -> None:
    runs = {tuple(draws([0] * 8, 16, temperature=1)) for _ in range(20)}
    assert len(runs) > 1


def test_s_smp_05_the_seed_of_a_fresh_run_repeats_it() -> None:
    first = TokenSelector(TextGenerationOptions(temperature=1), 50)
    again = TokenSelector(TextGenerationOptions(temperature=1, seed=first.seed), 50)
    assert chosen(first, [0] * 50, 20) == chosen(again, [0] * 50, 20)


def test_a_token_that_is_selected_again_is_the_same() -> None:
    selector = TokenSelector(TextGenerationOptions(temperature=1, seed=3), 50)
    assert len({selector.select(row([0] * 50)) for _ in range(20)}) == 1


def test_g75_greedy_ignores_the_filters_and_the_seed() -> None:
    assert select([1, 3, 2], top_k=2, top_p=0.1, min_p=1, seed=12345) == 1


def test_g75_greedy_obeys_penalties() -> None:
    assert select([1, 3, 2], emitted=[1], presence_penalty=1.5) == 2


@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize("top_k", [0, 2])
def test_g76_nan_is_never_chosen(temperature: float, top_k: int) -> None:
    assert select([np.nan, -np.inf, -5, np.nan], temperature=temperature, top_k=top_k, seed=1) == 2


@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize("top_k", [0, 2])
@pytest.mark.parametrize("values", [[np.nan] * 4, [-np.inf] * 4, [np.nan, -np.inf, np.nan, np.nan]])
def test_g76_a_row_without_candidates_fails(temperature: float, top_k: int, values: list[float]) -> None:
    with pytest.raises(WinMLError, match="0x8007000D"):
        select(values, temperature=temperature, top_k=top_k, seed=1)


@pytest.mark.parametrize("options", [{}, {"top_k": 3}, {"top_p": 0.9}, {"min_p": 0.1}, {"top_k": 2, "top_p": 0.5}])
def test_g77_a_constrained_draw_is_always_legal(options: dict[str, Any]) -> None:
    values = row([5, 4, 3, 2, 1, 0, -1, -2])
    legal = Only(1, 4, 6)
    picks = {
        TokenSelector(TextGenerationOptions(temperature=3, seed=seed, **options), 8).select(values, legal)
        for seed in range(1, 1001)
    }
    assert picks <= {1, 4, 6}
    assert 1 in picks


def test_a_constraint_comes_before_top_k() -> None:
    selector = TokenSelector(TextGenerationOptions(temperature=9, top_k=2, seed=3), 5)
    assert set(chosen(selector, [9, 8, 7, 6, 5], 200, Only(2, 3, 4))) == {2, 3}


def test_a_constraint_comes_after_penalties() -> None:
    selector = TokenSelector(TextGenerationOptions(presence_penalty=1.5), 3)
    selector.accept(1)
    assert selector.select(row([9, 3, 2]), Only(1, 2)) == 2


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_no_legal_token(temperature: float) -> None:
    selector = TokenSelector(TextGenerationOptions(temperature=temperature), 3)
    with pytest.raises(WinMLError, match="0x80070491"):
        selector.select(row([1, -np.inf, np.nan]), Only(1, 2))


@pytest.mark.parametrize("options", [{}, {"top_k": 3}, {"top_p": 0.9}, {"min_p": 0.5}])
def test_plus_infinity_leaves_only_itself(options: dict[str, Any]) -> None:
    values = [1, np.inf, 3, np.inf, np.nan]
    assert set(draws(values, 200, temperature=1, seed=6, **options)) == {1, 3}


def test_plus_infinity_wins_greedy_selection() -> None:
    assert select([1, np.inf, 3, np.inf, np.nan]) == 1


@pytest.mark.parametrize("options", [{}, {"top_k": 2}, {"top_p": 0.1}, {"min_p": 1}, {"seed": 99}])
def test_s_smp_01_temperature_zero_is_greedy(options: dict[str, Any]) -> None:
    assert select([1, 3, 3, 0], temperature=0, **options) == 1


@pytest.mark.parametrize("temperature", [1e-6, 1e-40, 5e-324])
@pytest.mark.parametrize("options", [{}, {"top_k": 3}, {"top_p": 0.9}, {"min_p": 0.5}, {"presence_penalty": 1}])
def test_s_smp_01_a_tiny_temperature(temperature: float, options: dict[str, Any]) -> None:
    assert set(draws([1, 3, 3, 0], 60, temperature=temperature, seed=5, **options)) == {1, 2}


@pytest.mark.parametrize("options", [{}, {"top_k": 3}, {"top_p": 1 - 2**-53}, {"min_p": 0.5}])
def test_a_huge_temperature_makes_all_tokens_alike(options: dict[str, Any]) -> None:
    assert {0, 1, 2} <= set(draws([1, 3, 3, 0], 200, temperature=1e300, seed=5, **options))


@pytest.mark.parametrize("top_k", [0, 3, 4, 50])
def test_s_smp_02_top_k_of_zero_or_the_vocabulary_is_off(top_k: int) -> None:
    assert draws([1, 0, -1], 1000, temperature=1, top_k=top_k, seed=8) == draws([1, 0, -1], 1000, temperature=1, seed=8)


def test_s_smp_03_temperature_first() -> None:
    # Weights at T=.5 are .879 .119 .002: one token reaches .75. Top-p first would keep two.
    assert set(draws([4, 3, 1], 300, temperature=0.5, top_p=0.75, seed=8)) == {0}


def test_s_smp_05_each_operation_starts_its_numbers_again() -> None:
    assert draws([0] * 8, 3, temperature=1, seed=4) == draws([0] * 8, 5, temperature=1, seed=4)[:3]


def test_s_smp_05_seed_zero_is_a_fresh_seed_that_is_told() -> None:
    seeds = {TokenSelector(TextGenerationOptions(temperature=1, seed=0), 50).seed for _ in range(9)}
    assert len(seeds) == 9 and 0 not in seeds


def test_s_smp_06_window_zero_is_all_history() -> None:
    assert select([2, 1.9], prompt=[0], repetition_penalty=2, repetition_penalty_window=0) == 1


def test_s_smp_06_a_penalty_of_one_changes_nothing() -> None:
    assert select([2, 1.9], prompt=[0], repetition_penalty=1) == 0


def test_s_smp_07_float16_logits() -> None:
    half = np.array([0x3C00, 0x4200, 0xBC00, 0x4000], np.uint16).view(np.float16)
    assert TokenSelector(TextGenerationOptions(), 4).select(half) == 1


def test_s_smp_07_float16_logits_near_their_limit() -> None:
    half = np.array([60000, 59968, -60000], np.float16)
    assert TokenSelector(TextGenerationOptions(temperature=1, seed=3), 3).select(half) == 0
