"""Selection beyond the eleven official options: worked numbers of genai 8, and the cases S-SMP-04 and S-STP-08."""

from __future__ import annotations

import math
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
"""Probabilities .609460 .224208 .135989 .030343."""


def row(values: Sequence[float]) -> npt.NDArray[np.float32]:
    return np.array(values, np.float32)


def selector(size: int, prompt: Sequence[int] = (), eos: Sequence[int] = (), **options: Any) -> TokenSelector:
    return TokenSelector(TextGenerationOptions(**options), size, prompt, eos_token_ids=eos)


def select(values: Sequence[float], prompt: Sequence[int] = (), emitted: Sequence[int] = (), **options: Any) -> int:
    """Select one token after a prompt and emitted tokens."""
    chooser = selector(len(values), prompt, **options)
    for token_id in emitted:
        chooser.accept(token_id)
    return chooser.select(row(values))


def kept(values: Sequence[float], **options: Any) -> set[int]:
    """Return the tokens that 400 draws hit."""
    return set(chosen(selector(len(values), seed=5, **{"temperature": 1, **options}), values, 400))


def chosen(chooser: TokenSelector, values: Sequence[float], count: int, legal: Only | None = None) -> list[int]:
    """Select and accept `count` tokens from the same row."""
    picks = []
    for _ in range(count):
        picks.append(chooser.select(row(values), legal))
        chooser.accept(picks[-1])
    return picks


# --- typical-p, top-n-sigma, XTC --------------------------------------------------------------------------------------


def test_typical_p_keeps_what_is_nearest_to_the_entropy() -> None:
    # Entropy 1.0144; surprise .4952 1.4952 1.9952 3.4952, so the distances are .519 .481 .981 2.481: order 1 0 2 3.
    assert kept(Z, typical_p=0.2) == {1}
    assert kept(Z, typical_p=0.5) == {0, 1}
    assert kept(Z, typical_p=0.9) == {0, 1, 2}


def test_typical_p_comes_after_temperature() -> None:
    # T=2: .4344 .2635 .2052 .0969, entropy 1.2648, distances .431 .069 .319 1.069: order 1 2 0 3.
    assert kept(Z, temperature=2, typical_p=0.25) == {1}
    assert kept(Z, temperature=2, typical_p=0.4) == {1, 2}


def test_typical_p_comes_after_top_k() -> None:
    # Of tokens 0 and 1 (.7311 .2689, entropy .5823, distances .2690 .7310) token 0 is the typical one.
    assert kept(Z, top_k=2, typical_p=0.2) == {0}


def test_typical_p_comes_before_top_p() -> None:
    # typical-p leaves 0 and 1; .7311 of them is token 0.
    assert kept(Z, typical_p=0.5, top_p=0.7) == {0}


def test_typical_p_of_equal_tokens_keeps_the_lower_ids() -> None:
    assert kept([0, 0, 0, 0], typical_p=0.5) == {0, 1}


def test_top_n_sigma_is_a_distance_in_standard_deviations() -> None:
    # Mean .625, variance 1.171875, deviation 1.0825: thresholds 1.4587 .9175 .3762 -1.2476.
    assert kept(Z, top_n_sigma=0.5) == {0}
    assert kept(Z, top_n_sigma=1) == {0, 1}
    assert kept(Z, top_n_sigma=1.5) == {0, 1, 2}
    assert kept(Z, top_n_sigma=3) == {0, 1, 2, 3}


@pytest.mark.parametrize("temperature", [0.5, 8])
def test_top_n_sigma_does_not_depend_on_the_temperature(temperature: float) -> None:
    assert kept(Z, top_n_sigma=1, temperature=temperature) == {0, 1}


def test_top_n_sigma_leaves_masked_tokens_out_of_the_deviation() -> None:
    # Of 2, 1 and -1 the deviation is 1.2472, so the threshold is .8775; of all four it would be 1.0257.
    chooser = selector(4, temperature=1, top_n_sigma=0.9, seed=5)
    assert set(chosen(chooser, Z, 200, Only(0, 1, 3))) == {0, 1}


def test_top_n_sigma_of_equal_logits_keeps_all() -> None:
    assert kept([3, 3, 3], top_n_sigma=0.1) == {0, 1, 2}


def test_top_n_sigma_comes_before_top_p() -> None:
    # 0 and 1 have .7311 and .2689 of what stays.
    assert kept(Z, top_n_sigma=1, top_p=0.7) == {0}
    assert kept(Z, top_n_sigma=1, top_p=0.75) == {0, 1}


