"""Taking the token that a pipeline has chosen."""

from __future__ import annotations

import numpy as np
import pytest

from fakes.rig import failing
from genai import NotSupportedError, TextGenerationOptions
from genai.sampled_token import SampledTokenSelector, check_sampled_options

INVALID_DATA = 0x8007000D
NOT_SUPPORTED = 0x80070032


@pytest.mark.parametrize("data_type", [np.int32, np.int64])
def test_an_integer_row_is_the_token(data_type: type[np.integer]) -> None:
    assert SampledTokenSelector(16).select(np.array([5], data_type)) == 5


@pytest.mark.parametrize("token_id", [-1, 16, 2**40])
def test_a_token_outside_the_vocabulary_is_invalid(token_id: int) -> None:
    with failing(INVALID_DATA) as caught:
        SampledTokenSelector(16).select(np.array([token_id], np.int64))
    assert f"token {token_id} of a vocabulary of 16" in str(caught.value)


def test_of_logits_the_likeliest_is_taken() -> None:
    selector = SampledTokenSelector(16)
    assert selector.select(np.array([0, 3, 3, 1], np.float32)) == 1
    selector.accept(1)
    assert selector.select(np.array([5, 3, 3, 1], np.float32)) == 0


def test_it_remembers_nothing() -> None:
    selector = SampledTokenSelector(16)
    assert (selector.seed, selector.logprob) == (0, None)
    assert selector.again([1], [2]) is selector


def test_limits_stops_and_parameters_of_what_is_off_need_no_logits() -> None:
    check_sampled_options(TextGenerationOptions())
    check_sampled_options(
        TextGenerationOptions(
            7,
            (1, 2),
            stop=("x",),
            include_stop=True,
            stopping=lambda token_ids, text: False,
            repetition_penalty_window=5,
            xtc_threshold=0.2,
            dry_base=2.0,
            dry_allowed_length=3,
            dry_sequence_breakers=(),
        )
    )


def test_a_refused_option_is_named_with_its_value() -> None:
    with failing(NOT_SUPPORTED, NotSupportedError) as caught:
        check_sampled_options(TextGenerationOptions(top_p=0.5))
    assert "top_p=0.5 needs logits" in str(caught.value)
