"""What a stage is before and after `build`: recorded bindings and options, then an executor of an engine.

Before `build` the core only records. `build` makes the executor and gives it what was recorded; from then on every
change goes to the executor at once, under the pipeline's gate. Not here: the public class (`stage.py`), the graph
(`builder.py`).
"""

from __future__ import annotations

from dataclasses import dataclass, field

from .errors import E_INVALIDARG, E_NOT_VALID_STATE, LOCKED, NOT_FOUND, WinMLError
from .files.artifact import OnnxArtifact
from .gate import Gate
from .model import ModelCore
from .native.backend import LlamaOptions, OrtOptions, StageExecutor, StageOptions
from .storage import Storage, check_descriptor
from .target import TargetCore
from .values import Descriptor


@dataclass(slots=True)
class Publication:
    """How one output is published: into the caller's storage, or (None) into fresh memory of each run."""

    storage: Storage | None
    since: int
    """Successful runs of the pipeline before the publication; a later one has produced the output."""


@dataclass(slots=True)
class RecordedOptions:
    """Options that a caller may set until `build`."""

    capacity_hint: int = 0
    caller_owns_state: bool = False
    state_pairs: list[tuple[int, int]] = field(default_factory=list)
    dimensions: dict[str, int] = field(default_factory=dict)
    ort: OrtOptions | None = None
    context_group: str | None = None
    llama: LlamaOptions | None = None