def test_xtc_leaves_the_least_likely_of_the_top_choices() -> None:
    assert kept(Z, xtc_probability=1, xtc_threshold=0.1) == {2, 3}
    assert kept(Z, xtc_probability=1, xtc_threshold=0.2) == {1, 2, 3}


def test_xtc_needs_two_tokens_above_the_threshold() -> None:
    assert kept(Z, xtc_probability=1, xtc_threshold=0.5) == {0, 1, 2, 3}
    assert kept(Z, xtc_probability=1, xtc_threshold=0.9) == {0, 1, 2, 3}


def test_xtc_comes_after_min_p() -> None:
    # min-p leaves .7311 and .2689.
    assert kept(Z, min_p=0.3, xtc_probability=1, xtc_threshold=0.25) == {1}
    assert kept(Z, min_p=0.3, xtc_probability=1, xtc_threshold=0.3) == {0, 1}


@pytest.mark.parametrize("other", [{"top_k": 3}, {"top_p": 0.95}, {"typical_p": 0.95}, {"top_n_sigma": 1.5}], ids=str)
def test_xtc_works_behind_every_filter(other: dict[str, Any]) -> None:
    assert kept(Z, xtc_probability=1, xtc_threshold=0.2, **other) == {1, 2}


def test_xtc_with_threshold_zero_leaves_the_least_likely_token() -> None:
    assert kept(Z, xtc_probability=1, xtc_threshold=0) == {3}


def test_the_chance_of_xtc_belongs_to_the_drawn_number() -> None:
    # The first number of seed 1 is the seed of a sequence that begins with .3682.
    assert unit_interval(split_mix64(0x910A2DEC89025CC1)) == pytest.approx(0.368189515652, abs=1e-12)
    assert select(Z, temperature=1, seed=1, xtc_probability=0.36, xtc_threshold=0.1) == 0
    # .5666 of what stays (.1360 .0303) lies in token 2.
    assert select(Z, temperature=1, seed=1, xtc_probability=0.37, xtc_threshold=0.1) == 2


def test_xtc_takes_no_number_from_the_sequence() -> None:
    # A threshold that excludes nothing: the draws are those without XTC.
    with_xtc = selector(4, temperature=1, seed=42, xtc_probability=0.5, xtc_threshold=0.9)
    without = selector(4, temperature=1, seed=42)
    assert chosen(with_xtc, Z, 50) == chosen(without, Z, 50)


def test_xtc_applies_as_often_as_it_says() -> None:
    chooser = selector(2, temperature=1, seed=3, xtc_probability=0.25, xtc_threshold=0.1)
    # Of two equal tokens the first is excluded in a quarter of the draws: 3/8 of the draws stay with it.
    picks = chosen(chooser, [0, 0], 8000)
    assert picks.count(0) / 8000 == pytest.approx(0.375, abs=0.015)


@pytest.mark.parametrize(
    "options", [{"typical_p": 0.2}, {"top_n_sigma": 0.1}, {"xtc_probability": 1, "xtc_threshold": 0}], ids=str
)
def test_greedy_ignores_these_filters(options: dict[str, Any]) -> None:
    assert select(Z, **options) == 0


# --- logit bias -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("bias", "expected"), [({0: -math.inf}, 1), ({"0": -100}, 1), ({2: 100}, 2), ({2: 2.9}, 0), ({2: 3.1}, 2)]
)
def test_s_smp_04_a_bias_counts_in_greedy_selection(bias: dict[Any, float], expected: int) -> None:
    assert select([4, 3, 1], logit_bias=bias) == expected


def test_s_smp_04_a_banned_token_is_never_drawn() -> None:
    assert kept([9, 3, 3], temperature=5, logit_bias={0: -math.inf}) == {1, 2}


def test_s_smp_04_a_ban_holds_against_plus_infinity() -> None:
    assert select([math.inf, 3, 1], logit_bias={0: -math.inf}) == 1


def test_s_smp_04_a_token_outside_the_vocabulary_is_refused() -> None:
    with pytest.raises(ValueError, match="token id 9 is outside the vocabulary of 3"):
        selector(3, logit_bias={9: 1})


def test_s_smp_04_a_bias_comes_before_the_penalties() -> None:
    # (1 + 3) / 2 = 2 is below 2.5; 1 / 2 + 3 would be above.
    assert select([1, 2.5], prompt=[0], repetition_penalty=2, logit_bias={0: 3}) == 1


# --- own processors ---------------------------------------------------------------------------------------------------


