"""The fake engine for ONNX graphs: the reference evaluator of the `onnx` package, with state pairs and external data.

The state is kept in NumPy arrays by the words of runtime 20.3 and 20.4, not by those of the engine in the package: the
two check each other.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
from onnx import TensorProto, numpy_helper
from onnx.reference import ReferenceEvaluator
from onnx.reference.op_run import OpRun

from fakes.backend import FakeExecutor, Script
from winml_lite.errors import (
    E_BOUNDS,
    E_FAIL,
    E_INVALIDARG,
    FILE_NOT_FOUND,
    NOT_FOUND,
    NOT_SUPPORTED,
    NotSupportedError,
    WinMLError,
)
from winml_lite.files.artifact import OnnxArtifact, Port
from winml_lite.native.backend import StageOptions
from winml_lite.storage import Storage
from winml_lite.values import FLOATING_TYPES, NUMPY_NAMES, ExecutionTargetKind

Array = npt.NDArray[Any]


class GatherElements(OpRun):  # type: ignore[misc]
    """The evaluator's own one fails on rows of more than 32 elements."""

    op_domain = ""

    def _run(self, data: Array, indices: Array, axis: int = 0) -> tuple[Array]:
        return (np.take_along_axis(data, indices, axis),)


class GraphExecutor(FakeExecutor):
    """Evaluates an ONNX graph."""

    def __init__(
        self, script: Script, artifact: OnnxArtifact, kind: ExecutionTargetKind, options: StageOptions
    ) -> None:
        super().__init__(script, kind, options.debug_name)
        overrides = dict(options.dimension_overrides)
        self._ports = [_overridden(port, overrides) for port in artifact.inputs]
        outputs = [_overridden(port, overrides) for port in artifact.outputs]
        self.inputs = tuple(port.descriptor for port in self._ports)
        self.outputs = tuple(port.descriptor for port in outputs)
        self._artifact = artifact  # pins the resources, as long as the stage lives
        model = _loaded(artifact)
        try:
            self._evaluator = ReferenceEvaluator(model, new_ops=[GatherElements])
        except Exception as error:
            raise WinMLError(E_FAIL, "", str(error)) from error
        self._caller_pairs: dict[int, int] = {}
        """Past of a state that the caller owns, by present."""
        self.state: GraphState | None = None
        if options.caller_owns_state:
            self._caller_pairs = {present: past for past, present in options.state_pairs}
        elif options.state_pairs:
            self.state = GraphState(options, self._ports, outputs)
            self.sequence = self.state
        self._late: list[tuple[Storage, Array]] = []

    def check_input(self, index: int, storage: Storage) -> None:
        super().check_input(index, storage)
        if self.state is not None and index in self.state.values:
            raise WinMLError(E_INVALIDARG, "", f"{self.debug_name}: input {index} is state that the stage keeps")

    def gathered(self) -> list[Array]:
        extents, state = self._agreed_extents(), self.state
        if state is None:
            return super().gathered()
        self.require_inputs(range(len(self.inputs)), state.values)
        state.admit(self.bound)
        pasts = state.pasts(extents)
        return [pasts[index] if index in pasts else self.bound[index].array() for index in range(len(self.inputs))]

    def _agreed_extents(self) -> dict[str, int]:
        extents: dict[str, int] = {}
        for index, storage in self.bound.items():
            for symbol, extent in zip(self._ports[index].dimensions, storage.shape, strict=True):
                if isinstance(symbol, str) and extents.setdefault(symbol, extent) != extent:
                    raise WinMLError(E_INVALIDARG, "", f"{symbol} is {extent} in input {index}, but {extents[symbol]}")
        return extents

    def compute(self, inputs: list[Array]) -> list[Array]:
        names = [port.name for port in self._ports]
        results: list[Array] = self._evaluator.run(None, dict(zip(names, inputs, strict=True)))
        if self.state is not None:
            self.state.measure(results)
        self._keep_in_place(results)
        return results

    def _keep_in_place(self, results: list[Array]) -> None:
        """A state that the caller owns goes back into its input, once the whole pipeline has succeeded."""
        self._late = []
        for present, past in self._caller_pairs.items():
            if self.places.get(present) is None:
                if self.bound[past].array().nbytes != results[present].nbytes:
                    raise WinMLError(E_INVALIDARG, "", f"the state of output {present} does not fit its input")
                self._late.append((self.bound[past], results[present]))

    def commit(self) -> None:
        super().commit()
        for storage, value in self._late:
            storage.array()[...] = value
        self._late = []
        if self.state is not None:
            self.state.commit()

    def discard(self) -> None:
        super().discard()
        self._late = []
        if self.state is not None:
            self.state.pending = None

    def output(self, index: int) -> Storage:
        past = self._caller_pairs.get(index)
        if past is not None and self.places.get(index) is None and not self._late:
            return self.bound[past]
        return super().output(index)


