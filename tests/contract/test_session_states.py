"""The state machine of sessions (genai 6.1): every call in every state, and pipelines that others have moved.

A call that is refused changes nothing: not the state, not the sequence, not the position of the stage, not an open
stream. One that is taken runs no model before the first read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from fakes.rig import failing
from fakes.scripted import EOS, A, B, C, Compose, Composed, D, composed, saying
from genai import TextGenerationOptions
from genai.tasks import (
    CancellationSource,
    TextGenerationFinishReason,
    TextGenerationSegment,
    TextGenerationSequenceDisclosure,
    TextGenerationSequenceState,
    TextGenerationSession,
    TextGenerationSessionState,
    TextGenerationStream,
)
from winml_lite import WinMLError

Reason = TextGenerationFinishReason
State = TextGenerationSessionState
Disclosure = TextGenerationSequenceDisclosure
Act = Callable[[TextGenerationSession], Any]

E_NOT_VALID_STATE = 0x8007139F
E_INVALIDARG = 0x80070057
E_FAIL = 0x80004005
INSUFFICIENT_BUFFER = 0x8007007A


def options(count: int) -> TextGenerationOptions:
    return TextGenerationOptions(count)


def ids(stream: TextGenerationStream) -> list[int | None]:
    return [update.token_id for update in stream]


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Composed]:
    """A stage with room for 16 tokens that says a, b, c, d over and over."""
    with composed(tmp_path, capacity=16) as stage:
        yield stage


@dataclass
class Situation:
    """A session, and the stream that is open if one is."""

    session: TextGenerationSession
    stream: TextGenerationStream | None = None


def empty(stage: Composed) -> Situation:
    return Situation(stage.session((EOS,)))


def ready(stage: Composed) -> Situation:
    """After EOS: everything is evaluated."""
    stage.follow(saying(2, C, EOS))
    session = stage.session((EOS,))
    session.generate("ab")
    return Situation(session)


def pending(stage: Composed) -> Situation:
    """After MAX_TOKENS: the last token is not evaluated."""
    session = stage.session((EOS,))
    session.generate("ab", options(2))
    return Situation(session)


def unread(stage: Composed) -> Situation:
    session = stage.session((EOS,))
    return Situation(session, session.generate_text("ab", options(4)))


def half_read(stage: Composed) -> Situation:
    session = stage.session((EOS,))
    stream = session.generate_text("ab", options(4))
    stream.read_next()
    return Situation(session, stream)


def failed(stage: Composed) -> Situation:
    stage.script.fail_at[2] = WinMLError(E_FAIL)
    session = stage.session((EOS,))
    session.generate("ab")
    return Situation(session)


def closed(stage: Composed) -> Situation:
    session = stage.session((EOS,))
    session.close()
    return Situation(session)


SITUATIONS: dict[str, tuple[Callable[[Composed], Situation], TextGenerationSessionState]] = {
    "empty": (empty, State.EMPTY),
    "ready": (ready, State.READY),
    "pending": (pending, State.READY),
    "unread": (unread, State.ACTIVE),
    "half read": (half_read, State.ACTIVE),
    "failed": (failed, State.RESET_REQUIRED),
    "closed": (closed, State.CLOSED),
}

STARTS: dict[str, Act] = {
    "generate_text": lambda s: s.generate_text("ab", options(1)),
    "stream": lambda s: s.stream("ab", options(1)),
    "generate_tokens": lambda s: s.generate_tokens([A, B], options(1)),
    "generate_segments": lambda s: s.generate_segments([TextGenerationSegment.from_tokens([A, B])], options(1)),
    "generate_tokens_with_constraint": lambda s: s.generate_tokens_with_constraint([A, B], choice(s, "c"), options(1)),
    "generate_segments_with_constraint": lambda s: s.generate_segments_with_constraint(
        [TextGenerationSegment.from_tokens([A, B])], choice(s, "c"), options(1)
    ),
}
CONTINUATIONS: dict[str, Act] = {
    "continue_tokens": lambda s: s.continue_tokens([A], options(1)),
    "continue_tokens_with_constraint": lambda s: s.continue_tokens_with_constraint([A], choice(s, "b"), options(1)),
}


def choice(session: TextGenerationSession, text: str) -> Any:
    pytest.importorskip("llguidance")
    return session._core.tokenizer.create_constraint_from_choices([text])


@dataclass(frozen=True)
class Snapshot:
    """What a refused call must leave alone."""

    state: TextGenerationSessionState
    sequence: TextGenerationSequenceState
    retained: tuple[int, ...]
    position: int
    runs: int


def snapshot(stage: Composed, session: TextGenerationSession) -> Snapshot:
    return Snapshot(
        session.state,
        session.sequence_state,
        session.retained_token_ids,
        stage.stage.sequence_position,
        stage.script.runs,
    )


@pytest.mark.parametrize("name", SITUATIONS)
def test_the_situations_are_what_they_are_called(stage: Composed, name: str) -> None:
    make, state = SITUATIONS[name]
    assert make(stage).session.state is state


@pytest.mark.parametrize("call", STARTS)
@pytest.mark.parametrize("name", ["empty", "ready", "pending"])
def test_a_generation_starts_from_empty_and_ready(stage: Composed, name: str, call: str) -> None:
    session = SITUATIONS[name][0](stage).session
    runs = stage.script.runs
    stream = STARTS[call](session)
    assert (session.state, stage.script.runs) == (State.ACTIVE, runs)
    assert ids(stream) == [C]
    assert session.state is State.READY
    assert session.retained_token_ids == (A, B, C)


@pytest.mark.parametrize("call", CONTINUATIONS)
@pytest.mark.parametrize(("name", "before"), [("ready", (A, B, C)), ("pending", (A, B, C, D))])
def test_a_continuation_goes_on_from_ready(stage: Composed, name: str, before: tuple[int, ...], call: str) -> None:
    session = SITUATIONS[name][0](stage).session
    stage.follow(saying(len(before) + 1, B))
    runs = stage.script.runs
    stream = CONTINUATIONS[call](session)
    assert (session.state, stage.script.runs) == (State.ACTIVE, runs)
    assert ids(stream) == [B]
    assert (session.state, session.retained_token_ids) == (State.READY, (*before, A, B))


@pytest.mark.parametrize("call", [*STARTS, *CONTINUATIONS])
@pytest.mark.parametrize("name", ["unread", "half read"])
def test_nothing_starts_while_a_stream_is_open(stage: Composed, name: str, call: str) -> None:
    situation = SITUATIONS[name][0](stage)
    before = snapshot(stage, situation.session)
    with failing(E_NOT_VALID_STATE):
        (STARTS | CONTINUATIONS)[call](situation.session)
    assert snapshot(stage, situation.session) == before
    assert situation.stream is not None
    ids(situation.stream)
    assert situation.stream.result.token_ids == (C, D, A, B)


@pytest.mark.parametrize("call", [*STARTS, *CONTINUATIONS])
def test_nothing_starts_before_a_reset_that_is_due(stage: Composed, call: str) -> None:
    session = failed(stage).session
    before = snapshot(stage, session)
    with failing(E_NOT_VALID_STATE):
        (STARTS | CONTINUATIONS)[call](session)
    assert snapshot(stage, session) == before


@pytest.mark.parametrize("call", CONTINUATIONS)
def test_an_empty_session_has_nothing_to_continue(stage: Composed, call: str) -> None:
    session = empty(stage).session
    with failing(E_NOT_VALID_STATE):
        CONTINUATIONS[call](session)
    assert snapshot(stage, session) == Snapshot(
        State.EMPTY, TextGenerationSequenceState(Disclosure.NONE, State.EMPTY, 0, 0), (), 0, 0
    )


@pytest.mark.parametrize("name", ["empty", "ready", "pending", "failed"])
def test_reset_leads_to_empty(stage: Composed, name: str) -> None:
    session = SITUATIONS[name][0](stage).session
    session.reset()
    assert (session.state, session.retained_token_ids) == (State.EMPTY, ())
    assert session.sequence_state == TextGenerationSequenceState(Disclosure.NONE, State.EMPTY, 0, 0)
    assert stage.stage.sequence_position == 0
    stage.follow(saying(2, D))
    assert ids(session.generate_text("ab", options(1))) == [D]


@pytest.mark.parametrize("name", ["empty", "ready", "pending", "failed", "closed"])
def test_close_leads_to_closed(stage: Composed, name: str) -> None:
    session = SITUATIONS[name][0](stage).session
    session.close()
    session.close()
    assert session.state is State.CLOSED


@pytest.mark.parametrize("call", ["reset", "close"])
@pytest.mark.parametrize("name", ["unread", "half read"])
def test_an_active_session_is_neither_reset_nor_closed(stage: Composed, name: str, call: str) -> None:
    situation = SITUATIONS[name][0](stage)
    before = snapshot(stage, situation.session)
    with failing(E_NOT_VALID_STATE):
        getattr(situation.session, call)()
    assert snapshot(stage, situation.session) == before
    assert situation.stream is not None
    ids(situation.stream)
    assert situation.stream.result.token_ids == (C, D, A, B)


MEMBERS: dict[str, Act] = {
    "generate": lambda s: s.generate("ab"),
    "reset": lambda s: s.reset(),
    "capabilities": lambda s: s.capabilities,
    "sequence_state": lambda s: s.sequence_state,
    "retained_token_ids": lambda s: s.retained_token_ids,
    "create_media_encoder_from_file": lambda s: s.create_media_encoder_from_file("p.gguf"),
    "enter": lambda s: s.__enter__(),
    **STARTS,
    **CONTINUATIONS,
}


@pytest.mark.parametrize("call", [name for name in MEMBERS if "constraint" not in name])
def test_a_closed_session_refuses_every_member(stage: Composed, call: str) -> None:
    session = closed(stage).session
    with pytest.raises(RuntimeError, match="TextGenerationSession is closed"):
        MEMBERS[call](session)
    assert session.state is State.CLOSED
    assert session.runtime is stage.runtime
    assert session.configuration.pipeline is stage.pipeline


@pytest.mark.parametrize("name", ["empty", "ready", "pending", "unread", "half read", "failed"])
def test_queries_change_nothing(stage: Composed, name: str) -> None:
    situation = SITUATIONS[name][0](stage)
    before = snapshot(stage, situation.session)
    assert situation.session.capabilities.sequence_state == before.sequence
    assert snapshot(stage, situation.session) == before


# --- calls that are refused for their arguments -----------------------------------------------------------------------


WRONG: dict[str, tuple[Act, int]] = {
    "a foreign id": (lambda s: s.generate_tokens([A, 16]), E_INVALIDARG),
    "a foreign id to go on with": (lambda s: s.continue_tokens([16]), E_INVALIDARG),
    "nothing to go on with": (lambda s: s.continue_tokens(), E_INVALIDARG),
    "no text": (lambda s: s.generate_text(""), E_INVALIDARG),
    "a prompt that is too long": (lambda s: s.generate_tokens([A] * 17), INSUFFICIENT_BUFFER),
    "a suffix that is too long": (lambda s: s.continue_tokens([A] * 14), INSUFFICIENT_BUFFER),
    "segments that are too long": (
        lambda s: s.generate_segments([TextGenerationSegment.from_tokens([A] * 17)]),
        INSUFFICIENT_BUFFER,
    ),
}


@pytest.mark.parametrize("what", WRONG)
def test_a_call_with_wrong_arguments_changes_nothing(stage: Composed, what: str) -> None:
    session = ready(stage).session
    before = snapshot(stage, session)
    call, code = WRONG[what]
    with failing(code):
        call(session)
    assert (
        snapshot(stage, session)
        == before
        == Snapshot(State.READY, TextGenerationSequenceState(Disclosure.RETAINED, State.READY, 3, 3), (A, B, C), 3, 2)
    )


@pytest.mark.parametrize(
    ("fields", "error"),
    [({"logit_bias": {16: 1.0}}, ValueError), ({"logit_bias": {"99": 1.0}}, ValueError)],
)
def test_options_that_do_not_fit_the_vocabulary_change_nothing(
    stage: Composed, fields: dict[str, Any], error: type[Exception]
) -> None:
    session = pending(stage).session
    before = snapshot(stage, session)
    with pytest.raises(error):
        session.generate_tokens([A, D], TextGenerationOptions(3, **fields))
    with pytest.raises(error):
        session.continue_tokens([A], TextGenerationOptions(3, **fields))
    assert snapshot(stage, session) == before
    assert ids(session.continue_tokens((), options(2))) == [A, B]


# --- how operations end -----------------------------------------------------------------------------------------------


def test_a_cancelled_generation_that_evaluated_nothing_leaves_empty(stage: Composed) -> None:
    session, source = pending(stage).session, CancellationSource()
    source.cancel()
    stream = session.generate_text("aab", options(3), cancellation=source)
    assert ids(stream) == []
    assert stream.result.finish_reason is Reason.CANCELED
    assert (session.state, session.retained_token_ids) == (State.EMPTY, ())


def test_a_cancelled_continuation_that_evaluated_nothing_leaves_the_sequence(stage: Composed) -> None:
    session, source = pending(stage).session, CancellationSource()
    before = snapshot(stage, session)
    source.cancel()
    stream = session.continue_tokens([A], cancellation=source)
    assert ids(stream) == []
    assert snapshot(stage, session) == before


def test_a_stream_closed_half_way_leaves_what_was_emitted(stage: Composed) -> None:
    situation = half_read(stage)
    assert situation.stream is not None
    situation.stream.close()
    assert (situation.session.state, situation.session.retained_token_ids) == (State.READY, (A, B, C))
    assert ids(situation.session.continue_tokens((), options(2))) == [D, A]


def test_an_error_in_a_continuation_needs_a_reset_too(stage: Composed) -> None:
    session = pending(stage).session
    stage.script.fail_at[3] = WinMLError(E_FAIL)
    assert ids(session.continue_tokens((), options(3))) == []
    assert (session.state, session.sequence_state.disclosure) == (State.RESET_REQUIRED, Disclosure.UNUSABLE)
    session.reset()
    assert session.state is State.EMPTY


# --- behind the session's back ----------------------------------------------------------------------------------------


def run_alone(stage: Composed) -> None:
    stage.stage.bind_input(0, stage.runtime.tensor_from_tokens([D]))
    stage.pipeline.run()


MOVES: dict[str, Callable[[Composed], object]] = {
    "reset": lambda stage: stage.pipeline.reset(),
    "rewind": lambda stage: stage.stage.rewind(1),
    "run": run_alone,
    "capacity": lambda stage: stage.stage.set_sequence_capacity(17),
}


@pytest.fixture
def real(tmp_path: Path, compose: Compose) -> Iterator[Composed]:
    """A stage on every engine."""
    with compose(tmp_path, capacity=16) as stage:
        yield stage


@pytest.mark.parametrize("call", ["generate_tokens", "continue_tokens"])
@pytest.mark.parametrize("move", MOVES)
def test_a_pipeline_that_others_have_moved_is_noticed(real: Composed, move: str, call: str) -> None:
    session = real.session(())
    ids(session.generate_tokens([A, B, C], options(2)))
    MOVES[move](real)
    runs = real.script.runs
    with failing(E_NOT_VALID_STATE) as caught:
        (STARTS | CONTINUATIONS)[call](session)
    assert "call reset()" in str(caught.value)
    assert (session.state, session.sequence_state.disclosure) == (State.RESET_REQUIRED, Disclosure.UNUSABLE)
    assert real.script.runs == runs
    session.reset()
    assert ids(session.generate_tokens([A, B], options(2))) == [C, D]


def test_a_new_session_takes_a_pipeline_as_others_left_it(real: Composed) -> None:
    real.stage.bind_input(0, real.runtime.tensor_from_tokens([D, D, D]))
    real.pipeline.run()
    session = real.session(())
    assert ids(session.generate_tokens([A, B], options(2))) == [C, D]
    assert session.retained_token_ids == (A, B, C, D)
