"""The short road over a scripted decoder: options, turns of several threads, interrupts, failures, closing."""

from __future__ import annotations

import gc
import threading
import weakref
from collections.abc import Callable
from threading import Event, Thread
from typing import Any

import numpy as np
import pytest

from fakes.rig import failing
from fakes.scripted import BOS, EOS, A, B, C, D, ScriptedDecoder, ScriptedTokenizer, saying, successor
from fakes.waiting import until
from genai import (
    CancellationSource,
    LanguageModel,
    NotSupportedError,
    TextGenerationFinishReason,
    TextGenerationOptions,
    TextStream,
)
from genai.sequence import SequenceCore
from winml_lite import WinMLError

Reason = TextGenerationFinishReason
E_NOT_VALID_STATE = 0x8007139F


class Part:
    """Something that a model has to close."""

    def __init__(self) -> None:
        self.is_closed = False

    def close(self) -> None:
        self.is_closed = True


def model_of(decoder: ScriptedDecoder, adds_bos: bool = False, keep: tuple[Part, ...] = ()) -> LanguageModel:
    parts: Any = decoder
    tokenizer: Any = ScriptedTokenizer(adds_bos)
    core = SequenceCore(parts, tokenizer, (EOS,))
    return LanguageModel("tiny", "ONNX Runtime", "/models/tiny.onnx", core, keep)


@pytest.fixture
def decoder() -> ScriptedDecoder:
    return ScriptedDecoder(successor)


@pytest.fixture
def model(decoder: ScriptedDecoder) -> LanguageModel:
    return model_of(decoder)


def in_thread(call: Callable[[], object]) -> Thread:
    thread = Thread(target=call)
    thread.start()
    return thread


# --- one call ---------------------------------------------------------------------------------------------------------


def test_a_stream_yields_pieces_and_ends_with_its_result(model: LanguageModel) -> None:
    stream = model.stream("a", max_new_tokens=3)
    assert list(stream) == ["b", "c", "d"]
    assert (stream.result.text, stream.result.finish_reason) == ("bcd", Reason.MAX_TOKENS)


def test_generate_returns_the_result(model: LanguageModel) -> None:
    assert model.generate("a", max_new_tokens=2).text == "bc"


def test_token_ids_may_be_the_prompt(model: LanguageModel, decoder: ScriptedDecoder) -> None:
    model.generate([A, B], max_new_tokens=1)
    assert decoder.runs == [[A, B]]


@pytest.mark.parametrize("ids", [[1.0], ["a"], [True], [None]])
def test_foreign_token_ids_are_refused(model: LanguageModel, ids: Any) -> None:
    with pytest.raises(TypeError, match="token id"):
        model.generate(ids)
    assert model.generate("a", max_new_tokens=1).text == "b"


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("max_tokens", "generation has no option 'max_tokens'; did you mean 'max_new_tokens'?"),
        ("temprature", "generation has no option 'temprature'; did you mean 'temperature'?"),
        ("messages", "generation has no option 'messages'"),
    ],
)
def test_an_unknown_option_is_named_with_the_likely_one(model: LanguageModel, name: str, message: str) -> None:
    fields: dict[str, Any] = {name: 1}
    with pytest.raises(TypeError) as caught:
        model.generate("a", **fields)
    assert str(caught.value) == message


@pytest.mark.parametrize("prompt", [b"hi", bytearray(b"hi"), memoryview(b"hi")])
def test_bytes_are_no_token_ids(model: LanguageModel, prompt: Any) -> None:
    with pytest.raises(TypeError, match=f"prompt must be str or token ids, not {type(prompt).__name__}"):
        model.generate(prompt)
    with pytest.raises(TypeError, match="prompt must be str or token ids"):
        model.astream(prompt)


@pytest.mark.parametrize("prompt", [None, 5, {"role": "user"}, [{"role": "user", "content": "a"}], [("user", "a")]])
def test_messages_are_no_prompt_and_the_refusal_names_chat(model: LanguageModel, prompt: Any) -> None:
    with pytest.raises(TypeError, match=r"model\.chat\("):
        model.generate(prompt)
    assert model.generate("a", max_new_tokens=1).text == "b"


@pytest.mark.parametrize("prompt", [(A, B), iter([A, B]), np.array([A, B])])
def test_any_iterable_of_ids_is_a_prompt(model: LanguageModel, decoder: ScriptedDecoder, prompt: Any) -> None:
    assert model.generate(prompt, max_new_tokens=1).text == "c"
    assert decoder.runs == [[A, B]]


