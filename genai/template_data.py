"""A request as the template sees it (genai §3.3): mapped to plain data that notes which of its fields were read.

A field that the template never reads would be dropped in silence, so formatting refuses it afterwards.
"""

from __future__ import annotations

import json
from collections.abc import Callable, ItemsView, Sequence, ValuesView
from dataclasses import dataclass
from typing import Any, NoReturn

from .conversation_checks import IMAGE, parse_object, parse_schema, unsupported
from .media_marks import MediaMarks, Place
from .messages import ChatCompletionContentPart, ChatCompletionMessage, ChatCompletionTool, ChatRole
from .spellings import map_texts

Break = Callable[[str], str]


class ReadFields(dict[str, Any]):
    """A dict that notes its reads. `on_read` is told of each."""

    __slots__ = ("_on_read", "_unread")

    def __init__(self, fields: dict[str, Any], required: set[str], on_read: Callable[[], object]) -> None:
        super().__init__(fields)
        self._unread = required
        self._on_read = on_read

    @property
    def unread(self) -> set[str]:
        """The required fields that were not read."""
        return self._unread

    def __getitem__(self, name: str) -> Any:
        self._note(name)
        return super().__getitem__(name)

    def get(self, name: str, default: Any = None) -> Any:
        self._note(name)
        return super().get(name, default)

    def items(self) -> ItemsView[str, Any]:  # type: ignore[override]
        self._note_all()
        return super().items()

    def values(self) -> ValuesView[Any]:  # type: ignore[override]
        self._note_all()
        return super().values()

    def __str__(self) -> str:
        self._note_all()
        return super().__repr__()

    __repr__ = __str__

    def _note(self, name: str) -> None:
        self._unread.discard(name)
        self._on_read()

    def _note_all(self) -> None:
        self._unread.clear()
        self._on_read()


class ContentParts(list[ReadFields]):
    """The parts of a message. A template that takes them for text gets an error, not Python's notation of a list."""

    __slots__ = ()

    def __str__(self) -> str:
        self._refuse()

    def __radd__(self, other: object) -> NoReturn:
        self._refuse()

    def _refuse(self) -> NoReturn:
        unsupported("the chat template takes no content parts; give the content as one text")

    __repr__ = __str__


class Arguments(dict[str, Any]):
    """The arguments of a tool call. Templates written for arguments as text, which put them after one, get JSON."""

    __slots__ = ()

    def __radd__(self, other: object) -> Any:
        return other + json.dumps(self, ensure_ascii=False) if isinstance(other, str) else NotImplemented


@dataclass(frozen=True, slots=True)
class MessageTexts:
    """How texts are shown to a template: what may be untrusted `broken`, and marks in the place of media."""

    broken: Break
    marks: MediaMarks
    joins_parts: bool = False
    """Content parts become one text."""

    def part(self, place: Place, part: ChatCompletionContentPart, broken: Break) -> str:
        """Return the text of a content part; `broken` is what its message calls for."""
        return self.marks.mark(place) if part.type == IMAGE else broken(part.text or "")


class TemplateData:
    """Messages and tools, for one rendering."""

    def __init__(
        self, messages: Sequence[ChatCompletionMessage], tools: Sequence[ChatCompletionTool], texts: MessageTexts
    ) -> None:
        self.last_read = 0
        """Index of the message that the template looked at last."""
        self._texts = texts
        self._broken = texts.broken
        self.messages = [self._message(index, message) for index, message in enumerate(messages)]
        self.tools = [self._tool(tool) for tool in tools] or None

    def check_read(self) -> None:
        """Raise NotSupportedError for a field that the template did not use."""
        for index, fields in enumerate(self.messages):
            parts = dict.get(fields, "content")
            unread = set(fields.unread)
            if isinstance(parts, ContentParts) and any(part.unread for part in parts):
                unread.add("content")
            if unread:
                names, role = ", ".join(sorted(unread)), dict.get(fields, "role")
                unsupported(f"the chat template does not use {names} of message {index} (role {role!r})")
        for tool in self.tools or ():
            if tool.unread:
                unsupported("the chat template does not use tools")

    def _message(self, index: int, message: ChatCompletionMessage) -> ReadFields:
        # What the model itself wrote stays as it is: templates look for its marks.
        broken = str if message.role == ChatRole.ASSISTANT else self._broken

        def read() -> None:
            self.last_read = index

        fields: dict[str, Any] = {"role": message.role, "content": message.content}
        if message.content_parts:
            shown = [self._texts.part((index, n), part, broken) for n, part in enumerate(message.content_parts)]
            parts = (ReadFields({"type": "text", "text": text}, {"text"}, read) for text in shown)
            fields["content"] = "".join(shown) if self._texts.joins_parts else ContentParts(parts)
        else:
            fields["content"] = broken(message.content or "")
        required = {"content"} if fields["content"] else set()
        if message.reasoning_content is not None:
            fields["reasoning_content"] = broken(message.reasoning_content)
        if message.tool_calls:
            fields["tool_calls"] = [
                {
                    "id": broken(call.id if call.model_native_id is None else call.model_native_id),
                    "type": "function",
                    "function": {
                        "name": broken(call.name),
                        "arguments": Arguments(map_texts(parse_object(call.arguments_json, "arguments_json"), broken)),
                    },
                }
                for call in message.tool_calls
            ]
            required.add("tool_calls")
        for name, value in (("tool_call_id", message.tool_call_id), ("name", message.tool_name)):
            if value is not None:
                fields[name] = broken(value)
                required.add(name)
        return ReadFields(fields, required, read)

    def _tool(self, tool: ChatCompletionTool) -> ReadFields:
        function: dict[str, Any] = {"name": tool.name}
        if tool.description is not None:
            function["description"] = tool.description
        function["parameters"] = parse_schema(tool.parameters_json, "parameters_json")
        fields = {"type": tool.type or "function", "function": map_texts(function, self._broken)}
        return ReadFields(fields, {"function"}, lambda: None)
