"""A conversation on the short road: it keeps its history and formats each turn with the model's own template."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Unpack

from .messages import ChatCompletionMessage, ChatCompletionRequest, ChatRole
from .results import TextGenerationFinishReason, TextGenerationResult

if TYPE_CHECKING:
    from .async_stream import AsyncTextStream
    from .language_model import CallFields, LanguageModel
    from .sequence import SequenceCore
    from .text_stream import TextStream


class Chat:
    """A conversation with a model. Make it with `LanguageModel.chat`.

    Each turn sends the whole history; what the model has already evaluated of it is not evaluated again. An answer that
    was cut short keeps its text in the history; a failed turn, or a cancelled one without text, leaves the history as
    it was.
    """

    def __init__(self, model: LanguageModel, system: str | None, messages: Iterable[tuple[str, str]]) -> None:
        self._model = model
        self.system = system
        """The system message of the following turns; None for none."""
        self._messages: list[tuple[str, str]] = []
        self.messages = tuple(messages)

    @property
    def messages(self) -> tuple[tuple[str, str], ...]:
        """The history as (role, content) pairs, without the system message. Assign to replace it."""
        return tuple(self._messages)

    @messages.setter
    def messages(self, messages: Iterable[tuple[str, str]]) -> None:
        pairs = []
        for role, content in messages:
            if not isinstance(role, str) or not isinstance(content, str):
                raise TypeError("messages must be pairs of str: (role, content)")
            pairs.append((role, content))
        self._messages = pairs

    def stream(self, text: str, **fields: Unpack[CallFields]) -> TextStream:
        """Send `text` as the user's turn and yield the answer piece by piece; takes what `LanguageModel.stream` takes.

        The turn enters the history when the stream ends or is closed.
        """
        if not isinstance(text, str):
            raise TypeError(f"text must be a str, not {type(text).__name__}")

        def make_prompt(core: SequenceCore) -> tuple[list[int], tuple[str, ...]]:
            formatted = core.tokenizer.format_conversation(self._request(text))
            return list(formatted.token_ids), formatted.additional_stops

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
