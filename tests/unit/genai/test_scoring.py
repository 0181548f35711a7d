"""Scores of continuations on a scripted decoder that gives one row at a time."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from fakes.rig import failing
from fakes.scripted import BOS, A, B, C, D, Row, ScriptedDecoder, ScriptedTokenizer
from genai.cancellation import CancellationLatch
from genai.perplexity import Windows, perplexity_of, windows_of
from genai.scoring import score_continuations
from genai.sequence import SequenceCore

LOG_2 = math.log(2)


def halves(history: Any) -> Row:
    """The next token is one more than the last with probability 1/2, one more than that with 1/4, or 3 more."""
    row = np.full(16, -np.inf, np.float32)
    last = history[-1]
    row[(last + 1) % 16], row[(last + 2) % 16], row[(last + 3) % 16] = math.log(2), 0.0, 0.0
    return row


def made(decoder: ScriptedDecoder, adds_bos: bool = False) -> SequenceCore:
    tokenizer: Any = ScriptedTokenizer(adds_bos)
    return SequenceCore(decoder, tokenizer, ())  # type: ignore[arg-type]


def scored(core: SequenceCore, prompt: Any, *continuations: Any) -> list[Any]:
    return score_continuations(core, prompt, continuations, CancellationLatch())


def test_the_sum_of_log_probabilities() -> None:
    (score,) = scored(made(ScriptedDecoder(halves)), "ab", "cd")
    assert score.token_log_probabilities == pytest.approx((-LOG_2, -LOG_2))
    assert score.log_probability == pytest.approx(-2 * LOG_2)
    assert score.token_ids == (C, D)
    assert score.token_count == 2
    assert score.is_greedy


def test_what_greedy_decoding_would_not_write() -> None:
    (score,) = scored(made(ScriptedDecoder(halves)), "ab", "d<")
    assert score.token_log_probabilities == pytest.approx((-2 * LOG_2, -LOG_2))
    assert not score.is_greedy


def test_what_is_impossible() -> None:
    (score,) = scored(made(ScriptedDecoder(halves)), "ab", "ab")
    assert score.log_probability == -math.inf


def test_the_prompt_is_evaluated_once() -> None:
    decoder = ScriptedDecoder(halves)
    scored(made(decoder), "abcabc", "d", "da", "db", "dd")
    assert decoder.runs == [[A, B, C, A, B], [C], [D], [D], [D]]
    assert decoder.rewinds == [6, 6]


def test_a_state_that_cannot_go_back_is_evaluated_anew() -> None:
    decoder = ScriptedDecoder(halves, can_rewind=False)
    one, two = scored(made(decoder), "abc", "da", "db")
    assert decoder.runs == [[A, B], [C], [D], [A, B, C], [D]]
    assert one.token_log_probabilities[0] == two.token_log_probabilities[0]


def test_a_begin_token_stands_before_an_empty_prompt() -> None:
    (score,) = scored(made(ScriptedDecoder(halves), adds_bos=True), "", "a")
    assert score.token_ids == (A,)
    assert score.log_probability == pytest.approx(-LOG_2)


def test_without_one_an_empty_prompt_is_refused() -> None:
    with failing(0x80070057) as caught:
        scored(made(ScriptedDecoder(halves)), "", "a")
    assert "no token comes before" in str(caught.value)


def test_token_ids_follow_one_another_as_they_are() -> None:
    core = made(ScriptedDecoder(halves), adds_bos=True)
    assert scored(core, [A, B], [C])[0].token_ids == (C,)
    assert scored(core, "ab", [C, D])[0].token_ids == (C, D)
    assert scored(core, [A, B], "cd")[0].token_ids == (C, D)


def test_a_token_over_the_boundary_is_scored_whole() -> None:
    core = made(ScriptedDecoder(halves))
    spelled = {"ab": [A, B], "abc": [A, D]}  # as if "bc" were one token
    core.tokenizer.encode = lambda text, add_special_tokens=True: spelled[text]  # type: ignore[method-assign]
    (score,) = scored(core, "ab", "c")
    assert score.token_ids == (D,)
    assert score.log_probability == pytest.approx(-2 * LOG_2)


def test_the_last_token_needs_no_room() -> None:
    core = made(ScriptedDecoder(halves, capacity=4))
    assert scored(core, "abc", "da")[0].token_count == 2
    with failing(0x8007007A):
        scored(core, "abc", "dab")


def test_a_cancel_ends_it() -> None:
    latch = CancellationLatch()
    decoder = ScriptedDecoder(halves, hooks={2: latch.cancel})
    core = made(decoder)
    with failing(0x800704C7):
        score_continuations(core, "abc", ["da", "db"], latch)
    assert len(decoder.runs) == 2
    core.recover()
    assert scored(core, "abc", "d")[0].token_count == 1


def test_a_failing_model_leaves_the_core_usable() -> None:
    from winml_lite import WinMLError

    core = made(ScriptedDecoder(halves, before={2: WinMLError(0x80004005)}))
    with failing(0x80004005):
        scored(core, "abc", "d")
    core.recover()
    assert scored(core, "abc", "d")[0].is_greedy


# Perplexity


def perplexity(core: SequenceCore, tokens: list[int], window: int, stride: int, definition: Any = "sliding") -> Any:
    return perplexity_of(core, tokens, Windows(window, stride, definition), CancellationLatch(), None)


def test_one_window_scores_every_token_but_the_first() -> None:
    result = perplexity(made(ScriptedDecoder(halves)), [A, B, C, C + 2, C + 3], 8, 4)
    assert result.scored_token_count == 4
    assert result.mean_negative_log_likelihood == pytest.approx((1 + 1 + 2 + 1) / 4 * LOG_2)
    assert result.perplexity == pytest.approx(2**1.25)
    deviation = math.sqrt(3 / 16) * LOG_2  # of 1, 1, 2, 1
    assert result.standard_error == pytest.approx(2**1.25 * deviation / math.sqrt(3))


def test_windows_slide_by_the_stride() -> None:
    decoder = ScriptedDecoder(halves)
    result = perplexity(made(decoder), [0, 1, 2, 3, 4, 5, 6], 4, 2)
    assert result.scored_token_count == 6
    assert decoder.runs == [[0], [1], [2], [2], [3], [4], [4], [5]]
    assert result.perplexity == pytest.approx(2)


def test_windows_of_llama_cpp_score_what_lies_behind_their_middle() -> None:
    decoder = ScriptedDecoder(halves)
    result = perplexity(made(decoder), [1, 2, 3, 4, 6, 7, 8, 9, 10], 4, 4, "llama.cpp")
    assert result.scored_token_count == 2
    assert result.token_count == 9
    assert result.perplexity == pytest.approx(2)


def test_each_window_of_llama_cpp_begins_with_the_begin_token() -> None:
    decoder = ScriptedDecoder(halves)
    perplexity(made(decoder, adds_bos=True), [BOS, 2, 3, 4, 6, 7, 8, 9], 4, 4, "llama.cpp")
    assert decoder.runs == [[BOS, 2], [3], [7], [8]]


@pytest.mark.parametrize(
    ("window", "stride", "definition", "capacity", "made_of"),
    [
        (None, None, "sliding", 0, (512, 256)),
        (None, None, "sliding", 100, (100, 50)),
        (64, None, "sliding", 100, (64, 32)),
        (64, 10, "sliding", 0, (64, 10)),
        (None, None, "llama.cpp", 4096, (512, 512)),
    ],
)
def test_defaults(
    window: int | None, stride: int | None, definition: Any, capacity: int, made_of: tuple[int, int]
) -> None:
    windows = windows_of(window, stride, definition, capacity)
    assert (windows.window, windows.stride) == made_of


@pytest.mark.parametrize(
    ("window", "stride", "definition"),
    [
        (1, None, "sliding"),
        (101, None, "sliding"),
        (50, 50, "sliding"),
        (50, 0, "sliding"),
        (50, 10, "llama.cpp"),
        (3, None, "llama.cpp"),
        (50, None, "hf"),
    ],
)
def test_what_cannot_be(window: int, stride: int | None, definition: Any) -> None:
    with pytest.raises(ValueError, match=r"window|stride|definition"):
        windows_of(window, stride, definition, 100)


@pytest.mark.parametrize(("tokens", "definition"), [([A], "sliding"), ([A, B, C], "llama.cpp")])
def test_texts_that_are_too_short(tokens: list[int], definition: Any) -> None:
    with failing(0x80070057):
        perplexity(made(ScriptedDecoder(halves)), tokens, 4, 2, definition)
