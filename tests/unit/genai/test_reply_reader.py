"""The reader of an answer: events, the tokens they come from, the collected answer, and interrupts."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import pytest

from fakes.outputs import parser_of
from genai.chat_results import ChatCompletionEvent
from genai.messages import ChatCompletionEventType, ChatCompletionToolCall
from genai.output_parser import ConversationOutputParser
from genai.reply_reader import ReplyReader
from genai.results import TextGenerationUpdate
from winml_lite import WinMLError

Type = ChatCompletionEventType


def update(place: int, fragment: str) -> TextGenerationUpdate:
    """The update of the token at `place`; its id is a hundred more."""
    return TextGenerationUpdate(100 + place, fragment)


def read(parser: ConversationOutputParser, fragments: Iterable[str]) -> tuple[ReplyReader, list[ChatCompletionEvent]]:
    """Push a token for each fragment and return the reader and all of its events."""
    reader = ReplyReader(parser)
    for place, fragment in enumerate(fragments):
        reader.push(update(place, fragment))
    reader.finish()
    return reader, list(iter(reader.read_event, None))


def spans(events: Iterable[ChatCompletionEvent]) -> list[tuple[Any, ...]]:
    """Type, text, and the range of tokens of each event."""
    return [
        (event.type.name, event.text, event.first_token_index, event.first_token_index + event.source_token_count)
        for event in events
    ]


def test_every_token_of_plain_text_is_one_event() -> None:
    reader, events = read(parser_of(None), ["Hi", " there", "!"])
    assert spans(events) == [
        ("CONTENT_DELTA", "Hi", 0, 1),
        ("CONTENT_DELTA", " there", 1, 2),
        ("CONTENT_DELTA", "!", 2, 3),
        ("COMPLETED", None, 3, 3),
    ]
    assert events[1].source_token_ids == (101,)
    assert (reader.content, reader.reasoning_content, reader.tool_calls) == ("Hi there!", "", ())


def test_held_back_text_comes_from_all_of_its_tokens() -> None:
    _, events = read(parser_of(None), ["a", "<th", "in", "x"])
    assert spans(events)[:2] == [("CONTENT_DELTA", "a", 0, 1), ("CONTENT_DELTA", "<thinx", 1, 4)]


def test_tokens_without_text_belong_to_the_character_they_begin() -> None:
    _, events = read(parser_of(None), ["a", "", "", "é", "b"])
    assert spans(events)[:3] == [
        ("CONTENT_DELTA", "a", 0, 1),
        ("CONTENT_DELTA", "é", 1, 4),
        ("CONTENT_DELTA", "b", 4, 5),
    ]


def test_marks_of_reasoning_belong_to_no_text() -> None:
    reader, events = read(parser_of(None), ["<think>", "hm", "</think>", "ok"])
    assert spans(events) == [
        ("REASONING_DELTA", "hm", 1, 2),
        ("CONTENT_DELTA", "ok", 3, 4),
        ("COMPLETED", None, 4, 4),
    ]
    assert (reader.content, reader.reasoning_content) == ("ok", "hm")


def test_a_token_of_two_events_belongs_to_the_first() -> None:
    _, events = read(parser_of(None), ["<think>", "hm</think>ok", "!"])
    assert spans(events)[:3] == [
        ("REASONING_DELTA", "hm", 1, 2),
        ("CONTENT_DELTA", "ok", 2, 2),
        ("CONTENT_DELTA", "!", 2, 3),
    ]


def test_the_parts_of_a_call_come_from_tokens_of_their_own() -> None:
    text = ["<tool_call>", '{"name": ', '"get", ', '"arguments": ', '{"n"', ": 1}", "}", "</tool_call>"]
    reader, events = read(parser_of("hermes"), text)
    assert spans(events) == [
        ("TOOL_CALL_START", None, 0, 3),
        ("TOOL_ARGUMENTS_DELTA", '{"n"', 3, 5),
        ("TOOL_ARGUMENTS_DELTA", ": 1}", 5, 6),
        ("TOOL_CALL_END", None, 6, 7),
        ("COMPLETED", None, 8, 8),
    ]
    assert (events[0].tool_call_index, events[0].call_id, events[0].tool_name) == (0, "call_0", "get")
    assert reader.tool_calls == (ChatCompletionToolCall("call_0", "get", '{"n": 1}'),)


def test_a_call_that_is_cut_off_is_not_collected() -> None:
    reader, events = read(parser_of("hermes"), ['<tool_call>{"name": "get", "arguments": {"n"'])
    assert [event.type for event in events] == [Type.TOOL_CALL_START, Type.TOOL_ARGUMENTS_DELTA, Type.COMPLETED]
    assert reader.tool_calls == ()


def test_a_malformed_call_is_an_error_and_the_answer_goes_on() -> None:
    reader, events = read(parser_of("hermes"), ["<tool_call>[}</tool_call>", "ok"])
    assert [event.type for event in events] == [Type.ERROR, Type.CONTENT_DELTA, Type.COMPLETED]
    assert reader.content == "ok"
    with pytest.raises(WinMLError):
        events[0].raise_for_error()


def test_a_last_update_without_a_token_adds_text_only() -> None:
    reader = ReplyReader(parser_of(None))
    reader.push(update(0, "a"))
    reader.push(TextGenerationUpdate(None, "b"))
    reader.finish()
    assert spans(iter(reader.read_event, None)) == [
        ("CONTENT_DELTA", "a", 0, 1),
        ("CONTENT_DELTA", "b", 1, 1),
        ("COMPLETED", None, 1, 1),
    ]


def test_a_stop_text_ends_the_answer() -> None:
    reader = ReplyReader(parser_of(None, stops=("<end>",)))
    for place, fragment in enumerate(["a", "b<e", "nd", ">c"]):
        reader.push(update(place, fragment))
    assert reader.stop_match == "<end>"
    reader.finish()
    assert spans(iter(reader.read_event, None)) == [
        ("CONTENT_DELTA", "a", 0, 1),
        ("CONTENT_DELTA", "b", 1, 2),
        ("COMPLETED", None, 4, 4),
    ]


def test_a_failed_generation_ends_with_its_error() -> None:
    reader = ReplyReader(parser_of(None))
    reader.push(update(0, "a"))
    reader.finish(0x8007000D, "nothing to choose from")
    assert reader.read_event() is not None
    error = reader.read_event()
    assert error == ChatCompletionEvent(
        Type.ERROR, error_code=0x8007000D, error_message="nothing to choose from", first_token_index=1
    )
    assert reader.read_event() is None
    with pytest.raises(WinMLError, match="0x8007000D"):
        error.raise_for_error()


def test_finishing_again_changes_nothing() -> None:
    reader = ReplyReader(parser_of(None))
    assert not reader.is_finished
    reader.finish()
    reader.finish(0x8007000D)
    assert reader.is_finished
    assert [event.type for event in iter(reader.read_event, None)] == [Type.COMPLETED]


class InterruptedParser(ConversationOutputParser):
    """A parser whose n-th call of `append` or `flush` is struck by a KeyboardInterrupt, after half of its work."""

    calls = 0
    struck = 0

    def append(self, text: str) -> None:
        self._count(lambda: super(InterruptedParser, self).append(text[:1]))
        super().append(text)

    def flush(self) -> None:
        self._count(super().flush)
        super().flush()

    def _count(self, half: Callable[[], None]) -> None:
        self.calls += 1
        if self.calls == self.struck:
            half()
            raise KeyboardInterrupt


@pytest.mark.parametrize("struck", range(1, 7))
def test_an_interrupt_loses_nothing(struck: int) -> None:
    fragments = ["<think>", "h", "m", "</think>o", "k"]
    _, expected = read(parser_of(None), fragments)
    parser = InterruptedParser(parser_of(None)._syntax)
    parser.struck = struck
    reader = ReplyReader(parser)
    events: list[ChatCompletionEvent] = []
    actions: list[Callable[[], None]] = [
        *(
            lambda place=place, fragment=fragment: reader.push(update(place, fragment))
            for place, fragment in enumerate(fragments)
        ),
        reader.finish,
    ]
    interrupts = 0
    for action in actions:
        try:
            action()
        except KeyboardInterrupt:
            interrupts += 1
        events += iter(reader.read_event, None)
    assert interrupts == 1
    assert events == expected
    assert (reader.content, reader.reasoning_content) == ("ok", "hm")
