"""What an output parser reports (genai §3.8)."""

from __future__ import annotations

from dataclasses import dataclass

from winml_lite import WinMLError

from .messages import ChatCompletionEventType


@dataclass(frozen=True, slots=True)
class ConversationOutputEvent:
    """One event of the model's output; a field that does not belong to the type is None.

    `text` is set for content, reasoning and argument deltas; `tool_call_index`, `call_id` and `tool_name` for the three
    events of a tool call; `error_code` and `error_message` for ERROR.
    """

    type: ChatCompletionEventType
    text: str | None = None
    tool_call_index: int | None = None
    call_id: str | None = None
    tool_name: str | None = None
    error_code: int | None = None
    error_message: str | None = None

    def raise_for_error(self) -> None:
        """Raise WinMLError when the event is an ERROR."""
        if self.error_code is not None:
            raise WinMLError(self.error_code, "conversation output", self.error_message)
