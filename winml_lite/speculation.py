"""The members of a stage for speculative decoding (runtime §10): steps that give the logits of every position, keeping
a part of a step, and drafts of a model's own predictor.

A step is made by the executor (`native/backend.py`, `Speculation`). What is kept of it is decided here, by a rewind of
the sequence. Not here: choosing tokens from logits.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from .checks import INT32_MAX, flag_value, index_value, path_value
from .errors import E_INVALIDARG, E_NOT_VALID_STATE, LOCKED, NOT_SUPPORTED, NotSupportedError, WinMLError
from .handles import Closeable
from .native.backend import Sequence, Speculation
from .stage_core import PendingStep, StageCore
from .storage import Storage
from .values import SpeculativeCapabilities

_STEP = "IWinMLStage.StepAllPositions"
_COMMIT = "IWinMLStage.CommitAcceptedPrefix"
_PROPOSE = "IWinMLStage.ProposeDraftTokens"


@dataclass(frozen=True, slots=True)
class _Speculative:
    """The two sides of a built stage that steps over several positions."""

    core: StageCore
    sequence: Sequence
    speculation: Speculation


class SpeculationMembers(Closeable[StageCore]):
    """Options and operations for decoding several tokens at once.

    The loop: draft tokens, by `propose_draft_tokens` or by any means; `step_all_positions([pending, *draft])`; choose a
    token from each row for as long as it is the drafted one; `commit_accepted_prefix(1 + accepted)`.
    """

    __slots__ = ()

    @property
    def draft_token_limit_hint(self) -> int:
        """Most tokens that will be drafted at a time; 0 (default): the stage is not used speculatively.

        llama.cpp prepares for at most 16: state that cannot be cut at any position is then kept for so many.
        """
        return self._core.options.draft_token_limit

    @draft_token_limit_hint.setter
    def draft_token_limit_hint(self, value: int) -> None:
        core = self._core
        limit = index_value(value, "draft_token_limit_hint")
        core.check_open_for_options("IWinMLStage.DraftTokenLimitHint")
        core.options.draft_token_limit = limit

    @property
    def model_draft_predictor_enabled(self) -> bool:
        """Whether the model's own predictor follows the sequence (default False). Needs a `draft_token_limit_hint`."""
        return self._core.options.draft_predictor_enabled

    @model_draft_predictor_enabled.setter
    def model_draft_predictor_enabled(self, value: bool) -> None:
        core = self._core
        flag = flag_value(value, "model_draft_predictor_enabled")
        core.check_open_for_options("IWinMLStage.ModelDraftPredictorEnabled")
        core.options.draft_predictor_enabled = flag

    @property
    def draft_predictor_path(self) -> str | None:
        """File of a predictor that is not part of the model; None (default) or `""`: there is none.

        No engine runs one: `build` fails with 0x80070032.
        """
        return self._core.options.draft_predictor_path

    @draft_predictor_path.setter
    def draft_predictor_path(self, value: str | None) -> None:
        core = self._core
        path = None if value is None else path_value(value, "draft_predictor_path")
        core.check_open_for_options("IWinMLStage.DraftPredictorPath")
        core.options.draft_predictor_path = path or None

    @property
    def speculative_capabilities(self) -> SpeculativeCapabilities:
        """What the built stage can do. NotSupportedError 0x80070032 where it cannot step at all."""
        return _speculative(self._core, "IWinMLStage.SpeculativeCapabilities").speculation.capabilities

    def step_all_positions(self, tokens: Iterable[int]) -> memoryview:
        """Append tokens, 1 to `max_proposed_step_width`, and return the logits after each.

        The result is a float32 memoryview (tokens, vocabulary size) in memory of its own. The position advances; what
        is to be kept may then be said with `commit_accepted_prefix`, otherwise everything is. Bindings and outputs
        stay as they are, and connected stages do not run. A model with other inputs than token ids (a mask,
        positions) reads them as they are bound: bind what fits the step before it.

        Too many tokens are 0x80070057, too little capacity 0x8000000B; a step that fails moves nothing.
        """
        ids = _token_ids(tokens)
        stage = _speculative(self._core, _STEP)
        return stage.core.gate.hold_optional(_STEP, _step, stage, ids).data

    def commit_accepted_prefix(self, count: int) -> int:
        """Keep the first `count` tokens of the last step, 0 to its width, and return the new position.

        Once after each step, before anything else moves the sequence (0x8007139F).
        """
        kept = index_value(count, "count")
        stage = _speculative(self._core, _COMMIT)
        return stage.core.gate.hold_optional(_COMMIT, _commit, stage, kept)

    def propose_draft_tokens(self, pending: int, maximum: int) -> list[int]:
        """Draft up to `maximum` tokens to follow `pending`, the token that was chosen but not fed yet.

        Fewer, or none, may come back. The sequence does not move. NotSupportedError 0x80070032 without a predictor.
        """
        token = index_value(pending, "pending", INT32_MAX)
        limit = index_value(maximum, "maximum")
        stage = _speculative(self._core, _PROPOSE)
        return stage.core.gate.hold_optional(_PROPOSE, _propose, stage, token, limit)


