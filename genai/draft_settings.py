"""What a configuration says about speculative decoding (genai §7): a record only."""

from __future__ import annotations

from dataclasses import dataclass

from .speculative_statistics import TextGenerationSpeculativeMethod

DEFAULT_DRAFT_TOKENS = 3
"""Most tokens of a draft where a configuration leaves it open."""


@dataclass(frozen=True, slots=True)
class DraftSettings:
    """The method, and the most tokens of a draft."""

    method: TextGenerationSpeculativeMethod
    token_count: int = DEFAULT_DRAFT_TOKENS


NO_DRAFTS = DraftSettings(TextGenerationSpeculativeMethod.NONE)
