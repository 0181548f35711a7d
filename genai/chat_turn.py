"""One turn of a chat: rounds in which the model writes, and between them the answers to its tool calls.

What the rounds have in common is here; streams drive them, `turn_stream.py` from any thread and `async_chat.py` in an
event loop.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from itertools import count
from typing import TYPE_CHECKING, Any, Protocol

from winml_lite import WinMLError

from .cancellation import CancellationLatch
from .chat_message import ChatMessage
from .chat_reply import ChatReply, ToolCall, ToolCallStatus, make_reply
from .codes import E_NOT_VALID_STATE, INVALID_DATA, TOO_MANY_CMDS
from .messages import (
    ChatCompletionEventType,
    ChatCompletionToolCall,
    ChatRole,
)
from .prompt import Prompt
from .reply_reader import ReplyReader
from .results import TextGenerationFinishReason, TextGenerationResult, TextGenerationUpdate
from .tool_calls import TurnSettings
from .turn_prompt import turn_prompt

if TYPE_CHECKING:
    from .conversation_result import ConversationFormatResult
    from .media_rows import MediaRows
    from .output_parser import ConversationOutputParser
    from .sequence import SequenceCore

_Type = ChatCompletionEventType
_Reason = TextGenerationFinishReason


class History(Protocol):
    """What a turn needs of its chat."""

    hidden: frozenset[str]
    """Fields of messages that the template does not show, as far as is known."""

    def past(self) -> list[ChatMessage]:
        """All messages before the turn, the system message included."""

    def remember(self, messages: Sequence[ChatMessage]) -> None:
        """Take the messages of the turn."""

    @property
    def rows(self) -> MediaRows:
        """What encodes pictures and sound for the model; NotSupportedError 0x80070032 where nothing does."""


class ChatTurn:
    """The state of a turn. One thread at a time drives it; a round may be ended by another one."""

    def __init__(
        self, history: History, message: ChatMessage, settings: TurnSettings, cancellation: CancellationLatch | None
    ) -> None:
        """`message` is the user's; `cancellation` is what also cancels each round."""
        self.settings = settings
        self._cancellation = cancellation
        self._history = history
        self._messages = [message]
        self._rounds: list[TextGenerationResult] = []
        self._answer = self._reasoning = ""
        self._calls: list[ToolCall] = []
        self._pending: list[ToolCall] = []
        self._tool_rounds = 0
        self._error: WinMLError | None = None
        self._is_over = False
        self._formatted: ConversationFormatResult | None = None
        self._parser: ConversationOutputParser | None = None
        self._needs_break = self._has_text = False

    # --- a round ------------------------------------------------------------------------------------------------------

    def make_prompt(self, core: SequenceCore, stop: CancellationLatch) -> Prompt:
        """Begin a round; `stop` ends what takes long in it."""
        messages = [*self._history.past(), *self._messages]
        prompt, formatted = turn_prompt(core, messages, self.settings, self._history, stop)
        self._formatted = formatted
        self._parser = formatted.create_output_parser()
        self._needs_break = self._has_text
        return prompt

    def push(self, piece: str) -> str:
        """Take a piece of what the model writes; return what of the answer is certain now."""
        assert self._parser is not None
        self._parser.append(piece)
        return self._said(self._parser)

    def flush(self) -> str:
        """Return what was held back until the end of the round."""
        assert self._parser is not None
        self._parser.flush()
        return self._said(self._parser)

    def _said(self, parser: ConversationOutputParser) -> str:
        text = ""
        while (event := parser.read_event()) is not None:
            if event.type is _Type.CONTENT_DELTA:
                text += event.text or ""
            elif event.type is _Type.REASONING_DELTA and self.settings.on_reasoning is not None:
                self.settings.on_reasoning(event.text or "")
        if text and self._needs_break:
            text = "\n" + text
            self._needs_break = False
        self._has_text = self._has_text or bool(text)
        return text

    def end_round(self, result: TextGenerationResult) -> None:
        """Take the result of the round. It comes once, from whichever thread ends the round."""
        assert self._formatted is not None
        # Read anew: an interrupt may have cut the reading of the pieces short.
        reader = ReplyReader(self._formatted.create_output_parser())
        reader.push(TextGenerationUpdate(None, result.text))
        reader.finish()
        has_ended = result.finish_reason in (_Reason.CANCELED, _Reason.ERROR)
        is_whole = result.finish_reason is _Reason.EOS_TOKEN
        calls = [] if has_ended else list(self._calls_of(reader, is_whole))
        self._answer, self._reasoning = reader.content, reader.reasoning_content
        self._rounds.append(result)
        if not calls or self._error is not None:
            self._finish(result.finish_reason)
        elif self._tool_rounds == self.settings.max_tool_rounds:
            self._pending = [call for call, _ in calls]
            limit = f"the model wanted to call tools more than {self._tool_rounds} times in one turn"
            self._refuse(TOO_MANY_CMDS, f"{limit} (last {', '.join(map(str, self._pending))}); see max_tool_rounds")
        else:
            self._tool_rounds += 1
            self._pending = [call for call, _ in calls]
            self._add_answer([record for _, record in calls])

    def _calls_of(self, reader: ReplyReader, is_whole: bool) -> Iterator[tuple[ToolCall, ChatCompletionToolCall]]:
        """The calls of a round, also those whose arguments are malformed, and how the history holds them. A last one
        without an end counts if it is the model that ended there.
        """
        whole = iter(reader.tool_calls)
        new_ids = self._new_ids()
        begun: tuple[str, str] | None = None
        while (event := reader.read_event()) is not None:
            if event.type is _Type.TOOL_CALL_START:
                call_id = event.call_id or ""
                if call_id == f"call_{event.tool_call_index}":  # the model has given none
                    call_id = next(new_ids)
                begun = (call_id, event.tool_name or "")
            elif event.type is _Type.TOOL_CALL_END and begun is not None:
                yield _read_call(*begun, next(whole).arguments_json)
                begun = None
            elif event.type is _Type.ERROR and begun is not None:
                yield _malformed(*begun, event.error_message or "")
                begun = None
            elif event.type is _Type.ERROR:
                self._refuse(INVALID_DATA, f"the model wrote a {event.error_message}")
        if begun is not None and is_whole:
            yield _malformed(*begun, "the call has no end")

    def _new_ids(self) -> Iterator[str]:
        """Ids that no call of the chat has; nine letters and digits, as the strictest templates want them."""
        messages = [*self._history.past(), *self._messages]
        taken = {call.id for message in messages for call in message.tool_calls}
        return (new for number in count(1) if (new := f"call{number:05d}") not in taken)

    def _add_answer(self, calls: list[ChatCompletionToolCall]) -> None:
        reasoning = self._reasoning or None
        message = ChatMessage(ChatRole.ASSISTANT, self._answer, reasoning_content=reasoning, tool_calls=calls)
        self._messages.append(message)

    def _finish(self, reason: TextGenerationFinishReason) -> None:
        self._is_over = True
        was_cut = reason is _Reason.CANCELED and not self._answer
        if reason is not _Reason.ERROR and not was_cut and self._error is None:
            self._add_answer([])
            self._history.remember(self._messages)

    def _refuse(self, code: int, problem: str) -> None:
        self.fail(WinMLError(code, "chat", problem))

    def fail(self, error: WinMLError) -> None:
        """End the turn with an error; the history stays as it was."""
        self._error = self._error or error
        self._is_over = True

    # --- between two rounds -------------------------------------------------------------------------------------------

    @property
    def is_over(self) -> bool:
        """Whether no further round follows."""
        return self._is_over

    @property
    def is_cancelled(self) -> bool:
        """Whether the program's own source was cancelled."""
        return self._cancellation is not None and self._cancellation.is_canceled

    @property
    def pending(self) -> tuple[ToolCall, ...]:
        """The calls that are still to be answered."""
        return tuple(self._pending)

    def answered(self, call: ToolCall) -> None:
        """Take the first pending call with its result."""
        del self._pending[0]
        self._calls.append(call)
        self._messages.append(ChatMessage(ChatRole.TOOL, call.result, tool_call_id=call.id, tool_name=call.name))
        if self.settings.on_call is not None:
            self.settings.on_call(call)
        if not self._pending:
            self.settings = self.settings.after_calls()

    # --- the end ------------------------------------------------------------------------------------------------------

    @property
    def reply(self) -> ChatReply:
        """The turn so far as a whole; 0x8007139F before its first round has ended."""
        if not self._rounds:
            raise WinMLError(
                E_NOT_VALID_STATE, "ChatStream.result", "the stream is not at its end: read it or close it"
            )
        changes: dict[str, Any] = {}
        if self._error is not None:
            message = self._error.native_message or self._error.context
            changes = {"error_code": self._error.hresult, "error_message": message, "finish_reason": _Reason.ERROR}
        elif not self._is_over:
            changes = {"finish_reason": _Reason.CANCELED}
        return make_reply(
            tuple(self._rounds),
            text=self._answer,
            reasoning=self._reasoning,
            tool_calls=(*self._calls, *self._pending),
            **changes,
        )


def _read_call(call_id: str, name: str, arguments: str) -> tuple[ToolCall, ChatCompletionToolCall]:
    try:
        values = json.loads(arguments)
    except ValueError as error:
        return _malformed(call_id, name, str(error))
    if not isinstance(values, Mapping):
        return _malformed(call_id, name, "the arguments must be an object")
    return ToolCall(call_id, name, values), ChatCompletionToolCall(call_id, name, arguments)


def _malformed(call_id: str, name: str, problem: str) -> tuple[ToolCall, ChatCompletionToolCall]:
    call = ToolCall(call_id, name, {}, ToolCallStatus.INVALID, f"Error: {problem}")
    return call, ChatCompletionToolCall(call_id, name, "{}")
