"""A conversation on the short road: it keeps its history and formats each turn with the model's own template."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, TypeAlias, Unpack

from .language_model import Prompt
from .messages import ChatCompletionMessage, ChatCompletionRequest, ChatRole
from .results import TextGenerationFinishReason, TextGenerationResult

if TYPE_CHECKING:
    from .async_stream import AsyncTextStream
    from .language_model import CallFields, LanguageModel
    from .sequence import SequenceCore
    from .text_stream import TextStream

Message: TypeAlias = tuple[str, str] | Mapping[str, str]
"""A pair `(role, content)`, or a mapping with exactly these two keys."""


class Chat:
    """A conversation with a model. Make it with `LanguageModel.chat`.

    Each turn sends the whole history; what the model has already evaluated of it is not evaluated again. An answer that
    was cut short keeps its text in the history; a failed turn, or a cancelled one without text, leaves the history as
    it was.
    """

    def __init__(self, model: LanguageModel, system: str | None, messages: Iterable[Message]) -> None:
        if system is not None and not isinstance(system, str):
            raise TypeError(f"system must be a str or None, not {type(system).__name__}")
        self._model = model
        self.system = system
        """The system message of the following turns; None for none."""
        self._messages: list[tuple[str, str]] = []
        pairs = [_pair(message) for message in messages]
        if system is not None and _has_system(pairs):
            raise ValueError("give the system message as system= or as the first of messages, not both")
        self.messages = tuple(pairs)

    @property
    def messages(self) -> tuple[tuple[str, str], ...]:
        """The history as (role, content) pairs, without the system message.

        Assign to replace it: pairs, or mappings with "role" and "content". A system message at the front becomes
        `system`; without one `system` stays as it is.
        """
        return tuple(self._messages)

    @messages.setter
    def messages(self, messages: Iterable[Message]) -> None:
        pairs = [_pair(message) for message in messages]
        if _has_system(pairs):
            self.system = pairs.pop(0)[1]
        self._messages = pairs

    def __repr__(self) -> str:
        return f"<Chat with {self._model.name!r}, {len(self._messages)} messages, system {self.system!r}>"

    def stream(self, text: str, **fields: Unpack[CallFields]) -> TextStream:
        """Send `text` as the user's turn and yield the answer piece by piece; takes what `LanguageModel.stream` takes.

        The turn enters the history when the stream ends or is closed.
        """
        if not isinstance(text, str):
            raise TypeError(f"text must be a str, not {type(text).__name__}")

        def make_prompt(core: SequenceCore) -> Prompt:
            formatted = core.tokenizer.format_conversation(self._request(text))
            return Prompt(list(formatted.token_ids), formatted.additional_stops, formatted)

        def remember(result: TextGenerationResult) -> None:
            reason = result.finish_reason
            was_cut = reason is TextGenerationFinishReason.CANCELED and not result.text
            if reason is not TextGenerationFinishReason.ERROR and not was_cut:
                self._messages += [(ChatRole.USER, text), (ChatRole.ASSISTANT, result.text)]

        return self._model._start(make_prompt, fields, remember)

    def send(self, text: str, **fields: Unpack[CallFields]) -> TextGenerationResult:
        """Send `text` as the user's turn and return the whole answer; takes what `LanguageModel.stream` takes."""
        return self.stream(text, **fields).read()

    def astream(self, text: str, **fields: Unpack[CallFields]) -> AsyncTextStream:
        """Stream for asyncio: `async for piece in chat.astream(...)`; takes what `LanguageModel.stream` takes."""
        from .async_stream import AsyncTextStream  # brings asyncio

        return AsyncTextStream(lambda: self.stream(text, **fields))

    def reset(self) -> None:
        """Forget the history; the system message stays."""
        self._messages = []

    def _request(self, text: str) -> ChatCompletionRequest:
        system = [(ChatRole.SYSTEM, self.system)] if self.system is not None else []
        turns = [*system, *self._messages, (ChatRole.USER, text)]
        return ChatCompletionRequest(messages=tuple(ChatCompletionMessage(role, content) for role, content in turns))


def _pair(message: Any) -> tuple[str, str]:
    """Return a message as (role, content); text of two characters, or two keys, are no pair."""
    role = content = None
    if isinstance(message, Mapping):
        if set(message) != {"role", "content"}:
            raise TypeError(f"a message has the keys 'role' and 'content', not {', '.join(map(repr, message))}")
        role, content = message["role"], message["content"]
    elif isinstance(message, tuple | list) and len(message) == 2:
        role, content = message
    if not isinstance(role, str) or not isinstance(content, str):
        raise TypeError(f"a message is a pair (role, content) of str, or a mapping with these keys, not {message!r}")
    return role, content


def _has_system(pairs: list[tuple[str, str]]) -> bool:
    return bool(pairs) and pairs[0][0] == ChatRole.SYSTEM
