"""Statements about what a formatted conversation says of its answer, and about output parsers.

On a `tokenizer.json` folder and on a GGUF of the same vocabulary.
"""

from __future__ import annotations

import dataclasses
import importlib.util
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from fakes.outputs import Output, Type, events_of, joined
from fakes.tokenizer_twins import json_twin
from genai.conversation_result import ConversationConstraintTriggerType, ConversationParserCapabilities
from genai.messages import (
    ChatCompletionMessage,
    ChatCompletionParallelToolCalls,
    ChatCompletionRequest,
    ChatCompletionResponseFormat,
    ChatCompletionTool,
    ChatCompletionToolChoice,
)
from genai.output_event import ConversationOutputEvent
from genai.output_parser import ConversationOutputParser
from genai.tokenizer import Tokenizer
from models import recipes
from winml_lite import NotSupportedError, WinMLError

HAS_LLAMA = importlib.util.find_spec("llama_cpp") is not None
needs_llama = pytest.mark.skipif(not HAS_LLAMA, reason="llama-cpp-python is not installed")
HERMES = (
    "{% if tools %}<|im_start|>system\n{% for t in tools %}{{ t | tojson }}\n{% endfor %}"
    "Answer with <tool_call> and </tool_call>.<|im_end|>\n{% endif %}"
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% if enable_thinking %}<think>\n{% endif %}{% endif %}"
)
HI = ChatCompletionMessage("user", "hi")
TOOLS = (
    ChatCompletionTool("add", '{"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}'),
    ChatCompletionTool("now", "{}"),
)
Choice = ChatCompletionToolChoice
Format = ChatCompletionResponseFormat
CALLS = (
    '<tool_call>\n{"name": "add", "arguments": {"a": 1}}\n</tool_call>\n'
    '<tool_call>\n{"name": "now", "arguments": {}}\n</tool_call>'
)
MIXED = f"<think>\nFirst é.\n</think>\n\nI call.\n{CALLS}\nDone."


@pytest.fixture(scope="module", params=["json", pytest.param("gguf", marks=needs_llama)])
def chat(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tokenizer]:
    """A byte-level vocabulary with a template that knows tools and thinking."""
    folder = tmp_path_factory.mktemp("formatting")
    gguf = recipes.vocabulary_gguf(folder, "smollm")
    path: Path = gguf if request.param == "gguf" else json_twin(gguf, folder / "twin")
    with Tokenizer.from_file(path, chat_template=HERMES) as tokenizer:
        yield tokenizer


@pytest.fixture
def parser(chat: Tokenizer) -> ConversationOutputParser:
    """The parser of a conversation with tools."""
    return chat.format_conversation(ChatCompletionRequest((HI,), TOOLS)).create_output_parser()


def types_of(events: list[ConversationOutputEvent]) -> list[Type]:
    return [event.type for event in events]


def test_a_format_result_is_a_value_that_programs_may_close(chat: Tokenizer) -> None:
    with chat.format_conversation(ChatCompletionRequest((HI,))) as formatted:
        count = len(formatted.token_ids)
    formatted.close()
    assert count == len(formatted.token_ids) > 0


def test_g36_no_tool_choice_changes_the_prompt(chat: Tokenizer) -> None:
    free = chat.format_conversation(ChatCompletionRequest((HI,), TOOLS))
    barred = chat.format_conversation(ChatCompletionRequest((HI,), TOOLS, tool_choice=Choice.NONE))
    assert free.token_ids == barred.token_ids
    assert '"name": "add"' in barred.text


def test_g45_plain_text_has_no_constraint(chat: Tokenizer) -> None:
    assert chat.format_conversation(ChatCompletionRequest((HI,))).constraint is None
    barred = chat.format_conversation(ChatCompletionRequest((HI,), TOOLS, tool_choice=Choice.NONE))
    assert barred.constraint is None


@pytest.mark.parametrize(
    "request_",
    [
        ChatCompletionRequest((HI,), response_format=Format.JSON_OBJECT),
        ChatCompletionRequest((HI,), response_format=Format.JSON_SCHEMA, response_schema_json='{"type": "integer"}'),
        ChatCompletionRequest((HI,), TOOLS, tool_choice=Choice.REQUIRED),
        ChatCompletionRequest((HI,), TOOLS, tool_choice=Choice.NAMED, named_tool_choice="now"),
    ],
)
def test_g45_formats_and_wanted_calls_are_constrained_from_the_start(
    chat: Tokenizer, request_: ChatCompletionRequest
) -> None:
    result = chat.format_conversation(request_)
    assert result.constraint is not None
    assert (result.constraint.syntax, result.constraint.syntax_version, result.constraint.lazy) == (
        "llguidance",
        1,
        False,
    )
    assert result.constraint_triggers == ()


def test_g45_possible_calls_are_constrained_from_their_mark_on(chat: Tokenizer) -> None:
    result = chat.format_conversation(ChatCompletionRequest((HI,), TOOLS))
    assert result.constraint is not None
    assert result.constraint.lazy
    (trigger,) = result.constraint_triggers
    assert (trigger.type, trigger.value) == (ConversationConstraintTriggerType.TEXT, "<tool_call>")


