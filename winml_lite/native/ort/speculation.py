"""Steps over several positions in an ONNX decoder with managed state (runtime §10).

A step is a run of its own, with the tokens as input 0 and the logits as its only output, by a second executor on the
same session and state. So the bindings and outputs of the first one stay untouched.

The logits are output 0, or the output whose dimension of tokens is named `tokens_up_to_N`: for inputs of at most N
tokens it has a row for each.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from ...errors import E_INVALIDARG, NOT_SUPPORTED, NotSupportedError, WinMLError
from ...files.artifact import Port
from ...storage import Storage
from ...values import (
    NUMPY_NAMES,
    ExecutionTargetKind,
    SpeculativeCapabilities,
    SpeculativeResidency,
    SpeculativeRollbackBound,
    TensorDataType,
)
from .session import Session
from .state import ManagedState

if TYPE_CHECKING:
    from .executor import OrtExecutor

_STEP = "IWinMLStage.StepAllPositions"
_UNBOUNDED_WIDTH = 0xFFFFFFFF
_ID_TYPES = (TensorDataType.INT32, TensorDataType.INT64)
_LOGIT_TYPES = (TensorDataType.FLOAT32, TensorDataType.FLOAT16)
_LIMITED = re.compile(r"tokens_up_to_(\d{1,9})")


@dataclass(frozen=True, slots=True)
class RowsOutput:
    """The output that has one row of logits for each token of an input."""

    index: int
    limit: int
    """Most tokens of such an input; 0 where no output has rows."""


class OrtSpeculation:
    """Implements `Speculation`: a view of an executor and its state."""

    __slots__ = ("_executor", "_rows", "_session", "_state")

    def __init__(self, executor: OrtExecutor, state: ManagedState, session: Session, rows: RowsOutput) -> None:
        self._executor = executor
        self._state = state
        self._session = session
        self._rows = rows

    @property
    def capabilities(self) -> SpeculativeCapabilities:
        state = self._state
        width = state.capacity or _UNBOUNDED_WIDTH
        rows = min(width, self._rows.limit)
        on_cpu = self._executor.target_kind is ExecutionTargetKind.CPU
        bounds = SpeculativeRollbackBound
        return SpeculativeCapabilities(
            max_proposed_step_width=width,
            max_logit_rows_per_step=rows,
            rollback_bound=bounds.UNBOUNDED if state.can_be_cut else bounds.UNSUPPORTED,
            max_rollback_depth=0,
            residency=SpeculativeResidency.HOST if on_cpu else SpeculativeResidency.DEVICE_WITH_HOST_READBACK,
        )

    def step(self, tokens: npt.NDArray[np.int32]) -> npt.NDArray[np.float32]:
        if not self._rows.limit:
            text = "the model gives the logits of the last token only, so a step cannot tell those of each"
            raise NotSupportedError(NOT_SUPPORTED, _STEP, text)
        limit = min(self._rows.limit, self._state.capacity or _UNBOUNDED_WIDTH)
        if tokens.size > limit:
            raise WinMLError(E_INVALIDARG, _STEP, f"a step takes at most {limit} tokens, not {tokens.size}")
        port = self._session.inputs[0]
        ids = tokens.astype(NUMPY_NAMES[port.data_type])
        shape = (ids.size,) if len(port.dimensions) == 1 else (1, ids.size)
        twin = self._executor.twin()
        try:
            twin.bind_input(0, Storage(ids.view(np.uint8), port.data_type, shape))
            twin.bind_output(self._rows.index, None, True)
            twin.run()
            rows = _rows(twin.output(self._rows.index), ids.size)
            if self._state.step != ids.size:
                text = f"{ids.size} tokens moved the state by {self._state.step}; do the other inputs fit the step?"
                raise WinMLError(E_INVALIDARG, _STEP, text)
            twin.commit()
        except BaseException:
            twin.discard()
            raise
        finally:
            twin.let_go()
        return rows

    def propose(self, pending: int, maximum: int) -> list[int]:
        return []  # `max_draft_tokens` is 0: no graph says what its predictor would be


def takes_steps(inputs: Sequence[Port], managed: Collection[int]) -> bool:
    """Whether input 0 takes any number of token ids: (n,), or (1, n)."""
    port = inputs[0]
    dimensions = port.dimensions
    return (
        0 not in managed
        and port.data_type in _ID_TYPES
        and len(dimensions) in (1, 2)
        and not isinstance(dimensions[-1], int)
        and (len(dimensions) == 1 or dimensions[0] == 1 or not isinstance(dimensions[0], int))
    )


def find_rows(inputs: Sequence[Port], outputs: Sequence[Port], state: ManagedState | None) -> RowsOutput | None:
    """Return the output that has, as far as the graph tells, a row of logits for each token; None for a graph that
    takes no steps at all.
    """
    if state is None or not takes_steps(inputs, state.inputs):
        return None
    for index, port in enumerate(outputs):
        named = str(port.dimensions[-2]) if len(port.dimensions) == 3 else ""
        limited = _LIMITED.fullmatch(named)
        if limited is not None and index not in state.outputs and port.data_type in _LOGIT_TYPES:
            return RowsOutput(index, int(limited[1]))
    has_rows = 0 not in state.outputs and may_give_rows(inputs[0], outputs[0])
    return RowsOutput(0, _UNBOUNDED_WIDTH if has_rows else 0)


def may_give_rows(ids: Port, logits: Port) -> bool:
    """Whether an output has, as far as the graph tells, one row of logits for each token: (n, V), or (1, n, V).

    An extent without a name, or with another than the ids have, may be that of the tokens; a run shows it.
    """
    dimensions = logits.dimensions
    return (
        logits.data_type in _LOGIT_TYPES
        and len(dimensions) in (2, 3)
        and not isinstance(dimensions[-2], int)
        and not (len(ids.dimensions) == 2 and len(dimensions) == 2 and dimensions[0] == ids.dimensions[0])
    )


def _rows(logits: Storage, count: int) -> npt.NDArray[np.float32]:
    """View fresh logits as float32 (count, vocabulary size); the array keeps their memory."""
    shape = logits.shape
    if shape[-2] != count or shape[:-2] not in ((), (1,)):
        text = f"{count} tokens gave logits of shape {shape}, which is not one row for each"
        raise NotSupportedError(NOT_SUPPORTED, _STEP, text)
    rows: npt.NDArray[np.float32] = logits.array().astype(np.float32, copy=False).reshape(count, shape[-1])
    return rows
