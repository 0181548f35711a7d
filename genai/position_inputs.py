"""The inputs of an ONNX decoder that say where tokens are: mask and positions (genai §6.9).

A graph that was made for a sequence of any length takes `attention_mask`, integers of shape (1, all tokens so far), and
`position_ids`, integers of shape (1, new tokens). Both are bound for each run, by name. Nothing here is synthesised for
other inputs.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

from winml_lite import NotSupportedError, Pipeline, Stage, TensorDataType, WinMLError

from .codes import E_INVALIDARG
from .endpoints import INTEGERS, NUMPY, TensorMaker


class Mask:
    """The `attention_mask` of a stage: ones up to the present length."""

    def __init__(self, tensors: TensorMaker, stage: Stage, data_type: TensorDataType) -> None:
        self._tensors = tensors
        self._bindings = stage.ort_bindings()
        self._type = data_type
        self._ones = np.ones(1024, NUMPY[data_type])

    def bind(self, length: int) -> None:
        """Bind the mask of `length` tokens."""
        if length > self._ones.size:
            self._ones = np.ones(max(length, 2 * self._ones.size), self._ones.dtype)
        self._bindings.bind_input("attention_mask", self._tensors.over(self._ones[:length], self._type, (1, length)))


class Positions:
    """The `position_ids` of a stage. Single steps write into one bound number."""

    def __init__(self, tensors: TensorMaker, stage: Stage, data_type: TensorDataType) -> None:
        self._tensors = tensors
        self._bindings = stage.ort_bindings()
        self._type = data_type
        self._one = np.zeros((1, 1), NUMPY[data_type])

    def start_stepping(self) -> None:
        """Bind the one number that `bind_one` writes."""
        self._bind(self._one)

    def bind_one(self, position: int) -> None:
        """Let the next single step be at `position`."""
        self._one[0, 0] = position

    def bind_many(self, position: int, count: int) -> None:
        """Bind `count` positions from `position` on."""
        self._bind(np.arange(position, position + count, dtype=self._one.dtype).reshape(1, count))

    def _bind(self, array: npt.NDArray[np.generic]) -> None:
        self._bindings.bind_input("position_ids", self._tensors.over(array, self._type, array.shape))


def find_masks(tensors: TensorMaker, pipeline: Pipeline, stages: Iterable[Stage]) -> tuple[Mask, ...]:
    """Return the masks that the stages take from outside the pipeline."""
    found = ((stage, _named_type(pipeline, stage, "attention_mask")) for stage in stages)
    return tuple(Mask(tensors, stage, data_type) for stage, data_type in found if data_type is not None)


def find_positions(tensors: TensorMaker, pipeline: Pipeline, stages: Iterable[Stage]) -> tuple[Positions, ...]:
    """Return the position inputs that the stages take from outside the pipeline."""
    found = ((stage, _named_type(pipeline, stage, "position_ids")) for stage in stages)
    return tuple(Positions(tensors, stage, data_type) for stage, data_type in found if data_type is not None)


def _named_type(pipeline: Pipeline, stage: Stage, name: str) -> TensorDataType | None:
    """Return the integer type of a named input of rank 2; None where there is none, or another stage feeds it."""
    try:
        index = stage.ort_bindings().find_input(name)
    except NotSupportedError:  # not an ONNX stage
        return None
    if index is None or pipeline.is_connected(stage, index):
        return None
    data_type, shape = stage.schema().input_desc(index)
    if data_type not in INTEGERS or len(shape) != 2:
        raise WinMLError(E_INVALIDARG, "decoder stage", f"input {name!r} is neither INT64 nor INT32 of rank 2")
    return data_type
