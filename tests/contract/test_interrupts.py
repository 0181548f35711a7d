"""Ctrl-C at any place of a generation loses nothing: the next read goes on, and nothing can tell the text from an
undisturbed one (cases S-LIF-08). On the fake, on ONNX Runtime and on llama.cpp.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from fakes.scripted import Compose, Composed
from fakes.session_duel import TABLES
from fakes.strikes import Strike
from genai import TextGenerationOptions, TokenConstraint
from genai.tasks import (
    Tasks,
    TextGenerationResult,
    TextGenerationSession,
    TextGenerationSpeculativeMethod,
    TextGenerationStream,
)

PROMPT = [1, 2, 3, 4, 5, 6, 7]
SAMPLED = TextGenerationOptions(
    6,
    temperature=1.0,
    seed=5,
    stop=("zq", "s>"),
    repetition_penalty=1.2,
    frequency_penalty=0.3,
    no_repeat_ngram_size=3,
    xtc_probability=0.5,
    dry_multiplier=0.5,
    top_logprobs=1,
)
STRIDE = 11  # every eleventh place, and in each test others

Start = Callable[[TextGenerationSession], TextGenerationStream]


@pytest.fixture
def stage(tmp_path: Path, compose: Compose) -> Iterator[Composed]:
    with compose(tmp_path, TABLES, capacity=24) as stage:
        yield stage


@pytest.fixture
def session(stage: Composed) -> TextGenerationSession:
    session = stage.session(())
    session._core.feed.chunk = 3  # type: ignore[misc]
    return session


def generated(session: TextGenerationSession, start: Start, strike: Strike) -> tuple[str, TextGenerationResult]:
    """Generate with one interrupt; return the joined fragments and the result."""
    session.reset()
    fragments: list[str] = []
    with start(session) as stream:
        while True:
            try:
                update = strike.during(stream.read_next)
            except KeyboardInterrupt:
                continue
            if update is None:
                return "".join(fragments), stream.result
            fragments.append(update.fragment)


def told(result: TextGenerationResult) -> tuple[object, ...]:
    """What a result says of the text."""
    logprobs = [round(logprob.logprob, 4) for logprob in result.logprobs or ()]
    return result.text, result.token_ids, result.finish_reason, result.stop_match, result.seed, logprobs


def check_all(session: TextGenerationSession, start: Start, first: int) -> None:
    """Compare generations that are interrupted in one place each with one that is not."""
    whole = Strike(10**9)
    text, undisturbed = generated(session, start, whole)
    retained, state = session.retained_token_ids, session.sequence_state
    assert len(undisturbed.token_ids) >= 3
    for number in range(first, whole.places + 1, STRIDE):
        strike = Strike(number)
        joined, result = generated(session, start, strike)
        assert told(result) == told(undisturbed), strike.where
        assert joined == text, strike.where
        assert (session.retained_token_ids, session.sequence_state) == (retained, state), strike.where


def test_s_lif_08_an_interrupt_at_any_place_of_a_sampled_generation(session: TextGenerationSession) -> None:
    check_all(session, lambda session: session.generate_tokens(PROMPT, SAMPLED), 1)


def test_s_lif_08_an_interrupt_at_any_place_of_a_constrained_generation(
    stage: Composed, session: TextGenerationSession
) -> None:
    pytest.importorskip("llguidance")
    letters: TokenConstraint = stage.tokenizer.create_constraint_from_regex("[abcdxy]{3,8}")
    options = TextGenerationOptions(6, temperature=1.0, seed=5, top_logprobs=0)
    check_all(session, lambda session: session.generate_tokens_with_constraint(PROMPT, letters, options), 2)


def test_s_lif_08_an_interrupt_at_any_place_of_a_speculative_generation(
    stage: Composed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("genai.speculative_evaluation.draft_length", lambda costs, chances: min(3, len(chances)))
    configuration = stage.configuration()
    configuration.set_speculative_decoding(TextGenerationSpeculativeMethod.PROMPT_LOOKUP, 3)
    session = Tasks(stage.runtime).create_text_generation_task(stage.tokenizer, ()).create_session(configuration)
    repeating = [1, 2, 3, 1, 2, 3, 1, 2]
    check_all(session, lambda session: session.generate_tokens(repeating, SAMPLED), 3)


def test_s_lif_08_an_interrupted_close_or_reset_can_be_repeated(session: TextGenerationSession) -> None:
    options = TextGenerationOptions(6)
    undisturbed = [update.token_id for update in session.generate_tokens(PROMPT, options)]
    for number in range(1, 40):
        stream = session.generate_tokens(PROMPT, options)
        stream.read_next()
        struck: list[Callable[[], object]] = [stream.close, session.reset]
        for call in struck:
            strike = Strike(number)
            try:
                strike.during(call)
            except KeyboardInterrupt:
                call()
        assert [update.token_id for update in session.generate_tokens(PROMPT, options)] == undisturbed, number


def test_s_lif_08_an_interrupted_start_leaves_the_session_usable(
    session: TextGenerationSession,
) -> None:
    options = TextGenerationOptions(6)
    undisturbed = [update.token_id for update in session.generate_tokens(PROMPT, options)]
    whole = Strike(10**9)
    whole.during(lambda: session.generate_tokens(PROMPT, options)).close()
    assert whole.places > 20
    for number in range(1, whole.places + 1):
        strike = Strike(number)
        with pytest.raises(KeyboardInterrupt):
            strike.during(lambda: session.generate_tokens(PROMPT, options))
        session.reset()
        assert [update.token_id for update in session.generate_tokens(PROMPT, options)] == undisturbed, strike.where
