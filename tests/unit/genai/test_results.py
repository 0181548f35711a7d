"""Numbers of the enumerations, defaults of the records, and speeds (genai 6)."""

from __future__ import annotations

import dataclasses

import pytest

from fakes.rig import failing
from genai import TextGenerationFinishReason, TextGenerationResult, TextGenerationTimings, WinMLError, codes
from genai.tasks import (
    TextGenerationConfigurationMode,
    TextGenerationExecutionProfile,
    TextGenerationOutputKind,
    TextGenerationPipelinePhase,
    TextGenerationSequenceDisclosure,
    TextGenerationSessionState,
    TextGenerationUpdate,
)

Reason = TextGenerationFinishReason


def test_the_numbers_are_those_of_the_contract() -> None:
    assert [(m.name, m.value) for m in TextGenerationFinishReason] == [
        ("EOS_TOKEN", 0),
        ("STOP_TOKEN", 1),
        ("MAX_TOKENS", 2),
        ("SEQUENCE_CAPACITY", 3),
        ("CANCELED", 4),
        ("ERROR", 5),
    ]
    assert [m.name for m in TextGenerationSessionState] == ["EMPTY", "READY", "ACTIVE", "RESET_REQUIRED", "CLOSED"]
    assert [m.name for m in TextGenerationSequenceDisclosure] == ["NONE", "RETAINED", "UNUSABLE"]
    assert [m.name for m in TextGenerationOutputKind] == ["LOGITS", "SAMPLED_TOKEN"]
    assert [m.name for m in TextGenerationPipelinePhase] == ["UNIFIED", "PREFILL", "DECODE"]
    assert [m.name for m in TextGenerationConfigurationMode] == ["UNIFIED", "PREFILL_DECODE"]
    assert [m.value for m in TextGenerationExecutionProfile] == [0, 1, 2]


def test_a_result_begins_with_the_fields_of_the_contract() -> None:
    result = TextGenerationResult("ab", (1, 2), Reason.MAX_TOKENS, 0, 7)
    assert (result.text, result.token_ids, result.finish_reason, result.error_code, result.prompt_token_count) == (
        "ab",
        (1, 2),
        Reason.MAX_TOKENS,
        0,
        7,
    )
    assert result.generated_token_count == 2
    assert result.speculative_statistics is None


def test_what_is_long_for_each_token_is_not_shown() -> None:
    shown = repr(TextGenerationResult("Hi", (1, 2, 3), Reason.MAX_TOKENS, 0, 4, logprobs=()))
    assert shown.startswith("TextGenerationResult(text='Hi', finish_reason=")
    assert "token_ids" not in shown
    assert "logprobs" not in shown


@pytest.mark.parametrize("code", [0, 1])
def test_success_codes_raise_nothing(code: int) -> None:
    TextGenerationResult("", (), Reason.CANCELED, code, 1).raise_for_error()


def test_a_failing_code_is_raised_with_its_message() -> None:
    result = TextGenerationResult("", (), Reason.ERROR, 0x80004005, 1, error_message="engine: it broke")
    with failing(0x80004005) as caught:
        result.raise_for_error()
    assert "engine: it broke" in str(caught.value)


def test_g7_results_and_updates_are_frozen() -> None:
    result = TextGenerationResult("", (), Reason.EOS_TOKEN, 0, 1)
    with pytest.raises(dataclasses.FrozenInstanceError):
        result.text = "x"  # type: ignore[misc]
    with pytest.raises(dataclasses.FrozenInstanceError):
        TextGenerationUpdate(1, "a").token_id = 2  # type: ignore[misc]


def test_speeds_count_what_was_run() -> None:
    timings = TextGenerationTimings(0.5, 2.0, 100, 21)
    assert timings.first_token_seconds == 0.5
    assert timings.prompt_tokens_per_second == 200.0
    assert timings.decode_tokens_per_second == 10.0


def test_speeds_of_nothing_are_zero() -> None:
    timings = TextGenerationTimings(0.0, 0.0, 0, 0)
    assert (timings.prompt_tokens_per_second, timings.decode_tokens_per_second) == (0.0, 0.0)
    assert TextGenerationTimings(0.5, 0.1, 3, 1).decode_tokens_per_second == 0.0


@pytest.mark.parametrize("code", [value for value in vars(codes).values() if isinstance(value, int)])
def test_every_code_has_a_description(code: int) -> None:
    assert "unknown error code" not in str(WinMLError(code))
