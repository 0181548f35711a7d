"""One built ONNX stage: bindings by position, runs, outputs; implements `backend.StageExecutor`
(runtime §7, 12.1, 19, 20).

Everything that a run needs is prepared when a binding changes, so a run on stable bindings is one call into the engine:
by `RunWithBinding` when every output has its memory already, else by `Run`, which lets the engine make what is missing.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ...errors import CANCELLED, E_INVALIDARG, E_NOT_VALID_STATE, NOT_FOUND, NOT_SUPPORTED, WinMLError
from ...files.artifact import OnnxArtifact
from ...storage import Storage
from ...values import ExecutionTargetKind, TensorDataType
from ..activity import SOME_THREAD
from ..backend import Sequence, Speculation, StageOptions
from ..saved_state import SavedState
from ..segments import Segments
from ..stopping import StopRequest
from . import api
from .calls import PreparedCall, RunControl
from .pairs import StatePair, check_pairs
from .placement import CPU_PROVIDER
from .ports import Exposure, Symbols, check_port, foreign_text, misfit_reason, misfit_text, sequence_length
from .saved_state import OrtSavedState
from .session import Session
from .speculation import OrtSpeculation, find_rows
from .state import ManagedState
from .values import copied, own_value, storage_of, value_of

_RUN = "IWinMLPipeline.Run"


class OrtExecutor:
    """One session with its bindings."""

    segments: Segments | None = None

    _is_involved = True
    """Whether a run is more than a call on given memory: state, fresh outputs or copies. Known once it is prepared."""
    _total: int | None = None
    """Positions at the end of a run, where the inputs tell."""

    def __init__(
        self,
        session: Session,
        artifact: OnnxArtifact,
        options: StageOptions,
        target_kind: ExecutionTargetKind,
        provider_name: str,
        twin_of: OrtExecutor | None = None,
    ) -> None:
        """`twin_of`: an executor of the same session whose state this one shares."""
        self.inputs = tuple(port.descriptor for port in session.inputs)
        self.outputs = tuple(port.descriptor for port in session.outputs)
        self.target_kind = target_kind
        self.provider_name = provider_name
        """The provider that was chosen for the stage; single operators may run on the CPU provider."""
        self._session = session
        self._given = session, artifact, options, target_kind, provider_name
        self._activity = session.activity
        self._shareable = artifact.shareable_pairs
        pairs = check_pairs(options.state_pairs, session.inputs, session.outputs)
        self._caller_pairs = {pair.output: pair for pair in pairs} if options.caller_owns_state else {}
        self._state: ManagedState | None = (
            twin_of._state if twin_of is not None else _managed_state(pairs, artifact, options)
        )
        self.sequence: Sequence | None = self._state
        self._managed_inputs = self._state.inputs if self._state is not None else frozenset()
        self._open_inputs = tuple(index for index in range(len(self.inputs)) if index not in self._managed_inputs)
        """Inputs that the caller binds: a few of many, where a decoder keeps its state itself."""
        self._bound_inputs: list[Storage | None] = [None] * len(self.inputs)
        self._bound_outputs: list[Storage | None] = [None] * len(self.outputs)
        self._wanted = [False] * len(self.outputs)
        names = {port.name: index for index, port in enumerate(session.inputs)}
        self._passed_through = {i: names[port.name] for i, port in enumerate(session.outputs) if port.name in names}
        """Outputs that are an input: the engine neither copies them nor uses memory given for them."""
        self._exposure = Exposure(session.outputs)
        self._symbols = Symbols(session.inputs, self._managed_inputs)
        self._control: RunControl = RunControl(session) if twin_of is None else twin_of._control
        self._call = PreparedCall(session, self._open_inputs, self._control, provider_name == CPU_PROVIDER)
        self._invoke: Callable[[], int | None] = int  # replaced before the first run
        self._copies: list[tuple[int, Storage]] = []
        self._late_copies: list[tuple[Storage, Storage]] = []
        self._passed_wanted: list[int] = []
        self._taken: dict[int, Storage] = {}
        self._published_states: list[int] = []  # state outputs that are read after a run
        self._presents: dict[int, Storage] = {}
        """What they were, from `commit` on. The state may have the same memory: who reads one gets a copy."""
        self._rows = find_rows(session.inputs, session.outputs, self._state)
        self._step = 0
        self._dirty = self._outputs_dirty = True
        self._produced = False
        self._twin: OrtExecutor | None = None

    @property
    def node_counts(self) -> dict[str, int] | None:
        artifact = self._given[1]
        return self._session.node_counts() if artifact.format == "onnx" else None  # of the ORT format nothing is told

    # Bindings

    def bind_input(self, index: int, storage: Storage | None) -> None:
        if storage is self._bound_inputs[index]:
            return
        port = self._session.inputs[index]
        if storage is not None:
            what = f"IWinMLStage.BindInput, input {index} {port.name!r}"
            if index in self._managed_inputs:
                raise WinMLError(E_INVALIDARG, what, "the stage keeps this state itself; it cannot be bound")
            check_port(storage, port, what)
        if storage is not None and storage.is_alias:
            self._exposure.alias_inputs.add(index)
        elif self._exposure.alias_inputs:
            self._exposure.alias_inputs.discard(index)
        self._bound_inputs[index] = storage
        self._call.binding_inputs[index] = None  # or what was bound before would stay pinned until the next run
        self._dirty = True

    def bind_output(self, index: int, storage: Storage | None, wanted: bool) -> None:
        port = self._session.outputs[index]
        what = f"IWinMLStage.BindOutput, output {index} {port.name!r}"
        if storage is not None:
            check_port(storage, port, what)
            if not storage.writable:
                raise WinMLError(E_INVALIDARG, what, "the tensor is a read-only view")
        elif wanted and port.data_type is TensorDataType.UNDEFINED:
            raise WinMLError(NOT_SUPPORTED, what, foreign_text(port))
        if storage is not self._bound_outputs[index] or wanted != self._wanted[index]:
            self._bound_outputs[index] = storage
            self._wanted[index] = wanted
            self._dirty = self._outputs_dirty = True
            self._exposure.outputs.pop(index, None)
            if storage is not None and index not in self._caller_pairs and index not in self._passed_through:
                self._exposure.outputs[index] = storage

    # Runs

    def run(self) -> None:
        self._produced = False
        if self._dirty or self._is_involved:
            self._begin()
        control, activity = self._control, self._activity
        if control.stopped:
            control.clear_stop()  # it came after the run that it was meant for
        try:
            activity.running = SOME_THREAD
            if activity.barred:
                activity.refuse()
            request = control.request
            if request is not None and request.cancelled is not None:
                request.check_cancelled()
            status = self._invoke()
        finally:
            activity.running = 0
        if status or control.stopped:
            self._end_badly(status)
        if self._is_involved:
            if self._state is not None:
                self._state.measure(self._call.slots, self._step)
            if self._copies or self._passed_wanted:
                self._copy_outputs()
        self._produced = True

    def _begin(self) -> None:
        """Do what comes before the call of an unprepared or involved run."""
        if self._activity.barred:  # in a forked child a lock of the engine's may be held for ever
            self._activity.refuse()
        state = self._state
        if self._dirty or (state is not None and state.placed_in is not self._call.slots):
            self._prepare()
        if state is not None:
            state.admit(self._step, self._total)
        slots = self._call.slots
        if slots.has_fresh:
            slots.empty()
        self._taken.clear()
        self._presents.clear()
        self._is_involved = state is not None or slots.has_fresh or bool(self._copies or self._passed_wanted)

    def _end_badly(self, status: int | None) -> None:
        """Raise for a failed run; one that ended well in spite of `abort` is good."""
        if self._activity.barred:
            self._activity.refuse()  # a daemon thread: it ends here, with the process
        if self._control.stopped:
            self._control.clear_stop()
            if status:
                api.ReleaseStatus(status)
                raise WinMLError(CANCELLED, _RUN, "the run was stopped")
        if status:
            try:
                api.raise_status(status, _RUN)
            except WinMLError as error:
                reason = misfit_reason(error.native_message or "", self._session.outputs, self._bound_outputs)
                if reason is None:
                    raise
                raise WinMLError(E_INVALIDARG, _RUN, reason) from error

    def commit(self) -> None:
        if self._late_copies:
            for target, produced in self._late_copies:
                target.data[:] = produced.data
            self._late_copies = []
        state = self._state
        if state is not None:
            for index in self._published_states:
                self.output(index)
            state.commit(self._call.slots, self._taken, self._call.input_values)
            if self._taken:
                self._presents = {index: self._taken.pop(index) for index in state.outputs if index in self._taken}

    def discard(self) -> None:
        self._produced = False
        self._late_copies = []
        if self._state is not None:
            self._state.discard()

    def abort(self) -> None:
        if self._activity.running:
            self._control.stop()

    def watch(self, request: StopRequest) -> None:
        self._control.request = request

    def output(self, index: int) -> Storage:
        context = "IWinMLStage.GetOutput"
        bound = self._bound_outputs[index]
        if bound is not None:
            return bound
        if not self._produced:
            raise WinMLError(E_NOT_VALID_STATE, context, "nothing was produced yet")
        pair = self._caller_pairs.get(index)
        if pair is not None and not self._late_copies:  # before `commit`, the new state is in memory of its own
            kept = self._bound_inputs[pair.input]
            if kept is not None:
                return kept
        storage = self._taken.get(index)
        if storage is None:
            storage = self._taken[index] = self._take(index)
        return storage

    def _take(self, index: int) -> Storage:
        context = "IWinMLStage.GetOutput"
        present = self._presents.get(index)
        if present is not None:
            return copied(present)
        slots, state = self._call.slots, self._state
        slot = slots.place.get(index)
        if slot is None:
            raise WinMLError(NOT_FOUND, context, f"output {index} was not requested")
        if state is not None and index in state.outputs and state.placed(index):
            return state.storage(state.outputs[index])
        value = slots.take(slot)
        if not value:
            raise WinMLError(E_NOT_VALID_STATE, context, "the last run wrote this output elsewhere")
        return storage_of(own_value(value))

    # Steps over several positions

    @property
    def speculation(self) -> Speculation | None:
        state = self._state
        if state is None or self._rows is None:
            return None
        return OrtSpeculation(self, state, self._session, self._rows)

    @property
    def saved_state(self) -> SavedState | None:
        return None if self._state is None else OrtSavedState(self._state)

    def twin(self) -> OrtExecutor:
        """Return the executor with bindings of its own that runs on the state of this one.

        It gets the present bindings of inputs. The outputs of this one are made to stay as the last run left them.
        """
        if self._produced:
            for index in self._presents:
                self.output(index)
        twin = self._twin = self._twin or OrtExecutor(*self._given, twin_of=self)
        for index in self._open_inputs:
            twin.bind_input(index, self._bound_inputs[index])
        return twin

    def let_go(self) -> None:
        """Refer to no tensor any more: neither to those that are bound, nor to those that were produced."""
        for index in self._open_inputs:
            self.bind_input(index, None)
        self._taken.clear()

    # Preparation

    def _prepare(self) -> None:
        self._dirty = True  # until the end, whatever interrupts
        inputs, state = self._bound_inputs, self._state
        for index in self._open_inputs:
            if inputs[index] is None:
                name = self._session.inputs[index].name
                raise WinMLError(E_INVALIDARG, _RUN, f"input {index} {name!r} is not bound")
        extents = self._symbols.agreed(inputs)
        self._step = sequence_length(inputs)
        exposure = self._exposure
        copied = set(exposure.misjudged)
        for output, target in exposure.outputs.items():  # here and not in a function, since it runs for each token
            if target in inputs:
                copied.add(output)
            for index in self._open_inputs if target.is_alias else exposure.alias_inputs:
                storage = inputs[index]
                if storage is not None and np.may_share_memory(storage.data, target.data):
                    copied.add(output)
        if copied != exposure.copied:
            exposure.copied = copied
            self._outputs_dirty = True
        if state is not None:
            symbol = state.total_symbol
            self._total = extents.get(symbol) if symbol is not None and symbol not in self._symbols.of_step else None
            state.start(extents)
        if self._outputs_dirty or self._caller_pairs or (state is not None and state.placed_in is not self._call.slots):
            self._place_outputs()
            if state is not None:
                state.place(self._call.input_values, self._call.slots)
        self._invoke = self._call.prepare(inputs)
        self._dirty = False

    def _place_outputs(self) -> None:
        """Choose the outputs of a run and where each goes."""
        state = self._state
        self._copies = []
        self._passed_wanted = [index for index in self._passed_through if self._wanted[index]]
        managed = state.outputs if state is not None else {}
        self._published_states = [
            index for index in managed if self._wanted[index] and self._bound_outputs[index] is None
        ]
        chosen = [
            index
            for index, storage in enumerate(self._bound_outputs)
            if storage is not None or self._wanted[index] or index in managed or index in self._caller_pairs
        ]
        if not chosen and self.outputs:
            chosen = [0]  # the engine wants at least one
        self._call.place(chosen, [self._placed(index) for index in chosen])
        self._outputs_dirty = False

    def _placed(self, index: int) -> int | None:
        """The value that output `index` is written to; None when the engine makes one."""
        bound = self._bound_outputs[index]
        if self._state is not None and index in self._state.outputs:
            if bound is not None:
                self._copies.append((index, bound))
            return self._state.placed(index)
        pair = self._caller_pairs.get(index)
        if pair is not None and bound in (None, self._bound_inputs[pair.input]):
            return self._keep_in_place(pair)
        if bound is not None and index in self._exposure.copied:
            self._copies.append((index, bound))
            return None
        if bound is not None and index in self._passed_through:
            self._passed_wanted.append(index)
            self._copies.append((index, bound))
            return None
        return value_of(bound) if bound is not None else None

    def _keep_in_place(self, pair: StatePair) -> int | None:
        """A caller-owned state stays in its input tensor: written there directly, or copied back at `commit`."""
        storage = self._bound_inputs[pair.input]
        if storage is None or not storage.writable:
            raise WinMLError(
                E_INVALIDARG, _RUN, f"the state {pair.name!r} is a read-only view: bind output {pair.output} as well"
            )
        if (pair.input, pair.output) in self._shareable:
            return value_of(storage)
        self._copies.append((pair.output, storage))
        return None

    # Outputs that are copied

    def _copy_outputs(self) -> None:
        """Copy what the engine could not write in place; a state of the caller waits for `commit`."""
        for index in self._passed_wanted:
            source = self._bound_inputs[self._passed_through[index]]
            if source is not None:
                self._taken[index] = copied(source)
        for index, target in self._copies:
            produced = self._taken.get(index) or self._take(index)
            self._taken[index] = produced
            late = index in self._caller_pairs
            if produced.descriptor != target.descriptor and not (late and produced.data.size == target.data.size):
                name = self._session.outputs[index].name
                raise WinMLError(E_INVALIDARG, _RUN, misfit_text(name, produced.shape, target.shape))
            if late:
                self._late_copies.append((target, produced))
            else:
                target.data[:] = produced.data


def _managed_state(pairs: tuple[StatePair, ...], artifact: OnnxArtifact, options: StageOptions) -> ManagedState | None:
    """The state that a stage keeps itself, if it is declared so."""
    if not pairs or options.caller_owns_state:
        return None
    return ManagedState(pairs, artifact.shareable_pairs, options.capacity_hint)
