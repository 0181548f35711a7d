"""Streams over a scripted stage: cancelling, closing, results, threads, interrupts, stop strings. They run on the fake,
on ONNX Runtime and on llama.cpp.

Statements 93-102 of genai 13, and cases S-STP, S-STR-07 and S-LIF-08.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from threading import Thread

import pytest

from fakes.backend import Block
from fakes.rig import failing
from fakes.scripted import (
    E_ACUTE_1,
    E_ACUTE_2,
    EOS,
    LESS,
    MORE,
    SLASH,
    A,
    B,
    C,
    Compose,
    Composed,
    D,
    Row,
    S,
    X,
    composed,
    one_hot,
    saying,
)
from genai import CancellationSource, TextGenerationOptions
from genai.tasks import TextGenerationFinishReason, TextGenerationSessionState, TextGenerationStream
from winml_lite import WinMLError

Reason = TextGenerationFinishReason
State = TextGenerationSessionState

E_NOT_VALID_STATE = 0x8007139F
WRONG_THREAD = 0x8001010E
CANCELLED = 0x800704C7


@pytest.fixture
def stage(tmp_path: Path, compose: Compose) -> Iterator[Composed]:
    """A stage that says a, b, c, d over and over, with room for 512 tokens."""
    with compose(tmp_path, capacity=512) as stage:
        yield stage


@pytest.fixture
def fake_stage(tmp_path: Path) -> Iterator[Composed]:
    """The same on the fake engine."""
    with composed(tmp_path, capacity=512) as stage:
        yield stage


def options(count: int, **fields: object) -> TextGenerationOptions:
    return TextGenerationOptions(max_new_tokens=count, **fields)  # type: ignore[arg-type]


def pieces(stream: TextGenerationStream) -> list[str]:
    """Read a stream to its end."""
    return [update.fragment for update in stream]


def elsewhere(call: Callable[[], object]) -> list[object]:
    """Call on another thread; return what it raised, or its value."""
    outcome: list[object] = []

    def run() -> None:
        try:
            outcome.append(call())
        except Exception as error:
            outcome.append(error)

    thread = Thread(target=run)
    thread.start()
    thread.join(100)
    return outcome


# --- cancelling -------------------------------------------------------------------------------------------------------


def test_g93_cancelled_before_the_first_read_nothing_runs(stage: Composed) -> None:
    session = stage.session()
    stream = session.generate_text("a")
    stream.cancel()
    assert stream.read_next() is None
    result = stream.result
    assert (result.finish_reason, result.error_code, result.token_ids) == (Reason.CANCELED, 0, ())
    result.raise_for_error()
    assert stage.script.runs == 0
    assert session.state is State.EMPTY


def test_g93_a_source_that_is_cancelled_already_starts_and_ends_cancelled(stage: Composed) -> None:
    source = CancellationSource()
    source.cancel()
    result = stage.session().generate("a", cancellation=source)
    assert (result.finish_reason, stage.script.runs) == (Reason.CANCELED, 0)


def test_g94_cancelling_from_another_thread_ends_the_step_that_runs(stage: Composed) -> None:
    block = stage.script.block_at[3] = Block()
    source = CancellationSource()

    def cancel() -> None:
        assert block.entered.wait(100)
        source.cancel()

    thread = Thread(target=cancel)
    thread.start()
    session = stage.session()
    stream = session.generate_text("a", options(50), cancellation=source)
    assert pieces(stream) == ["b", "c"]
    thread.join(100)
    assert stage.script.runs == 3
    assert (stream.result.finish_reason, stream.result.text) == (Reason.CANCELED, "bc")
    assert session.state is State.READY
    assert session.retained_token_ids == (A, B, C)
    assert session.continue_tokens((), options(2)).read_next() is not None


def test_a_cancel_during_a_long_prompt_stops_after_the_piece_that_runs(stage: Composed) -> None:
    source = CancellationSource()
    session = stage.session()
    stream = session.generate_tokens([A] * 300, cancellation=source)
    block = stage.script.block_at[2] = Block()

    def cancel() -> None:
        assert block.entered.wait(100)
        source.cancel()

    thread = Thread(target=cancel)
    thread.start()
    assert stream.read_next() is None
    thread.join(100)
    assert stream.result.finish_reason is Reason.CANCELED
    assert stage.stage.sequence_position == 128
    assert (session.state, len(session.retained_token_ids)) == (State.READY, 300)
    assert session.sequence_state.evaluated_token_count == 128


def test_a_prompt_cut_by_cancel_can_be_continued(fake_stage: Composed) -> None:
    stage, source = fake_stage, CancellationSource()
    session = stage.session()
    stream = session.generate_tokens([A] * 299 + [B], cancellation=source)

    def cancel_after_the_first_piece(history: Sequence[int]) -> Row:
        if len(history) == 128:
            source.cancel()
        return one_hot(C)

    stage.follow(cancel_after_the_first_piece)
    assert stream.read_next() is None
    assert stage.stage.sequence_position == 128
    assert [update.token_id for update in session.continue_tokens((), options(1))] == [C]
    assert stage.stage.sequence_position == 300


def test_g95_cancelling_a_finished_stream_changes_nothing(stage: Composed) -> None:
    source = CancellationSource()
    stream = stage.session().generate_text("a", options(2), cancellation=source)
    assert pieces(stream) == ["b", "c"]
    stream.cancel()
    assert stream.read_next() is None
    assert stream.result.finish_reason is Reason.MAX_TOKENS
    assert source.is_canceled


def test_a_limit_that_was_reached_beats_a_later_cancel(stage: Composed) -> None:
    stream = stage.session().generate_text("a", options(1))
    stream.read_next()
    stream.cancel()
    assert stream.read_next() is None
    assert stream.result.finish_reason is Reason.MAX_TOKENS


def test_g96_one_source_stops_two_sessions(stage: Composed, tmp_path: Path, compose: Compose) -> None:
    (tmp_path / "other").mkdir()
    source = CancellationSource()
    with compose(tmp_path / "other") as other:
        streams = [part.session().generate_text("a", cancellation=source) for part in (stage, other)]
        assert [stream.read_next() is not None for stream in streams] == [True, True]
        source.cancel()
        assert [stream.read_next() for stream in streams] == [None, None]
        assert [stream.result.finish_reason for stream in streams] == [Reason.CANCELED, Reason.CANCELED]


def test_a_late_abort_of_an_earlier_operation_is_run_again(stage: Composed) -> None:
    stage.script.fail_at[2] = WinMLError(CANCELLED)
    assert stage.session().generate("a", options(3)).text == "bcd"


def test_an_engine_that_only_says_cancelled_is_an_error(stage: Composed) -> None:
    stage.script.fail_at.update({2: WinMLError(CANCELLED), 3: WinMLError(CANCELLED)})
    result = stage.session().generate("a", options(3))
    assert (result.finish_reason, result.error_code) == (Reason.ERROR, CANCELLED)


# --- closing and results ----------------------------------------------------------------------------------------------


def test_g97_a_half_read_stream_may_be_closed(stage: Composed) -> None:
    session = stage.session()
    with session.generate_text("a", options(9)) as stream:
        stream.read_next()
    assert stage.script.runs == 1
    assert session.state is State.READY
    assert session.retained_token_ids == (A, B)
    assert session.generate("a", options(2)).text == "bc"


def test_a_stream_that_is_dropped_is_closed(stage: Composed) -> None:
    session = stage.session()
    session.generate_text("a").read_next()
    gc.collect()
    assert session.state is State.READY


def test_g98_there_is_no_result_before_the_end(stage: Composed) -> None:
    stream = stage.session().generate_text("a", options(2))
    stream.read_next()
    with failing(E_NOT_VALID_STATE):
        stream.result  # noqa: B018


def test_g98_a_result_that_was_read_outlives_the_stream(stage: Composed) -> None:
    stream = stage.session().generate_text("a", options(1))
    pieces(stream)
    assert stream.result.text == "b"
    stream.close()
    stream.close()
    assert stream.result.text == "b"
    with pytest.raises(RuntimeError, match="TextGenerationStream is closed"):
        stream.read_next()


def test_g98_a_result_that_was_never_read_is_gone_after_close(stage: Composed) -> None:
    stream = stage.session().generate_text("a", options(1))
    pieces(stream)
    stream.close()
    with pytest.raises(RuntimeError, match="TextGenerationStream is closed"):
        stream.result  # noqa: B018


def test_g99_updates_and_result_say_the_same(stage: Composed) -> None:
    stage.follow(saying(1, B, E_ACUTE_1, E_ACUTE_2, C, EOS))
    stream = stage.session().generate_text("a")
    updates = list(stream)
    assert [update.fragment for update in updates] == ["b", "", "é", "c"]
    assert stream.result.text == "béc"
    assert stream.result.token_ids == (B, E_ACUTE_1, E_ACUTE_2, C)
    assert [update.token_id for update in updates] == [B, E_ACUTE_1, E_ACUTE_2, C]
    assert stream.result.generated_token_count == len(updates) == 4
    assert stream.result.prompt_token_count == 1


def test_g100_half_a_character_at_the_end_is_dropped(stage: Composed) -> None:
    stage.follow(saying(1, B, E_ACUTE_1))
    stream = stage.session().generate_text("a", options(2))
    assert pieces(stream) == ["b", ""]
    assert stream.result.text == "b"
    assert stream.result.token_ids == (B, E_ACUTE_1)


def test_g101_only_cancel_may_come_from_another_thread(stage: Composed) -> None:
    session = stage.session()
    stream = session.generate_text("a")
    calls: list[Callable[[], object]] = [lambda: stream.result, lambda: session.state]
    for call in (*calls, stream.read_next, stream.close, session.close):
        (error,) = elsewhere(call)
        assert isinstance(error, WinMLError) and error.hresult == WRONG_THREAD
    assert elsewhere(stream.cancel) == [None]
    assert stream.read_next() is None
    assert stream.result.finish_reason is Reason.CANCELED


def test_g102_there_is_no_look_ahead(stage: Composed) -> None:
    stream = stage.session().generate_text("aaaa", options(4))
    assert stage.script.runs == 0
    for runs in (1, 2, 3, 4):
        assert stream.read_next() is not None
        assert stage.script.runs == runs
    assert stream.read_next() is None
    assert stage.script.runs == 4


def test_a_long_prompt_goes_in_pieces_of_128(stage: Composed) -> None:
    stream = stage.session().generate_tokens([A] * 300, options(2))
    assert stream.read_next() is not None
    assert stage.script.runs == 3
    assert stream.read_next() is not None
    assert stage.script.runs == 4


def test_timings_count_tokens(stage: Composed) -> None:
    timings = stage.session().generate("aaaa", options(3)).timings
    assert (timings.evaluated_prompt_token_count, timings.generated_token_count) == (4, 3)
    assert timings.prompt_seconds > 0
    assert timings.decode_seconds > 0


# --- interrupts -------------------------------------------------------------------------------------------------------


def test_s_lif_08_an_interrupt_before_the_state_moves_loses_nothing(stage: Composed) -> None:
    stage.script.fail_at[2] = KeyboardInterrupt()
    stream = stage.session().generate_text("a", options(3))
    assert stream.read_next() is not None
    with pytest.raises(KeyboardInterrupt):
        stream.read_next()
    assert pieces(stream) == ["c", "d"]
    assert stream.result.text == "bcd"


def test_s_lif_08_an_interrupt_after_the_state_has_moved_loses_nothing(
    stage: Composed, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = stage.session().generate_text("a", options(3))
    assert stream.read_next() is not None
    _interrupt_after_commit(stage, monkeypatch)
    with pytest.raises(KeyboardInterrupt):
        stream.read_next()
    assert stage.stage.sequence_position == 2
    monkeypatch.undo()
    assert pieces(stream) == ["c", "d"]
    assert stream.result.token_ids == (B, C, D)


def test_s_lif_08_an_interrupted_prompt_leaves_the_session_usable(
    stage: Composed, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = stage.session()
    _interrupt_after_commit(stage, monkeypatch)
    with pytest.raises(KeyboardInterrupt):
        session.generate("aaaa")
    monkeypatch.undo()
    assert session.state is State.READY
    assert session.retained_token_ids == (A, A, A, A)
    assert session.sequence_state.evaluated_token_count == 4
    assert session.generate("aaaa", options(2)).text == "bc"


def test_s_lif_08_an_interrupt_before_anything_ran_leaves_the_session_empty(stage: Composed) -> None:
    stage.script.fail_at[1] = KeyboardInterrupt()
    session = stage.session()
    with pytest.raises(KeyboardInterrupt):
        session.generate("aaaa")
    assert session.state is State.EMPTY
    assert session.generate("a", options(1)).text == "b"


def test_s_lif_08_an_interrupted_close_can_be_repeated(stage: Composed, monkeypatch: pytest.MonkeyPatch) -> None:
    session = stage.session()
    stream = session.generate_text("a", options(9))
    stream.read_next()
    monkeypatch.setattr("genai.sequence.SequenceCore.finished", _interrupting)
    with pytest.raises(KeyboardInterrupt):
        stream.close()
    monkeypatch.undo()
    stream.close()
    assert session.generate("a", options(2)).text == "bc"


def _interrupting(*arguments: object) -> None:
    raise KeyboardInterrupt


def _interrupt_after_commit(stage: Composed, monkeypatch: pytest.MonkeyPatch) -> None:
    commit = stage.executor.commit

    def commit_and_interrupt() -> None:
        commit()
        raise KeyboardInterrupt

    monkeypatch.setattr(stage.executor, "commit", commit_and_interrupt)


# --- stop strings -----------------------------------------------------------------------------------------------------


def test_s_stp_01_a_stop_text_split_over_tokens_never_leaks(stage: Composed) -> None:
    stage.follow(saying(1, A, LESS, SLASH, S, MORE, B, EOS))
    stream = stage.session().generate_text("a", options(9, stop="</s>"))
    assert pieces(stream) == ["a", "", "", "", ""]
    result = stream.result
    assert (result.text, result.finish_reason, result.stop_match) == ("a", Reason.STOP_TOKEN, "</s>")
    assert result.token_ids == (A, LESS, SLASH, S, MORE)
    assert stage.script.runs == 5


def test_s_stp_02_text_that_only_began_like_a_stop_is_given_back(stage: Composed) -> None:
    stage.follow(saying(1, A, B, C, X, EOS))
    stream = stage.session().generate_text("a", options(9, stop="abcd"))
    assert pieces(stream) == ["", "", "", "abcx"]
    assert stream.result.stop_match is None


def test_s_stp_02_held_text_comes_out_when_the_text_ends(stage: Composed) -> None:
    stage.follow(saying(1, A, B, EOS))
    stream = stage.session().generate_text("a", options(9, stop="abcd"))
    updates = list(stream)
    assert [(update.token_id, update.fragment) for update in updates] == [(A, ""), (B, ""), (None, "ab")]
    assert stream.read_next() is None
    assert (stream.result.text, stream.result.finish_reason) == ("ab", Reason.EOS_TOKEN)
    assert stream.result.token_ids == (A, B)


def test_s_stp_02_held_text_comes_out_with_the_last_permitted_token(stage: Composed) -> None:
    stage.follow(saying(1, A, B, C, D))
    stream = stage.session().generate_text("a", options(2, stop="abcd"))
    assert pieces(stream) == ["", "ab"]
    assert stream.result.finish_reason is Reason.MAX_TOKENS


def test_s_stp_02_held_text_is_kept_when_the_stream_is_cancelled(stage: Composed) -> None:
    stage.follow(saying(1, A, B, C, D))
    stream = stage.session().generate_text("a", options(9, stop="abcd"))
    stream.read_next()
    stream.cancel()
    assert pieces(stream) == ["a"]
    assert (stream.result.text, stream.result.finish_reason) == ("a", Reason.CANCELED)


def test_s_stp_03_reading_piecewise_and_at_once_give_the_same_text(stage: Composed) -> None:
    stage.follow(saying(1, A, B, C, D))
    session = stage.session()
    wanted = options(9, stop=["bc"])
    stream = session.generate_text("a", wanted)
    assert "".join(pieces(stream)) == "a"
    whole = session.generate("a", wanted)
    assert (whole.text, whole.token_ids) == ("a", (A, B, C))
    assert stream.result.token_ids == (A, B, C)


def test_s_stp_04_a_single_letter_stops_and_an_empty_stop_is_refused(stage: Composed) -> None:
    stage.follow(saying(1, A, B, C, EOS))
    assert stage.session().generate("a", options(9, stop="b")).text == "a"
    with pytest.raises(ValueError, match="empty"):
        options(9, stop=[""])


def test_s_stp_04_a_str_is_one_stop(stage: Composed) -> None:
    stage.follow(saying(1, B, A, B, C, EOS))
    result = stage.session().generate("a", options(9, stop="ab"))
    assert (result.text, result.stop_match) == ("b", "ab")


def test_s_stp_05_an_own_stop_keeps_the_end_of_the_model(stage: Composed) -> None:
    stage.follow(saying(1, D, EOS, X))
    session = stage.session()
    assert session.generate("a", options(9, stop=["zzz"])).finish_reason is Reason.EOS_TOKEN
    session.close()
    endless = stage.session(()).generate("a", options(3, stop=["zzz"]))
    assert (endless.finish_reason, endless.token_ids) == (Reason.MAX_TOKENS, (D, EOS, X))


def test_s_stp_06_eos_as_the_last_permitted_token_is_eos(stage: Composed) -> None:
    stage.follow(saying(1, B, EOS))
    assert stage.session().generate("a", options(2)).finish_reason is Reason.EOS_TOKEN


def test_s_stp_06_a_stop_text_completed_by_the_last_permitted_token_is_a_stop(stage: Composed) -> None:
    result = stage.session().generate("a", options(2, stop="bc"))
    assert (result.finish_reason, result.stop_match, result.text) == (Reason.STOP_TOKEN, "bc", "")


def test_a_shorter_stop_counts_when_the_text_ends_inside_a_longer_one(stage: Composed) -> None:
    stage.follow(saying(1, A, B, C, EOS))
    result = stage.session().generate("a", options(9, stop=["abcd", "bc"]))
    assert (result.text, result.finish_reason, result.stop_match) == ("a", Reason.STOP_TOKEN, "bc")


def test_s_stp_07_any_of_several_eos_ids_ends_the_text(stage: Composed) -> None:
    stage.follow(saying(1, B, D))
    assert stage.session((C, D)).generate("a").finish_reason is Reason.EOS_TOKEN


# --- failures reach the reader ----------------------------------------------------------------------------------------


def test_s_str_07_an_option_that_cannot_work_is_refused_at_once() -> None:
    with pytest.raises(ValueError, match="repetition_penalty"):
        options(3, repetition_penalty=0)