class StageCore:
    """One stage of one builder, then of one pipeline."""

    __slots__ = (
        "__weakref__",
        "debug_name",
        "executor",
        "fed_inputs",
        "gate",
        "inputs",
        "internal_outputs",
        "model",
        "options",
        "outputs",
        "seed_inputs",
        "target",
    )

    def __init__(self, model: ModelCore, target: TargetCore | None, debug_name: str) -> None:
        self.model = model
        self.target = target
        self.debug_name = debug_name
        self.options = RecordedOptions()
        self.inputs: dict[int, Storage] = {}
        self.outputs: dict[int, Publication] = {}
        self.fed_inputs: set[int] = set()
        """Inputs that another stage feeds in the same iteration."""
        self.seed_inputs: set[int] = set()
        """Inputs that get the value of the iteration before; what is bound there is used in the first one."""
        self.internal_outputs: set[int] = set()
        """Outputs that the graph needs, published or not."""
        self.executor: StageExecutor | None = None
        self.gate = Gate()

    @property
    def is_onnx(self) -> bool:
        return isinstance(self.model.artifact, OnnxArtifact)

    def port_count(self, side: str) -> int | None:
        """Number of inputs or outputs; None while it is unknown (llama.cpp before `build`)."""
        executor = self.executor
        if executor is not None:
            return len(executor.inputs if side == "inputs" else executor.outputs)
        artifact = self.model.artifact
        if isinstance(artifact, OnnxArtifact):
            return len(artifact.inputs if side == "inputs" else artifact.outputs)
        return None

    def declared(self, side: str, index: int) -> Descriptor:
        """Return a port as an ONNX model declares it."""
        artifact = self.model.artifact
        assert isinstance(artifact, OnnxArtifact)
        return (artifact.inputs if side == "inputs" else artifact.outputs)[index].descriptor

    def check_index(self, side: str, index: int, context: str) -> None:
        """Raise 0x80070057 for an index that is known to be out of range."""
        count = self.port_count(side)
        if count is not None and index >= count:
            raise WinMLError(
                E_INVALIDARG, context, f"{self.debug_name} has {count} {side}, index {index} is none of them"
            )

    def built(self, context: str) -> StageExecutor:
        """Return the executor; before `build` 0x8007139F."""
        executor = self.executor
        if executor is None:
            raise WinMLError(E_NOT_VALID_STATE, context, f"{self.debug_name} is not built yet")
        return executor

    def check_open_for_options(self, context: str) -> None:
        """Raise 0x8007139F after `build`."""
        if self.executor is not None:
            raise WinMLError(E_NOT_VALID_STATE, context, f"{self.debug_name} is built; set options before build")

    # Bindings

    def bind_input(self, index: int, storage: Storage | None, context: str = "IWinMLStage.BindInput") -> None:
        """Bind an input (None: unbind) until it is bound again."""
        executor = self.executor
        if executor is not None:
            self.gate.hold(context, self._rebind, executor, index, storage, context)
            return
        self.check_index("inputs", index, context)
        self._check_unfed(index, context)
        self._record_input(index, storage)

    def _rebind(self, executor: StageExecutor, index: int, storage: Storage | None, context: str) -> None:
        if index >= len(executor.inputs):
            self.check_index("inputs", index, context)
        if index in self.fed_inputs:
            self._check_unfed(index, context)
        if index not in self.seed_inputs:
            executor.bind_input(index, storage)
        elif storage is not None:
            # The pipeline binds this input itself, with the seed in the first iteration.
            check_descriptor(storage, executor.inputs[index], context)
        self._record_input(index, storage)

    def _check_unfed(self, index: int, context: str) -> None:
        if index in self.fed_inputs:
            raise WinMLError(E_INVALIDARG, context, f"input {index} of {self.debug_name} is fed by a connection")

    def _record_input(self, index: int, storage: Storage | None) -> None:
        if storage is None:
            self.inputs.pop(index, None)
        else:
            self.inputs[index] = storage

    def bind_output(self, index: int, storage: Storage) -> None:
        """Publish an output into the caller's storage."""
        context = "IWinMLStage.BindOutput"
        if not storage.writable:
            self.check_index("outputs", index, context)
            raise WinMLError(E_INVALIDARG, context, "the tensor is a read-only view and cannot take an output")
        self._publish(index, Publication(storage, 0), context)

    def request_output(self, index: int) -> None:
        """Publish an output into fresh memory of each run; what a run has produced already stays readable."""
        present = self.outputs.get(index)
        if present is None or present.storage is not None:
            self._publish(index, Publication(None, self.gate.run_count), "IWinMLStage.RequestOutput")
        else:
            self._publish(index, present, "IWinMLStage.RequestOutput")

    def reset_output(self, index: int) -> None:
        """Withdraw the publication of an output."""
        self._publish(index, None, "IWinMLStage.ResetOutput")

    def _publish(self, index: int, publication: Publication | None, context: str) -> None:
        executor = self.executor
        if executor is not None:
            self.gate.hold(context, self._republish, executor, index, publication, context)
            return
        self.check_index("outputs", index, context)
        self._record_output(index, publication)

    def _republish(self, executor: StageExecutor, index: int, publication: Publication | None, context: str) -> None:
        self.check_index("outputs", index, context)
        self._place_output(executor, index, publication)
        self._record_output(index, publication)

    def _record_output(self, index: int, publication: Publication | None) -> None:
        if publication is None:
            self.outputs.pop(index, None)
        else:
            self.outputs[index] = publication

    def _place_output(self, executor: StageExecutor, index: int, publication: Publication | None) -> None:
        storage = None if publication is None else publication.storage
        executor.bind_output(index, storage, publication is not None or index in self.internal_outputs)

    def place_outputs(self, executor: StageExecutor) -> None:
        """Tell the executor where each output goes."""
        for index in range(len(executor.outputs)):
            self._place_output(executor, index, self.outputs.get(index))

    def in_place_outputs(self) -> dict[int, Storage]:
        """Return the state that stays in the caller's tensors: unpublished state outputs and their input's storage."""
        if not self.options.caller_owns_state:
            return {}
        return {
            output: self.inputs[source]
            for source, output in self.options.state_pairs
            if output not in self.outputs and source in self.inputs
        }

    def output(self, index: int) -> Storage:
        """Return the storage of a published output."""
        context = "IWinMLStage.GetOutput"
        self.check_index("outputs", index, context)
        publication = self.outputs.get(index)
        if publication is None:
            in_place = self.in_place_outputs().get(index)
            if in_place is not None:
                return in_place
            raise WinMLError(
                NOT_FOUND,
                context,
                f"output {index} of {self.debug_name} is not published: request_output({index}) first",
            )
        if publication.storage is not None:
            return publication.storage
        gate = self.gate
        executor = self.executor
        if executor is None or not gate.has_outputs or gate.run_count <= publication.since:
            raise WinMLError(E_NOT_VALID_STATE, context, f"no successful run has produced output {index} yet")
        return executor.output(index)

    # Build and run

    def engine_options(self) -> StageOptions:
        """Return what was set, in the form the engines take."""
        options = self.options
        return StageOptions(
            state_pairs=tuple(options.state_pairs),
            caller_owns_state=options.caller_owns_state,
            capacity_hint=options.capacity_hint,
            dimension_overrides=tuple(options.dimensions.items()),
            ort=options.ort,
            llama=options.llama,
            debug_name=self.debug_name,
        )

    def adopt(self, executor: StageExecutor, gate: Gate) -> None:
        """Go over from recording to the executor. The executor has been given the bindings already."""
        self.executor = executor
        self.gate = gate

    def required_inputs(self) -> frozenset[int]:
        """Return the inputs that the caller must bind: not fed by another stage, not state that the executor keeps."""
        options = self.options
        kept = set() if options.caller_owns_state else {pair[0] for pair in options.state_pairs}
        return frozenset(range(self.port_count("inputs") or 0)) - self.fed_inputs - kept

    def check_locks(self, context: str) -> None:
        """Raise 0x800700D4 when a bound input is locked for writing, or a bound output at all."""
        in_place = self.in_place_outputs().values()
        blocked = (
            any(storage.is_locked_for_writing for storage in self.inputs.values())
            or any(p.storage is not None and p.storage.is_locked for p in self.outputs.values())
            or any(storage.is_locked for storage in in_place)
        )
        if blocked:
            raise WinMLError(LOCKED, context, f"a tensor bound to {self.debug_name} is locked; close its lock first")
