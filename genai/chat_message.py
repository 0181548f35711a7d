"""A message of a chat's history: a pair for whoever only wants to read it, and everything that tool calls, pictures and
sound need.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from reprlib import repr as shortened
from typing import Any, Self, TypeAlias

from .chat_parts import ChatMedia, GivenPart, Part, as_parts, text_of
from .conversation_checks import IMAGE
from .messages import ChatCompletionContentPart, ChatCompletionMessage, ChatCompletionToolCall, ChatRole

_PLAIN_KEYS = {"role", "content"}
_TOOL_KEYS = {"reasoning_content", "tool_calls", "tool_call_id", "name"}


class ChatMessage(tuple[str, str]):
    """A message: the pair `(role, content)`, and with it what belongs to tool calls, reasoning, pictures and sound.

    `tool_calls` are the calls that an assistant's message holds. `tool_call_id` and `tool_name` of a message of the
    role "tool" say which call its content is the result of. `reasoning_content` is what an assistant thought before it
    answered. `parts` are what the content consists of when there are pictures or sound in it: texts and `ChatMedia`, in
    order; `content` then is the text alone. Equal to a plain pair with the same role and content.
    """

    reasoning_content: str | None
    tool_calls: tuple[ChatCompletionToolCall, ...]
    tool_call_id: str | None
    tool_name: str | None
    parts: tuple[Part, ...]

    def __new__(
        cls,
        role: str,
        content: str | Iterable[GivenPart],
        *,
        reasoning_content: str | None = None,
        tool_calls: Iterable[ChatCompletionToolCall] = (),
        tool_call_id: str | None = None,
        tool_name: str | None = None,
    ) -> Self:
        parts = as_parts(content)
        text = text_of(parts)
        message = super().__new__(cls, (role, text))
        # The record checks the fields.
        record = ChatCompletionMessage(role, text, reasoning_content, tuple(tool_calls), tool_call_id, tool_name)
        for name in ("reasoning_content", "tool_calls", "tool_call_id", "tool_name"):
            object.__setattr__(message, name, getattr(record, name))
        has_media = any(isinstance(part, ChatMedia) for part in parts)
        object.__setattr__(message, "parts", tuple(part for part in parts if part) if has_media else ())
        return message

    @property
    def role(self) -> str:
        """Who says it: "user", "assistant", "tool"; templates may know others."""
        return self[0]

    @property
    def content(self) -> str:
        """The text; `""` when an assistant only calls tools."""
        return self[1]

    def record(self) -> ChatCompletionMessage:
        """Return the message as requests of `genai.tasks` hold it; pictures and sound are parts without content."""
        return ChatCompletionMessage(
            self.role,
            None if self.parts else self.content,
            self.reasoning_content,
            self.tool_calls,
            self.tool_call_id,
            self.tool_name,
            tuple(
                ChatCompletionContentPart("text", part) if isinstance(part, str) else ChatCompletionContentPart(IMAGE)
                for part in self.parts
            ),
        )

    def as_dict(self) -> dict[str, Any]:
        """Return the message as a mapping for JSON, in the form that is usual for chats; a chat takes it back.

        Pictures and sound are there by the paths of their files, or as base64 when they came from memory.
        """
        values: dict[str, Any] = {"role": self.role, "content": self.content}
        if self.parts:
            values["content"] = [
                {"type": "text", "text": part} if isinstance(part, str) else part.as_dict() for part in self.parts
            ]
        if self.reasoning_content is not None:
            values["reasoning_content"] = self.reasoning_content
        if self.tool_calls:
            values["tool_calls"] = [
                {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments_json}}
                for call in self.tool_calls
            ]
        for key, value in (("tool_call_id", self.tool_call_id), ("name", self.tool_name)):
            if value is not None:
                values[key] = value
        return values

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"a message cannot be changed: {name}")

    def __eq__(self, other: object) -> bool:
        if isinstance(other, ChatMessage):
            return tuple.__eq__(self, other) and self._extras() == other._extras()
        return tuple.__eq__(self, other)

    def __ne__(self, other: object) -> bool:
        return not self == other

    __hash__ = tuple.__hash__

    def __repr__(self) -> str:
        extras = "".join(f", {name}={value!r}" for name, value in self._extras().items() if value)
        return f"ChatMessage({self.role!r}, {self.content!r}{extras})" if extras else tuple.__repr__(self)

    def __getnewargs_ex__(self) -> tuple[tuple[str, str], dict[str, Any]]:
        extras = self._extras()
        return (self.role, extras.pop("parts") or self.content), extras

    def __getstate__(self) -> None:
        """Everything is in the arguments."""

    def _extras(self) -> dict[str, Any]:
        return {
            "reasoning_content": self.reasoning_content,
            "tool_calls": self.tool_calls,
            "tool_call_id": self.tool_call_id,
            "tool_name": self.tool_name,
            "parts": self.parts,
        }


Message: TypeAlias = tuple[str, str] | tuple[str, Iterable[GivenPart]] | Mapping[str, Any] | ChatCompletionMessage
"""A pair `(role, content)`, a mapping with these keys (and those of tool calls, where there are some), or a record.
Content is a text, or a list of parts where pictures or sound belong to it."""


def as_message(given: Any) -> ChatMessage:
    """Return a message of any form; TypeError for what is none, such as text of two characters."""
    if isinstance(given, ChatMessage):
        return given
    if isinstance(given, ChatCompletionMessage):
        return _of_record(given)
    if isinstance(given, Mapping):
        return _of_mapping(given)
    if isinstance(given, tuple | list) and len(given) == 2:
        role, content = given
        if isinstance(role, str) and isinstance(content, str | list | tuple):
            return ChatMessage(role, content)
    raise TypeError(f"a message is a pair (role, content) of str, or a mapping with these keys, not {shortened(given)}")


def _of_record(record: ChatCompletionMessage) -> ChatMessage:
    if record.content_parts:
        raise TypeError("a message of a chat has content, not content_parts")
    return ChatMessage(
        record.role,
        record.content or "",
        reasoning_content=record.reasoning_content,
        tool_calls=record.tool_calls,
        tool_call_id=record.tool_call_id,
        tool_name=record.tool_name,
    )


def _of_mapping(given: Mapping[str, Any]) -> ChatMessage:
    role, content = given.get("role"), given.get("content")
    calls = given.get("tool_calls") or ()
    is_tool = role == ChatRole.TOOL
    allowed = _PLAIN_KEYS | (_TOOL_KEYS if role in (ChatRole.TOOL, ChatRole.ASSISTANT) else set())
    if "role" not in given or not (set(given) <= allowed) or ("content" not in given and not calls):
        raise TypeError(f"a message has the keys 'role' and 'content', not {', '.join(map(repr, given))}")
    if content is None and calls:
        content = ""
    if not isinstance(role, str) or not isinstance(content, str | list | tuple):
        raise TypeError(
            f"a message is a pair (role, content) of str, or a mapping with these keys, not {shortened(given)}"
        )
    return ChatMessage(
        role,
        content,
        reasoning_content=given.get("reasoning_content"),
        tool_calls=[_call(call) for call in calls],
        tool_call_id=given.get("tool_call_id") if is_tool else None,
        tool_name=given.get("name") if is_tool else None,
    )


def _call(given: Any) -> ChatCompletionToolCall:
    if isinstance(given, ChatCompletionToolCall):
        return given
    try:
        function = given["function"]
        arguments = function["arguments"]
        text = arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)
        return ChatCompletionToolCall(given["id"], function["name"], text)
    except (TypeError, KeyError) as error:
        form = '{"id", "function": {"name", "arguments"}}'
        raise TypeError(f"a tool call of a message has the form {form}, not {shortened(given)}") from error
