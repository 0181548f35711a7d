"""What a conversation is made of: roles, messages, tools and the request around them (genai §3.1).

Frozen records that check their fields and copy what they are given. Whether a request as a whole makes sense, and
whether a template can honour it, is decided where it is formatted (`conversation.py`).
"""

from __future__ import annotations

import math
import operator
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, Final, TypeVar

from .checks import enum_value, instance_of

T = TypeVar("T")

INT32_MAX = 0x7FFFFFFF
INT64_MAX = 0x7FFFFFFFFFFFFFFF


class ChatRole:
    """The usual roles. A role is a plain string: templates may define others."""

    SYSTEM: Final = "system"
    DEVELOPER: Final = "developer"
    USER: Final = "user"
    ASSISTANT: Final = "assistant"
    TOOL: Final = "tool"


class ChatCompletionFormatterMode(IntEnum):
    """Which template engine formats the conversation."""

    MODEL_DEFAULT = 0
    PORTABLE_JINJA_V1 = 1
    LEGACY_TEMPLATE_V1 = 2


class ChatCompletionToolChoice(IntEnum):
    """Whether the model may, must or must not call a tool."""

    AUTO = 0
    NONE = 1
    REQUIRED = 2
    NAMED = 3


class ChatCompletionParallelToolCalls(IntEnum):
    """Whether one turn may hold several tool calls."""

    MODEL_DEFAULT = 0
    DISABLED = 1
    ENABLED = 2


class ChatCompletionContinuation(IntEnum):
    """Which part of the last assistant message the model goes on with."""

    NONE = 0
    AUTO = 1
    CONTENT = 2
    REASONING = 3


class ChatCompletionTemplateValueType(IntEnum):
    """Type of a template value."""

    BOOLEAN = 0
    INTEGER = 1
    DOUBLE = 2
    STRING = 3
    JSON = 4


class ChatCompletionEnableThinking(IntEnum):
    """The template's `enable_thinking` switch."""

    MODEL_DEFAULT = 0
    DISABLED = 1
    ENABLED = 2


class ChatCompletionResponseFormat(IntEnum):
    """Free text, any JSON object, or JSON of a schema."""

    TEXT = 0
    JSON_OBJECT = 1
    JSON_SCHEMA = 2


class ChatCompletionEventType(IntEnum):
    """What an output event reports."""

    CONTENT_DELTA = 0
    REASONING_DELTA = 1
    TOOL_CALL_START = 2
    TOOL_ARGUMENTS_DELTA = 3
    TOOL_CALL_END = 4
    COMPLETED = 5
    ERROR = 6


class ChatCompletionFinishReason(IntEnum):
    """Why a chat turn ended. There is none for tool calls: such a turn ends by one of these, too."""

    EOS_TOKEN = 0
    STOP_TOKEN = 1
    MAX_TOKENS = 2
    SEQUENCE_CAPACITY = 3
    CANCELED = 4
    ERROR = 5
    ADDITIONAL_STOP = 6


def _set(record: object, name: str, value: object) -> None:
    object.__setattr__(record, name, value)


def _check_texts(record: object, *names: str) -> None:
    for name in names:
        instance_of(getattr(record, name), str, name)


def _check_optional_texts(record: object, *names: str) -> None:
    for name in names:
        if getattr(record, name) is not None:
            instance_of(getattr(record, name), str, name)


def _records(values: Iterable[T], kind: type[T], name: str) -> tuple[T, ...]:
    return tuple(instance_of(value, kind, f"an element of {name}") for value in values)


def _signed(value: Any, name: str, maximum: int) -> int:
    """A signed integer field: `bool` is a ValueError here, like a number that does not fit."""
    if isinstance(value, bool):
        raise ValueError(f"{name} must be an integer, not a bool")
    number = operator.index(value)
    if not -maximum - 1 <= number <= maximum:
        raise ValueError(f"{name} must be in {-maximum - 1}..{maximum}, not {number}")
    return number


@dataclass(frozen=True, slots=True)
class ChatCompletionToolCall:
    """A call that an assistant message holds. `arguments_json` is a JSON object.

    `model_native_id`, the id in the form the model itself uses, is shown to the template instead of `id`.
    """

    id: str
    name: str
    arguments_json: str
    model_native_id: str | None = None
    extensions_json: str | None = None

    def __post_init__(self) -> None:
        _check_texts(self, "id", "name", "arguments_json")
        _check_optional_texts(self, "model_native_id", "extensions_json")


@dataclass(frozen=True, slots=True)
class ChatCompletionContentPart:
    """One part of a message that is not a single string: `type="text"` with `text`, or `type="image"` with nothing, to
    which a `ChatMediaBinding` adds the pixels. Other types cannot be formatted.
    """

    type: str
    text: str | None = None
    json_value: str | None = None
    model_native_id: str | None = None
    extensions_json: str | None = None

    def __post_init__(self) -> None:
        _check_texts(self, "type")
        _check_optional_texts(self, "text", "json_value", "model_native_id", "extensions_json")


