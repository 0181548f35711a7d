"""A processor as a stage: the executor that runs on the host instead of an engine (runtime §6 and 15.1, tensors §8).

Here: what a kind of processor implements (`ProcessorWork`), the record that undoes a failed run (`Journal`), the
executor. Not here: the kinds (`decode_processors.py`, `function_processor.py`), the public class (`processor.py`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy.typing as npt

from .errors import CANCELLED, E_INVALIDARG, E_NOT_VALID_STATE, WinMLError, recast
from .native.backend import Sequence as StageSequence
from .native.backend import Speculation
from .native.saved_state import SavedState
from .native.segments import Segments
from .native.stopping import StopRequest
from .storage import Storage, check_descriptor
from .values import Descriptor, ExecutionTargetKind


class Journal:
    """Remembers what was in the caller's tensors before a run changed them, until the run is committed."""

    __slots__ = ("_entries",)

    def __init__(self) -> None:
        self._entries: list[tuple[npt.NDArray[Any], npt.NDArray[Any]]] = []

    def write(self, cells: npt.NDArray[Any], value: Any) -> None:
        """Assign `value` to `cells`, a view of a tensor's memory."""
        self._entries.append((cells, cells.copy()))
        cells[...] = value

    def take_back(self) -> None:
        """Undo every change, the last first."""
        for cells, before in reversed(self._entries):
            cells[...] = before
        self._entries.clear()

    def forget(self) -> None:
        """Let the changes stand."""
        self._entries.clear()


class ProcessorWork(Protocol):
    """One kind of processor. It has no state of its own, so several stages may run it at the same time."""

    name: str
    inputs: tuple[Descriptor, ...]
    outputs: tuple[Descriptor, ...]
    kept: tuple[Storage, ...]
    """The caller's tensors that the outputs are, in their order; empty where each run makes new ones."""

    def accepts(self, given: Descriptor, wanted: Descriptor) -> bool:
        """Return whether an output `given` of another stage may feed the input `wanted`."""

    def check_input(self, index: int, storage: Storage, what: str) -> None:
        """Raise 0x80070057 for memory that input `index` does not take; `what` names the binding."""

    def perform(
        self, inputs: Sequence[Storage], places: Sequence[Storage | None], journal: Journal
    ) -> Sequence[Storage]:
        """Do it once and return where each output is: in its place, in a kept tensor, or in new memory.

        Kept tensors are changed through the journal only, after everything was checked.
        """


class ProcessorExecutor:
    """One processor stage; implements `backend.StageExecutor`.

    `run` changes the kept tensors at once, so that later stages see the new values; `discard` changes them back.
    """

    target_kind: ExecutionTargetKind = ExecutionTargetKind.CPU
    sequence: StageSequence | None = None
    speculation: Speculation | None = None
    segments: Segments | None = None
    saved_state: SavedState | None = None

    def __init__(self, work: ProcessorWork, debug_name: str) -> None:
        self.inputs = work.inputs
        self.outputs = work.outputs
        self._work = work
        self._debug_name = debug_name
        self._bound: list[Storage | None] = [None] * len(work.inputs)
        self._places: list[Storage | None] = [None] * len(work.outputs)
        self._results: Sequence[Storage] = ()
        self._journal = Journal()
        self._is_running = self._is_aborted = False
        self._request: StopRequest | None = None

    def bind_input(self, index: int, storage: Storage | None) -> None:
        if storage is not None and storage is not self._bound[index]:
            self._work.check_input(index, storage, f"IWinMLStage.BindInput, input {index}")
        self._bound[index] = storage

    def bind_output(self, index: int, storage: Storage | None, wanted: bool) -> None:
        if storage is not None:
            check_descriptor(storage, self.outputs[index], f"IWinMLStage.BindOutput, output {index}")
        self._places[index] = storage

    def run(self) -> None:
        self._results = ()
        inputs = [storage for storage in self._bound if storage is not None]
        if len(inputs) != len(self._bound):
            raise WinMLError(E_INVALIDARG, self._debug_name, f"input {self._bound.index(None)} is not bound")
        self._is_aborted = False
        self._is_running = True
        try:
            results = self._work.perform(inputs, self._places, self._journal)
        except WinMLError as error:
            if error.is_final:
                raise
            raise recast(error, self._debug_name) from error.__cause__
        finally:
            self._is_running = False
        if self._request is not None:
            self._request.check_cancelled()
        if self._is_aborted:
            raise WinMLError(CANCELLED, self._debug_name, "the run was cancelled")
        for place, result in zip(self._places, results, strict=True):
            if place is not None and place is not result:
                place.data[...] = result.data
        self._results = results

    def commit(self) -> None:
        self._journal.forget()

    def discard(self) -> None:
        self._results = ()
        self._journal.take_back()

    def output(self, index: int) -> Storage:
        place = self._places[index]
        if place is not None:
            return place
        if not self._results:
            raise WinMLError(E_NOT_VALID_STATE, "IWinMLStage.GetOutput", "nothing was produced yet")
        return self._results[index]

    def abort(self) -> None:
        self._is_aborted = self._is_running

    def watch(self, request: StopRequest) -> None:
        self._request = request