def test_processors_see_prompt_and_output_and_change_the_row() -> None:
    seen: list[tuple[int, ...]] = []

    def forbid_last(ids: tuple[int, ...], z: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        seen.append(ids)
        z[ids[-1]] = -np.inf
        return z

    chooser = selector(3, [0], logits_processors=forbid_last)
    picks = []
    for _ in range(3):
        picks.append(chooser.select(row([3, 2, 1])))
        chooser.accept(picks[-1])
    assert picks == [1, 0, 1]
    assert seen == [(0,), (0, 1), (0, 1, 0)]


def test_processors_run_in_order_after_the_bias_and_before_the_penalties() -> None:
    rows: list[list[float]] = []

    def double(ids: tuple[int, ...], z: Any) -> Any:
        rows.append(z.tolist())
        return (2 * z).astype(np.float32)

    options: dict[str, Any] = {"logit_bias": {0: 1}, "logits_processors": [double, double], "repetition_penalty": 100}
    assert select([1, 0.5], prompt=[0], **options) == 1
    assert rows == [[2.0, 0.5], [4.0, 1.0]]


def test_processors_never_see_nan() -> None:
    def check(ids: tuple[int, ...], z: Any) -> Any:
        assert not np.isnan(z).any()
        return z

    assert select([math.nan, 1], logits_processors=check) == 1


def test_nan_from_a_processor_is_never_chosen() -> None:
    def spoil(ids: tuple[int, ...], z: Any) -> Any:
        z[0] = np.nan
        return z

    assert select([5, 1], logits_processors=spoil) == 1


def test_the_model_s_row_stays_as_it_was() -> None:
    def clear(ids: tuple[int, ...], z: Any) -> Any:
        z[:] = 0
        return z

    values = row([5, 7])
    selector(2, logits_processors=clear).select(values)
    assert values.tolist() == [5, 7]


@pytest.mark.parametrize(
    ("result", "error", "message"),
    [
        (None, TypeError, "must return the row"),
        ([1, 2, 3], ValueError, r"row of shape \(2,\), not \(3,\)"),
    ],
)
def test_what_is_no_row_is_refused(result: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=rf"logits_processors\[0\] .*{message}"):
        select([1, 2], logits_processors=lambda ids, z: result)


# --- the end of the text ----------------------------------------------------------------------------------------------


def test_s_stp_08_no_end_before_the_minimum() -> None:
    chooser = selector(6, eos=[3], min_new_tokens=1)
    values = row([0, 0, 0, 9, 0, 5])
    assert chooser.select(values) == 5
    chooser.accept(5)
    assert chooser.select(values) == 3


def test_s_stp_08_every_eos_id_is_masked() -> None:
    chooser = selector(4, eos=[1, 2, 70_000], min_new_tokens=2)
    values = row([1, 9, 8, 0])
    assert chooser.select(values) == 0
    chooser.accept(0)
    assert chooser.select(values) == 0
    chooser.accept(0)
    assert chooser.select(values) == 1


def test_s_stp_08_a_minimum_above_the_maximum_is_refused() -> None:
    with pytest.raises(ValueError, match=r"min_new_tokens must not be above max_new_tokens \(4\), not 5"):
        TextGenerationOptions(4, min_new_tokens=5)


def test_ignore_eos_never_chooses_an_end() -> None:
    chooser = selector(3, eos=[0], ignore_eos=True)
    for _ in range(5):
        assert chooser.select(row([9, 1, 2])) == 2
        chooser.accept(2)


@pytest.mark.parametrize("options", [{}, {"temperature": 1.0, "top_k": 2}], ids=str)
@pytest.mark.parametrize("ban", [{"ignore_eos": True}, {"min_new_tokens": 9}], ids=str)
def test_a_constraint_that_leaves_only_the_end_is_obeyed(options: dict[str, Any], ban: dict[str, Any]) -> None:
    chooser = selector(4, eos=[1, 2], seed=3, **options, **ban)
    assert chooser.select(row([9, 3, 4, 1]), Only(1, 2)) == 2


def test_a_constraint_that_leaves_more_than_the_end_goes_on() -> None:
    assert selector(4, eos=[1], ignore_eos=True).select(row([9, 8, 1, 2]), Only(1, 3)) == 3


def test_a_ban_of_the_caller_stands_against_the_constraint() -> None:
    chooser = selector(3, eos=[1], ignore_eos=True, logit_bias={1: -math.inf})
    with pytest.raises(WinMLError, match=r"0x80070491.*after what the options change"):
        chooser.select(row([9, 8, 1]), Only(1))


def test_when_everything_is_banned_the_options_are_named() -> None:
    with pytest.raises(WinMLError, match=r"0x8007000D.*after what the options change"):
        select([1, 2], logit_bias={0: -math.inf, 1: -math.inf})


# --- repetitions ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("size", "prompt", "expected"),
    [
        (0, [0, 1, 2, 0, 1], 2),
        (1, [0, 1, 2, 3], 4),
        (2, [0, 1, 2, 0, 1], 3),  # 1 2 was there
        (3, [0, 1, 2, 0, 1], 3),  # 0 1 2 was there
        (4, [0, 1, 2, 0, 1], 2),  # 2 0 1 2 is new
        (3, [0], 2),
    ],
)
def test_no_n_gram_comes_twice(size: int, prompt: list[int], expected: int) -> None:
    assert select([1, 1, 9, 8, 7], prompt, no_repeat_ngram_size=size) == expected


