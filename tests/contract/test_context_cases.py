"""The context window, on both roads and on every engine: cases S-CTX.

`genai.load` models and sessions drive the same sequence core; what a result says of reuse is in its timings.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import pytest

from fakes.rig import failing
from fakes.scripted import EOS, A, B, C, Compose, Composed, D, majority, write_tokenizer
from genai import LanguageModel, TextGenerationFinishReason, TextGenerationOptions, TextGenerationResult
from genai.sequence import SequenceCore
from genai.tasks import TextGenerationSession

Reason = TextGenerationFinishReason
Prompt = str | Sequence[int]

E_INVALIDARG = 0x80070057
INSUFFICIENT_BUFFER = 0x8007007A


class Road(Protocol):
    """One of the two ways to the same core."""

    def generate(self, prompt: Prompt, count: int) -> TextGenerationResult:
        """Generate at most `count` tokens."""

    def core(self) -> SequenceCore:
        """The core behind it."""


@dataclass
class ShortRoad:
    """A loaded model."""

    model: LanguageModel

    def generate(self, prompt: Prompt, count: int) -> TextGenerationResult:
        return self.model.generate(prompt, max_new_tokens=count)

    def core(self) -> SequenceCore:
        return self.model._open()


@dataclass
class LongRoad:
    """A session."""

    session: TextGenerationSession

    def generate(self, prompt: Prompt, count: int) -> TextGenerationResult:
        options = TextGenerationOptions(count)
        if isinstance(prompt, str):
            return self.session.generate(prompt, options)
        with self.session.generate_tokens(prompt, options) as stream:
            for _ in stream:
                pass
            return stream.result

    def core(self) -> SequenceCore:
        return self.session._core


Take = Callable[[Composed], Road]


def short(stage: Composed) -> Road:
    core = SequenceCore(stage.composition(), stage.tokenizer, (EOS,))
    return ShortRoad(LanguageModel("tiny", "an engine", "nowhere", core, ()))


def long(stage: Composed) -> Road:
    return LongRoad(stage.session((EOS,)))


@pytest.fixture(params=[short, long])
def take(request: pytest.FixtureRequest) -> Take:
    road: Take = request.param
    return road


@pytest.fixture
def stage(tmp_path: Path, compose: Compose) -> Iterator[Composed]:
    """A stage with room for 8 tokens that says a, b, c, d over and over."""
    with compose(tmp_path, capacity=8) as stage:
        yield stage


def evaluated(result: TextGenerationResult) -> int:
    """Prompt tokens that were not reused."""
    return result.timings.evaluated_prompt_token_count


def test_s_ctx_01_a_prompt_longer_than_the_window_is_refused_before_any_run(stage: Composed, take: Take) -> None:
    road = take(stage)
    with failing(INSUFFICIENT_BUFFER) as caught:
        road.generate("aaaaaaaaa", 3)
    for number in ("9 prompt tokens", "context of 8", "max_new_tokens=3"):
        assert number in str(caught.value)
    assert (stage.stage.sequence_position, stage.script.runs) == (0, 0)
    assert road.generate("aaa", 2).token_ids == (B, C)


def test_s_ctx_02_nothing_is_cut_and_there_is_no_option_for_it(stage: Composed, take: Take) -> None:
    road = take(stage)
    with failing(INSUFFICIENT_BUFFER):
        road.generate([A] * 12, 1)
    for name in ("truncate", "truncation", "context_shift", "max_length"):
        with pytest.raises(TypeError, match=name):
            TextGenerationOptions(1, **{name: True})  # type: ignore[arg-type]


def test_s_ctx_03_a_full_window_ends_the_text_with_its_reason(stage: Composed, take: Take) -> None:
    result = take(stage).generate("aaaaa", 100)
    assert (result.finish_reason, result.text) == (Reason.SEQUENCE_CAPACITY, "bcd")


def test_s_ctx_04_max_new_tokens_leaves_the_prompt_out(stage: Composed, take: Take) -> None:
    road = take(stage)
    assert road.generate("aaaaa", 3).token_ids == (B, C, D)
    runs = stage.script.runs
    for wrong in (0, -1):
        with pytest.raises(ValueError, match="max_new_tokens"):
            road.generate("a", wrong)
    with pytest.raises(TypeError, match="max_new_tokens"):
        road.generate("a", True)
    assert stage.script.runs == runs


def test_s_ctx_05_an_empty_prompt_is_refused_where_no_bos_is_added(stage: Composed, take: Take) -> None:
    road = take(stage)
    with failing(E_INVALIDARG) as caught:
        road.generate("", 1)
    assert "the prompt has no tokens" in str(caught.value)
    assert road.generate("a", 1).token_ids == (B,)


@pytest.mark.parametrize(("size", "expected"), [(1, ()), (2, (B,)), (3, (B, C))])
def test_s_ctx_06_a_window_of_any_size(
    tmp_path: Path, compose: Compose, take: Take, size: int, expected: tuple[int, ...]
) -> None:
    with compose(tmp_path, capacity=size) as stage:
        road = take(stage)
        assert road.core().capacity == size
        result = road.generate("a", 9)
        assert (result.finish_reason, result.token_ids) == (Reason.SEQUENCE_CAPACITY, expected)


@pytest.mark.parametrize("chunk", [1, 2, 3, 4, 5, 128])
def test_s_ctx_07_any_cut_of_the_prompt_gives_the_same(
    tmp_path: Path, compose: Compose, take: Take, chunk: int
) -> None:
    with compose(tmp_path, majority, capacity=64) as stage:
        road = take(stage)
        feed: Any = road.core().feed
        feed.chunk = chunk
        # c c d d d: the d's have the majority, and each a that follows is one more a.
        assert road.generate([C, C, D, D, D], 6).token_ids == (A, A, A, B, B, B)


def test_s_ctx_08_the_same_prompt_again_evaluates_its_last_token(tmp_path: Path, compose: Compose, take: Take) -> None:
    with compose(tmp_path, majority, capacity=64) as stage:
        road = take(stage)
        first = road.generate([C, C, D, D, D], 6)
        again = road.generate([C, C, D, D, D], 6)
        assert (evaluated(first), evaluated(again)) == (5, 1)
        road.core().reset()
        fresh = road.generate([C, C, D, D, D], 6)
        assert evaluated(fresh) == 5
        assert first.token_ids == again.token_ids == fresh.token_ids


def test_s_ctx_09_a_prompt_that_differs_in_the_middle_keeps_what_is_before(
    tmp_path: Path, compose: Compose, take: Take
) -> None:
    with compose(tmp_path, majority, capacity=64) as stage:
        road = take(stage)
        road.generate([C, C, D, D, D], 6)
        result = road.generate([C, C, B, B, B], 3)
        assert (evaluated(result), result.prompt_token_count) == (3, 5)
        road.core().reset()
        assert result.token_ids == road.generate([C, C, B, B, B], 3).token_ids


def test_s_ctx_09_the_answer_counts_as_prefix(stage: Composed, take: Take) -> None:
    road = take(stage)
    assert road.generate([A], 3).token_ids == (B, C, D)
    result = road.generate([A, B, C, D, A], 1)
    assert (result.token_ids, evaluated(result)) == ((B,), 2)  # d was pending


@pytest.fixture
def merging(tmp_path: Path, compose: Compose) -> Iterator[Composed]:
    """The stage with a tokenizer that has "ab" as a token of its own, with the id of x."""
    folder = write_tokenizer(tmp_path / "merging")
    content = json.loads((folder / "tokenizer.json").read_text(encoding="utf-8"))
    vocabulary = content["model"]["vocab"]
    vocabulary["ab"] = vocabulary.pop("x")
    content["model"]["merges"] = [["a", "b"]]
    (folder / "tokenizer.json").write_text(json.dumps(content), encoding="utf-8")
    with compose(tmp_path, vocabulary=(folder, 16)) as stage:
        yield stage


def test_s_ctx_10_a_text_that_is_tokenized_otherwise_is_no_prefix(merging: Composed, take: Take) -> None:
    road = take(merging)
    assert road.generate("a", 1).text == "b"
    assert road.core().retained_token_ids == (A, B)
    assert merging.tokenizer.encode("ab") == [11]
    rebuilt = road.generate("ab", 1)
    assert (rebuilt.prompt_token_count, evaluated(rebuilt)) == (1, 1)


def test_s_ctx_10_a_session_goes_on_by_ids(merging: Composed) -> None:
    session = merging.session(())
    session.generate("a", TextGenerationOptions(1))
    with session.continue_tokens(merging.tokenizer.encode("c"), TextGenerationOptions(1)) as stream:
        assert [update.token_id for update in stream] == [D]
        result = stream.result
    assert session.retained_token_ids == (A, B, C, D)
    assert (result.prompt_token_count, evaluated(result)) == (3, 2)  # the pending b, and c