def test_s_ctx_05_an_empty_prompt_runs_from_bos_where_there_is_one(decoder: ScriptedDecoder) -> None:
    assert model_of(decoder, adds_bos=True).generate("", max_new_tokens=1).text == "a"
    assert decoder.runs == [[BOS]]


def test_s_ctx_05_an_empty_prompt_without_bos_is_refused_and_the_next_call_works(model: LanguageModel) -> None:
    with failing(0x80070057):
        model.generate("")
    assert model.generate("a", max_new_tokens=1).text == "b"


def test_s_ctx_04_an_unknown_option_is_refused(model: LanguageModel) -> None:
    with pytest.raises(TypeError, match="max_length"):
        model.generate("a", max_length=9)  # type: ignore[call-arg]
    with pytest.raises(ValueError, match="max_new_tokens"):
        model.generate("a", max_new_tokens=0)


def test_options_come_as_a_record_or_as_fields_but_not_both(model: LanguageModel) -> None:
    assert model.generate("a", options=TextGenerationOptions(2)).text == "bc"
    with pytest.raises(TypeError, match="either options= or seed"):
        model.generate("a", options=TextGenerationOptions(2), seed=1)
    with pytest.raises(TypeError, match="TextGenerationOptions"):
        model.generate("a", options={"seed": 1})  # type: ignore[arg-type]


def test_a_foreign_cancellation_is_refused(model: LanguageModel) -> None:
    with pytest.raises(TypeError, match="cancellation"):
        model.generate("a", cancellation=Event())  # type: ignore[arg-type]


def test_empty_fragments_are_not_yielded() -> None:
    model = model_of(ScriptedDecoder(saying(1, B, 8, 9, C, EOS)))
    assert list(model.stream("a")) == ["b", "é", "c"]


def test_a_stream_does_no_work_before_its_first_piece(model: LanguageModel, decoder: ScriptedDecoder) -> None:
    model.stream("a")
    assert decoder.runs == []


def test_a_prompt_that_begins_like_the_one_before_costs_only_its_new_tokens(
    model: LanguageModel, decoder: ScriptedDecoder
) -> None:
    model.generate("abc", max_new_tokens=1)
    stream = model.stream("abcd", max_new_tokens=1)
    assert stream.reused_token_count == 3
    stream.read()
    assert decoder.runs[-1] == [D]


def test_an_ended_stream_stays_ended(model: LanguageModel) -> None:
    stream = model.stream("a", max_new_tokens=1)
    assert list(stream) == ["b"]
    assert list(stream) == []
    stream.close()
    assert stream.read().text == "b"


def test_there_is_no_result_before_the_end(model: LanguageModel) -> None:
    stream = model.stream("a", max_new_tokens=2)
    next(stream)
    with failing(E_NOT_VALID_STATE):
        stream.result  # noqa: B018
    stream.close()
    assert (stream.result.text, stream.result.finish_reason) == ("b", Reason.CANCELED)


def test_a_cancelled_stream_ends_quietly(model: LanguageModel) -> None:
    stream = model.stream("a")
    assert next(stream) == "b"
    stream.cancel()
    assert list(stream) == []
    assert stream.result.finish_reason is Reason.CANCELED


def test_a_cancellation_source_stops_a_call(model: LanguageModel) -> None:
    source = CancellationSource()
    source.cancel()
    assert model.generate("a", cancellation=source).finish_reason is Reason.CANCELED


# --- failures ---------------------------------------------------------------------------------------------------------


def test_s_str_07_a_failing_model_raises_from_the_iteration_after_its_text(
    model: LanguageModel, decoder: ScriptedDecoder
) -> None:
    decoder.before[2] = WinMLError(0x80004005, "engine", "scripted failure")
    stream = model.stream("a")
    assert next(stream) == "b"
    with failing(0x80004005) as caught:
        next(stream)
    assert "scripted failure" in str(caught.value)
    assert (stream.result.text, stream.result.finish_reason) == ("b", Reason.ERROR)


def test_after_a_failure_the_next_call_works(model: LanguageModel, decoder: ScriptedDecoder) -> None:
    decoder.before[1] = WinMLError(0x80004005)
    with failing(0x80004005):
        model.generate("a")
    assert model.generate("a", max_new_tokens=2).text == "bc"


@pytest.mark.parametrize("where", ["before", "after"])
@pytest.mark.parametrize("number", [1, 2, 3])
def test_s_lif_08_an_interrupt_ends_the_stream_and_the_model_stays_usable(
    model: LanguageModel, decoder: ScriptedDecoder, where: str, number: int
) -> None:
    getattr(decoder, where)[number] = KeyboardInterrupt()
    with pytest.raises(KeyboardInterrupt):
        model.generate("ab")
    assert model.generate("ab", max_new_tokens=3).text == "cda"