def test_emitted_tokens_count_as_n_grams() -> None:
    assert select([9, 8, 0], [0], emitted=[1, 0], no_repeat_ngram_size=2) == 0
    assert select([0, 9, 8], [0], emitted=[1, 0], no_repeat_ngram_size=2) == 2


def test_prompt_ids_past_the_row_are_no_candidates() -> None:
    assert select([9, 8, 0], [1, 7, 1], no_repeat_ngram_size=2) == 0
    assert select([9, 8, 0], [1, 2, 7, 1, 2], dry_multiplier=5, dry_sequence_breakers=()) == 0


@pytest.mark.parametrize(("rival", "expected"), [(1.15, 3), (1.25, 4)])
def test_dry_lowers_what_would_prolong_a_repetition(rival: float, expected: int) -> None:
    # "1 2" came before, followed by 3: 2 - 0.8 * 1.75**0 = 1.2.
    options: dict[str, Any] = {"dry_multiplier": 0.8, "dry_sequence_breakers": ()}
    assert select([0, 0, 0, 2, rival], [1, 2, 3, 0, 1, 2], **options) == expected


@pytest.mark.parametrize(("rival", "expected"), [(-0.46, 4), (-0.44, 5)])
def test_dry_grows_with_the_length_of_the_repetition(rival: float, expected: int) -> None:
    # Four tokens repeated: 2 - 0.8 * 1.75**2 = -0.45.
    options: dict[str, Any] = {"dry_multiplier": 0.8, "dry_sequence_breakers": ()}
    values = [-9, -9, -9, -9, 2, rival]
    assert select(values, [0, 1, 2, 3, 4], emitted=[0, 1, 2, 3], **options) == expected


def test_dry_takes_the_longest_of_several_repetitions() -> None:
    # "2" is followed by 3 after "1 2" and after "0 1 2": 2 - 0.8 * 1.75 = 0.6.
    options: dict[str, Any] = {"dry_multiplier": 0.8, "dry_sequence_breakers": ()}
    prompt = [1, 2, 3, 5, 0, 1, 2, 3, 6, 0, 1, 2]
    assert select([-9, -9, -9, 2, 0.59, -9, -9], prompt, **options) == 3
    assert select([-9, -9, -9, 2, 0.61, -9, -9], prompt, **options) == 4


def test_dry_allows_repetitions_up_to_a_length() -> None:
    options: dict[str, Any] = {"dry_multiplier": 5, "dry_allowed_length": 3, "dry_sequence_breakers": ()}
    assert select([0, 0, 0, 2, 1], [1, 2, 3, 0, 1, 2], **options) == 3
    assert select([0, 0, 0, 2, 1], [0, 1, 2, 3, 0, 1, 2], **options) == 4


def test_dry_counts_no_repetition_over_a_breaker() -> None:
    options: dict[str, Any] = {"dry_multiplier": 5, "dry_base": 2}
    prompt = [0, 1, 2, 3, 0, 1, 2]
    # 0 1 2 is repeated: 5 * 2 = 10 off. With 0 as a breaker only 1 2 is: 5 off. With 1 as one, nothing is.
    assert select([-9, -9, -9, 2, -4], prompt, **options, dry_sequence_breakers=()) == 4
    assert select([-9, -9, -9, 2, -4], prompt, **options, dry_sequence_breakers=0) == 3
    assert select([-9, -9, -9, 2, 1], prompt, **options, dry_sequence_breakers=[1]) == 3


def test_dry_never_lowers_a_breaker() -> None:
    options: dict[str, Any] = {"dry_multiplier": 5, "dry_sequence_breakers": [3]}
    assert select([0, 0, 0, 2, 1], [1, 2, 3, 0, 1, 2], **options) == 3