def test_g45_a_named_tool_is_the_only_one_in_the_grammar(chat: Tokenizer) -> None:
    request = ChatCompletionRequest((HI,), TOOLS, tool_choice=Choice.NAMED, named_tool_choice="now")
    constraint = chat.format_conversation(request).constraint
    assert constraint is not None
    assert "now" in constraint.value
    assert "add" not in constraint.value


def test_tools_and_a_format_exclude_each_other(chat: Tokenizer) -> None:
    with pytest.raises(NotSupportedError) as caught:
        chat.format_conversation(ChatCompletionRequest((HI,), TOOLS, response_format=Format.JSON_OBJECT))
    assert caught.value.hresult == 0x80070032


def test_the_capabilities_of_the_parser_follow_the_request(chat: Tokenizer) -> None:
    flags = ConversationParserCapabilities
    plain = chat.format_conversation(ChatCompletionRequest((HI,)))
    assert plain.parser_capabilities == flags.CONTENT | flags.REASONING
    calling = chat.format_conversation(ChatCompletionRequest((HI,), TOOLS))
    assert calling.parser_capabilities == 0b1111
    alone = ChatCompletionRequest((HI,), TOOLS, parallel_tool_calls=ChatCompletionParallelToolCalls.DISABLED)
    assert chat.format_conversation(alone).parser_capabilities == 0b0111


def test_g47_pieces_make_no_difference(chat: Tokenizer) -> None:
    result = chat.format_conversation(ChatCompletionRequest((HI,), TOOLS))
    whole = joined(events_of(result.create_output_parser(), [MIXED]))
    assert joined(events_of(result.create_output_parser(), MIXED)) == whole
    assert whole == Output(
        content="I call.\nDone.",
        reasoning="First é.",
        calls=[("call_0", "add", '{"a": 1}'), ("call_1", "now", "{}")],
    )


def test_g48_reasoning_and_content_come_without_their_tags(parser: ConversationOutputParser) -> None:
    assert joined(events_of(parser, ["<think>a</think>b"])) == Output(content="b", reasoning="a")


def test_g49_a_lone_beginning_of_a_tag_is_content(parser: ConversationOutputParser) -> None:
    parser.append("a <thi")
    parser.flush()
    assert joined(iter(parser.read_event, None)).content == "a <thi"


def test_g50_calls_are_numbered_and_do_not_interleave(parser: ConversationOutputParser) -> None:
    events = events_of(parser, [CALLS])
    calls = [event for event in events if event.tool_call_index is not None]
    expected = [Type.TOOL_CALL_START, Type.TOOL_ARGUMENTS_DELTA, Type.TOOL_CALL_END]
    assert types_of(calls) == expected * 2
    assert [event.tool_call_index for event in calls] == [0, 0, 0, 1, 1, 1]
    assert [json.loads(event.text or "") for event in calls if event.text] == [{"a": 1}, {}]


def test_g51_a_broken_call_is_one_error_and_later_text_is_content(parser: ConversationOutputParser) -> None:
    events = events_of(parser, ['<tool_call>{"name": "add", "arguments": {"a": }}</tool_call>', " later"])
    (error,) = (event for event in events if event.type is Type.ERROR)
    assert error.error_code == 0x8007000D
    with pytest.raises(WinMLError):
        error.raise_for_error()
    assert joined(events).content == "later"


def test_g52_completed_comes_once_and_reset_allows_another_run(parser: ConversationOutputParser) -> None:
    assert types_of(events_of(parser, ["a"])) == [Type.CONTENT_DELTA, Type.COMPLETED]
    parser.flush()
    assert parser.read_event() is None
    with pytest.raises(WinMLError) as caught:
        parser.append("b")
    assert caught.value.hresult == 0x8007139F
    parser.reset()
    assert types_of(events_of(parser, ["b"])) == [Type.CONTENT_DELTA, Type.COMPLETED]


def test_g53_fields_are_there_only_where_they_belong(parser: ConversationOutputParser) -> None:
    broken = '<tool_call>{"name": "add", "arguments": {"a": }}</tool_call>'
    events = {event.type: event for event in events_of(parser, [f"<think>x</think>y{CALLS}{broken}"])}
    assert set(events) == set(Type)
    for kind in (Type.CONTENT_DELTA, Type.REASONING_DELTA, Type.TOOL_ARGUMENTS_DELTA):
        assert events[kind].text
    for kind in (Type.COMPLETED, Type.TOOL_CALL_START, Type.TOOL_CALL_END, Type.ERROR):
        assert events[kind].text is None
    assert [kind for kind, event in events.items() if event.error_code is not None] == [Type.ERROR]
    for kind in (Type.COMPLETED, Type.CONTENT_DELTA, Type.REASONING_DELTA, Type.ERROR):
        assert events[kind].tool_call_index is events[kind].call_id is events[kind].tool_name is None


def test_g7_events_are_frozen(parser: ConversationOutputParser) -> None:
    event = events_of(parser, ["a"])[0]
    with pytest.raises(dataclasses.FrozenInstanceError):
        event.text = "b"  # type: ignore[misc]