def _token_ids(tokens: Iterable[int]) -> npt.NDArray[np.int32]:
    """Check the tokens of a step (index family) and return them as int32 (n,)."""
    if not isinstance(tokens, np.ndarray) or tokens.ndim != 1 or tokens.dtype.kind not in "iu":
        tokens = [index_value(token, "token", INT32_MAX) for token in tokens]
    ids = np.array(tokens)
    if not ids.size:
        raise ValueError("tokens must not be empty")
    if ids.min() < 0 or ids.max() > INT32_MAX:
        raise ValueError(f"tokens must be in 0..{INT32_MAX}")
    return ids.astype(np.int32)


def _speculative(core: StageCore, context: str) -> _Speculative:
    executor = core.built(context)
    sequence, speculation = executor.sequence, executor.speculation
    if sequence is None or speculation is None:
        text = f"{core.debug_name} has no steps: they need token ids as input 0, and state that the stage itself keeps"
        raise NotSupportedError(NOT_SUPPORTED, context, text)
    fed = (core.fed_inputs | core.seed_inputs) - {0}
    if fed:
        text = f"input {min(fed)} of {core.debug_name} is fed by a connection, but a step runs this stage alone"
        raise NotSupportedError(NOT_SUPPORTED, context, text)
    return _Speculative(core, sequence, speculation)


def _step(stage: _Speculative, ids: npt.NDArray[np.int32]) -> npt.NDArray[np.float32]:
    core, sequence = stage.core, stage.sequence
    if Storage.open_locks:
        for index, storage in core.inputs.items():
            if index and storage.is_locked_for_writing:
                raise WinMLError(LOCKED, _STEP, f"input {index} of {core.debug_name} is locked; close its lock first")
    base = sequence.position
    rows = stage.speculation.step(ids)
    core.pending_step = PendingStep(base, len(ids), core.gate.run_count)
    return rows


def _commit(stage: _Speculative, kept: int) -> int:
    core, sequence = stage.core, stage.sequence
    step = core.pending_step
    if step is None or step.run_count != core.gate.run_count or step.base + step.width != sequence.position:
        raise WinMLError(E_NOT_VALID_STATE, _COMMIT, f"{core.debug_name}: there is no step to keep a part of")
    if kept > step.width:
        raise WinMLError(E_INVALIDARG, _COMMIT, f"the step has {step.width} tokens, {kept} cannot be kept")
    sequence.rewind(step.base + kept)
    core.pending_step = None
    return step.base + kept


def _propose(stage: _Speculative, pending: int, maximum: int) -> list[int]:
    limit = stage.speculation.capabilities.max_draft_tokens
    if not limit:
        raise NotSupportedError(NOT_SUPPORTED, _PROPOSE, f"{stage.core.debug_name} has no draft predictor")
    return stage.speculation.propose(pending, min(maximum, limit)) if maximum else []


def check_speculation_options(core: StageCore) -> None:
    """Refuse at `build` options that cannot go together, or that no engine has."""
    context = "IWinMLPipelineBuilder.Build"
    options = core.options
    problem = None
    if options.draft_predictor_enabled and not options.draft_token_limit:
        problem = "the draft predictor is enabled, but draft_token_limit_hint is 0"
    elif options.draft_predictor_path is not None and not options.draft_predictor_enabled:
        problem = "draft_predictor_path is set, but model_draft_predictor_enabled is False"
    if problem is not None:
        raise WinMLError(E_INVALIDARG, context, f"{core.debug_name}: {problem}")
    if options.draft_predictor_path is not None:
        text = f"{core.debug_name}: no engine runs a predictor from a file of its own; unset draft_predictor_path"
        raise WinMLError(NOT_SUPPORTED, context, text)
