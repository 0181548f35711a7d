"""What a chat turn gives back: events, the result, what was reused of the prompt (genai §9.2 to 9.4)."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING

from winml_lite import Tensor, WinMLError

from .checks import index_value, instance_of
from .closing import Closing
from .messages import ChatCompletionEventType, ChatCompletionFinishReason, ChatCompletionToolCall

if TYPE_CHECKING:
    from .results import TextGenerationResult


@dataclass(frozen=True, slots=True)
class ChatMediaBinding:
    """The media of one content part: `tensor` is what the encoder takes, the part has the type "image" and no text.

    Both indices count from 0.
    """

    message_index: int
    content_part_index: int
    tensor: Tensor

    def __post_init__(self) -> None:
        for name in ("message_index", "content_part_index"):
            object.__setattr__(self, name, index_value(getattr(self, name), name))
        instance_of(self.tensor, Tensor, "tensor")


@dataclass(frozen=True, slots=True)
class ChatCompletionEvent:
    """One event of an answer; a field that does not belong to the type is None.

    `text` is set for content, reasoning and argument deltas; `tool_call_index`, `call_id` and `tool_name` for the three
    events of a tool call; `error_code` and `error_message` for ERROR. `source_token_ids` are the emitted tokens that
    the event came from, `first_token_index` is the place of the first among all emitted ones. A token belongs to one
    event, the first that shows a part of it.
    """

    type: ChatCompletionEventType
    text: str | None = None
    tool_call_index: int | None = None
    call_id: str | None = None
    tool_name: str | None = None
    error_code: int | None = None
    error_message: str | None = None
    first_token_index: int = 0
    source_token_ids: tuple[int, ...] = ()

    @property
    def source_token_count(self) -> int:
        """How many tokens the event came from; 0 for COMPLETED, and for what shares its tokens with an event before."""
        return len(self.source_token_ids)

    def raise_for_error(self) -> None:
        """Raise WinMLError when the event is an ERROR."""
        if self.error_code is not None:
            raise WinMLError(self.error_code, "chat completion", self.error_message)


class ChatCompletionPromptCacheMode(IntEnum):
    """What became of the prompt."""

    FULL_PREFILL = 0
    REUSED_PREFIX = 1
    NOT_EVALUATED = 2
    UNKNOWN = 3


@dataclass(frozen=True, slots=True)
class ChatCompletionPromptCacheUse:
    """How much of a prompt the model knew from before.

    The two counts add up to the prompt. Both are 0 when the model never ran (NOT_EVALUATED), and for prompts with media
    (UNKNOWN).
    """

    mode: ChatCompletionPromptCacheMode
    prompt_token_count: int
    cached_prompt_token_count: int
    prefilled_prompt_token_count: int


@dataclass(frozen=True, slots=True)
class ChatCompletionResult(Closing):
    """The whole of a finished turn. A value: `close()` does nothing, and everything stays readable.

    `content`, `reasoning_content` and `tool_calls` are what the events said, without marks and stop texts; a call that
    was cut off is not among the calls. `completion_token_count` counts every emitted token, those of marks and stop
    texts too. `error_code` is 0 unless `finish_reason` is ERROR.
    """

    content: str
    reasoning_content: str
    tool_calls: tuple[ChatCompletionToolCall, ...]
    prompt_token_count: int
    completion_token_count: int
    finish_reason: ChatCompletionFinishReason
    error_code: int
    prompt_cache_use: ChatCompletionPromptCacheUse
    text_generation_result: TextGenerationResult
    """The generation behind the turn: its raw text, seed and timings. A turn that an additional stop ended is CANCELED
    there.
    """

    @property
    def text_generation_result_interface(self) -> object:
        """The generation behind the turn; opaque, only good for comparing."""
        return self.text_generation_result

    @property
    def error_message(self) -> str | None:
        """What failed, None without an error."""
        return self.text_generation_result.error_message

    def raise_for_error(self) -> None:
        """Raise WinMLError when the turn ended with ERROR."""
        if self.error_code & 0x80000000:
            raise WinMLError(self.error_code, "chat completion", self.error_message)

    def close(self) -> None:
        """Do nothing: a result is a value."""

    def _check_open(self) -> None:
        """A result is always open."""
