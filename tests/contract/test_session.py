"""Text generation sessions over a scripted stage: states, retained sequence, capacity, limits, prefix reuse. They run
on the fake, on ONNX Runtime and on llama.cpp.

Statements 78-92, 103-106 and 111 of genai 13, and cases S-CTX.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from fakes.rig import failing
from fakes.scripted import EOS, EOT, A, B, C, Compose, Composed, D, majority, one_hot, saying, uniform
from genai import TextGenerationOptions, Tokenizer
from genai.tasks import (
    Tasks,
    TextGenerationFinishReason,
    TextGenerationSequenceDisclosure,
    TextGenerationSession,
    TextGenerationSessionState,
    TextGenerationStream,
)
from models.table_decoders import TableDecoder
from winml_lite import WinMLError

Reason = TextGenerationFinishReason
State = TextGenerationSessionState
Disclosure = TextGenerationSequenceDisclosure

Call = Callable[[], object]

E_NOT_VALID_STATE = 0x8007139F
E_INVALIDARG = 0x80070057
INSUFFICIENT_BUFFER = 0x8007007A
BUSY = 0x800700AA
E_FAIL = 0x80004005


@pytest.fixture
def stage(tmp_path: Path, compose: Compose) -> Iterator[Composed]:
    """A stage that says a, b, c, d over and over, with room for 64 tokens."""
    with compose(tmp_path) as stage:
        yield stage


@pytest.fixture
def small(tmp_path: Path, compose: Compose) -> Iterator[Composed]:
    """The same with room for 8 tokens."""
    with compose(tmp_path, capacity=8) as stage:
        yield stage


def ids(stream: TextGenerationStream) -> list[int | None]:
    """Read a stream to its end."""
    return [update.token_id for update in stream]


def options(count: int, **fields: object) -> TextGenerationOptions:
    return TextGenerationOptions(max_new_tokens=count, **fields)  # type: ignore[arg-type]


def counts(session: TextGenerationSession) -> tuple[int, int]:
    """Evaluated and retained tokens."""
    state = session.sequence_state
    return state.evaluated_token_count, state.retained_token_count


# --- states -----------------------------------------------------------------------------------------------------------


def test_g78_a_new_session_is_empty(stage: Composed) -> None:
    session = stage.session()
    assert session.state is State.EMPTY
    assert session.sequence_state.disclosure is Disclosure.NONE
    assert session.sequence_state.session_state is State.EMPTY
    assert counts(session) == (0, 0)
    assert session.retained_token_ids == ()


def test_g79_after_eos_everything_is_evaluated(stage: Composed) -> None:
    stage.follow(saying(3, A, B, EOS))
    session = stage.session()
    result = session.generate("abc")
    assert result.finish_reason is Reason.EOS_TOKEN
    assert session.state is State.READY
    assert session.sequence_state.disclosure is Disclosure.RETAINED
    assert session.retained_token_ids == (A, B, C, A, B)
    assert counts(session) == (5, 5)


def test_g80_after_max_tokens_the_last_token_is_pending(stage: Composed) -> None:
    session = stage.session()
    result = session.generate("a", options(3))
    assert result.finish_reason is Reason.MAX_TOKENS
    assert session.retained_token_ids == (A, B, C, D)
    assert counts(session) == (3, 4)


def test_g81_the_eos_id_is_nowhere(stage: Composed) -> None:
    stage.follow(saying(1, B, EOS))
    stream = stage.session().generate_text("a")
    assert ids(stream) == [B]
    assert stream.result.token_ids == (B,)
    assert stream.result.text == "b"
    assert stream.result.generated_token_count == 1


def test_g82_eos_wins_over_a_stop_id(stage: Composed) -> None:
    stage.follow(saying(1, B, EOS))
    assert stage.session().generate("a", options(9, stop_token_ids=[EOS])).finish_reason is Reason.EOS_TOKEN


def test_g82_an_id_only_in_the_stop_list_is_a_stop_token(stage: Composed) -> None:
    session = stage.session()
    result = session.generate("a", options(9, stop_token_ids=[D]))
    assert result.finish_reason is Reason.STOP_TOKEN
    assert result.token_ids == (B, C)
    assert session.retained_token_ids == (A, B, C)
    assert counts(session) == (3, 3)


def test_g83_an_empty_eos_list_never_ends_the_text(stage: Composed) -> None:
    stage.follow(saying(1, B, EOS))
    result = stage.session(eos_token_ids=()).generate("a", options(3))
    assert result.finish_reason is Reason.MAX_TOKENS
    assert result.token_ids == (B, EOS, EOS)
    assert result.text == "b<eos><eos>"


def test_g84_one_new_token_is_one_update_then_none(stage: Composed) -> None:
    stream = stage.session().generate_text("a", options(1))
    first = stream.read_next()
    assert first is not None and (first.token_id, first.fragment) == (B, "b")
    assert stream.read_next() is None
    assert stream.read_next() is None
    assert stream.result.finish_reason is Reason.MAX_TOKENS


def test_an_own_list_of_eos_ids_replaces_the_default(stage: Composed) -> None:
    stage.follow(saying(1, EOS, EOT))
    result = stage.session(eos_token_ids=[EOT]).generate("a")
    assert (result.finish_reason, result.token_ids) == (Reason.EOS_TOKEN, (EOS,))


# --- capacity ---------------------------------------------------------------------------------------------------------


def test_g85_generation_fills_the_room_that_is_left(small: Composed) -> None:
    result = small.session().generate("aaaaa", options(100))
    assert result.finish_reason is Reason.SEQUENCE_CAPACITY
    assert result.token_ids == (B, C, D)


def test_g85_max_tokens_wins_when_both_limits_are_reached(small: Composed) -> None:
    result = small.session().generate("aaaaa", options(3))
    assert (result.finish_reason, result.token_ids) == (Reason.MAX_TOKENS, (B, C, D))


def test_g86_a_prompt_as_long_as_the_room_ends_without_a_run(small: Composed) -> None:
    session = small.session()
    result = session.generate("aaaaaaaa")
    assert (result.finish_reason, result.token_ids) == (Reason.SEQUENCE_CAPACITY, ())
    assert small.script.runs == 0
    assert session.state is State.EMPTY


def test_g86_a_prompt_that_is_too_long_changes_nothing(small: Composed) -> None:
    session = small.session()
    with failing(INSUFFICIENT_BUFFER):
        session.generate_text("aaaaaaaaa")
    assert session.state is State.EMPTY
    assert small.script.runs == 0


def test_s_ctx_01_a_refused_prompt_names_both_lengths_and_the_next_one_works(small: Composed) -> None:
    session = small.session()
    with failing(INSUFFICIENT_BUFFER) as caught:
        session.generate_text("aaaaaaaaa")
    assert "9 prompt tokens" in str(caught.value)
    assert "context of 8" in str(caught.value)
    assert "max_new_tokens=256" in str(caught.value)
    assert small.stage.sequence_position == 0
    assert session.generate("aaa", options(2)).token_ids == (B, C)


def test_g87_a_continuation_that_does_not_fit_changes_nothing(small: Composed) -> None:
    session = small.session()
    session.generate("aaaa", options(2))
    with failing(INSUFFICIENT_BUFFER):
        session.continue_tokens([A, A, A])
    assert session.state is State.READY
    assert session.retained_token_ids == (A, A, A, A, B, C)
    assert session.continue_tokens([A]).read_next() is not None


def test_a_continuation_that_fills_the_room_exactly_keeps_the_sequence_of_before(small: Composed) -> None:
    session = small.session()
    session.generate("aaaa", options(2))
    stream = session.continue_tokens([A, A])
    assert ids(stream) == []
    assert stream.result.finish_reason is Reason.SEQUENCE_CAPACITY
    assert (session.state, session.retained_token_ids) == (State.READY, (A, A, A, A, B, C))


def test_s_ctx_03_generation_past_the_window_ends_with_a_reason_and_all_its_text(small: Composed) -> None:
    result = small.session().generate("aaaaaa", options(10))
    assert (result.finish_reason, result.text) == (Reason.SEQUENCE_CAPACITY, "bc")


def test_s_ctx_04_the_limit_counts_new_tokens_only(stage: Composed) -> None:
    assert stage.session().generate("aaaaa", options(3)).generated_token_count == 3


def test_s_ctx_05_an_empty_prompt_without_bos_is_refused(stage: Composed) -> None:
    session = stage.session()
    with failing(E_INVALIDARG):
        session.generate_text("")
    assert session.generate("a", options(1)).token_ids == (B,)


# --- continuing -------------------------------------------------------------------------------------------------------


def test_g88_continuing_after_max_tokens_gives_what_one_longer_call_gives(stage: Composed) -> None:
    stage.follow(majority)
    session = stage.session(())
    first = session.generate("ab", options(3)).token_ids
    second = session.continue_tokens((), options(4))
    assert [*first, *ids(second)] == [B, C, C, C, D, D, D]
    assert second.result.prompt_token_count == 5


def test_g88_a_continuation_evaluates_the_pending_token_and_the_new_ones_once(stage: Composed) -> None:
    session = stage.session()
    session.generate("a", options(2))
    stream = session.continue_tokens([A, A], options(1))
    assert ids(stream) == [B]
    assert session.retained_token_ids == (A, B, C, A, A, B)
    assert stage.stage.sequence_position == 5
    assert stream.result.prompt_token_count == 5


def test_g89_nothing_to_continue_with_is_refused(stage: Composed) -> None:
    stage.follow(saying(1, B, EOS))
    session = stage.session()
    session.generate("a")
    with failing(E_INVALIDARG):
        session.continue_tokens()
    assert session.state is State.READY


def test_g89_an_empty_session_cannot_continue(stage: Composed) -> None:
    with failing(E_NOT_VALID_STATE):
        stage.session().continue_tokens([A])


def test_continuing_cancelled_before_its_first_read_keeps_the_sequence(stage: Composed) -> None:
    session = stage.session()
    session.generate("a", options(2))
    stream = session.continue_tokens([D])
    stream.close()
    assert (session.state, session.retained_token_ids) == (State.READY, (A, B, C))
    assert counts(session) == (2, 3)


# --- replacing and reusing --------------------------------------------------------------------------------------------


def test_g90_a_new_generation_replaces_the_sequence(stage: Composed) -> None:
    stage.follow(majority)
    session = stage.session(())
    session.generate("abcd", options(5))
    again = session.generate("ba", options(5))
    session.close()
    assert again.token_ids == stage.session(()).generate("ba", options(5)).token_ids
    assert again.token_ids == (B, C, C, C, D)


def test_g111_a_shared_prefix_is_not_evaluated_again(stage: Composed) -> None:
    stage.follow(majority)
    session = stage.session(())
    ids(session.generate_tokens([A, B, C, D, A, B, C, D, A, B, C, D], options(1)))
    assert stage.stage.sequence_position == 12
    stream = session.generate_tokens([A, B, C, D, A, B, C, D, A, B, A, A], options(3))
    assert stage.stage.sequence_position == 10
    tokens = ids(stream)
    assert stage.stage.sequence_position == 14
    assert stream.result.timings.evaluated_prompt_token_count == 2
    session.close()
    fresh = stage.session(())
    assert tokens == ids(fresh.generate_tokens([A, B, C, D, A, B, C, D, A, B, A, A], options(3)))


def test_s_ctx_08_the_same_prompt_gives_the_same_text_again(stage: Composed) -> None:
    stage.follow(majority)
    session = stage.session(())
    prompt = [B, C, B]
    first = ids(session.generate_tokens(prompt, options(3)))
    second = ids(session.generate_tokens(prompt, options(3)))
    session.reset()
    third = ids(session.generate_tokens(prompt, options(3)))
    assert first == second == third == [C, C, D]


def test_s_ctx_09_a_prefix_that_differs_in_the_middle_is_rewound_to(stage: Composed) -> None:
    stage.follow(majority)
    session = stage.session(())
    ids(session.generate_tokens([B, C, D], options(2)))
    stream = session.generate_tokens([B, C, C], options(4))
    assert stage.stage.sequence_position == 2
    assert ids(stream) == [D, D, D, A]


def test_s_ctx_10_the_session_keeps_ids_and_not_text(stage: Composed) -> None:
    session = stage.session()
    session.generate("a", options(1))
    ids(session.continue_tokens([C], options(1)))
    assert session.retained_token_ids == (A, B, C, D)


# --- misuse -----------------------------------------------------------------------------------------------------------


def test_g91_nothing_else_can_start_while_a_stream_is_open(stage: Composed) -> None:
    session = stage.session()
    stream = session.generate_text("a", options(3))
    stream.read_next()
    calls: list[Call] = [lambda: session.generate_text("b"), lambda: session.continue_tokens([A])]
    for call in (*calls, session.reset, session.close):
        with failing(E_NOT_VALID_STATE):
            call()
    assert session.state is State.ACTIVE
    assert ids(stream) == [C, D]


def test_g92_a_failing_stage_ends_the_stream_with_its_error(stage: Composed) -> None:
    stage.script.fail_at[3] = WinMLError(E_FAIL, "engine", "scripted failure")
    session = stage.session()
    stream = session.generate_text("a", options(9))
    assert ids(stream) == [B, C]
    assert stream.read_next() is None
    result = stream.result
    assert (result.finish_reason, result.error_code, result.text) == (Reason.ERROR, E_FAIL, "bc")
    assert "scripted failure" in (result.error_message or "")
    with failing(E_FAIL) as caught:
        result.raise_for_error()
    assert "scripted failure" in str(caught.value)
    assert session.state is State.RESET_REQUIRED
    assert session.sequence_state.disclosure is Disclosure.UNUSABLE
    assert session.retained_token_ids == ()


def test_g92_after_an_error_only_reset_helps(stage: Composed) -> None:
    stage.script.fail_at[1] = WinMLError(E_FAIL)
    session = stage.session()
    session.generate("a")
    with failing(E_NOT_VALID_STATE):
        session.generate_text("a")
    with failing(E_NOT_VALID_STATE):
        session.continue_tokens([A])
    session.reset()
    assert session.state is State.EMPTY
    assert session.generate("a", options(2)).token_ids == (B, C)


def test_g76_a_row_without_numbers_is_an_error(stage: Composed) -> None:
    stage.follow(TableDecoder(16, constant=one_hot(B) * float("nan")))
    session = stage.session()
    result = session.generate("a")
    assert (result.finish_reason, result.error_code) == (Reason.ERROR, 0x8007000D)
    assert session.state is State.RESET_REQUIRED


def test_a_stage_that_was_moved_by_others_needs_a_reset(stage: Composed) -> None:
    session = stage.session()
    session.generate("aaa", options(2))
    stage.stage.rewind(1)
    with failing(E_NOT_VALID_STATE):
        session.continue_tokens()
    assert session.state is State.RESET_REQUIRED
    session.reset()
    assert session.generate("a", options(1)).token_ids == (B,)


def test_bindings_that_others_changed_are_made_again(stage: Composed) -> None:
    session = stage.session()
    session.generate("a", options(3))
    session.reset()
    stage.stage.bind_input(0, stage.runtime.tensor_from_tokens([D]))
    stage.stage.reset_output(0)
    assert session.generate("a", options(3)).token_ids == (B, C, D)


def test_g106_empty_and_foreign_prompts_are_refused(stage: Composed) -> None:
    session = stage.session()
    with pytest.raises(ValueError, match="empty"):
        session.generate_tokens([])
    with pytest.raises(TypeError, match="token_ids must be token ids, not bytes"):
        session.generate_tokens(b"ab")
    with pytest.raises(TypeError, match="prompt must be a str"):
        session.generate_text(5)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="options"):
        session.generate_text("a", {"max_new_tokens": 1})  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="cancellation"):
        session.generate_text("a", cancellation=True)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="token id"):
        session.generate_tokens([True])
    with failing(E_INVALIDARG):
        session.generate_tokens([16])
    assert session.state is State.EMPTY


def test_a_closed_session_still_tells_its_state_and_parts(stage: Composed) -> None:
    session = stage.session()
    configuration = session.configuration
    session.close()
    session.close()
    assert session.state is State.CLOSED
    assert session.runtime is stage.runtime
    assert session.configuration is configuration
    calls: list[Call] = [lambda: session.retained_token_ids, session.reset, lambda: session.generate_text("a")]
    for call in calls:
        with pytest.raises(RuntimeError, match="TextGenerationSession is closed"):
            call()


# --- making sessions --------------------------------------------------------------------------------------------------


def test_g103_a_configuration_makes_one_session(stage: Composed) -> None:
    task = Tasks(stage.runtime).create_text_generation_task(stage.tokenizer)
    configuration = stage.configuration()
    session = task.create_session(configuration)
    with failing(E_NOT_VALID_STATE):
        task.create_session(configuration)
    session.close()
    with failing(E_NOT_VALID_STATE):
        task.create_session(configuration)


def test_g103_a_failing_configuration_can_be_mended(stage: Composed) -> None:
    tasks = Tasks(stage.runtime)
    configuration = tasks.create_text_generation_configuration()
    task = tasks.create_text_generation_task(stage.tokenizer)
    with failing(E_NOT_VALID_STATE):
        task.create_session(configuration)
    configuration.configure_unified(**stage.parts())
    assert task.create_session(configuration).state is State.EMPTY


def test_g104_a_configuration_of_another_runtime_is_refused(stage: Composed, tmp_path: Path, compose: Compose) -> None:
    (tmp_path / "other").mkdir()
    with compose(tmp_path / "other") as other:
        task = Tasks(stage.runtime).create_text_generation_task(stage.tokenizer)
        with failing(E_INVALIDARG):
            task.create_session(other.configuration())


def test_g104_a_configuration_with_another_tokenizer_is_refused(stage: Composed, tmp_path: Path) -> None:
    configuration = stage.configuration()
    with Tokenizer.from_file(tmp_path) as other:
        configuration.set_tokenizer(other)
        task = Tasks(stage.runtime).create_text_generation_task(stage.tokenizer)
        with failing(E_INVALIDARG):
            task.create_session(configuration)
    configuration.set_tokenizer(stage.tokenizer)
    assert task.create_session(configuration).state is State.EMPTY


def test_a_pipeline_serves_one_session_at_a_time(stage: Composed) -> None:
    first = stage.session()
    with failing(BUSY):
        stage.session()
    assert first.generate("a", options(3)).token_ids == (B, C, D)
    first.close()
    assert stage.session().generate("a", options(1)).token_ids == (B,)


def test_a_refused_second_session_does_not_disturb_a_running_stream(stage: Composed) -> None:
    stream = stage.session().generate_text("a", options(4))
    stream.read_next()
    stream.read_next()
    with failing(BUSY):
        stage.session()
    assert ids(stream) == [D, A]


def test_a_session_that_was_dropped_gives_the_pipeline_free(stage: Composed) -> None:
    stage.session().generate("a", options(1))
    assert stage.session().generate("a", options(1)).token_ids == (B,)


def test_g105_a_task_without_default_configuration_has_no_default_session(stage: Composed) -> None:
    task = Tasks(stage.runtime).create_text_generation_task(stage.tokenizer)
    with pytest.raises(RuntimeError, match="default_configuration"):
        task.default_session  # noqa: B018


def test_g105_the_default_session_is_made_once(stage: Composed) -> None:
    task = Tasks(stage.runtime).create_text_generation_task(
        stage.tokenizer, default_configuration=stage.configuration()
    )
    assert task.default_session is task.default_session
    assert task.generate("a", options(2)).text == "bc"
    assert [update.fragment for update in task.stream("a", options(2))] == ["b", "c"]
    session = task.default_session
    task.close()
    assert session.state is State.CLOSED


def test_closing_a_task_with_an_open_stream_is_refused(stage: Composed) -> None:
    task = Tasks(stage.runtime).create_text_generation_task(
        stage.tokenizer, default_configuration=stage.configuration()
    )
    stream = task.stream("a", options(2))
    with failing(E_NOT_VALID_STATE):
        task.close()
    assert ids(stream) == [B, C]


def test_capabilities_of_one_pipeline_with_logits(stage: Composed) -> None:
    capabilities = stage.session().capabilities
    assert capabilities.execution_profile == 0
    assert capabilities.output_kind == 0
    assert capabilities.supports_continuation is True
    assert capabilities.sequence_state.session_state is State.EMPTY


def test_g116_without_speculation_there_are_no_statistics(stage: Composed) -> None:
    assert stage.session().generate("a", options(1)).speculative_statistics is None


# --- sampling through a session ---------------------------------------------------------------------------------------


def test_g73_the_same_seed_gives_the_same_tokens_everywhere(stage: Composed) -> None:
    stage.follow(uniform)
    wild = options(12, temperature=1.0, seed=7)
    session = stage.session(())
    first = session.generate("a", wild).token_ids
    second = session.generate("a", wild).token_ids
    session.reset()
    third = session.generate("a", wild).token_ids
    session.close()
    assert first == second == third == stage.session(()).generate("a", wild).token_ids
    assert len(set(first)) > 4


def test_a_fresh_seed_is_reported_and_repeats_the_text(stage: Composed) -> None:
    stage.follow(uniform)
    session = stage.session(())
    first = session.generate("a", options(12, temperature=1.0))
    again = session.generate("a", options(12, temperature=1.0, seed=first.seed))
    assert again.token_ids == first.token_ids
