"""What speculative decoding reports (genai §7): the method, and what drafting came to."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum


class TextGenerationSpeculativeMethod(IntEnum):
    """Where drafted tokens come from."""

    NONE = 0
    MODEL = 1
    """The predictor that is part of the model."""
    DRAFT_MODEL = 2
    """A second, smaller model in a pipeline of its own."""
    PROMPT_LOOKUP = 3
    """What followed earlier in prompt and output."""


@dataclass(frozen=True, slots=True)
class TextGenerationSpeculativeStatistics:
    """What drafting came to in one generation."""

    method: TextGenerationSpeculativeMethod
    """NONE where a generation of a speculating session could not be one: after a prompt with media."""
    verification_step_count: int
    """Runs of the model over a draft."""
    draft_token_count: int
    """Tokens that were drafted."""
    accepted_draft_token_count: int
    """Drafted tokens that were the chosen ones."""
    failure: str | None = field(default=None, kw_only=True)
    """Why drafting ended before the generation did; the rest was generated token by token."""

    @property
    def acceptance_rate(self) -> float:
        """Accepted tokens of the drafted ones; 0.0 when nothing was drafted."""
        return self.accepted_draft_token_count / self.draft_token_count if self.draft_token_count else 0.0


NOTHING_DRAFTED = TextGenerationSpeculativeStatistics(TextGenerationSpeculativeMethod.NONE, 0, 0, 0)
