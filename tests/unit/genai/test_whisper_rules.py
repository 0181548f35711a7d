"""What a Whisper decoder may say next: suppression and timestamp rules on rows of 12 tokens.

Tokens 0 to 3 are text, 4 is the end, 5 the start, 6 <|notimestamps|>, 7 to 11 the times 0.00 to 0.08 s.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt
import pytest

from genai.whisper_folder import WhisperTokens
from genai.whisper_rules import RowMask, WhisperRules, log_probability

TOKENS = WhisperTokens(
    end=4,
    start=5,
    translate=5,
    transcribe=5,
    start_of_lm=5,
    start_of_previous=5,
    no_speech=5,
    no_timestamps=6,
    timestamp_begin=7,
    languages={},
    suppress=(3, 5),
    suppress_at_begin=(0, 4),
)
FLAT = np.zeros(12, np.float32)
TIMES = WhisperRules(timestamps=True)


def allowed(said: list[int], rules: WhisperRules = TIMES, row: npt.NDArray[np.float32] = FLAT) -> list[int]:
    """The tokens that may follow `said`."""
    masked = RowMask(TOKENS, rules, 12).apply(row, said)
    return [int(token_id) for token_id in np.flatnonzero(masked > -np.inf)]


def text_first(*more: int) -> npt.NDArray[np.float32]:
    """A row in which token 1, and `more`, are likelier than all times together."""
    row = FLAT.copy()
    row[[1, *more]] = 9
    return row


def test_suppressed_tokens_are_never_allowed() -> None:
    assert allowed([1], WhisperRules()) == [0, 1, 2, 4, 6, 7, 8, 9, 10, 11]


def test_the_first_token_is_neither_a_space_nor_the_end() -> None:
    assert allowed([], WhisperRules()) == [1, 2, 6, 7, 8, 9, 10, 11]


def test_the_row_of_the_model_stays_as_it_is() -> None:
    row = FLAT.copy()
    RowMask(TOKENS, TIMES, 12).apply(row, [])
    assert not row.any()


def test_half_precision_and_nan() -> None:
    row = np.array([1, np.nan, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12], np.float16)
    masked = RowMask(TOKENS, WhisperRules(), 12).apply(row, [1])
    assert masked.dtype == np.float32
    assert masked[:4].tolist() == [1, -np.inf, 3, -np.inf]


def test_suppressed_ids_beyond_the_row_are_nothing() -> None:
    mask = RowMask(TOKENS, WhisperRules(), 4)
    assert mask.apply(np.zeros(4, np.float32), [1]).tolist() == [0, 0, 0, -np.inf]


def test_it_starts_with_a_time() -> None:
    assert allowed([]) == [7, 8, 9, 10, 11]


def test_the_first_time_is_soon() -> None:
    assert allowed([], WhisperRules(timestamps=True, max_initial_timestamp=0.04)) == [7, 8, 9]


def test_the_first_time_may_be_anywhere() -> None:
    assert allowed([], WhisperRules(timestamps=True, max_initial_timestamp=None)) == [7, 8, 9, 10, 11]


def test_text_or_the_end_follows_a_first_time() -> None:
    assert allowed([8]) == [0, 1, 2, 4]


def test_in_text_times_are_later_than_the_last_one() -> None:
    assert allowed([8, 1], row=text_first()) == [0, 1, 2, 4, 9, 10, 11]


def test_times_that_are_likelier_than_any_text_are_forced() -> None:
    assert allowed([8, 1]) == [9, 10, 11]  # three times at 1/8 each against 1/8 for the likeliest text


def test_the_likeliest_text_counts_not_all_of_it() -> None:
    row = FLAT.copy()
    row[[0, 1, 2]] = 1.0  # each is e, three times of 1 are more
    assert allowed([8, 1], row=row) == [9, 10, 11]
    row[0] = 1.2
    assert allowed([8, 1], row=row) == [0, 1, 2, 4, 9, 10, 11]


def test_after_a_time_that_ends_text_comes_a_time_or_the_end() -> None:
    assert allowed([7, 1, 9], row=text_first(4)) == [4, 9, 10, 11]


def test_after_a_pair_of_times_comes_text() -> None:
    assert allowed([7, 1, 9, 9]) == [0, 1, 2, 4]


def test_notimestamps_is_never_said_with_times() -> None:
    assert 6 not in allowed([7, 1], row=text_first(6))


def test_log_probability() -> None:
    row = np.array([0.0, math.log(3), -np.inf], np.float32)
    assert log_probability(row, 0) == pytest.approx(math.log(1 / 4))
    assert log_probability(row, 1) == pytest.approx(math.log(3 / 4))
    assert log_probability(row, 2) == -np.inf


def test_log_probability_of_large_logits() -> None:
    assert log_probability(np.array([1000.0, 1000.0], np.float32), 1) == pytest.approx(math.log(0.5))
