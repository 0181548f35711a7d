"""What a request must be to make sense, and what this version cannot do (genai §3.2, "fail closed").

Checks that need no template; the others are in `conversation.py`. Nothing of a request is silently dropped.
"""

from __future__ import annotations

import json
from typing import Any, NoReturn

from winml_lite import NotSupportedError, WinMLError

from .codes import E_INVALIDARG, NOT_SUPPORTED
from .messages import (
    ChatCompletionContentPart,
    ChatCompletionFormatterMode,
    ChatCompletionMessage,
    ChatCompletionRequest,
    ChatCompletionResponseFormat,
    ChatCompletionTool,
    ChatCompletionToolChoice,
)

_WHERE = "format_conversation"


def invalid(reason: str) -> NoReturn:
    """Raise 0x80070057."""
    raise WinMLError(E_INVALIDARG, _WHERE, reason)


def unsupported(reason: str) -> NoReturn:
    """Raise NotSupportedError 0x80070032."""
    raise NotSupportedError(NOT_SUPPORTED, _WHERE, reason)


def parse_json(text: str, what: str) -> Any:
    """Return the value of a JSON text; 0x80070057 naming `what` for anything else, NaN and Infinity included."""
    try:
        return json.loads(text, parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        invalid(f"{what} is not JSON: {error}")


def parse_object(text: str, what: str) -> dict[str, Any]:
    """Return the value of a JSON object; 0x80070057 for anything else."""
    value = parse_json(text, what)
    if not isinstance(value, dict):
        invalid(f"{what} must be a JSON object")
    return value


def parse_schema(text: str, what: str) -> dict[str, Any] | bool:
    """Return a JSON schema: an object or a boolean; 0x80070057 for anything else."""
    value = parse_json(text, what)
    if not isinstance(value, (dict, bool)):
        invalid(f"{what} must be a JSON schema: an object, true or false")
    return value


IMAGE = "image"
"""Type of a content part that a tensor is bound to."""


def image_places(request: ChatCompletionRequest) -> list[tuple[int, int]]:
    """Return message and part of every image."""
    return [
        (message_index, part_index)
        for message_index, message in enumerate(request.messages)
        for part_index, part in enumerate(message.content_parts)
        if part.type == IMAGE
    ]


def check_request(request: ChatCompletionRequest, takes_images: bool) -> None:
    """Raise for a request that contradicts itself (0x80070057) or asks for what this version lacks (0x80070032)."""
    if not request.messages:
        invalid("a conversation needs at least one message")
    _check_extensions(request.extensions_json, "the request")
    for index, message in enumerate(request.messages):
        _check_message(message, f"message {index}", takes_images)
    for tool in request.tools:
        _check_tool(tool)
    _check_tool_choice(request)
    _check_response_format(request)
    if request.formatter_mode == ChatCompletionFormatterMode.LEGACY_TEMPLATE_V1:
        unsupported("formatter_mode LEGACY_TEMPLATE_V1 is not available; use MODEL_DEFAULT")
    calls_tools = request.tools and request.tool_choice != ChatCompletionToolChoice.NONE
    if calls_tools and request.response_format != ChatCompletionResponseFormat.TEXT:
        unsupported(f"response_format {request.response_format.name} and tool calls exclude each other")


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a JSON number")


def _check_extensions(text: str | None, what: str) -> None:
    if text and parse_json(text, f"extensions_json of {what}") != {}:
        unsupported(f"extensions_json of {what} is not empty")


def _check_native_id(text: str | None, what: str) -> None:
    if text is not None:
        unsupported(f"model_native_id is for tool calls only, {what} has one")


def _check_message(message: ChatCompletionMessage, what: str, takes_images: bool) -> None:
    _check_extensions(message.extensions_json, what)
    _check_native_id(message.model_native_id, what)
    for index, part in enumerate(message.content_parts):
        _check_part(part, f"part {index} of {what}", takes_images)
    for call in message.tool_calls:
        _check_extensions(call.extensions_json, f"a tool call of {what}")
        parse_object(call.arguments_json, f"arguments_json of the call {call.id!r} in {what}")
    has_text = message.content is not None or message.content_parts
    if not has_text and not message.tool_calls and message.reasoning_content is None:
        invalid(f"{what} has no content")


def _check_part(part: ChatCompletionContentPart, what: str, takes_images: bool) -> None:
    _check_extensions(part.extensions_json, what)
    _check_native_id(part.model_native_id, what)
    if part.type == IMAGE and takes_images:
        return
    if part.type == IMAGE:
        unsupported(f"{what} is an image; only stream_with_media of a chat session takes images")
    if part.type != "text":
        unsupported(f"{what} is of type {part.type!r}; only text can be formatted")
    if part.json_value is not None:
        unsupported(f"{what} has a json_value; a text part has only text")
    if part.text is None:
        invalid(f"{what} has no text")


def _check_tool(tool: ChatCompletionTool) -> None:
    what = f"the tool {tool.name!r}"
    _check_extensions(tool.extensions_json, what)
    _check_native_id(tool.model_native_id, what)
    parse_schema(tool.parameters_json, f"parameters_json of {what}")


def _check_tool_choice(request: ChatCompletionRequest) -> None:
    choices = ChatCompletionToolChoice
    choice = request.tool_choice
    names = [tool.name for tool in request.tools]
    if len(set(names)) < len(names):
        invalid("two tools have the same name")
    if choice in (choices.REQUIRED, choices.NAMED) and not names:
        invalid(f"tool_choice {choice.name} needs tools")
    if choice == choices.NAMED and request.named_tool_choice not in names:
        invalid(f"named_tool_choice {request.named_tool_choice!r} is none of the tools: {', '.join(names)}")
    if choice != choices.NAMED and request.named_tool_choice is not None:
        invalid(f"named_tool_choice is set, but tool_choice is {choice.name}")


def _check_response_format(request: ChatCompletionRequest) -> None:
    if request.response_format == ChatCompletionResponseFormat.JSON_SCHEMA:
        if request.response_schema_json is None:
            invalid("response_format JSON_SCHEMA needs response_schema_json")
        parse_schema(request.response_schema_json, "response_schema_json")
        return
    fields = (request.response_schema_name, request.response_schema_description, request.response_schema_json)
    if any(field is not None for field in fields) or request.response_schema_strict:
        invalid(f"response_schema fields are set, but response_format is {request.response_format.name}")
