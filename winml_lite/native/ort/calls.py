"""The prepared call of one stage: names, values and run options as the engine wants them, built once and kept.

Not here: which outputs a run has and where they go (`executor.py`).
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable, Sequence
from functools import partial

from ...handles import Resource, finalizer
from ...storage import Storage
from ..activity import is_leaving
from ..stopping import StopRequest
from . import api
from .environment import owned
from .session import Session
from .slots import OutputSlots
from .values import value_of


class RunControl:
    """Run options of a stage, and how its present run is stopped."""

    def __init__(self, session: Session) -> None:
        pointer = ctypes.c_void_p()
        api.CreateRunOptions(ctypes.byref(pointer))
        self.options = owned(pointer, api.ReleaseRunOptions)
        session.activity.stop = partial(api.RunOptionsSetTerminate, self.options.pointer)
        self._lock = threading.Lock()
        self.stopped = False
        """`stop` was called; `clear_stop` is due."""
        self.request: StopRequest | None = None

    def stop(self) -> None:
        """Make the present run end early. May be called from any thread."""
        with self._lock:
            self.stopped = True
            api.RunOptionsSetTerminate(self.options.pointer)

    def clear_stop(self) -> None:
        """Let later runs go on."""
        with self._lock:
            self.stopped = False
            api.RunOptionsUnsetTerminate(self.options.pointer)


class PreparedCall:
    """Arguments of `Run`, or a binding for `RunWithBinding`, for the inputs and outputs of the next runs."""

    def __init__(self, session: Session, open_inputs: Sequence[int], control: RunControl, may_bind: bool) -> None:
        """`open_inputs` are those that the caller binds; the values of others are put into `input_values`.

        `may_bind`: whether a binding reads its inputs when it runs. Providers with memory of their own, which may be
        the CPU's, get their copies when an input is bound, and would miss what is written to it later.
        """
        self._session = session
        self._may_bind = may_bind
        self._open_inputs = open_inputs
        self._run_options = control.options
        self._count = len(session.inputs)
        self._name_array = (ctypes.c_char_p * self._count)(*session.input_names)
        self._names = ctypes.c_void_p(ctypes.addressof(self._name_array))
        self.input_values = (ctypes.c_void_p * self._count)()
        self.slots = OutputSlots((), (), ())
        self._live_slots = [self.slots]
        finalizer(self, _empty, self._live_slots)
        self._binding: Resource | None = None
        self.binding_inputs: list[Storage | None] = [None] * self._count
        """What the binding has, None where the next run binds anew. Storages and not values, because a new value may
        lie where an old one was.
        """

    def place(self, outputs: Sequence[int], placed: Sequence[int | None]) -> None:
        """Choose the outputs of the next runs, each with its value or None where the engine makes one."""
        self.slots.empty()
        names = [self._session.output_names[index] for index in outputs]
        self.slots = self._live_slots[0] = OutputSlots(outputs, names, placed)
        if self._binding is not None:
            self._binding.close()
            self._binding = None

    def prepare(self, inputs: Sequence[Storage | None]) -> Callable[[], int | None]:
        """Return the call; it gives back the status. The other inputs have their values already."""
        for index in self._open_inputs:
            storage = inputs[index]
            if storage is not None:
                self.input_values[index] = value_of(storage)
        session, slots = self._session.resource.pointer, self.slots
        if slots.has_fresh or not self._may_bind:
            arguments = self._names, self.input_values, self._count, slots.names, slots.count, slots.values
            return partial(api.Run, session, self._run_options.pointer, *arguments)
        return partial(api.RunWithBinding, session, self._run_options.pointer, self._bind(inputs))

    def _bind(self, inputs: Sequence[Storage | None]) -> int:
        """Bring the binding up to date; only what changed is bound again."""
        session = self._session
        binding = self._binding
        if binding is None:
            pointer = ctypes.c_void_p()
            api.CreateIoBinding(session.resource.pointer, ctypes.byref(pointer))
            binding = owned(pointer, api.ReleaseIoBinding, session.resource)
            for index in range(self._count):
                if index not in self._open_inputs:
                    api.BindInput(binding.pointer, session.input_names[index], self.input_values[index] or 0)
            for slot, index in enumerate(self.slots.outputs):
                api.BindOutput(binding.pointer, session.output_names[index], self.slots.value(slot))
            self.binding_inputs = [None] * self._count
            self._binding = binding
        for index in self._open_inputs:
            storage = inputs[index]
            if storage is not None and storage is not self.binding_inputs[index]:
                api.BindInput(binding.pointer, session.input_names[index], value_of(storage))
                self.binding_inputs[index] = storage
        return binding.pointer


def _empty(slots: list[OutputSlots]) -> None:
    """Finalizer of a call. At exit, what a daemon thread may use is left alone."""
    if not is_leaving():
        slots[0].empty()
