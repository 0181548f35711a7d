"""The chat completion task over scripted stages: turns, reuse of the prompt, events, stops, errors, threads.
They run on the fake, on ONNX Runtime and on llama.cpp.

Statements 117-121, 124 and 125 of genai 13; constraints and tools are in `test_chat_constraints.py`, images in
`tests/real/test_chat_media.py`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from fakes.chats import MARKED, Chatting, asked, chatting, greeting
from fakes.rig import failing
from fakes.scripted import Compose, composed
from genai.tasks import (
    CancellationSource,
    ChatCompletionContentPart,
    ChatCompletionEventType,
    ChatCompletionFinishReason,
    ChatCompletionMessage,
    ChatCompletionPromptCacheMode,
    ChatCompletionPromptCacheUse,
    ChatCompletionRequest,
    ChatCompletionSession,
    ChatCompletionStream,
    ChatMediaBinding,
    Tasks,
    TextGenerationOptions,
    TextGenerationSessionState,
    TextGenerationSpeculativeMethod,
)
from winml_lite import NotSupportedError, Runtime, WinMLError

Mode = ChatCompletionPromptCacheMode
Reason = ChatCompletionFinishReason
State = TextGenerationSessionState
Type = ChatCompletionEventType

E_INVALIDARG = 0x80070057
E_NOT_VALID_STATE = 0x8007139F
INSUFFICIENT_BUFFER = 0x8007007A
WRONG_THREAD = 0x8001010E
HI = asked("hi")


@pytest.fixture
def chat(compose: Compose, tmp_path: Path) -> Iterator[Chatting]:
    """A model that says "Salut.", or "Bye." to a question."""
    with chatting(compose, tmp_path, greeting) as chat:
        yield chat


def few(count: int, **fields: object) -> TextGenerationOptions:
    return TextGenerationOptions(max_new_tokens=count, **fields)  # type: ignore[arg-type]


def elsewhere(action: Callable[[], object]) -> BaseException | None:
    """Do something in another thread and return what it raised."""
    errors: list[BaseException] = []

    def run() -> None:
        try:
            action()
        except BaseException as error:
            errors.append(error)

    thread = Thread(target=run)
    thread.start()
    thread.join()
    return errors[0] if errors else None


# --- prompts that are known already


def test_g117_the_second_turn_reuses_the_first(chat: Chatting) -> None:
    first = chat.session.generate(HI)
    assert (first.content, first.finish_reason) == ("Salut.", Reason.EOS_TOKEN)
    assert (first.prompt_token_count, first.completion_token_count) == (len(chat.prompt(HI)), 6)
    length = first.prompt_token_count
    assert first.prompt_cache_use == ChatCompletionPromptCacheUse(Mode.FULL_PREFILL, length, 0, length)
    second = chat.session.generate(asked("hi", "Salut.", "and?"))
    assert second.content == "Bye."
    whole = len(chat.prompt(asked("hi", "Salut.", "and?")))
    assert second.prompt_token_count == whole
    assert second.prompt_cache_use == ChatCompletionPromptCacheUse(
        Mode.REUSED_PREFIX, whole, length + 6, whole - length - 6
    )
    assert second.text_generation_result.timings.evaluated_prompt_token_count == whole - length - 6


def test_g118_reuse_does_not_change_the_answer(chat: Chatting, compose: Compose, tmp_path: Path) -> None:
    request = asked("hi", "Salut.", "and?")
    chat.session.generate(HI)
    with chatting(compose, tmp_path / "other", greeting) as fresh:
        expected = fresh.session.generate(request)
    assert chat.session.generate(request).content == expected.content
    assert expected.prompt_cache_use.mode is Mode.FULL_PREFILL


def test_g119_an_edited_history_reuses_what_is_common(chat: Chatting) -> None:
    chat.session.generate(asked("hi there"))
    result = chat.session.generate(asked("hi then"))
    before = list(zip(chat.prompt(asked("hi there")), chat.prompt(asked("hi then")), strict=False))
    common = next(place for place, (old, new) in enumerate(before) if old != new)
    assert result.content == "Salut."
    assert result.prompt_cache_use.cached_prompt_token_count == common


def test_a_pending_token_is_not_cached(chat: Chatting) -> None:
    chat.session.generate(HI, few(3))
    retained = chat.text_session.retained_token_ids
    assert chat.text_session.sequence_state.evaluated_token_count == len(retained) - 1
    result = chat.session.generate(asked("hi", "Sal", "and?"))
    assert chat.text_session.retained_token_ids[: len(retained)] == retained
    assert result.prompt_cache_use.cached_prompt_token_count == len(retained) - 1
    assert result.prompt_cache_use.prefilled_prompt_token_count == result.prompt_token_count - len(retained) + 1


def test_s_ctx_10_an_answer_that_is_tokenized_otherwise_is_reused_up_to_there(compose: Compose, tmp_path: Path) -> None:
    # said as l, l; in the history it is the token "ll"
    turns = [(HI, "all"), (asked("hi", "all", "and?"), "Bye.")]
    with chatting(compose, tmp_path, turns) as chat:
        first = chat.session.generate(HI)
        second = chat.session.generate(turns[1][0])
    assert second.content == "Bye."
    assert second.prompt_cache_use.cached_prompt_token_count == first.prompt_token_count + len("a")


def test_the_same_request_again_evaluates_its_last_token(chat: Chatting) -> None:
    chat.session.generate(HI)
    result = chat.session.generate(HI)
    assert result.content == "Salut."
    assert result.prompt_cache_use.prefilled_prompt_token_count == 1


def test_a_turn_that_never_ran_has_evaluated_nothing(chat: Chatting) -> None:
    source = CancellationSource()
    source.cancel()
    result = chat.session.generate(HI, cancellation=source)
    assert (result.finish_reason, result.content, result.error_code) == (Reason.CANCELED, "", 0)
    assert result.prompt_cache_use == ChatCompletionPromptCacheUse(Mode.NOT_EVALUATED, len(chat.prompt(HI)), 0, 0)
    assert chat.stage.script.runs == 0


def test_a_conversation_that_fills_the_context_has_no_answer(compose: Compose, tmp_path: Path) -> None:
    with chatting(compose, tmp_path, greeting) as chat:
        length = len(chat.prompt(HI))
    with chatting(compose, tmp_path, greeting, capacity=length) as chat:
        result = chat.session.generate(HI)
        assert (result.finish_reason, result.completion_token_count) == (Reason.SEQUENCE_CAPACITY, 0)
        assert result.prompt_cache_use.mode is Mode.NOT_EVALUATED
    with chatting(compose, tmp_path, greeting, capacity=length - 1) as chat:
        with failing(INSUFFICIENT_BUFFER):
            chat.session.stream(HI)
        assert chat.text_session.state is State.EMPTY


# --- events


def test_g120_events_end_with_completed_and_say_where_they_come_from(chat: Chatting) -> None:
    with chat.session.stream(HI) as stream:
        events = list(stream)
        assert stream.read_next() is None
        result = stream.result
    assert [event.type for event in events] == [Type.CONTENT_DELTA] * 6 + [Type.COMPLETED]
    assert "".join(event.text or "" for event in events) == result.content == "Salut."
    ids = result.text_generation_result.token_ids
    assert tuple(token for event in events for token in event.source_token_ids) == ids
    assert all(
        ids[event.first_token_index : event.first_token_index + event.source_token_count] == event.source_token_ids
        for event in events
    )
    assert (events[-1].first_token_index, events[-1].source_token_count) == (6, 0)


def test_g120_reasoning_is_told_apart(compose: Compose, tmp_path: Path) -> None:
    with chatting(compose, tmp_path, [(HI, "<think>hm</think>\n\nyes")]) as chat:
        result = chat.session.generate(HI)
    assert (result.content, result.reasoning_content) == ("yes", "hm")
    assert result.completion_token_count == len("<think>hm</think>\n\nyes")


def test_a_read_runs_the_model_only_until_there_is_an_event(chat: Chatting) -> None:
    with chat.session.stream(HI) as stream:
        assert chat.stage.script.runs == 0
        stream.read_next()
        assert chat.stage.script.runs == 1
        stream.read_next()
        assert chat.stage.script.runs == 2


def test_a_failing_model_ends_the_turn_with_an_error_event(chat: Chatting) -> None:
    chat.stage.script.fail_at[3] = WinMLError(0x80004005, "run", "broken")
    with chat.session.stream(HI) as stream:
        events = list(stream)
        result = stream.result
    assert [event.type for event in events] == [Type.CONTENT_DELTA, Type.CONTENT_DELTA, Type.ERROR]
    assert (events[-1].error_code, events[-1].first_token_index) == (0x80004005, 2)
    assert "broken" in (events[-1].error_message or "")
    assert (result.finish_reason, result.error_code, result.content) == (Reason.ERROR, 0x80004005, "Sa")
    with failing(0x80004005):
        result.raise_for_error()
    with failing(E_NOT_VALID_STATE):
        chat.session.stream(HI)
    chat.text_session.reset()
    assert chat.session.generate(HI).content == "Salut."


# --- stops


@pytest.fixture
def marked(compose: Compose, tmp_path: Path) -> Iterator[Chatting]:
    """A model whose turns end with "<end>", which is no token, and which does not stop there by itself."""
    with chatting(compose, tmp_path, [(HI, "a<en, b<end>more")], template=MARKED) as chat:
        yield chat


def test_g121_a_stop_of_the_formatter_ends_the_turn(marked: Chatting) -> None:
    source = CancellationSource()
    with marked.session.stream(HI, cancellation=source) as stream:
        events = list(stream)
        result = stream.result
    assert (result.content, result.finish_reason, result.error_code) == ("a<en, b", Reason.ADDITIONAL_STOP, 0)
    assert [event.text for event in events[:2]] == ["a", "<en,"]
    assert events[-1].type is Type.COMPLETED
    assert not source.is_canceled
    assert result.completion_token_count == len("a<en, b<end>")
    assert marked.text_session.state is State.READY


def test_g121_the_sequence_is_kept_up_to_the_stop(marked: Chatting) -> None:
    marked.session.generate(HI)
    retained = marked.text_session.retained_token_ids
    assert bytes(retained[-12:]) == b"a<en, b<end>"
    assert marked.text_session.sequence_state.evaluated_token_count == len(retained) - 1
    result = marked.session.generate(asked("hi", "a<en, b", "and?"))
    assert result.prompt_cache_use.cached_prompt_token_count == len(retained) - 1


def test_g121_the_text_session_is_free_as_soon_as_the_stop_is_complete(marked: Chatting) -> None:
    with marked.session.stream(HI) as stream:
        while marked.text_session.state is State.ACTIVE:
            stream.read_next()
        assert marked.session.generate(HI).finish_reason is Reason.ADDITIONAL_STOP


def test_g121_a_stop_in_the_middle_of_a_draft_ends_the_turn_there(
    compose: Compose, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("genai.speculative_evaluation.perf_counter", lambda: 0.0)  # drafts depend on no measured time
    request = asked("one two three one two three")
    answer = "one two three one two<end>three one two"
    with chatting(compose, tmp_path, [(request, answer)], template=MARKED) as chat:
        configuration = chat.stage.configuration()
        configuration.set_speculative_decoding(TextGenerationSpeculativeMethod.PROMPT_LOOKUP, 8)
        chat.text_session.close()
        task = Tasks(chat.stage.runtime).create_text_generation_task(chat.stage.tokenizer)
        with task.create_session(configuration) as text_session:
            result = chat.task.create_session(text_session).generate(request)
            assert (result.content, result.finish_reason) == ("one two three one two", Reason.ADDITIONAL_STOP)
            statistics = result.text_generation_result.speculative_statistics
            assert statistics is not None
            assert statistics.accepted_draft_token_count > 0
            state = text_session.sequence_state
            assert state.retained_token_count == result.prompt_token_count + len("one two three one two<end>")
            assert state.evaluated_token_count == state.retained_token_count - 1


def test_a_stop_of_the_user_is_no_additional_stop(marked: Chatting) -> None:
    result = marked.session.generate(HI, TextGenerationOptions(stop=(", ",)))
    assert (result.content, result.finish_reason) == ("a<en", Reason.STOP_TOKEN)
    assert result.text_generation_result.stop_match == ", "


def test_held_back_text_comes_out_at_a_limit(marked: Chatting) -> None:
    result = marked.session.generate(HI, few(3))
    assert (result.content, result.finish_reason) == ("a<e", Reason.MAX_TOKENS)


# --- ending early


def test_cancelling_keeps_what_was_said(chat: Chatting) -> None:
    with chat.session.stream(HI) as stream:
        stream.read_next()
        assert elsewhere(stream.cancel) is None
        events = list(stream)
        result = stream.result
    assert [event.type for event in events] == [Type.COMPLETED]
    assert (result.content, result.finish_reason, result.error_code) == ("S", Reason.CANCELED, 0)
    assert chat.text_session.state is State.READY


def test_the_result_comes_at_the_end_and_outlives_the_stream(chat: Chatting) -> None:
    with chat.session.stream(HI) as stream:
        stream.read_next()
        with failing(E_NOT_VALID_STATE):
            _ = stream.result
        for _ in stream:
            pass
        result = stream.result
    assert stream.result is result
    result.close()
    assert result.content == "Salut."
    assert result.text_generation_result_interface is result.text_generation_result


def test_a_stream_that_was_closed_early_has_no_result(chat: Chatting) -> None:
    stream = chat.session.stream(HI)
    stream.read_next()
    stream.close()
    stream.close()
    assert chat.text_session.state is State.READY
    with pytest.raises(RuntimeError, match="ChatCompletionStream is closed"):
        _ = stream.result
    with pytest.raises(RuntimeError, match="ChatCompletionStream is closed"):
        stream.read_next()
    assert chat.session.generate(HI).content == "Salut."


def test_a_second_turn_waits_for_the_end_of_the_first(chat: Chatting) -> None:
    with chat.session.stream(HI) as stream:
        with failing(E_NOT_VALID_STATE):
            chat.session.stream(HI)
        assert [event.text for event in stream][:2] == ["S", "a"]


# --- sessions and tasks


def test_g124_a_session_is_made_on_the_thread_of_its_text_session(chat: Chatting) -> None:
    error = elsewhere(lambda: chat.task.create_session(chat.text_session))
    assert isinstance(error, WinMLError)
    assert error.hresult == WRONG_THREAD


def test_g124_another_tokenizer_or_runtime(chat: Chatting, compose: Compose, tmp_path: Path) -> None:
    with chatting(compose, tmp_path / "other", greeting) as other:
        own_runtime = Tasks(chat.stage.runtime).create_chat_completion_task(other.stage.tokenizer)
        with failing(E_INVALIDARG):
            own_runtime.create_session(chat.text_session)
        own_tokenizer = Tasks(other.stage.runtime).create_chat_completion_task(chat.stage.tokenizer)
        with failing(E_INVALIDARG):
            own_tokenizer.create_session(chat.text_session)


MEMBERS: list[tuple[str, Callable[[ChatCompletionSession], Any]]] = [
    ("stream", lambda session: session.stream(HI)),
    ("generate", lambda session: session.generate(HI)),
    ("stream_with_media", lambda session: session.stream_with_media(HI, ())),
    ("generate_with_media", lambda session: session.generate_with_media(HI, ())),
    ("media_encoder", lambda session: session.media_encoder),
    ("runtime", lambda session: session.runtime),
    ("text_generation_session", lambda session: session.text_generation_session),
]


@pytest.mark.parametrize(("name", "member"), MEMBERS)
def test_every_member_of_a_session_is_bound_to_its_thread_and_ends_with_it(
    chat: Chatting, name: str, member: Callable[[ChatCompletionSession], Any]
) -> None:
    error = elsewhere(lambda: member(chat.session))
    assert isinstance(error, WinMLError)
    assert error.hresult == WRONG_THREAD
    chat.session.close()
    with pytest.raises(RuntimeError, match="ChatCompletionSession is closed"):
        member(chat.session)


@pytest.mark.parametrize(
    "member",
    [
        ChatCompletionStream.read_next,
        ChatCompletionStream.close,
        lambda stream: stream.result,
        lambda stream: stream.constraint,
        lambda stream: stream.format_result_interface,
    ],
)
def test_a_stream_is_bound_to_its_thread(chat: Chatting, member: Callable[[ChatCompletionStream], object]) -> None:
    with chat.session.stream(HI) as stream:
        error = elsewhere(lambda: member(stream))
        assert isinstance(error, WinMLError)
        assert error.hresult == WRONG_THREAD


def test_g125_closing_the_session_leaves_streams_and_the_text_session(chat: Chatting) -> None:
    with chat.session.stream(HI) as stream:
        chat.session.close()
        chat.session.close()
        assert [event.text for event in stream][:2] == ["S", "a"]
    assert chat.text_session.generate("x", few(1)).finish_reason == 2


IMAGE = ChatCompletionRequest(
    (
        ChatCompletionMessage(
            "user", content_parts=(ChatCompletionContentPart("text", "hi "), ChatCompletionContentPart("image"))
        ),
    )
)


def test_g125_images_need_bindings_that_fit_and_an_encoder(chat: Chatting) -> None:
    tensor = chat.stage.runtime.tensor_from_tokens([1])
    with pytest.raises(ValueError, match="bound twice"):
        chat.session.stream_with_media(IMAGE, [ChatMediaBinding(0, 1, tensor)] * 2)
    with failing(E_NOT_VALID_STATE):
        chat.session.stream_with_media(IMAGE, [ChatMediaBinding(0, 1, tensor)])
    assert chat.text_session.state is State.EMPTY


def test_g125_media_of_another_runtime_are_refused(chat: Chatting) -> None:
    with Runtime() as other, failing(E_INVALIDARG):
        chat.session.stream_with_media(IMAGE, [ChatMediaBinding(0, 1, other.tensor_from_tokens([1]))])
    assert chat.text_session.state is State.EMPTY


def test_without_bindings_media_calls_are_the_plain_ones(chat: Chatting) -> None:
    assert chat.session.generate_with_media(HI, ()).content == "Salut."
    with failing(0x80070032, NotSupportedError):
        chat.session.stream_with_media(IMAGE, ())


def test_the_default_session_is_made_once(chat: Chatting) -> None:
    tasks = Tasks(chat.stage.runtime)
    with pytest.raises(RuntimeError, match="default_text_generation_session"):
        _ = chat.task.default_session
    with tasks.create_chat_completion_task(
        chat.stage.tokenizer, default_text_generation_session=chat.text_session
    ) as task:
        session = task.default_session
        assert session is task.default_session
        assert task.generate(HI).content == "Salut."
        with task.stream(HI) as stream:
            assert stream.read_next() is not None
    with pytest.raises(RuntimeError, match="ChatCompletionTask is closed"):
        task.generate(HI)
    with pytest.raises(RuntimeError, match="ChatCompletionSession is closed"):
        session.generate(HI)
    assert chat.text_session.state is State.READY


def test_objects_of_a_task_are_those_it_was_made_of(chat: Chatting) -> None:
    assert Tasks(chat.stage.runtime).chat_factory_interface is not None
    assert chat.task.runtime is chat.stage.runtime
    assert chat.task.tokenizer is chat.stage.tokenizer
    assert chat.session.runtime is chat.stage.runtime
    assert chat.session.text_generation_session is chat.text_session
    with chat.session.stream(HI) as stream:
        assert stream.constraint is stream.constraint_interface is None
        assert stream.output_parser_interface is not None
        assert stream.text_generation_stream_interface is not None


def test_a_tokenizer_without_a_template_makes_no_task(tmp_path: Path) -> None:
    with composed(tmp_path) as stage, failing(0x80004002, NotSupportedError):
        Tasks(stage.runtime).create_chat_completion_task(stage.tokenizer)


@pytest.mark.parametrize(
    "call",
    [
        lambda chat: chat.session.stream("hi"),
        lambda chat: chat.session.stream(HI, {"max_new_tokens": 3}),
        lambda chat: chat.session.stream(HI, cancellation=True),
        lambda chat: chat.task.create_session(chat.session),
        lambda chat: Tasks(chat.stage.runtime).create_chat_completion_task("x"),  # type: ignore[arg-type]
        lambda chat: Tasks(chat.stage.runtime).create_chat_completion_task(
            chat.stage.tokenizer, default_text_generation_session=chat.session
        ),
        lambda chat: setattr(chat.session, "media_encoder", 1),
    ],
)
def test_foreign_types_are_type_errors(chat: Chatting, call: Callable[[Chatting], object]) -> None:
    with pytest.raises(TypeError):
        call(chat)
    assert chat.text_session.state is State.EMPTY


def test_what_cannot_be_formatted_is_raised_before_anything_starts(chat: Chatting) -> None:
    with failing(E_INVALIDARG):
        chat.session.stream(asked())
    assert chat.text_session.state is State.EMPTY


def test_g7_events_and_results_are_frozen(chat: Chatting) -> None:
    with chat.session.stream(HI) as stream:
        event = stream.read_next()
        assert event is not None
        with pytest.raises(dataclasses.FrozenInstanceError):
            event.text = "x"  # type: ignore[misc]
        for _ in stream:
            pass
        with pytest.raises(dataclasses.FrozenInstanceError):
            stream.result.content = "x"  # type: ignore[misc]


def test_a_dropped_stream_frees_the_text_session(chat: Chatting) -> None:
    stream = chat.session.stream(HI)
    stream.read_next()
    del stream
    assert chat.text_session.state is State.READY


def test_a_stream_may_be_dropped_by_another_thread(chat: Chatting) -> None:
    streams = [chat.session.stream(HI)]
    streams[0].read_next()
    assert elsewhere(streams.clear) is None
    assert chat.text_session.state is State.READY