def test_dry_finds_text_breakers_however_they_are_cut() -> None:
    pieces = [b"a", b"x--", b"-y", b"b", b"c"]
    options = TextGenerationOptions(dry_multiplier=5, dry_sequence_breakers="---")
    for prompt, expected in (([1, 3, 4, 0, 1, 3], 3), ([1, 2, 4, 0, 1, 2], 4)):
        chooser = TokenSelector(options, 5, prompt, token_bytes=pieces.__getitem__)
        # After "x--" "b" the 4 would prolong a repetition; "x--" "-y" holds the breaker, so nothing is repeated.
        assert chooser.select(row([0, 0, 0, 1, 2])) == expected


def test_dry_without_a_tokenizer_takes_ids_only() -> None:
    with pytest.raises(ValueError, match="must be token ids"):
        selector(3, dry_multiplier=1)


def test_dry_does_not_overflow() -> None:
    options: dict[str, Any] = {"dry_multiplier": 1, "dry_base": 1e30, "dry_sequence_breakers": ()}
    assert select([9, 1], [0] * 2000, **options) == 1


# --- log probabilities ------------------------------------------------------------------------------------------------


def logprobs(values: Sequence[float], *emitted: int, legal: Only | None = None, **options: Any) -> Any:
    """Return the record of the next token as plain values."""
    chooser = selector(len(values), **options)
    for token_id in emitted:
        chooser.accept(token_id)
    chooser.select(row(values), legal)
    record = chooser.logprob
    assert record is not None
    return record.token_id, record.logprob, record.top


def test_log_probabilities_are_those_of_the_softmax() -> None:
    token_id, logprob, top = logprobs(Z, top_logprobs=2)
    assert (token_id, logprob) == (0, pytest.approx(math.log(0.609460), abs=1e-6))
    assert [entry[0] for entry in top] == [0, 1]
    assert [entry[1] for entry in top] == pytest.approx([-0.495182, -1.495182], abs=1e-6)


def test_zero_asks_for_the_emitted_token_alone() -> None:
    assert logprobs(Z, top_logprobs=0) == (0, pytest.approx(-0.495182, abs=1e-6), ())


def test_log_probabilities_come_before_temperature_and_filters() -> None:
    record = logprobs(Z, top_logprobs=0, temperature=9, top_k=2, seed=1)
    assert record == (1, pytest.approx(-1.495182, abs=1e-6), ())


def test_log_probabilities_come_after_bias_and_penalties() -> None:
    # z becomes [1, 1, .5, -1]: e + e + 1.648721 + 0.367879 = 7.453164
    record = logprobs([2, 0, 0.5, -1], 0, top_logprobs=1, presence_penalty=1, logit_bias={1: 1})
    assert record == (0, pytest.approx(1 - math.log(7.453164), abs=1e-6), ((0, record[1]),))


def test_log_probabilities_come_before_the_bans() -> None:
    chooser = selector(4, [0, 1, 0], eos=[0], min_new_tokens=1, no_repeat_ngram_size=2, top_logprobs=4)
    assert chooser.select(row(Z)) == 2
    assert chooser.logprob is not None
    assert chooser.logprob.logprob == pytest.approx(-1.995182, abs=1e-6)
    assert [token_id for token_id, _ in chooser.logprob.top] == [0, 1, 2, 3]


def test_log_probabilities_under_a_constraint_are_those_of_legal_tokens() -> None:
    # e / (e + 1.648721) = .622459
    token_id, logprob, top = logprobs(Z, legal=Only(1, 2), top_logprobs=4)
    assert (token_id, logprob) == (1, pytest.approx(math.log(0.622459), abs=1e-6))
    assert [entry[0] for entry in top] == [1, 2]


def test_log_probabilities_of_ties_name_the_lower_ids() -> None:
    assert [entry[0] for entry in logprobs([1, 3, 1, 1], top_logprobs=2)[2]] == [1, 0]


def test_log_probabilities_beside_nan_and_infinity() -> None:
    assert logprobs([math.nan, 1, -math.inf], top_logprobs=3) == (1, 0.0, ((1, 0.0),))
    assert logprobs([math.inf, 1, math.inf], top_logprobs=1) == (0, pytest.approx(math.log(0.5)), ((0, math.log(0.5)),))


def test_without_the_option_there_are_none() -> None:
    chooser = selector(4)
    chooser.select(row(Z))
    assert chooser.logprob is None