class GraphState:
    """Managed state pairs of one stage; implements `backend.Sequence`."""

    def __init__(self, options: StageOptions, inputs: Sequence[Port], outputs: Sequence[Port]) -> None:
        self._pairs = {past: (inputs[past], present) for past, present in options.state_pairs}
        self._axes = {past: _axis(inputs[past], outputs[present]) for past, present in options.state_pairs}
        extents = [port.dimensions[self._axes[past]] for past, (port, _) in self._pairs.items()]
        fixed = [extent for extent in extents if isinstance(extent, int)]
        self.declared_capacity: int | None = min(fixed) if len(fixed) == len(extents) else None
        self.capacity = self.declared_capacity or options.capacity_hint
        self.position = 0
        self.values: dict[int, Array | None] = dict.fromkeys(self._pairs)
        self.pending: tuple[dict[int, Array], int] | None = None
        self._step = 0

    def rewind(self, position: int) -> None:
        if position > self.position:
            raise WinMLError(E_INVALIDARG, "", f"position {position} is beyond {self.position}")
        if position == 0:
            self.reset()
        elif self.declared_capacity is None:
            for past, value in self.values.items():
                assert value is not None
                self.values[past] = value.take(range(position), self._axes[past])
        self.position = position

    def set_capacity(self, capacity: int) -> None:
        if capacity == self.capacity:
            return
        if self.declared_capacity is not None:
            raise NotSupportedError(NOT_SUPPORTED, "", f"the model fixes the capacity at {self.declared_capacity}")
        if capacity < self.position:
            raise WinMLError(E_INVALIDARG, "", f"{self.position} positions are in use")
        self.capacity = capacity
        self.reset()

    def reset(self) -> None:
        self.values = dict.fromkeys(self._pairs)
        self.position = 0

    def admit(self, bound: dict[int, Storage]) -> None:
        """Count the positions of a run and refuse it when they are too many."""
        first = next((bound[index] for index in sorted(bound)), None)
        shape = first.shape if first is not None and first.shape else (1,)
        is_floating = first is not None and first.data_type in FLOATING_TYPES and len(shape) > 1
        self._step = shape[-2] if is_floating else shape[-1]
        if self.capacity and self.position + self._step > self.capacity:
            raise WinMLError(E_BOUNDS, "", f"{self._step} more after {self.position} are over {self.capacity}")

    def pasts(self, extents: dict[str, int]) -> dict[int, Array]:
        """The past of each pair; at the start zeros, without any position where the state grows."""
        for past, value in self.values.items():
            if value is not None and value.shape != self._shape(past, extents, value.shape[self._axes[past]]):
                raise WinMLError(E_INVALIDARG, "", f"the state is {value.shape}, which {extents} do not fit")
        return {
            past: np.zeros(self._shape(past, extents, 0), NUMPY_NAMES[self._pairs[past][0].data_type])
            if value is None
            else value
            for past, value in self.values.items()
        }

    def _shape(self, past: int, extents: dict[str, int], length: int) -> tuple[int, ...]:
        """Shape of a past with `length` positions, unless their number is fixed."""
        port, axis = self._pairs[past][0], self._axes[past]
        known = [d if isinstance(d, int) else extents.get(d, 1) if d else 1 for d in port.dimensions]
        if not isinstance(port.dimensions[axis], int):
            known[axis] = length
        return tuple(known)

    def measure(self, results: Sequence[Array]) -> None:
        """Note the presents of a run and by how many positions they move."""
        presents = {past: results[present] for past, (_, present) in self._pairs.items()}
        if self.declared_capacity is None:
            growths = {
                value.shape[self._axes[past]] - self.position
                for past, value in presents.items()
                if not isinstance(self._pairs[past][0].dimensions[self._axes[past]], int)
            }
            if len(growths) > 1:
                raise WinMLError(E_INVALIDARG, "", f"the states grew by {sorted(growths)}")
            self._step = growths.pop()
        self.pending = presents, self._step

    def commit(self) -> None:
        if self.pending is not None:
            self.values = dict(self.pending[0])
            self.position += self.pending[1]
            self.pending = None


def _axis(past: Port, present: Port) -> int:
    rank = len(past.dimensions)
    usual = 2 if rank == 4 else max(rank - 2, 0)
    differing = [axis for axis in range(rank) if past.dimensions[axis] != present.dimensions[axis]]
    return differing[0] if differing and usual not in differing else usual


def _overridden(port: Port, overrides: dict[str, int]) -> Port:
    dimensions = tuple(overrides.get(d, d) if isinstance(d, str) else d for d in port.dimensions)
    return replace(port, dimensions=dimensions)


def _loaded(artifact: OnnxArtifact) -> onnx.ModelProto:
    """Parse the model and put its external data into it: from the files, for a model from a buffer from the map."""
    if artifact.data is not None:
        model = onnx.load_model_from_string(artifact.data)
    else:
        assert artifact.path is not None
        model = onnx.load_model(artifact.path, load_external_data=False)
    for tensor in model.graph.initializer:
        if tensor.data_location == TensorProto.EXTERNAL:
            place = {entry.key: entry.value for entry in tensor.external_data}
            content = _external(artifact, place["location"])
            start, length = int(place.get("offset", 0)), int(place.get("length", len(content)))
            if start + length > len(content):
                raise WinMLError(E_INVALIDARG, "", f"{place['location']} has {len(content)} bytes")
            data_type = onnx.helper.tensor_dtype_to_np_dtype(tensor.data_type)
            values = np.frombuffer(content[start : start + length], data_type).reshape(tuple(tensor.dims))
            tensor.CopyFrom(numpy_helper.from_array(values, tensor.name))
    return model


def _external(artifact: OnnxArtifact, location: str) -> bytes:
    view = artifact.resources.get(location)
    if artifact.path is not None:
        file = os.path.join(os.path.dirname(artifact.path), location)
        if os.path.exists(file):
            with open(file, "rb") as stream:
                return stream.read()
    if view is None:
        raise WinMLError(FILE_NOT_FOUND if artifact.path else NOT_FOUND, "", f"external data {location} is missing")
    return bytes(view)