@dataclass(frozen=True, slots=True)
class ChatCompletionMessage:
    """One message: `content` or `content_parts`, not both (ValueError).

    `tool_call_id` and `tool_name` say which call a message of role "tool" answers.
    """

    role: str
    content: str | None = None
    reasoning_content: str | None = None
    tool_calls: Sequence[ChatCompletionToolCall] = ()
    tool_call_id: str | None = None
    tool_name: str | None = None
    content_parts: Sequence[ChatCompletionContentPart] = ()
    model_native_id: str | None = None
    extensions_json: str | None = None

    def __post_init__(self) -> None:
        _check_texts(self, "role")
        _check_optional_texts(self, "content", "reasoning_content", "tool_call_id", "tool_name")
        _check_optional_texts(self, "model_native_id", "extensions_json")
        _set(self, "tool_calls", _records(self.tool_calls, ChatCompletionToolCall, "tool_calls"))
        _set(self, "content_parts", _records(self.content_parts, ChatCompletionContentPart, "content_parts"))
        if self.content is not None and self.content_parts:
            raise ValueError("a message has content or content_parts, not both")


@dataclass(frozen=True, slots=True)
class ChatCompletionTool:
    """A tool the model may call. `parameters_json` is a JSON schema: an object, or `true` or `false`."""

    name: str
    parameters_json: str
    description: str | None = None
    type: str | None = None
    model_native_id: str | None = None
    extensions_json: str | None = None

    def __post_init__(self) -> None:
        _check_texts(self, "name", "parameters_json")
        _check_optional_texts(self, "description", "type", "model_native_id", "extensions_json")


@dataclass(frozen=True, slots=True)
class ChatCompletionTemplateValue:
    """A variable for the template: bool, int64, finite float, str, or JSON text, as `type` says."""

    name: str
    type: ChatCompletionTemplateValueType
    value: bool | int | float | str

    def __post_init__(self) -> None:
        types = ChatCompletionTemplateValueType
        _check_texts(self, "name")
        _set(self, "type", enum_value(self.type, types, "type"))
        if self.type == types.BOOLEAN:
            instance_of(self.value, bool, "value")
        elif self.type == types.INTEGER:
            _set(self, "value", _signed(self.value, "value", INT64_MAX))
        elif self.type == types.DOUBLE:
            if isinstance(self.value, bool) or not isinstance(self.value, (int, float)):
                raise TypeError(f"value must be a number, not {type(self.value).__name__}")
            if not math.isfinite(self.value):
                raise ValueError("value must be finite")
            _set(self, "value", float(self.value))
        else:
            instance_of(self.value, str, "value")


@dataclass(frozen=True, slots=True)
class ChatCompletionRequest:
    """A whole conversation and how to answer it.

    `timestamp_unix_seconds` and `time_zone_offset_minutes` are the clock that the template sees; None takes the host's.
    """

    messages: Sequence[ChatCompletionMessage] = ()
    tools: Sequence[ChatCompletionTool] = ()
    formatter_mode: ChatCompletionFormatterMode = ChatCompletionFormatterMode.MODEL_DEFAULT
    tool_choice: ChatCompletionToolChoice = ChatCompletionToolChoice.AUTO
    named_tool_choice: str | None = None
    parallel_tool_calls: ChatCompletionParallelToolCalls = ChatCompletionParallelToolCalls.MODEL_DEFAULT
    add_generation_prompt: bool = True
    continuation: ChatCompletionContinuation = ChatCompletionContinuation.NONE
    response_format: ChatCompletionResponseFormat = ChatCompletionResponseFormat.TEXT
    response_schema_name: str | None = None
    response_schema_description: str | None = None
    response_schema_json: str | None = None
    response_schema_strict: bool = False
    template_values: Sequence[ChatCompletionTemplateValue] = ()
    timestamp_unix_seconds: int | None = None
    time_zone_offset_minutes: int | None = None
    enable_thinking: ChatCompletionEnableThinking = ChatCompletionEnableThinking.MODEL_DEFAULT
    extensions_json: str | None = None

    def __post_init__(self) -> None:
        _set(self, "messages", _records(self.messages, ChatCompletionMessage, "messages"))
        _set(self, "tools", _records(self.tools, ChatCompletionTool, "tools"))
        _set(self, "template_values", _records(self.template_values, ChatCompletionTemplateValue, "template_values"))
        for name, kind in _REQUEST_ENUMS.items():
            _set(self, name, enum_value(getattr(self, name), kind, name))
        _check_optional_texts(self, "named_tool_choice", "response_schema_name", "response_schema_description")
        _check_optional_texts(self, "response_schema_json", "extensions_json")
        instance_of(self.add_generation_prompt, bool, "add_generation_prompt")
        instance_of(self.response_schema_strict, bool, "response_schema_strict")
        for name, maximum in (("timestamp_unix_seconds", INT64_MAX), ("time_zone_offset_minutes", INT32_MAX)):
            if getattr(self, name) is not None:
                _set(self, name, _signed(getattr(self, name), name, maximum))


_REQUEST_ENUMS: dict[str, type[IntEnum]] = {
    "formatter_mode": ChatCompletionFormatterMode,
    "tool_choice": ChatCompletionToolChoice,
    "parallel_tool_calls": ChatCompletionParallelToolCalls,
    "continuation": ChatCompletionContinuation,
    "response_format": ChatCompletionResponseFormat,
    "enable_thinking": ChatCompletionEnableThinking,
}
