"""What a chat's turn gives back: the answer, the reasoning before it, and the tool calls on the way."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from enum import Enum
from typing import Any

from .results import TextGenerationResult


class ToolCallStatus(Enum):
    """What became of a tool call."""

    PENDING = "pending"
    """Not run: it awaits its approval, or the turn ended before."""
    DONE = "done"
    REFUSED = "refused"
    """`approve` said no."""
    INVALID = "invalid"
    """There is no such tool, or the arguments do not fit it."""
    FAILED = "failed"
    """The function raised an exception."""


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A call that the model made."""

    id: str
    name: str
    arguments: Mapping[str, Any]
    """As the model wrote them: the values of JSON, before they become those of the function."""
    status: ToolCallStatus = ToolCallStatus.PENDING
    result: str = ""
    """What the model was told."""
    value: Any = None
    """What the function returned."""
    error: Exception | None = None
    """What the function raised."""

    def __str__(self) -> str:
        """The call as Python would write it."""
        return f"{self.name}({', '.join(f'{name}={value!r}' for name, value in self.arguments.items())})"


@dataclass(frozen=True, slots=True)
class ChatReply(TextGenerationResult):
    """The whole of a turn.

    `text` is the answer alone: no reasoning, no tool calls, no marks around them. With tools a turn has several rounds,
    in each of which the model writes; `text` and everything else of `TextGenerationResult` is of the last one, and
    `finish_reason` is CANCELED for a turn that ended between two rounds.
    """

    reasoning: str = ""
    """What the model thought before this answer; `""` for a model that does not show it."""
    tool_calls: tuple[ToolCall, ...] = ()
    """The calls of all rounds."""
    raw_text: str = ""
    """All that the model wrote in the last round, reasoning, calls and their marks included."""
    rounds: tuple[TextGenerationResult, ...] = field(default=(), repr=False)
    """The generation of each round: raw text, token ids, timings."""

    @property
    def parsed(self) -> Any:
        """The value of a complete answer that had to keep to a form, None without one; see
        `TextGenerationResult.parsed`.
        """
        return self.parse(self.raw_text) if self.parse is not None and self.constraint_complete else None


def make_reply(rounds: tuple[TextGenerationResult, ...], **changes: Any) -> ChatReply:
    """Return the reply of a turn whose last round has given `rounds[-1]`; `changes` are fields of the reply."""
    last = rounds[-1]
    values = {item.name: getattr(last, item.name) for item in fields(last)}
    return ChatReply(**{**values, "raw_text": last.text, "rounds": rounds, **changes})
