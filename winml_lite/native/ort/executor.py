"""One built ONNX stage: bindings by position, runs, outputs; implements `backend.StageExecutor`
(runtime 7, 12.1, 19, 20).

Everything that a run needs is prepared when a binding changes, so a run on stable bindings is one call into the engine:
by `RunWithBinding` when every output has its memory already, else by `Run`, which lets the engine make what is missing.
"""

from __future__ import annotations

import ctypes
import weakref
from collections.abc import Callable
from functools import partial

from ...errors import CANCELLED, E_INVALIDARG, E_NOT_VALID_STATE, NOT_FOUND, WinMLError
from ...files.artifact import OnnxArtifact, Port
from ...handles import Resource
from ...storage import Storage, check_descriptor
from ...values import FLOATING_TYPES, ExecutionTargetKind, TensorDataType
from ..backend import Sequence, StageOptions
from . import api
from .environment import owned
from .session import Session
from .slots import OutputSlots, empty_unless_running
from .state import ManagedState, StatePair, check_pairs
from .values import own_value, storage_of, value_of

_RUN = "IWinMLPipeline.Run"


class OrtExecutor:
    """One session with its bindings."""

    def __init__(
        self,
        session: Session,
        artifact: OnnxArtifact,
        options: StageOptions,
        target_kind: ExecutionTargetKind,
        provider_name: str,
    ) -> None:
        self.inputs = tuple(port.descriptor for port in session.inputs)
        self.outputs = tuple(port.descriptor for port in session.outputs)
        self.target_kind = target_kind
        self.provider_name = provider_name
        """The provider that was chosen for the stage; single operators may run on the CPU provider."""
        self._session = session
        self._run_state = session.state
        self._shareable = artifact.shareable_pairs
        pairs = check_pairs(options.state_pairs, session.inputs, session.outputs)
        self._caller_pairs = {pair.output: pair for pair in pairs} if options.caller_owns_state else {}
        self._state: ManagedState | None = None
        if pairs and not options.caller_owns_state:
            self._state = ManagedState(pairs, artifact.shareable_pairs, options.capacity_hint, session.state)
        self.sequence: Sequence | None = self._state
        self._managed_inputs = self._state.inputs if self._state is not None else frozenset()
        self._bound_inputs: list[Storage | None] = [None] * len(self.inputs)
        self._bound_outputs: list[Storage | None] = [None] * len(self.outputs)
        self._wanted = [False] * len(self.outputs)
        names = {port.name: index for index, port in enumerate(session.inputs)}
        self._passed_through = {
            index: names[port.name] for index, port in enumerate(session.outputs) if port.name in names
        }
        """Outputs that are an input: the engine neither copies them nor uses memory given for them."""
        self._symbols = _shared_symbols(session.inputs, self._managed_inputs)
        self._make_arrays()

    def _make_arrays(self) -> None:
        session = self._session
        pointer = ctypes.c_void_p()
        api.CreateRunOptions(ctypes.byref(pointer))
        self._run_options = owned(pointer, api.ReleaseRunOptions)
        count = len(self.inputs)
        self._input_name_array = (ctypes.c_char_p * count)(*session.input_names)
        self._input_names = ctypes.cast(self._input_name_array, ctypes.c_void_p)
        self._input_values = (ctypes.c_void_p * count)()
        self._slots = OutputSlots((), (), ())
        self._live_slots = [self._slots]  # what the finalizer sees
        weakref.finalize(self, empty_unless_running, self._live_slots, session.state)
        self._binding: Resource | None = None
        self._binding_inputs: list[Storage | None] = [None] * count  # what the binding has now
        self._invoke: Callable[[], int | None] = partial(int)
        self._copies: list[tuple[int, Storage]] = []
        self._late_copies: list[tuple[Storage, Storage]] = []
        self._passed_wanted: list[int] = []
        self._taken: dict[int, Storage] = {}
        self._step = 0
        self._dirty = self._outputs_dirty = True
        self._produced = False
        self._aborted = False

    # Bindings

    def bind_input(self, index: int, storage: Storage | None) -> None:
        if storage is self._bound_inputs[index]:
            return
        port = self._session.inputs[index]
        if storage is not None:
            what = f"IWinMLStage.BindInput, input {index} {port.name!r}"
            if index in self._managed_inputs:
                raise WinMLError(E_INVALIDARG, what, "the stage keeps this state itself; it cannot be bound")
            _check(storage, port, what)
        self._bound_inputs[index] = storage
        self._dirty = True

    def bind_output(self, index: int, storage: Storage | None, wanted: bool) -> None:
        port = self._session.outputs[index]
        what = f"IWinMLStage.BindOutput, output {index} {port.name!r}"
        if storage is not None:
            _check(storage, port, what)
            if not storage.writable:
                raise WinMLError(E_INVALIDARG, what, "the tensor is a read-only view")
        elif wanted and port.data_type is TensorDataType.UNDEFINED:
            raise WinMLError(E_INVALIDARG, what, "the model does not declare a tensor that a stage can hold")
        if storage is not self._bound_outputs[index] or wanted != self._wanted[index]:
            self._bound_outputs[index] = storage
            self._wanted[index] = wanted
            self._dirty = self._outputs_dirty = True

    # Runs

    def run(self) -> None:
        state = self._state
        self._produced = False
        if self._dirty or (state is not None and state.stale):
            self._prepare()
        if state is not None:
            state.admit(self._step)
        slots = self._slots
        if slots.has_fresh:
            slots.empty()
        if self._taken:
            self._taken.clear()
        run_state = self._run_state
        run_state.running = True
        try:
            status = self._invoke()
        finally:
            run_state.running = False
        if self._aborted:
            self._aborted = False
            api.RunOptionsUnsetTerminate(self._run_options.pointer)
            if status:
                api.ReleaseStatus(status)
                raise WinMLError(CANCELLED, _RUN, "the run was stopped")
        if status:
            api.raise_status(status, _RUN)
        if state is not None:
            state.measure(slots, self._step)
        if self._copies or self._passed_wanted:
            self._copy_outputs()
        self._produced = True

    def commit(self) -> None:
        if self._late_copies:
            for target, produced in self._late_copies:
                target.data[:] = produced.data
            self._late_copies = []
        if self._state is not None:
            self._state.commit(self._slots, self._taken, self._input_values)

    def discard(self) -> None:
        self._produced = False
        self._late_copies = []
        if self._state is not None:
            self._state.discard()

    def abort(self) -> None:
        if self._run_state.running:
            self._aborted = True
            api.RunOptionsSetTerminate(self._run_options.pointer)

    def output(self, index: int) -> Storage:
        context = "IWinMLStage.GetOutput"
        bound = self._bound_outputs[index]
        if bound is not None:
            return bound
        if not self._produced:
            raise WinMLError(E_NOT_VALID_STATE, context, "nothing was produced yet")
        pair = self._caller_pairs.get(index)
        if pair is not None:
            kept = self._bound_inputs[pair.input]
            if kept is not None:
                return kept
        storage = self._taken.get(index)
        if storage is None:
            storage = self._taken[index] = self._take(index)
        return storage

    def _take(self, index: int) -> Storage:
        slot = self._slots.place.get(index)
        if slot is None:
            raise WinMLError(NOT_FOUND, "IWinMLStage.GetOutput", f"output {index} was not requested")
        state = self._state
        if state is not None and index in state.outputs and (state.placed(index) or not self._slots.value(slot)):
            return state.storage(state.outputs[index])
        return storage_of(own_value(self._slots.take(slot)))

    # Preparation

    def _prepare(self) -> None:
        inputs, state = self._bound_inputs, self._state
        for index, storage in enumerate(inputs):
            if storage is None and index not in self._managed_inputs:
                name = self._session.inputs[index].name
                raise WinMLError(E_INVALIDARG, _RUN, f"input {index} {name!r} is not bound")
        extents = self._agreed_extents()
        values = self._input_values
        for index, storage in enumerate(inputs):
            if storage is not None:
                values[index] = value_of(storage)
        self._step = self._sequence_length()
        if state is not None:
            state.start(extents)
        if self._outputs_dirty or self._caller_pairs or (state is not None and state.stale):
            self._place_outputs()
            if state is not None:
                state.place(values, self._slots)
        if self._slots.has_fresh:
            self._use_arrays()
        else:
            self._use_binding()
        self._dirty = False

    def _agreed_extents(self) -> dict[str, int]:
        """Extents of the bound inputs by symbol; two inputs that disagree are 0x80070057 (runtime 19.4)."""
        found: dict[str, int] = {}
        for index, axis, symbol in self._symbols:
            storage = self._bound_inputs[index]
            if storage is not None:
                extent = storage.shape[axis]
                if found.setdefault(symbol, extent) != extent:
                    name = self._session.inputs[index].name
                    raise WinMLError(
                        E_INVALIDARG, _RUN, f"{symbol} is {extent} in {name!r} and {found[symbol]} in another input"
                    )
        return found

    def _sequence_length(self) -> int:
        """Positions of a run: last axis of the first input, last but one where that is floating."""
        storage = next((each for each in self._bound_inputs if each is not None), None)
        if storage is None or not storage.shape:
            return 1
        if storage.data_type in FLOATING_TYPES and len(storage.shape) > 1:
            return storage.shape[-2]
        return storage.shape[-1]

    def _place_outputs(self) -> None:
        """Choose the outputs of a run and where each goes."""
        state = self._state
        self._slots.empty()
        self._copies = []
        self._passed_wanted = [index for index in self._passed_through if self._wanted[index]]
        managed = state.outputs if state is not None else {}
        chosen = [
            index
            for index, storage in enumerate(self._bound_outputs)
            if storage is not None or self._wanted[index] or index in managed or index in self._caller_pairs
        ]
        if not chosen and self.outputs:
            chosen = [0]  # the engine wants at least one
        placed = [self._placed(index) for index in chosen]
        names = self._session.output_names
        self._slots = self._live_slots[0] = OutputSlots(chosen, [names[index] for index in chosen], placed)
        if self._binding is not None:
            self._binding.close()
            self._binding = None
        self._outputs_dirty = False

    def _placed(self, index: int) -> int | None:
        """The value that output `index` is written to; None when the engine makes one."""
        bound = self._bound_outputs[index]
        if self._state is not None and index in self._state.outputs:
            if bound is not None:
                self._copies.append((index, bound))
            return self._state.placed(index)
        pair = self._caller_pairs.get(index)
        if bound is None and pair is not None:
            return self._keep_in_place(pair)
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

    def _use_arrays(self) -> None:
        slots = self._slots
        self._invoke = partial(
            api.Run,
            self._session.resource.pointer,
            self._run_options.pointer,
            self._input_names,
            self._input_values,
            len(self.inputs),
            slots.names,
            slots.count,
            slots.values,
        )

    def _use_binding(self) -> None:
        session = self._session
        if self._binding is None:
            pointer = ctypes.c_void_p()
            api.CreateIoBinding(session.resource.pointer, ctypes.byref(pointer))
            self._binding = owned(pointer, api.ReleaseIoBinding, session.resource)
            self._binding_inputs = [None] * len(self.inputs)
            for index in self._managed_inputs:
                api.BindInput(self._binding.pointer, session.input_names[index], self._input_values[index] or 0)
            for slot, index in enumerate(self._slots.outputs):
                api.BindOutput(self._binding.pointer, session.output_names[index], self._slots.value(slot))
        binding = self._binding.pointer
        for index, storage in enumerate(self._bound_inputs):
            if storage is not None and storage is not self._binding_inputs[index]:
                api.BindInput(binding, session.input_names[index], value_of(storage))
                self._binding_inputs[index] = storage
        self._invoke = partial(api.RunWithBinding, session.resource.pointer, self._run_options.pointer, binding)

    # Outputs that are copied

    def _copy_outputs(self) -> None:
        """Copy what the engine could not write in place; a state of the caller waits for `commit`."""
        for index in self._passed_wanted:
            source = self._bound_inputs[self._passed_through[index]]
            if source is not None:
                self._taken[index] = Storage(source.data.copy(), source.data_type, source.shape)
        for index, target in self._copies:
            produced = self._taken.get(index) or self._take(index)
            self._taken[index] = produced
            late = index in self._caller_pairs
            if produced.descriptor != target.descriptor and not (late and produced.data.size == target.data.size):
                name = self._session.outputs[index].name
                raise WinMLError(
                    E_INVALIDARG,
                    _RUN,
                    f"output {name!r} was produced with shape {produced.shape}, the bound tensor has {target.shape}",
                )
            if late:
                self._late_copies.append((target, produced))
            else:
                target.data[:] = produced.data


def _check(storage: Storage, port: Port, what: str) -> None:
    if port.data_type is TensorDataType.UNDEFINED:
        raise WinMLError(E_INVALIDARG, what, "the model does not declare a tensor that a stage can hold")
    if port.rank_known or storage.data_type is not port.data_type:
        check_descriptor(storage, port.descriptor, what)


def _shared_symbols(inputs: tuple[Port, ...], managed: frozenset[int]) -> list[tuple[int, int, str]]:
    """(input, axis, symbol) of all free extents with a name."""
    return [
        (index, axis, symbol)
        for index, port in enumerate(inputs)
        if index not in managed
        for axis, symbol in enumerate(port.dimensions)
        if isinstance(symbol, str)
    ]
