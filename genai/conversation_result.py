"""What formatting a conversation gives back, and the small records in it (genai §2.6, 3.2, 3.6 to 3.8)."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum, IntFlag
from typing import TYPE_CHECKING

from .closing import Closing
from .messages import ChatCompletionContinuation
from .output_parser import ConversationOutputParser
from .output_syntax import OutputSyntax

if TYPE_CHECKING:
    from .tokenizer import Tokenizer


class ConversationParserCapabilities(IntFlag):
    """What an output parser can tell apart."""

    NONE = 0
    CONTENT = 1
    REASONING = 2
    TOOL_CALLS = 4
    PARALLEL_TOOL_CALLS = 8


class ConversationConstraintTriggerType(IntEnum):
    """What switches a lazy constraint on."""

    TOKEN = 0
    TEXT = 1
    PATTERN = 2
    FULL_PATTERN = 3


@dataclass(frozen=True, slots=True)
class ConstraintVocabularyIdentity:
    """Size and digest of a vocabulary.

    `sha256` (32 bytes) is taken over every token in order of ids: the length of its bytes as 4 bytes little-endian, the
    bytes, then 1 for a special token and 0 for any other.
    """

    token_count: int
    sha256: bytes


@dataclass(frozen=True, slots=True)
class ConversationImplementationIdentity:
    """Which formatter made a result; the version grows when its output changes."""

    identity: str
    version: int


@dataclass(frozen=True, slots=True)
class ConversationGenerationPromptMetadata:
    """Whether the assistant's turn was opened, and which part of it the model goes on with."""

    added: bool
    continuation: ChatCompletionContinuation


@dataclass(frozen=True, slots=True)
class ConversationConstraint:
    """A grammar for the answer; a lazy one waits for a trigger."""

    syntax: str
    syntax_version: int
    lazy: bool
    value: str


@dataclass(frozen=True, slots=True)
class ConversationConstraintTrigger:
    """A token, text or pattern that switches a lazy constraint on."""

    type: ConversationConstraintTriggerType
    token_id: int | None
    value: str


@dataclass(frozen=True, slots=True)
class ConversationPreservedToken:
    """A text that must stay whole and visible in the output; `token_id` is None when it is not one token."""

    token_id: int | None
    text: str


@dataclass(frozen=True, slots=True)
class ConversationFormatResult(Closing):
    """A formatted conversation. It owns its data and outlives the tokenizer wrapper.

    A value: `close()` does nothing, and everything stays readable.
    """

    token_ids: tuple[int, ...]
    implementation_identity: ConversationImplementationIdentity
    generation_prompt: str
    """The text that opens the assistant's turn, with the text to continue; `""` if there is none."""
    generation_prompt_metadata: ConversationGenerationPromptMetadata
    additional_stops: tuple[str, ...]
    """Texts that end the turn beside the EOS tokens."""
    parser_capabilities: ConversationParserCapabilities
    constraint: ConversationConstraint | None
    constraint_triggers: tuple[ConversationConstraintTrigger, ...]
    preserved_tokens: tuple[ConversationPreservedToken, ...]
    tokenizer: Tokenizer
    text: str
    """The prompt as text, before it was tokenized."""
    output_syntax: OutputSyntax
    """How the answer will be marked."""
    token_runs: tuple[tuple[int, ...], ...] = ()
    """The tokens before, between and after media: one run more than there are media."""
    media_places: tuple[tuple[int, int], ...] = ()
    """Message and content part of each media, in the order of the prompt."""

    def create_output_parser(self) -> ConversationOutputParser:
        """Return a parser for one answer to this conversation."""
        return ConversationOutputParser(self.output_syntax)

    def close(self) -> None:
        """Do nothing: a result is a value."""

    def _check_open(self) -> None:
        """A result is always open."""
