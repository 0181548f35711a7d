"""Where token ids go into a pipeline and where logits or tokens come out of it (genai §6.9).

Everything is prepared once: the buffer of a single id, and the row of a single-token step, into which the engine writes
in place. Not here: masks and positions (`position_inputs.py`), which pipeline runs when (`feed.py`,
`prefill_decode.py`).
"""

from __future__ import annotations

from copy import copy
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from winml_lite import (
    ExecutionTarget,
    Pipeline,
    Runtime,
    Stage,
    Tensor,
    TensorAccessMode,
    TensorDataType,
    TensorLockFlags,
    TensorLockMode,
    WinMLError,
)

from .codes import E_INVALIDARG
from .results import TextGenerationOutputKind

FREE_DIMENSION = 0xFFFFFFFFFFFFFFFF
INTEGERS = (TensorDataType.INT32, TensorDataType.INT64)
FLOATS = (TensorDataType.FLOAT32, TensorDataType.FLOAT16, TensorDataType.FLOAT64)
NUMPY: dict[TensorDataType, np.dtype[Any]] = {
    TensorDataType.INT32: np.dtype(np.int32),
    TensorDataType.INT64: np.dtype(np.int64),
    TensorDataType.FLOAT32: np.dtype(np.float32),
    TensorDataType.FLOAT16: np.dtype(np.float16),
    TensorDataType.FLOAT64: np.dtype(np.float64),
}
Row = npt.NDArray[Any]
"""Logits of shape (vocabulary,), or one token id of shape (1,)."""


@dataclass(frozen=True, slots=True)
class Endpoints:
    """A pipeline with its token input and the output that the next token is taken from."""

    pipeline: Pipeline
    token_stage: Stage
    token_index: int
    output_stage: Stage
    output_index: int
    output_kind: TextGenerationOutputKind = TextGenerationOutputKind.LOGITS
    others: tuple[Stage, ...] = ()
    """Further stages that may take mask and positions."""

    def copy(self) -> Endpoints:
        """Return the endpoints with wrappers that the caller does not close."""
        return replace(
            self,
            pipeline=copy(self.pipeline),
            token_stage=copy(self.token_stage),
            output_stage=copy(self.output_stage),
            others=tuple(copy(stage) for stage in self.others),
        )


class TensorMaker:
    """Makes tensors over arrays, on one target."""

    def __init__(self, runtime: Runtime, target: ExecutionTarget) -> None:
        self._runtime = runtime
        self._target = target

    def over(self, array: npt.NDArray[Any], data_type: TensorDataType, shape: tuple[int, ...]) -> Tensor:
        """Return a tensor that shares the memory of `array`."""
        return self._runtime.tensor_from_buffer(
            array, data_type, shape, access=TensorAccessMode.READWRITE, target=self._target
        )


class TokenInput:
    """The input that takes token ids: INT32 or INT64 of shape (n,) or (1, n).

    `fixed_length` is the number of tokens that the built shape asks for, None where it takes any number. `single` holds
    the id that `bind_single` has bound: writing to it changes what the next run reads.
    """

    def __init__(self, tensors: TensorMaker, stage: Stage, index: int) -> None:
        self._tensors = tensors
        self._stage = stage
        self._index = index
        data_type, shape = stage.schema().input_desc(index)
        if data_type not in INTEGERS or not 1 <= len(shape) <= 2:
            raise WinMLError(
                E_INVALIDARG, "token input", f"needs INT32 or INT64 of rank 1 or 2, not {data_type.name}{shape}"
            )
        self._type = data_type
        self.fixed_length = None if shape[-1] == FREE_DIMENSION else shape[-1]
        self.single = np.zeros((1,) * len(shape), NUMPY[data_type])
        self._single_tensor = tensors.over(self.single, data_type, self.single.shape)

    def bind(self, ids: list[int]) -> None:
        """Bind ids for the next run."""
        array = np.array(ids, self.single.dtype).reshape((1, -1) if self.single.ndim == 2 else (-1,))
        self._stage.bind_input(self._index, self._tensors.over(array, self._type, array.shape))

    def bind_single(self) -> None:
        """Bind the one id of `single` for all runs to come."""
        self._stage.bind_input(self._index, self._single_tensor)


class RowOutput:
    """The output that the next token is taken from: logits, of which the last row counts, or token ids, of which the
    last one does.

    `vocabulary_size` is the length of a row of logits, 0 where only a run can tell. `row` is where `bind` puts the
    result of single-token runs; without `can_bind` the shape of the result is not known before.
    """

    def __init__(self, tensors: TensorMaker, stage: Stage, index: int, kind: TextGenerationOutputKind) -> None:
        self._stage = stage
        self._index = index
        data_type, shape = stage.schema().output_desc(index)
        self._is_token = kind is TextGenerationOutputKind.SAMPLED_TOKEN
        if self._is_token:
            self._check(data_type in INTEGERS, "sampled token output", "an INT32 or INT64 type", data_type, shape)
            self.vocabulary_size = 0
            row_shape = shape
            self.can_bind = all(extent == 1 for extent in shape)
        else:
            is_row = data_type in FLOATS and bool(shape)
            self._check(is_row, "logits output", "a floating type", data_type, shape)
            self.vocabulary_size = shape[-1] if shape[-1] != FREE_DIMENSION else 0
            row_shape = (1,) * (len(shape) - 1) + (self.vocabulary_size,)
            self.can_bind = self.vocabulary_size > 0
        self.row: Row = np.zeros(1 if self._is_token else self.vocabulary_size, NUMPY[data_type])
        self._tensor = tensors.over(self.row, data_type, row_shape) if self.can_bind else None

    @staticmethod
    def _check(fits: bool, what: str, wanted: str, data_type: TensorDataType, shape: tuple[int, ...]) -> None:
        if not fits:
            raise WinMLError(E_INVALIDARG, what, f"needs {wanted}, not {data_type.name}{shape}")

    def bind(self) -> None:
        """Have single-token runs write to `row`."""
        assert self._tensor is not None
        self._stage.bind_output(self._index, self._tensor)

    def request(self) -> None:
        """Have runs make the output anew, for `read`."""
        self._stage.request_output(self._index)

    def withhold(self) -> None:
        """Do without the output."""
        self._stage.reset_output(self._index)

    def read(self) -> Row:
        """Return a copy of the last row of the last run."""
        flags = TensorLockFlags.ALLOW_SYNCHRONIZED_CPU_ACCESS
        with self._stage.output(self._index) as output, output.lock(TensorLockMode.READ, flags) as lock:
            length = 1 if self._is_token else output.desc()[1][-1]
            last = lock.byte_size - length * self.row.itemsize
            if last < 0:
                raise WinMLError(E_INVALIDARG, "output", f"the run gave nothing: shape {output.desc()[1]}")
            return np.frombuffer(lock.data(), self.row.dtype, length, last).copy()
