"""The prompt of one round of a chat: its messages formatted, with pictures and sound in their places.

Not here: rounds and turns (`chat_turn.py`), formatting itself (`conversation.py`), encoding (`media_rows.py`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations
from typing import TYPE_CHECKING, Any

from winml_lite import NotSupportedError, WinMLError

from .cancellation import CancellationLatch
from .chat_media import format_with_images
from .chat_message import ChatMessage
from .chat_parts import ChatMedia
from .codes import MODULE_NOT_FOUND
from .media_marks import Place
from .messages import ChatCompletionRequest, ChatCompletionToolChoice
from .prompt import Prompt
from .tool_calls import TurnSettings

if TYPE_CHECKING:
    from .chat_turn import History
    from .conversation_result import ConversationFormatResult
    from .sequence import SequenceCore

_OPTIONAL_FIELDS = ("tool_name", "reasoning_content", "tool_call_id")
"""What a message has and a template need not show, for calls and results stand in order; the rarest shown first."""


def turn_prompt(
    core: SequenceCore,
    messages: Sequence[ChatMessage],
    settings: TurnSettings,
    history: History,
    stop: CancellationLatch,
) -> tuple[Prompt, ConversationFormatResult]:
    """Return the prompt that shows `messages`. Pictures and sound that are new are encoded here, unless `stop` comes
    first: then they are missing in the prompt, and the generation ends before it needs them.
    """
    media = _media(messages)
    rows = history.rows if media else None
    formatted = _formatted(core, messages, settings, history)
    constraint = _constraint(core, formatted, settings.tool_choice)
    segments = None if rows is None else rows.segments(formatted, media, stop)
    return Prompt(list(formatted.token_ids), formatted.additional_stops, formatted, constraint, segments), formatted


def _media(messages: Sequence[ChatMessage]) -> dict[Place, ChatMedia]:
    """The pictures and sounds of messages."""
    return {
        (index, place): part
        for index, message in enumerate(messages)
        for place, part in enumerate(message.parts)
        if isinstance(part, ChatMedia)
    }


def _formatted(
    core: SequenceCore, messages: Sequence[ChatMessage], settings: TurnSettings, history: History
) -> ConversationFormatResult:
    """Format with as much of the messages as the template shows; what it does not show is tried once in a chat."""
    used = [name for name in _OPTIONAL_FIELDS if any(getattr(message, name) for message in messages)]
    ways = [frozenset(hidden) for count in range(len(used) + 1) for hidden in combinations(used, count)]
    ways.sort(key=lambda hidden: hidden != history.hidden)
    error: WinMLError | None = None
    for hidden in ways:
        nothing: dict[str, Any] = dict.fromkeys(hidden)
        request = ChatCompletionRequest(
            messages=tuple(replace(message.record(), **nothing) for message in messages),
            tools=settings.declarations,
            tool_choice=settings.tool_choice,
            named_tool_choice=settings.named_tool,
            enable_thinking=settings.enable_thinking,
        )
        try:
            formatted = format_with_images(core.tokenizer, request)
        except WinMLError as refusal:
            if not hidden and not isinstance(refusal, NotSupportedError):
                raise
            error = refusal
            continue
        history.hidden = hidden or history.hidden
        return formatted
    assert error is not None
    raise error


def _constraint(core: SequenceCore, formatted: ConversationFormatResult, choice: ChatCompletionToolChoice) -> Any:
    """Return the grammar of tool calls. Where the model is free to call it only makes sure of the form: the calls are
    read without it, too, so llguidance need not be installed.
    """
    if formatted.constraint is None:
        return None
    from .constraint import conversation_constraint  # chats without tools need no grammars

    try:
        return conversation_constraint(core.tokenizer.underlying_object, formatted)
    except NotSupportedError as error:
        if error.hresult != MODULE_NOT_FOUND or choice is not ChatCompletionToolChoice.AUTO:
            raise
        return None
