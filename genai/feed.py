"""Feeding token ids to a decoder stage and reading the logits of the last one (genai §6.9, "unified").

Everything is prepared once: the id, position and mask buffers, and the logits row of a single-token step, into which
the engine writes in place. A run of several tokens (a piece of the prompt) reads the last row of a runtime-owned output
instead.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from winml_lite import (
    ExecutionTarget,
    NotSupportedError,
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

from .codes import E_INVALIDARG, NOT_FOUND

FREE_DIMENSION = 0xFFFFFFFFFFFFFFFF
CHUNK = 128
"""Most tokens in one run: cancellation and Ctrl-C are looked at between runs."""

_NUMPY: dict[TensorDataType, np.dtype[Any]] = {
    TensorDataType.INT32: np.dtype(np.int32),
    TensorDataType.INT64: np.dtype(np.int64),
    TensorDataType.FLOAT32: np.dtype(np.float32),
    TensorDataType.FLOAT16: np.dtype(np.float16),
    TensorDataType.FLOAT64: np.dtype(np.float64),
}
Row = npt.NDArray[Any]


class TokenFeed:
    """Runs a pipeline on token ids; `target` is where its tensors are made. It closes the wrappers it is given.

    `chunk` is the most tokens that one run takes (1 where the graph is built for single tokens), `vocabulary_size` the
    length of a logits row.
    """

    def __init__(
        self,
        runtime: Runtime,
        pipeline: Pipeline,
        token_input: tuple[Stage, int],
        logits_output: tuple[Stage, int],
        target: ExecutionTarget,
    ) -> None:
        self._tensors = _Tensors(runtime, target)
        self._pipeline = pipeline
        self._stage, self._index = token_input
        self._output_stage, self._output_index = logits_output
        data_type, shape = self._stage.schema().input_desc(self._index)
        if data_type not in (TensorDataType.INT32, TensorDataType.INT64) or not 1 <= len(shape) <= 2:
            raise WinMLError(
                E_INVALIDARG, "token input", f"needs INT32 or INT64 of rank 1 or 2, not {data_type.name}{shape}"
            )
        self._id_type = data_type
        self.chunk = CHUNK if shape[-1] == FREE_DIMENSION else int(shape[-1])
        if self.chunk != 1 and shape[-1] != FREE_DIMENSION:
            raise WinMLError(
                E_INVALIDARG, "token input", f"the built shape {shape} takes neither any number of tokens nor one"
            )
        self._row_type, row_shape = self._output_stage.schema().output_desc(self._output_index)
        if (
            self._row_type not in (TensorDataType.FLOAT32, TensorDataType.FLOAT16, TensorDataType.FLOAT64)
            or not row_shape
        ):
            raise WinMLError(
                E_INVALIDARG, "logits output", f"needs a floating type, not {self._row_type.name}{row_shape}"
            )
        self.vocabulary_size = row_shape[-1] if row_shape[-1] != FREE_DIMENSION else 0
        self._row_shape = (1,) * (len(row_shape) - 1) + (self.vocabulary_size,)
        self._id = np.zeros((1,) * len(shape), _NUMPY[data_type])
        self._id_tensor = self._tensors.over(self._id, data_type, self._id.shape)
        self._row = np.zeros(self.vocabulary_size, _NUMPY[self._row_type])
        self._row_tensor = (
            self._tensors.over(self._row, self._row_type, self._row_shape) if self.vocabulary_size else None
        )
        self._is_stepping = False
        self._mask: _Mask | None = None
        self._positions: _Positions | None = None

    def prepare(self) -> None:
        """Look for mask and position inputs. It binds them for a moment, so the caller must own the pipeline by now."""
        mask_type = _named_type(self._tensors, self._stage, "attention_mask")
        if mask_type is not None:
            self._mask = _Mask(self._tensors, self._stage, mask_type)
        positions_type = _named_type(self._tensors, self._stage, "position_ids")
        if positions_type is not None:
            self._positions = _Positions(self._tensors, self._stage, positions_type)

    def begin(self) -> None:
        """Begin an operation: bind everything again, since others may have used the pipeline since the last one."""
        self._is_stepping = False

    def step(self, token_id: int, position: int) -> Row:
        """Evaluate one token after `position` earlier ones; return the logits row, shape (vocabulary,).

        The row is valid until the next run. Failures of the engine are WinMLError and leave the position as it was.
        """
        if self._row_tensor is None:
            return self.run([token_id], position)
        if not self._is_stepping:
            self._start_stepping()
        self._id.flat[0] = token_id
        if self._mask is not None:
            self._mask.bind(position + 1)
        if self._positions is not None:
            self._positions.bind_one(position)
        self._pipeline.run()
        return self._row

    def run(self, ids: list[int], position: int) -> Row:
        """Evaluate 1 to `chunk` ids after `position` earlier ones; return a copy of the last logits row, shape
        (vocabulary,).
        """
        self._output_stage.request_output(self._output_index)
        self._evaluate(ids, position)
        flags = TensorLockFlags.ALLOW_SYNCHRONIZED_CPU_ACCESS
        with self._output_stage.output(self._output_index) as output, output.lock(TensorLockMode.READ, flags) as lock:
            vocabulary_size = output.desc()[1][-1]
            last = lock.byte_size - vocabulary_size * self._row.itemsize
            return np.frombuffer(lock.data(), self._row.dtype, vocabulary_size, last).copy()

    def skip(self, ids: list[int], position: int) -> None:
        """Evaluate 1 to `chunk` ids without their logits: an earlier piece of a long prompt."""
        self._output_stage.reset_output(self._output_index)
        self._evaluate(ids, position)

    def abort(self) -> None:
        """Ask a run on another thread to stop early; it then fails with 0x800704C7."""
        self._pipeline.cancel_run()

    def close(self) -> None:
        """Give up the hold on the pipeline."""
        self._mask = None
        self._positions = None
        for part in (self._stage, self._output_stage, self._pipeline):
            part.close()

    def _start_stepping(self) -> None:
        assert self._row_tensor is not None
        self._stage.bind_input(self._index, self._id_tensor)
        self._output_stage.bind_output(self._output_index, self._row_tensor)
        if self._positions is not None:
            self._positions.start_stepping()
        self._is_stepping = True

    def _evaluate(self, ids: list[int], position: int) -> None:
        self._is_stepping = False
        array = np.array(ids, self._id.dtype).reshape((1, -1) if self._id.ndim == 2 else (-1,))
        self._stage.bind_input(self._index, self._tensors.over(array, self._id_type, array.shape))
        if self._mask is not None:
            self._mask.bind(position + len(ids))
        if self._positions is not None:
            self._positions.bind_many(position, len(ids))
        self._pipeline.run()


class _Tensors:
    """Makes tensors over arrays, on one target."""

    def __init__(self, runtime: Runtime, target: ExecutionTarget) -> None:
        self._runtime = runtime
        self._target = target

    def over(self, array: npt.NDArray[Any], data_type: TensorDataType, shape: tuple[int, ...]) -> Tensor:
        """Return a tensor that shares the memory of `array`."""
        return self._runtime.tensor_from_buffer(
            array, data_type, shape, access=TensorAccessMode.READWRITE, target=self._target
        )


class _Mask:
    """The `attention_mask` input of an ONNX decoder: ones up to the present length."""

    def __init__(self, tensors: _Tensors, stage: Stage, data_type: TensorDataType) -> None:
        self._tensors = tensors
        self._bindings = stage.ort_bindings()
        self._type = data_type
        self._ones = np.ones(1024, _NUMPY[data_type])

    def bind(self, length: int) -> None:
        if length > self._ones.size:
            self._ones = np.ones(max(length, 2 * self._ones.size), self._ones.dtype)
        self._bindings.bind_input("attention_mask", self._tensors.over(self._ones[:length], self._type, (1, length)))


class _Positions:
    """The `position_ids` input of an ONNX decoder. Single steps write into one bound number."""

    def __init__(self, tensors: _Tensors, stage: Stage, data_type: TensorDataType) -> None:
        self._tensors = tensors
        self._bindings = stage.ort_bindings()
        self._type = data_type
        self._one = np.zeros((1, 1), _NUMPY[data_type])

    def start_stepping(self) -> None:
        self._bind(self._one)

    def bind_one(self, position: int) -> None:
        self._one[0, 0] = position

    def bind_many(self, position: int, count: int) -> None:
        self._bind(np.arange(position, position + count, dtype=self._one.dtype).reshape(1, count))

    def _bind(self, array: npt.NDArray[Any]) -> None:
        self._bindings.bind_input("position_ids", self._tensors.over(array, self._type, array.shape))


def _named_type(tensors: _Tensors, stage: Stage, name: str) -> TensorDataType | None:
    """Return the integer type of a named input of rank 2, or None where the stage has no such input."""
    bindings = stage.ort_bindings()
    for data_type in (TensorDataType.INT64, TensorDataType.INT32):
        try:
            bindings.bind_input(name, tensors.over(np.zeros((1, 1), _NUMPY[data_type]), data_type, (1, 1)))
        except NotSupportedError:  # not an ONNX stage
            return None
        except WinMLError as error:
            if error.hresult == NOT_FOUND:
                return None
            if error.hresult != E_INVALIDARG:
                raise
        else:
            return data_type
    raise WinMLError(E_INVALIDARG, "decoder stage", f"input {name!r} is neither INT64 nor INT32 of rank 2")
