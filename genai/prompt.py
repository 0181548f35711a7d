"""What a call of the short road begins with: a prompt, and who makes it once the model is free."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from .cancellation import CancellationLatch

if TYPE_CHECKING:
    from .constraint_state import ConstraintCore
    from .conversation_result import ConversationFormatResult
    from .segments import TextGenerationSegment
    from .sequence import SequenceCore


@dataclass(frozen=True, slots=True)
class Prompt:
    """Where a generation starts."""

    token_ids: list[int]
    stops: tuple[str, ...] = ()
    """Texts that end the answer beside those of the options."""
    formatted: ConversationFormatResult | None = None
    """The conversation behind it, if there is one."""
    constraint: ConstraintCore | None = None
    """What it asks of the answer, if nothing else does."""
    segments: Sequence[TextGenerationSegment] | None = None
    """The tokens with the rows of pictures and sound between them."""


MakePrompt = Callable[["SequenceCore", CancellationLatch], Prompt]
"""Makes a prompt, in what time it needs; the latch stops it."""
