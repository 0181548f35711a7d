"""The request records: what they accept, copy and refuse."""

from __future__ import annotations

from dataclasses import FrozenInstanceError, fields
from typing import Any

import pytest

from genai.messages import (
    ChatCompletionContentPart,
    ChatCompletionContinuation,
    ChatCompletionEventType,
    ChatCompletionMessage,
    ChatCompletionRequest,
    ChatCompletionResponseFormat,
    ChatCompletionTemplateValue,
    ChatCompletionTemplateValueType,
    ChatCompletionTool,
    ChatCompletionToolCall,
    ChatCompletionToolChoice,
    ChatRole,
)

Type = ChatCompletionTemplateValueType


def test_g7_requests_and_messages_are_frozen() -> None:
    message = ChatCompletionMessage("user", "hi")
    with pytest.raises(FrozenInstanceError):
        message.content = "other"  # type: ignore[misc]
    with pytest.raises(FrozenInstanceError):
        ChatCompletionRequest().messages = ()  # type: ignore[misc]


def test_g11_content_and_content_parts_exclude_each_other() -> None:
    part = ChatCompletionContentPart("text", "x")
    with pytest.raises(ValueError, match="not both"):
        ChatCompletionMessage("user", content="x", content_parts=(part,))


def test_content_without_parts_and_parts_without_content_are_fine() -> None:
    part = ChatCompletionContentPart("text", "x")
    assert ChatCompletionMessage("user", content_parts=[part]).content_parts == (part,)
    assert ChatCompletionMessage("user", "x").content_parts == ()


@pytest.mark.parametrize(
    ("type_", "value", "error"),
    [
        (Type.BOOLEAN, 1, TypeError),
        (Type.INTEGER, True, ValueError),
        (Type.INTEGER, 2**63, ValueError),
        (Type.INTEGER, -(2**63) - 1, ValueError),
        (Type.INTEGER, "1", TypeError),
        (Type.DOUBLE, float("inf"), ValueError),
        (Type.DOUBLE, float("nan"), ValueError),
        (Type.DOUBLE, True, TypeError),
        (Type.DOUBLE, "1", TypeError),
        (Type.STRING, 1, TypeError),
        (Type.JSON, {}, TypeError),
    ],
)
def test_g12_template_values_must_have_their_type(type_: Type, value: Any, error: type[Exception]) -> None:
    with pytest.raises(error):
        ChatCompletionTemplateValue("n", type_, value)


@pytest.mark.parametrize(
    ("type_", "value"),
    [(Type.BOOLEAN, False), (Type.INTEGER, 2**63 - 1), (Type.DOUBLE, 2.5), (Type.STRING, ""), (Type.JSON, "{}")],
)
def test_template_values_keep_what_fits(type_: Type, value: Any) -> None:
    assert ChatCompletionTemplateValue("n", type_, value).value == value


def test_an_integer_for_a_double_becomes_a_float() -> None:
    assert isinstance(ChatCompletionTemplateValue("n", Type.DOUBLE, 2).value, float)


def test_g13_add_generation_prompt_must_be_a_bool() -> None:
    with pytest.raises(TypeError):
        ChatCompletionRequest(add_generation_prompt=1)  # type: ignore[arg-type]


def test_g13_an_unknown_enum_number_is_a_value_error() -> None:
    with pytest.raises(ValueError):
        ChatCompletionRequest(continuation=9)  # type: ignore[arg-type]


def test_g13_a_known_enum_number_becomes_the_member() -> None:
    request = ChatCompletionRequest(continuation=2)  # type: ignore[arg-type]
    assert request.continuation is ChatCompletionContinuation.CONTENT


def test_a_bool_is_no_enum_number() -> None:
    with pytest.raises(TypeError):
        ChatCompletionRequest(tool_choice=True)  # type: ignore[arg-type]


@pytest.mark.parametrize("value", [True, 2**63, -(2**63) - 1])
def test_a_timestamp_that_is_no_int64_is_a_value_error(value: int) -> None:
    with pytest.raises(ValueError):
        ChatCompletionRequest(timestamp_unix_seconds=value)


@pytest.mark.parametrize("value", [False, 2**31, -(2**31) - 1])
def test_an_offset_that_is_no_int32_is_a_value_error(value: int) -> None:
    with pytest.raises(ValueError):
        ChatCompletionRequest(time_zone_offset_minutes=value)


@pytest.mark.parametrize(
    "make",
    [
        lambda: ChatCompletionMessage(1),  # type: ignore[arg-type]
        lambda: ChatCompletionMessage("user", 1),  # type: ignore[arg-type]
        lambda: ChatCompletionMessage("user", tool_calls=["x"]),  # type: ignore[list-item]
        lambda: ChatCompletionMessage("user", content_parts=[{"type": "text"}]),  # type: ignore[list-item]
        lambda: ChatCompletionRequest(messages=[("user", "hi")]),  # type: ignore[list-item]
        lambda: ChatCompletionRequest(messages="hi"),  # type: ignore[arg-type]
        lambda: ChatCompletionRequest(tools=[1]),  # type: ignore[list-item]
        lambda: ChatCompletionRequest(response_schema_strict=0),  # type: ignore[arg-type]
        lambda: ChatCompletionTool("f", None),  # type: ignore[arg-type]
        lambda: ChatCompletionToolCall("1", "f", {}),  # type: ignore[arg-type]
        lambda: ChatCompletionContentPart(None),  # type: ignore[arg-type]
    ],
)
def test_wrong_types_are_type_errors(make: Any) -> None:
    with pytest.raises(TypeError):
        make()


def test_iterables_become_tuples() -> None:
    message = ChatCompletionMessage("user", "hi")
    assert ChatCompletionRequest(messages=iter([message])).messages == (message,)  # type: ignore[arg-type]


def test_fields_come_in_the_documented_order() -> None:
    assert [field.name for field in fields(ChatCompletionRequest)] == [
        "messages",
        "tools",
        "formatter_mode",
        "tool_choice",
        "named_tool_choice",
        "parallel_tool_calls",
        "add_generation_prompt",
        "continuation",
        "response_format",
        "response_schema_name",
        "response_schema_description",
        "response_schema_json",
        "response_schema_strict",
        "template_values",
        "timestamp_unix_seconds",
        "time_zone_offset_minutes",
        "enable_thinking",
        "extensions_json",
    ]
    assert [field.name for field in fields(ChatCompletionMessage)] == [
        "role",
        "content",
        "reasoning_content",
        "tool_calls",
        "tool_call_id",
        "tool_name",
        "content_parts",
        "model_native_id",
        "extensions_json",
    ]


def test_enum_numbers_are_fixed() -> None:
    assert [choice.value for choice in ChatCompletionToolChoice] == [0, 1, 2, 3]
    assert ChatCompletionToolChoice.NAMED == 3
    assert ChatCompletionResponseFormat.JSON_SCHEMA == 2
    assert ChatCompletionEventType.COMPLETED == 5
    assert ChatCompletionEventType.ERROR == 6


def test_roles_are_plain_strings() -> None:
    assert (ChatRole.SYSTEM, ChatRole.TOOL) == ("system", "tool")
    assert ChatCompletionMessage("critic", "x").role == "critic"
