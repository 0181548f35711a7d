"""Steps over several positions in a llama.cpp stage (runtime §10): the logits of every token of a batch."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from ...errors import E_INVALIDARG, WinMLError
from ...values import ExecutionTargetKind, SpeculativeCapabilities, SpeculativeResidency, SpeculativeRollbackBound
from .predictor import PredictingContext

if TYPE_CHECKING:
    from .executor import LlamaExecutor
    from .sequence import LlamaSequence

_STEP = "IWinMLStage.StepAllPositions"
_PROPOSE = "IWinMLStage.ProposeDraftTokens"
MAX_DRAFT = 16
"""Most tokens that are drafted at a time, whatever the hint (runtime §9.1)."""


class LlamaSpeculation:
    """Implements `Speculation`: a view of an executor and its sequence."""

    __slots__ = ("_draft_limit", "_executor", "_sequence")

    def __init__(self, executor: LlamaExecutor, sequence: LlamaSequence, draft_limit: int) -> None:
        self._executor = executor
        self._sequence = sequence
        self._draft_limit = draft_limit

    @property
    def capabilities(self) -> SpeculativeCapabilities:
        on_cpu = self._executor.target_kind is ExecutionTargetKind.CPU
        context, model = self._sequence.context, self._sequence.model
        width = context.batch_size
        bounds = SpeculativeRollbackBound
        bound = bounds.BOUNDED if context.snapshots else bounds.UNSUPPORTED
        return SpeculativeCapabilities(
            max_proposed_step_width=width,
            max_logit_rows_per_step=width,
            rollback_bound=bound if model.keeps_recurrent_state else bounds.UNBOUNDED,
            max_rollback_depth=context.snapshots,
            residency=SpeculativeResidency.HOST if on_cpu else SpeculativeResidency.DEVICE_WITH_HOST_READBACK,
            max_draft_tokens=min(self._draft_limit, MAX_DRAFT) if model.predicts else 0,
        )

    def step(self, tokens: npt.NDArray[np.int32]) -> npt.NDArray[np.float32]:
        sequence = self._sequence
        width = sequence.context.batch_size
        if tokens.size > width:
            raise WinMLError(E_INVALIDARG, _STEP, f"a step takes at most {width} tokens, not {tokens.size}")
        rows = np.empty((tokens.size, sequence.model.vocabulary_size), np.float32)
        self._executor.keep_row()
        try:
            sequence.evaluate_all(tokens, rows.ctypes.data)
            sequence.commit()
        except BaseException:
            sequence.discard()
            raise
        return rows

    def propose(self, pending: int, maximum: int) -> list[int]:
        sequence = self._sequence
        context = sequence.context
        if not isinstance(context, PredictingContext):
            return []
        if pending >= sequence.model.vocabulary_size:
            raise WinMLError(E_INVALIDARG, _PROPOSE, f"there is no token {pending}")
        sequence.take_back()  # of a run that was interrupted
        room = sequence.room - 1  # a step also feeds the pending token
        return context.propose(pending, min(maximum, room)) if room > 0 else []