def test_an_interrupt_while_a_call_starts_leaves_the_model_usable(
    model: LanguageModel, decoder: ScriptedDecoder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("genai.language_model.TextStream", _interrupting)
    with pytest.raises(KeyboardInterrupt):
        model.stream("a")
    monkeypatch.undo()
    assert model.generate("a", max_new_tokens=2).text == "bc"


def test_an_interrupt_while_a_stream_ends_leaves_the_model_usable(
    model: LanguageModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = model.stream("a")
    next(stream)
    monkeypatch.setattr("genai.sequence.SequenceCore.finished", _interrupting)
    with pytest.raises(KeyboardInterrupt):
        stream.close()
    monkeypatch.undo()
    assert model.generate("a", max_new_tokens=2).text == "bc"


def _interrupting(*arguments: object) -> None:
    raise KeyboardInterrupt


# --- turns ------------------------------------------------------------------------------------------------------------


def test_a_second_call_of_the_same_thread_beside_an_open_stream_is_refused(model: LanguageModel) -> None:
    stream = model.stream("a")
    next(stream)
    with failing(E_NOT_VALID_STATE) as caught:
        model.generate("b")
    assert "unfinished stream" in str(caught.value)
    assert next(stream) == "c"


def test_a_dropped_stream_gives_its_turn_back(model: LanguageModel) -> None:
    next(model.stream("a"))
    gc.collect()
    assert model.generate("a", max_new_tokens=1).text == "b"


def test_leaving_the_loop_early_gives_the_turn_back(model: LanguageModel) -> None:
    for piece in model.stream("a"):
        assert piece == "b"
        break
    assert model.generate("a", max_new_tokens=1).text == "b"


def test_a_concurrent_call_waits_for_its_turn(model: LanguageModel, decoder: ScriptedDecoder) -> None:
    entered, go_on = Event(), Event()
    texts: dict[str, str] = {}

    def block() -> None:
        entered.set()
        go_on.wait(100)

    decoder.hooks[1] = block
    first = in_thread(lambda: texts.update(first=model.generate("a", max_new_tokens=2).text))
    assert entered.wait(100)
    second = in_thread(lambda: texts.update(second=model.generate("c", max_new_tokens=2).text))
    until(lambda: len(model._turnstile._turns) == 2)
    assert decoder.runs == [[A]]
    go_on.set()
    first.join(100)
    second.join(100)
    assert decoder.runs == [[A], [B], [C], [D]]
    assert texts == {"first": "bc", "second": "da"}


def test_a_call_gives_up_after_its_timeout(model: LanguageModel) -> None:
    stream = model.stream("a")
    next(stream)
    raised: list[BaseException] = []

    def call() -> None:
        try:
            model.generate("b", timeout=0.01)
        except TimeoutError as error:
            raised.append(error)

    in_thread(call).join(100)
    assert "busy for 0.01 seconds" in str(raised[0])
    assert next(stream) == "c"


@pytest.mark.parametrize(
    ("timeout", "kind"),
    [(-1, ValueError), (-0.001, ValueError), (float("nan"), ValueError), ("1", TypeError), (True, TypeError)],
)
def test_a_timeout_is_a_number_from_zero(model: LanguageModel, timeout: Any, kind: type[Exception]) -> None:
    with pytest.raises(kind, match="timeout"):
        model.generate("a", timeout=timeout)
    with pytest.raises(kind, match="timeout"):
        model.astream("a", timeout=timeout)
    assert model.generate("a", max_new_tokens=1).text == "b"


def test_a_stream_shows_how_it_ended(model: LanguageModel) -> None:
    stream = model.stream("a", max_new_tokens=1)
    assert repr(stream) == "<TextStream unfinished>"
    stream.read()
    assert repr(stream) == "<TextStream MAX_TOKENS>"


def test_a_timeout_of_zero_does_not_wait(model: LanguageModel) -> None:
    assert model.generate("a", max_new_tokens=1, timeout=0).text == "b"


def test_a_stream_may_be_read_and_closed_by_other_threads(model: LanguageModel) -> None:
    stream = model.stream("a")
    pieces: list[str] = []
    in_thread(lambda: pieces.append(next(stream))).join(100)
    in_thread(stream.close).join(100)
    assert pieces == ["b"]
    assert model.generate("c", max_new_tokens=1).text == "d"


def test_a_stream_dropped_by_another_thread_gives_its_turn_back(model: LanguageModel) -> None:
    streams = [model.stream("a")]
    next(streams[0])
    in_thread(streams.clear).join(100)
    assert model.generate("a", max_new_tokens=1).text == "b"


def test_closing_a_stream_that_another_thread_reads_waits_for_that_read(
    model: LanguageModel, decoder: ScriptedDecoder
) -> None:
    entered, go_on = Event(), Event()

    def block() -> None:
        entered.set()
        go_on.wait(100)

    decoder.hooks[1] = block
    stream = model.stream("a")
    pieces: list[str] = []
    reader = in_thread(lambda: pieces.extend(stream))
    assert entered.wait(100)
    closer = in_thread(stream.close)
    until(lambda: stream._operation._is_ending)
    assert closer.is_alive()
    go_on.set()
    closer.join(100)
    reader.join(100)
    assert stream.result.finish_reason is Reason.CANCELED
    assert "".join(pieces) == stream.result.text
    assert model.generate("a", max_new_tokens=1).text == "b"


# --- closing ----------------------------------------------------------------------------------------------------------


def test_closing_closes_every_part(decoder: ScriptedDecoder) -> None:
    parts = (Part(), Part())
    with model_of(decoder, keep=parts) as model:
        model.generate("a", max_new_tokens=1)
    model.close()
    assert [part.is_closed for part in parts] == [True, True]
    assert decoder.is_closed


def test_a_closed_model_is_refused_by_name(model: LanguageModel) -> None:
    model.close()
    calls: list[Callable[[], object]] = [
        lambda: model.generate("a"),
        lambda: model.stream("a"),
        lambda: model.chat(),
        lambda: model.context_length,
        lambda: model.tokenizer,
    ]
    for call in calls:
        with pytest.raises(RuntimeError, match="LanguageModel is closed"):
            call()
    assert repr(model) == "<LanguageModel 'tiny' (closed)>"


def test_closing_ends_an_open_stream(model: LanguageModel) -> None:
    stream = model.stream("a")
    next(stream)
    model.close()
    assert list(stream) == []
    assert (stream.result.text, stream.result.finish_reason) == ("b", Reason.CANCELED)


def test_closing_ends_a_stream_that_another_thread_left_half_read(model: LanguageModel) -> None:
    streams: list[TextStream] = []

    def read_one() -> None:
        streams.append(model.stream("a"))
        next(streams[0])

    in_thread(read_one).join(100)
    model.close()
    assert streams[0].result.finish_reason is Reason.CANCELED


def test_a_call_that_waits_while_the_model_is_closed_is_refused(model: LanguageModel) -> None:
    stream = model.stream("a")
    next(stream)
    raised: list[BaseException] = []
    waiting = Event()

    def call() -> None:
        waiting.set()
        try:
            model.generate("b")
        except RuntimeError as error:
            raised.append(error)

    thread = in_thread(call)
    assert waiting.wait(100)
    model.close()
    thread.join(100)
    assert "LanguageModel is closed" in str(raised[0])
    del stream


def test_a_closed_model_is_gone_without_garbage_collection(decoder: ScriptedDecoder) -> None:
    model = model_of(decoder)
    list(model.stream("a", max_new_tokens=2))
    core = weakref.ref(model._core) if model._core is not None else None
    gc.collect()
    gc.disable()
    try:
        model.close()
        assert core is not None and core() is None
        gone = weakref.ref(model)
        del model
        assert gone() is None
    finally:
        gc.enable()


def test_a_model_describes_itself(model: LanguageModel) -> None:
    assert repr(model) == "<LanguageModel 'tiny' on ONNX Runtime, 64 tokens, no chat template, /models/tiny.onnx>"
    assert (model.name, model.engine, model.file, model.context_length) == (
        "tiny",
        "ONNX Runtime",
        "/models/tiny.onnx",
        64,
    )


def test_s_tpl_06_without_a_chat_template_there_is_no_chat(model: LanguageModel) -> None:
    assert not model.can_chat
    with failing(0x80004002, NotSupportedError) as caught:
        model.chat()
    assert "has no chat template" in str(caught.value)


def test_eight_threads_get_each_their_own_answer(model: LanguageModel, decoder: ScriptedDecoder) -> None:
    answers: dict[int, list[str]] = {}

    def work(number: int) -> None:
        answers[number] = [model.generate([number % 4], max_new_tokens=3).text for _ in range(20)]

    threads = [Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(100)
    right = {0: "bcd", 1: "cda", 2: "dab", 3: "abc"}
    assert answers == {number: [right[number % 4]] * 20 for number in range(8)}
    assert len(decoder.readers) == 8
    assert threading.current_thread() not in decoder.readers
