"""Speculative decoding of one sequence core (genai §7): where drafts come from, and what a stage can verify.

Not here: the drafts themselves (`prompt_lookup.py`, `draft_models.py`), how long they are (`draft_pace.py`), and
running the model on them (`speculative_evaluation.py`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np
import numpy.typing as npt

from winml_lite import NotSupportedError, Pipeline, SpeculativeRollbackBound, Stage

from .codes import NOT_SUPPORTED
from .speculative_statistics import TextGenerationSpeculativeMethod
from .step_costs import WIDEST, StepCosts

MOST_DRAFTED = WIDEST - 1
"""Most tokens of one draft."""
_WHAT = "speculative decoding"


class DraftSource(Protocol):
    """What guesses the tokens that follow a sequence.

    `begin` comes first in each operation; after it the sequence only grows until the next `begin`. What fails raises
    WinMLError.
    """

    @property
    def pipelines(self) -> tuple[Pipeline, ...]:
        """Pipelines of its own, which have no other user."""

    def begin(self, sequence: Sequence[int]) -> None:
        """Get ready to draft behind `sequence`."""

    def outlook(self, sequence: Sequence[int], most: int) -> Sequence[float]:
        """Return, for each of up to `most` tokens that could be drafted, the chance that it is right if those before
        it are; () when there is nothing to draft.
        """

    def propose(self, sequence: Sequence[int], count: int) -> list[int]:
        """Return up to `count` tokens to follow; asked right after `outlook`."""

    def observe(self, drafted: int, accepted: int) -> None:
        """Learn what came of a draft."""

    def abort(self) -> None:
        """Have the present call end early, from another thread; it then fails with 0x800704C7."""

    def close(self) -> None:
        """Give up what the source holds."""


class Speculation:
    """How a core speculates: by `method`, with drafts of at most `limit` tokens from `source`."""

    def __init__(
        self, method: TextGenerationSpeculativeMethod, limit: int, source: DraftSource, costs: StepCosts | None = None
    ) -> None:
        self.method = method
        self.limit = limit
        self.source = source
        self.costs = costs or StepCosts()


class RowSteps(Protocol):
    """What binds all that a step over several positions reads beside the tokens."""

    def bind_positions(self, position: int, count: int) -> None:
        """Bind it for `count` tokens after `position` earlier ones."""


def step_rows(stage: Stage, feed: RowSteps, ids: Sequence[int], position: int) -> npt.NDArray[np.float32]:
    """Evaluate `ids` after `position` earlier tokens; return the logits after each, float32 (tokens, vocabulary)."""
    feed.bind_positions(position, len(ids))
    return np.asarray(stage.step_all_positions(ids))


def draft_limit(stage: Stage, wanted: int) -> int:
    """Return how many of `wanted` drafted tokens a stage can verify and take back.

    NotSupportedError 0x80070032 for one that cannot: it has no steps, gives the logits of the last token only, or
    cannot go back.
    """
    capabilities = stage.speculative_capabilities
    if not capabilities.can_verify:
        raise NotSupportedError(
            NOT_SUPPORTED,
            _WHAT,
            "the model gives the logits of the last token only, so no draft can be verified; "
            "a model that this package has converted before must be converted again",
        )
    limit = min(
        wanted,
        MOST_DRAFTED,
        capabilities.max_proposed_step_width - 1,
        capabilities.max_logit_rows_per_step - 1,
    )
    bound = capabilities.rollback_bound
    if bound is SpeculativeRollbackBound.BOUNDED:
        limit = min(limit, capabilities.max_rollback_depth)
    elif bound is not SpeculativeRollbackBound.UNBOUNDED:
        limit = 0
    if limit < 1:
        raise NotSupportedError(
            NOT_SUPPORTED,
            _WHAT,
            "the state of the model cannot be taken back; a recurrent one needs draft_token_limit_hint before build",
        )
    return limit
