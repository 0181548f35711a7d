"""What ends a generation and what it leaves, read in pieces, at once and asynchronously, on every engine: S-STP."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fakes.scripted import (
    EOS,
    LESS,
    MORE,
    SLASH,
    VOCABULARY_SIZE,
    A,
    B,
    C,
    Compose,
    Composed,
    D,
    S,
    ScriptedDecoder,
    ScriptedTokenizer,
    X,
    Y,
    saying,
    uniform,
)
from genai import LanguageModel, TextGenerationOptions, TextGenerationResult
from genai.sequence import SequenceCore
from genai.tasks import TextGenerationFinishReason
from models.table_decoders import TableDecoder

Reason = TextGenerationFinishReason
Read = Callable[..., TextGenerationResult]


def options(count: int, **fields: Any) -> TextGenerationOptions:
    return TextGenerationOptions(count, **fields)


@pytest.fixture
def stage(tmp_path: Path, compose: Compose) -> Iterator[Composed]:
    """A stage that says a, b, c, d over and over, with room for 64 tokens."""
    with compose(tmp_path) as stage:
        yield stage


# --- the three ways to read the short road ----------------------------------------------------------------------------


def in_pieces(model: LanguageModel, **fields: Any) -> TextGenerationResult:
    stream = model.stream("a", **fields)
    said = "".join(stream)
    assert said == stream.result.text
    return stream.result


def at_once(model: LanguageModel, **fields: Any) -> TextGenerationResult:
    return model.generate("a", **fields)


def in_async_pieces(model: LanguageModel, **fields: Any) -> TextGenerationResult:
    async def run() -> TextGenerationResult:
        async with model.astream("a", **fields) as stream:
            said = [piece async for piece in stream]
        assert "".join(said) == stream.result.text
        return stream.result

    return asyncio.run(run())


def at_once_async(model: LanguageModel, **fields: Any) -> TextGenerationResult:
    return asyncio.run(model.agenerate("a", **fields))


every_way = pytest.mark.parametrize("read", [in_pieces, at_once, in_async_pieces, at_once_async])


def model_saying(*answer: int) -> LanguageModel:
    """The short road over a scripted decoder; the prompt is one token."""
    parts: Any = ScriptedDecoder(saying(1, *answer))
    tokenizer: Any = ScriptedTokenizer()
    return LanguageModel("tiny", "llama.cpp", "tiny.gguf", SequenceCore(parts, tokenizer, (EOS,)), ())


def summary(result: TextGenerationResult) -> tuple[str, tuple[int, ...], Reason, str | None]:
    return result.text, result.token_ids, result.finish_reason, result.stop_match


@every_way
def test_s_stp_01_a_split_stop_text_never_leaks(read: Read) -> None:
    result = read(model_saying(A, LESS, SLASH, S, MORE, B), stop="</s>")
    assert summary(result) == ("a", (A, LESS, SLASH, S, MORE), Reason.STOP_TOKEN, "</s>")


@every_way
def test_s_stp_02_a_near_miss_is_given_back(read: Read) -> None:
    result = read(model_saying(A, B, C, X, EOS), stop="abcd")
    assert summary(result) == ("abcx", (A, B, C, X), Reason.EOS_TOKEN, None)


@every_way
def test_s_stp_02_text_held_at_the_end_is_given_back(read: Read) -> None:
    assert summary(read(model_saying(A, B, EOS), stop="abcd")) == ("ab", (A, B), Reason.EOS_TOKEN, None)
    limit = {"stop": "abcd", "max_new_tokens": 3}
    assert summary(read(model_saying(A, B, C, D), **limit)) == ("abc", (A, B, C), Reason.MAX_TOKENS, None)


@every_way
def test_s_stp_03_the_stop_text_is_left_out_unless_asked_for(read: Read) -> None:
    answer = (A, LESS, SLASH, S, MORE, B)
    without = read(model_saying(*answer), stop="</s>")
    assert (without.text, without.stop_offset, len(without.token_ids)) == ("a", 1, 5)
    included = read(model_saying(*answer), stop="</s>", include_stop=True)
    assert (included.text, included.stop_offset, included.stop_match) == ("a</s>", 1, "</s>")
    assert included.token_ids == without.token_ids


@every_way
def test_s_stp_03_without_a_stop_there_is_nothing_to_include(read: Read) -> None:
    result = read(model_saying(A, LESS, EOS), stop="</s>", include_stop=True)
    assert (result.text, result.stop_offset) == ("a<", None)


@every_way
def test_s_stp_04_one_letter_and_one_str(read: Read) -> None:
    assert summary(read(model_saying(A, B, C), stop="b")) == ("a", (A, B), Reason.STOP_TOKEN, "b")
    assert read(model_saying(A, B, C), stop=["bc"]).text == read(model_saying(A, B, C), stop="bc").text == "a"


@every_way
def test_s_stp_04_an_empty_stop_is_refused_before_any_run(read: Read) -> None:
    decoder: Any = ScriptedDecoder()
    tokenizer: Any = ScriptedTokenizer()
    model = LanguageModel("tiny", "llama.cpp", "tiny.gguf", SequenceCore(decoder, tokenizer, (EOS,)), ())
    with pytest.raises(ValueError, match="empty"):
        read(model, stop=[""])
    assert decoder.runs == []


@every_way
def test_s_stp_05_an_own_stop_keeps_the_end_of_the_model(read: Read) -> None:
    assert summary(read(model_saying(D, EOS, X), stop="zzz")) == ("d", (D,), Reason.EOS_TOKEN, None)


@every_way
def test_s_stp_06_the_reason_is_the_same_every_way(read: Read) -> None:
    assert read(model_saying(B, EOS), max_new_tokens=2).finish_reason is Reason.EOS_TOKEN
    assert read(model_saying(B, C), max_new_tokens=2).finish_reason is Reason.MAX_TOKENS
    assert read(model_saying(B, C), stop_token_ids=[C]).finish_reason is Reason.STOP_TOKEN
    assert read(model_saying(B, C), stop="c", max_new_tokens=2).finish_reason is Reason.STOP_TOKEN
    assert read(model_saying(B, C), max_new_tokens=99).finish_reason is Reason.SEQUENCE_CAPACITY


@every_way
def test_s_stp_08_a_minimum_of_tokens(read: Read) -> None:
    result = read(model_saying(EOS, EOS, B, EOS), min_new_tokens=2)
    # Where <eos> would win all others are equal, so the lowest id is chosen.
    assert summary(result) == ("aab", (A, A, B), Reason.EOS_TOKEN, None)


# --- stop texts -------------------------------------------------------------------------------------------------------


def test_s_stp_03_an_included_stop_comes_with_the_token_that_completes_it(stage: Composed) -> None:
    stage.follow(saying(1, A, LESS, SLASH, S, MORE, B))
    stream = stage.session().generate_text("a", options(9, stop="</s>", include_stop=True))
    assert [update.fragment for update in stream] == ["a", "", "", "", "</s>"]
    assert stream.result.text == "a</s>"


def test_s_stp_03_the_offset_finds_the_stop_in_the_text_of_all_tokens(stage: Composed) -> None:
    result = stage.session().generate("a", options(9, stop="cd"))
    whole = stage.tokenizer.decode(result.token_ids)
    assert (result.text, result.stop_offset, whole) == ("b", 1, "bcd")
    assert whole[result.stop_offset :] == result.stop_match


def test_an_included_stop_that_waited_for_a_longer_one_comes_last(stage: Composed) -> None:
    stage.follow(saying(1, A, B, C, EOS))
    stream = stage.session().generate_text("a", options(9, stop=["abcd", "bc"], include_stop=True))
    assert [(update.token_id, update.fragment) for update in stream] == [(A, ""), (B, ""), (C, ""), (None, "abc")]
    assert (stream.result.stop_match, stream.result.stop_offset) == ("bc", 1)


# --- the end of the text ----------------------------------------------------------------------------------------------


def preferring_eos() -> TableDecoder:
    """<eos> before x before all others, at every place."""
    row = np.zeros(VOCABULARY_SIZE, np.float32)
    row[[EOS, X]] = 9, 5
    return TableDecoder(VOCABULARY_SIZE, constant=row)


def test_s_stp_08_the_end_is_allowed_after_the_minimum(stage: Composed) -> None:
    stage.follow(preferring_eos())
    result = stage.session().generate("a", options(9, min_new_tokens=1))
    assert (result.token_ids, result.finish_reason) == ((X,), Reason.EOS_TOKEN)


def test_s_stp_08_all_ends_of_the_task_are_masked(stage: Composed) -> None:
    stage.follow(preferring_eos())
    result = stage.session((X, EOS)).generate("a", options(9, min_new_tokens=2))
    assert (result.token_ids, result.finish_reason) == ((A, A), Reason.EOS_TOKEN)


def test_s_stp_08_stops_of_the_caller_still_count(stage: Composed) -> None:
    stage.follow(saying(1, B, C, D))
    session = stage.session()
    assert session.generate("a", options(9, min_new_tokens=5, stop_token_ids=[C])).token_ids == (B,)
    assert session.generate("a", options(9, min_new_tokens=5, stop="c")).text == "b"


def test_ignored_ends_lead_to_the_limit(stage: Composed) -> None:
    stage.follow(preferring_eos())
    result = stage.session().generate("a", options(4, ignore_eos=True))
    assert (result.token_ids, result.finish_reason) == ((X,) * 4, Reason.MAX_TOKENS)


def test_a_minimum_counts_anew_in_a_continuation(stage: Composed) -> None:
    stage.follow(preferring_eos())
    session = stage.session()
    session.generate("a", options(2, min_new_tokens=2))
    with session.continue_tokens([A], options(9, min_new_tokens=1)) as stream:
        assert [update.token_id for update in stream] == [X]


@pytest.mark.parametrize(("eos", "last"), [([X, C], X), ([X, C], C), (X, X), (np.array([C, X]), X)])
def test_s_stp_07_every_eos_id_ends_the_text(stage: Composed, eos: Any, last: int) -> None:
    stage.follow(saying(1, B, last))
    result = stage.session(eos).generate("a", options(9))
    assert (result.token_ids, result.finish_reason) == ((B,), Reason.EOS_TOKEN)


@pytest.mark.parametrize("eos", [VOCABULARY_SIZE, [C, VOCABULARY_SIZE], [-1]])
def test_s_stp_07_an_eos_id_outside_the_vocabulary_is_refused(stage: Composed, eos: Any) -> None:
    with pytest.raises(ValueError, match=r"eos token id must be in 0\.\.15"):
        stage.session(eos)


# --- a predicate of the caller ----------------------------------------------------------------------------------------


def test_a_predicate_ends_the_text_and_keeps_what_it_has_seen(stage: Composed) -> None:
    seen: list[tuple[tuple[int, ...], str]] = []

    def ends_in_c(token_ids: tuple[int, ...], text: str) -> bool:
        seen.append((token_ids, text))
        return text.endswith("c")

    session = stage.session()
    stream = session.generate_text("a", options(9, stopping=ends_in_c))
    assert [update.fragment for update in stream] == ["b", "c"]
    assert summary(stream.result) == ("bc", (B, C), Reason.STOP_TOKEN, None)
    assert seen == [((B,), "b"), ((B, C), "bc")]
    assert session.retained_token_ids == (A, B, C)


def test_a_predicate_can_end_the_text_with_the_last_permitted_token(stage: Composed) -> None:
    wanted = options(2, stopping=lambda token_ids, text: len(token_ids) == 2)
    assert stage.session().generate("a", wanted).finish_reason is Reason.STOP_TOKEN


def test_a_predicate_sees_text_that_is_held_for_a_stop(stage: Composed) -> None:
    stream = stage.session().generate_text("a", options(9, stop="cda", stopping=lambda ids, text: text == "bcd"))
    assert [(update.token_id, update.fragment) for update in stream] == [(B, "b"), (C, ""), (D, ""), (None, "cd")]
    assert (stream.result.finish_reason, stream.result.stop_match) == (Reason.STOP_TOKEN, None)


def test_a_predicate_is_not_asked_after_a_stop_text(stage: Composed) -> None:
    asked: list[str] = []
    wanted = options(9, stop="c", stopping=lambda ids, text: asked.append(text))
    assert stage.session().generate("a", wanted).stop_match == "c"
    assert asked == ["b"]


def test_a_predicate_that_fails_loses_nothing(stage: Composed) -> None:
    failures = [ZeroDivisionError()]

    def fail_once(token_ids: Sequence[int], text: str) -> bool:
        if failures:
            raise failures.pop()
        return False

    stream = stage.session().generate_text("a", options(3, stopping=fail_once))
    assert stream.read_next() is not None
    with pytest.raises(ZeroDivisionError):
        stream.read_next()
    assert [update.token_id for update in stream] == [C, D]
    assert stream.result.token_ids == (B, C, D)


@every_way
def test_a_predicate_works_every_way(read: Read) -> None:
    result = read(model_saying(A, B, C), stopping=lambda ids, text: "b" in text)
    assert summary(result) == ("ab", (A, B), Reason.STOP_TOKEN, None)


@every_way
def test_what_a_predicate_raises_reaches_the_caller_and_frees_the_model(read: Read) -> None:
    def fail(token_ids: Sequence[int], text: str) -> bool:
        raise ZeroDivisionError

    model = model_saying(A, B, C, EOS)
    with pytest.raises(ZeroDivisionError):
        read(model, stopping=fail)
    assert read(model).text == "abc"


# --- processors and log probabilities ---------------------------------------------------------------------------------


def test_processors_see_the_whole_sequence(stage: Composed) -> None:
    seen: list[tuple[int, ...]] = []

    def never_c(ids: tuple[int, ...], row: Any) -> Any:
        seen.append(ids)
        row[C] = -np.inf
        return row

    session = stage.session()
    assert session.generate("a", options(2, logits_processors=never_c)).token_ids == (B, A)
    assert seen == [(A,), (A, B)]
    with session.continue_tokens([], options(1, logits_processors=never_c)) as stream:
        assert [update.token_id for update in stream] == [B]
    assert seen[2:] == [(A, B, A)]


@every_way
def test_what_a_processor_raises_reaches_the_caller_and_frees_the_model(read: Read) -> None:
    def fail(ids: Sequence[int], row: Any) -> Any:
        raise ZeroDivisionError

    model = model_saying(A, B, C, EOS)
    with pytest.raises(ZeroDivisionError):
        read(model, logits_processors=fail)
    assert read(model).text == "abc"


def test_s_smp_04_a_bias_outside_the_vocabulary_is_refused_before_any_run(stage: Composed) -> None:
    session = stage.session()
    session.generate("ab", options(1))
    runs = stage.script.runs
    with pytest.raises(ValueError, match="token id 16 is outside the vocabulary of 16"):
        session.generate_text("x", options(1, logit_bias={16: 1}))
    assert stage.script.runs == runs
    assert session.retained_token_ids == (A, B, C)


def test_s_smp_04_a_bias_works_in_a_session(stage: Composed) -> None:
    result = stage.session().generate("a", options(3, logit_bias={"2": -np.inf, Y: 1}))
    assert result.token_ids == (B, Y, B)


def test_log_probabilities_come_with_every_token(stage: Composed) -> None:
    stage.follow(uniform)
    stream = stage.session().generate_text("a", options(3, top_logprobs=2))
    updates = list(stream)
    even = pytest.approx(-np.log(16), abs=1e-6)
    assert [update.logprobs.logprob for update in updates if update.logprobs] == [even, even, even]
    assert stream.result.logprobs == tuple(update.logprobs for update in updates)
    assert stream.result.logprobs[0].top == ((A, even), (B, even))


def test_an_update_without_a_token_has_no_log_probability(stage: Composed) -> None:
    stage.follow(saying(1, A, B, EOS))
    stream = stage.session().generate_text("a", options(9, stop="abc", top_logprobs=0))
    assert [update.logprobs is None for update in stream] == [False, False, True]
    assert stream.result.logprobs is not None
    assert [record.token_id for record in stream.result.logprobs] == [A, B]


def test_without_the_option_there_are_no_log_probabilities(stage: Composed) -> None:
    stream = stage.session().generate_text("a", options(2))
    assert [update.logprobs for update in stream] == [None, None]
    assert stream.result.logprobs is None


# --- repetitions through a session ------------------------------------------------------------------------------------


def test_no_n_gram_comes_twice_in_prompt_and_output(stage: Composed) -> None:
    # After "b" comes "c" once; the prompt has "c d" already.
    assert stage.session().generate("cda", options(4, no_repeat_ngram_size=2)).token_ids == (B, C, A, A)


def test_dry_takes_its_breakers_from_the_tokenizer(stage: Composed) -> None:
    session = stage.session()
    fields: dict[str, Any] = {"dry_multiplier": 50.0}
    assert session.generate("abcdab", options(1, **fields)).token_ids == (A,)
    assert session.generate("abcdab", options(1, dry_sequence_breakers="b", **fields)).token_ids == (C,)
    assert session.generate("abcdab", options(1, dry_sequence_breakers="dab", **fields)).token_ids == (C,)
