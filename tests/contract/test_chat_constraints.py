"""Chat turns whose answers must keep to a form, and tool calls, over a stage that would rather say something else.

Statements 122 and 123 of genai 13, with genai 9.1.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from fakes.chats import TOOLS, Chatting, asked, chatting, preferring
from fakes.scripted import Compose
from genai.tasks import (
    ChatCompletionEventType,
    ChatCompletionFinishReason,
    ChatCompletionMessage,
    ChatCompletionParallelToolCalls,
    ChatCompletionRequest,
    ChatCompletionResponseFormat,
    ChatCompletionTool,
    ChatCompletionToolCall,
    ChatCompletionToolChoice,
    TextGenerationOptions,
)
from winml_lite import WinMLError

pytest.importorskip("llguidance")

Choice = ChatCompletionToolChoice
Format = ChatCompletionResponseFormat
ONE = ChatCompletionParallelToolCalls.DISABLED
Reason = ChatCompletionFinishReason
Type = ChatCompletionEventType

SCHEMA = '{"type": "object", "properties": {"n": {"type": "integer", "maximum": 9}}, "required": ["n"]}'
GET = ChatCompletionTool("get", SCHEMA, "Gets a thing.")
PUT = ChatCompletionTool("put", SCHEMA, "Puts a thing.")
CALL = '<tool_call>\n{"name": "get", "arguments": {"n": 3}}\n</tool_call>'


def calling(*tools: ChatCompletionTool, **fields: object) -> ChatCompletionRequest:
    """A request with tools."""
    return ChatCompletionRequest((ChatCompletionMessage("user", "hi"),), tools, **fields)  # type: ignore[arg-type]


@pytest.fixture
def chat(compose: Compose, tmp_path: Path) -> Iterator[Chatting]:
    """A model that would go on with digits and ends of objects."""
    with chatting(compose, tmp_path, preferring("7}"), template=TOOLS, capacity=1024) as chat:
        yield chat


def test_g122_an_answer_keeps_to_its_schema(chat: Chatting) -> None:
    request = asked("hi", response_format=Format.JSON_SCHEMA, response_schema_json=SCHEMA)
    result = chat.session.generate(request)
    assert json.loads(result.content) == {"n": 7}
    assert result.finish_reason is Reason.EOS_TOKEN


def test_g122_a_limit_cuts_the_answer_without_an_exception(chat: Chatting) -> None:
    request = asked("hi", response_format=Format.JSON_SCHEMA, response_schema_json=SCHEMA)
    result = chat.session.generate(request, TextGenerationOptions(max_new_tokens=1))
    assert (result.finish_reason, result.error_code, result.content) == (Reason.MAX_TOKENS, 0, "{")


def test_the_constraint_outlives_the_stream(chat: Chatting) -> None:
    with chat.session.stream(asked("hi", response_format=Format.JSON_OBJECT)) as stream:
        constraint = stream.constraint
        assert constraint is not None
        with pytest.raises(WinMLError, match="0x8007139F"):
            constraint.reset()
        assert "".join(event.text or "" for event in stream) == "{}"
    assert stream.constraint is constraint
    assert constraint.state.accepted_token_count == 3
    constraint.reset()


def test_a_constrained_turn_continues_the_sequence(chat: Chatting) -> None:
    first = chat.session.generate(asked("hi", response_format=Format.JSON_OBJECT))
    second = chat.session.generate(asked("hi", "{}", "and?", response_format=Format.JSON_OBJECT))
    assert second.content == "{}"
    assert second.prompt_cache_use.cached_prompt_token_count == first.prompt_token_count + 2


def test_g123_a_required_call_is_made(chat: Chatting) -> None:
    request = calling(GET, PUT, tool_choice=Choice.REQUIRED, parallel_tool_calls=ONE)
    with chat.session.stream(request) as stream:
        events = list(stream)
        result = stream.result
    assert [(call.id, json.loads(call.arguments_json)) for call in result.tool_calls] == [("call_0", {"n": 7})]
    assert (result.content, result.finish_reason) == ("", Reason.EOS_TOKEN)
    assert [event.type for event in events if event.type is not Type.TOOL_ARGUMENTS_DELTA] == [
        Type.TOOL_CALL_START,
        Type.TOOL_CALL_END,
        Type.COMPLETED,
    ]


def test_a_named_tool_is_called(chat: Chatting) -> None:
    request = calling(GET, PUT, tool_choice=Choice.NAMED, named_tool_choice="put", parallel_tool_calls=ONE)
    result = chat.session.generate(request)
    assert [call.name for call in result.tool_calls] == ["put"]


def test_a_call_that_is_cut_off_is_not_listed(chat: Chatting) -> None:
    request = calling(GET, tool_choice=Choice.REQUIRED)
    result = chat.session.generate(request, TextGenerationOptions(max_new_tokens=40))
    assert (result.tool_calls, result.finish_reason) == ((), Reason.MAX_TOKENS)


def test_a_free_choice_leaves_text_free(compose: Compose, tmp_path: Path) -> None:
    with chatting(compose, tmp_path, [(calling(GET), "No need.")], template=TOOLS) as chat:
        with chat.session.stream(calling(GET)) as stream:
            assert stream.constraint is not None
            assert "".join(event.text or "" for event in stream) == "No need."
            assert stream.result.tool_calls == ()


def test_a_free_choice_may_call(compose: Compose, tmp_path: Path) -> None:
    with chatting(compose, tmp_path, [(calling(GET), "Look: " + CALL)], template=TOOLS) as chat:
        result = chat.session.generate(calling(GET))
    assert result.content == "Look:"
    assert result.tool_calls == (ChatCompletionToolCall("call_0", "get", '{"n": 3}'),)


def test_without_a_choice_calls_are_text(compose: Compose, tmp_path: Path) -> None:
    request = calling(GET, tool_choice=Choice.NONE)
    with chatting(compose, tmp_path, [(request, CALL)], template=TOOLS) as chat:
        result = chat.session.generate(request)
    assert (result.content, result.tool_calls) == (CALL, ())


def test_the_result_of_a_call_goes_back_and_the_prompt_is_reused(compose: Compose, tmp_path: Path) -> None:
    template = TOOLS.replace("m['content']", "(m['content'] or m.tool_calls | tojson)")
    messages = (
        ChatCompletionMessage("user", "hi"),
        ChatCompletionMessage("assistant", tool_calls=(ChatCompletionToolCall("call_0", "get", '{"n": 3}'),)),
        ChatCompletionMessage("tool", "3"),
    )
    answer = ChatCompletionRequest(messages, (GET,))
    turns = [(calling(GET), CALL), (answer, "It is 3.")]
    with chatting(compose, tmp_path, turns, template=template, capacity=768) as chat:
        first = chat.session.generate(calling(GET))
        assert first.tool_calls == messages[1].tool_calls
        second = chat.session.generate(answer)
    assert second.content == "It is 3."
    assert second.prompt_cache_use.cached_prompt_token_count >= first.prompt_token_count
