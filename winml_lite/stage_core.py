"""What a stage is before and after `build`: recorded bindings and options, then an executor of an engine.

Before `build` the core only records. `build` makes the executor and gives it what was recorded; from then on every
change goes to the executor at once, under the pipeline's gate. Not here: the public class (`stage.py`), the graph
(`builder.py`).
"""

from __future__ import annotations

from dataclasses import dataclass

from .errors import E_INVALIDARG, E_NOT_VALID_STATE, LOCKED, NOT_FOUND, WinMLError
from .files.artifact import GgufArtifact, OnnxArtifact
from .gate import Gate
from .native.backend import StageExecutor
from .stage_options import RecordedOptions
from .stage_source import StageSource
from .storage import Storage, check_descriptor
from .target import RuntimeCore, TargetCore
from .values import Descriptor


@dataclass(slots=True)
class Publication:
    """How one output is published: into the caller's storage, or (None) into fresh memory of each run."""

    storage: Storage | None
    since: int
    """Successful runs of the pipeline before the publication; a later one has produced the output."""


@dataclass(frozen=True, slots=True)
class PendingStep:
    """A step over several positions of which a part may still be taken back."""

    base: int
    """The position before it."""
    width: int
    run_count: int
    """Runs of the pipeline before it; a later run makes the step final."""


class StageCore:
    """One stage of one builder, then of one pipeline."""

    __slots__ = (
        "__weakref__",
        "debug_name",
        "executor",
        "fed_inputs",
        "gate",
        "has_encoder",
        "inputs",
        "internal_outputs",
        "missing",
        "options",
        "outputs",
        "pending_step",
        "seed_inputs",
        "settled",
        "source",
        "target",
    )

    def __init__(self, source: StageSource, target: TargetCore | None, debug_name: str) -> None:
        self.source = source
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
        self.settled: dict[int, Storage | None] = {}
        """Where outputs go that nobody but the graph reads, once `settle_output` was called for them."""
        self.missing: set[int] = set()
        """Inputs of a built stage that the caller has yet to bind."""
        self.executor: StageExecutor | None = None
        self.gate = Gate()
        self.pending_step: PendingStep | None = None
        self.has_encoder = False
        """Whether an encoder was made for this stage."""

    @property
    def is_onnx(self) -> bool:
        return isinstance(self.source.artifact, OnnxArtifact)

    @property
    def is_llama(self) -> bool:
        return isinstance(self.source.artifact, GgufArtifact)

    @property
    def runtime(self) -> RuntimeCore:
        return self.source.runtime

    def port_count(self, side: str) -> int | None:
        """Number of inputs or outputs; None while it is unknown (llama.cpp before `build`)."""
        executor = self.executor
        if executor is not None:
            return len(executor.inputs if side == "inputs" else executor.outputs)
        ports = self.source.ports(side)
        return None if ports is None else len(ports)

    def declared(self, side: str, index: int) -> Descriptor:
        """Return a port as an ONNX model or a processor declares it."""
        return (self.source.ports(side) or ())[index]

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
        elif storage is not None and not self.source.accepts(index, storage.descriptor, executor.inputs[index]):
            # The pipeline binds this input itself, with the seed in the first iteration.
            check_descriptor(storage, executor.inputs[index], context)
        self._record_input(index, storage)

    def _check_unfed(self, index: int, context: str) -> None:
        if index in self.fed_inputs:
            raise WinMLError(E_INVALIDARG, context, f"input {index} of {self.debug_name} is fed by a connection")

    def _record_input(self, index: int, storage: Storage | None) -> None:
        if storage is None:
            self.inputs.pop(index, None)
            if self.executor is not None:
                self.missing = self._find_missing()
            return
        self.inputs[index] = storage
        options = self.options
        if options.caller_owns_state and any(source == index for source, _ in options.state_pairs):  # written in place
            self.gate.has_unchecked_outputs = True
        if self.missing:
            self.missing.discard(index)

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
        self.gate.has_unchecked_outputs = True

    def _place_output(self, executor: StageExecutor, index: int, publication: Publication | None) -> None:
        storage = self.settled.get(index) if publication is None else publication.storage
        executor.bind_output(index, storage, publication is not None or index in self.internal_outputs)

    def settle_output(self, index: int, storage: Storage | None) -> None:
        """Let an output that only connections read always go to `storage`, except while published; None ends that."""
        self.settled[index] = storage
        self._place_output(self.built("IWinMLPipeline.Run"), index, self.outputs.get(index))

    def place_outputs(self, executor: StageExecutor) -> None:
        """Tell the executor where each output goes."""
        for index in range(len(executor.outputs)):
            self._place_output(executor, index, self.outputs.get(index))

    def in_place_outputs(self) -> dict[int, Storage]:
        """Return the state that stays in the caller's tensors: state outputs that no tensor is bound to, and where."""
        if not self.options.caller_owns_state:
            return {}
        bound = {output for output, publication in self.outputs.items() if publication.storage is not None}
        return {
            output: self.inputs[source]
            for source, output in self.options.state_pairs
            if output not in bound and source in self.inputs
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
            self._check_decoded(context)
            return publication.storage
        gate = self.gate
        executor = self.executor
        if executor is None or not gate.has_outputs or gate.run_count <= publication.since:
            raise WinMLError(E_NOT_VALID_STATE, context, gate.missing_output(index))
        return gate.hold(context, executor.output, index)

    def _check_decoded(self, context: str) -> None:
        segments = None if self.executor is None else self.executor.segments
        if segments is not None and segments.is_last:
            raise WinMLError(E_NOT_VALID_STATE, context, "embedding rows give no output; run tokens after them")

    def drop_segment(self) -> None:
        """Withdraw the selection of embedding rows for the next run."""
        segments = None if self.executor is None else self.executor.segments
        if segments is not None:
            segments.clear()
            self.missing = self._find_missing()

    # Build and run

    def adopt(self, executor: StageExecutor, gate: Gate) -> None:
        """Go over from recording to the executor. The executor has been given the bindings already."""
        self.executor = executor
        self.gate = gate
        self.missing = self._find_missing()

    def _find_missing(self) -> set[int]:
        """Inputs that are neither bound, nor fed by another stage, nor state that the executor keeps."""
        options = self.options
        kept = set() if options.caller_owns_state else {pair[0] for pair in options.state_pairs}
        return set(range(self.port_count("inputs") or 0)) - self.inputs.keys() - self.fed_inputs - kept

    def check_locks(self, context: str) -> None:
        """Raise 0x800700D4 when a bound input is locked for writing, or a bound output at all."""
        in_place = self.in_place_outputs().values()
        segments = None if self.executor is None else self.executor.segments
        rows = None if segments is None else segments.selected
        blocked = (
            (rows is not None and rows.is_locked_for_writing)
            or any(storage.is_locked_for_writing for storage in self.inputs.values())
            or any(p.storage is not None and p.storage.is_locked for p in self.outputs.values())
            or any(storage.is_locked for storage in in_place)
            or any(storage.is_locked for storage in self.source.kept)
        )
        if blocked:
            raise WinMLError(LOCKED, context, f"a tensor bound to {self.debug_name} is locked; close its lock first")
