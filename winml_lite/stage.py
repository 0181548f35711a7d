"""Stages and their schemas (runtime §7 and 8): bindings, outputs, and the views of what an engine adds.

The stateful members are in `sequence.py`, `sequence_state.py`, `speculation.py` and `segments.py`, the work is in
`stage_core.py`.
"""

from __future__ import annotations

from typing import Any

from .checks import index_value
from .dimensions import SymbolicDimensionOverrides
from .errors import E_INVALIDARG, E_NOINTERFACE, E_NOT_VALID_STATE, NotSupportedError, WinMLError
from .llama_extensions import LlamaStageOptions
from .model import ModelSchema
from .ort_extensions import OrtNamedBindings, OrtStageDiagnostics, OrtStageOptions
from .segments import SegmentMembers
from .sequence import SequenceMembers
from .sequence_state import SavedStateMembers
from .speculation import SpeculationMembers
from .stage_core import StageCore
from .target import ExecutionTarget, TargetCore
from .tensor import Tensor, bindable
from .values import Descriptor


class Stage(SequenceMembers, SavedStateMembers, SpeculationMembers, SegmentMembers):
    """One model or processor in a pipeline: its inputs, outputs and options, all by position.

    Bindings hold the memory, not the Tensor object, and survive runs and resets. Changing one while the pipeline runs
    is 0x800700AA; an index out of range is 0x80070057 (at `build` where the number of ports is not known before).
    """

    __slots__ = ()

    def __repr__(self) -> str:
        core = self._open
        if core is None:
            return "<Stage (closed)>"
        built = "built" if core.executor is not None else "not built"
        return f"<Stage {core.debug_name!r} on {core.source.runner}, {built}>"

    @property
    def debug_name(self) -> str:
        """The name given to `add_model_stage`."""
        return self._core.debug_name

    def bind_input(self, index: int, tensor: Tensor) -> None:
        """Bind an input until it is bound again; its contents are read by each run.

        Element type, rank and fixed extents must match (0x80070057), nothing is cast.
        """
        core = self._core
        if type(index) is not int:
            index = _position(index)
        elif index < 0 or index > 0xFFFFFFFF:
            _position(index)
        core.bind_input(index, bindable(tensor))

    def clear_input(self, index: int) -> None:
        """Unbind an input."""
        core = self._core
        core.bind_input(_position(index), None, "IWinMLStage.ClearInput")

    def bind_output(self, index: int, tensor: Tensor) -> None:
        """Publish an output into `tensor`, which each run then writes.

        A READ view is 0x80070057. So is, at `run`, memory that another output goes to, unless a stage in between reads
        it there.
        """
        core = self._core
        core.bind_output(_position(index), bindable(tensor))

    def request_output(self, index: int) -> None:
        """Publish an output into fresh memory of each run: earlier tensors keep earlier values."""
        core = self._core
        core.request_output(_position(index))

    def reset_output(self, index: int) -> None:
        """Withdraw the publication of an output; stages connected to it still get the value."""
        core = self._core
        core.reset_output(_position(index))

    def output(self, index: int) -> Tensor:
        """Return a published output: 0x80070490 if it is not published, 0x8007139F if no run has produced it yet."""
        core = self._core
        return Tensor(core.output(_position(index)), core.runtime)

    def schema(self) -> StageSchema:
        """Return the inputs and outputs as the engine made them."""
        return StageSchema(self._core)

    @property
    def execution_target(self) -> ExecutionTarget:
        """The target that `build` resolved, as a new object."""
        core = self._core
        kind = core.built("IWinMLStage.ExecutionTarget").target_kind
        given = core.target
        if given is not None and given.kind is kind:
            return ExecutionTarget(given)
        return ExecutionTarget(TargetCore(core.runtime, kind))

    @property
    def supports_symbolic_dimensions(self) -> bool:
        """Whether the stage has `symbolic_dimensions`: ONNX models do."""
        return self._core.is_onnx

    @property
    def symbolic_dimensions(self) -> SymbolicDimensionOverrides:
        """Extents to fix at `build`, by symbol; a live mapping. NotSupportedError 0x80004002 for `.gguf` models."""
        core = self._core
        context = "IWinMLStage.SymbolicDimensions"
        if not core.is_onnx:
            raise NotSupportedError(E_NOINTERFACE, context, f"{core.debug_name} has no symbolic dimensions")
        return SymbolicDimensionOverrides(core.options.dimensions, lambda: core.check_open_for_options(context))

    def ort_bindings(self) -> OrtNamedBindings:
        """Return the bindings by name of an ONNX Runtime stage."""
        return OrtNamedBindings(self._core)

    def ort_options(self) -> OrtStageOptions:
        """Return the session options of an ONNX Runtime stage."""
        return OrtStageOptions(self._core)

    def ort_diagnostics(self) -> OrtStageDiagnostics:
        """Return which execution provider an ONNX Runtime stage got."""
        return OrtStageDiagnostics(self._core)

    def llama_options(self) -> LlamaStageOptions:
        """Return the options of a llama.cpp stage."""
        return LlamaStageOptions(self._core)


def _position(index: Any) -> int:
    if isinstance(index, str):
        raise TypeError("index must be an integer, not str; model.ort_schema() finds the position of a name")
    return index_value(index, "index")


class StageSchema(ModelSchema):
    """Inputs and outputs of a stage; descriptors exist after `build` (before: 0x8007139F).

    An extent that nobody fixed stays 2**64-1. Before `build` the counts of a llama.cpp stage are 0, which means
    unknown.
    """

    __slots__ = ()

    @property
    def input_count(self) -> int:
        """Number of inputs; 0 = unknown."""
        return self._stage.port_count("inputs") or 0

    @property
    def output_count(self) -> int:
        """Number of outputs; 0 = unknown."""
        return self._stage.port_count("outputs") or 0

    @property
    def _stage(self) -> StageCore:
        core: Any = self._core
        assert isinstance(core, StageCore)
        return core

    def _descriptor(self, member: str, side: str, index: int) -> Descriptor:
        core = self._stage
        context = f"IWinMLStageSchema.{member}"
        executor = core.executor
        if executor is None:
            raise WinMLError(E_NOT_VALID_STATE, context, f"{core.debug_name} is not built yet; see Model.schema()")
        ports = executor.inputs if side == "inputs" else executor.outputs
        if index >= len(ports):
            raise WinMLError(E_INVALIDARG, context, f"{side}: index {index} of {len(ports)}")
        return ports[index]
