"""A built llama.cpp stage: token ids in, the logits of the last token out (runtime §7, 8, 20.2)."""

from __future__ import annotations

import ctypes
import threading
import weakref
from typing import ClassVar, NoReturn, cast

from ... import errors
from ...errors import WinMLError
from ...handles import free_in_child
from ...storage import Bytes, Storage, check_descriptor, descriptor_text
from ...values import FREE_DIMENSION, Descriptor, ExecutionTargetKind, TensorDataType
from ..activity import at_exit
from ..backend import Sequence, Speculation
from ..saved_state import SavedState
from ..segments import Segments
from ..stopping import StopRequest
from .saved_state import LlamaSavedState
from .segments import LlamaSegments, Segment
from .sequence import Ids, LlamaSequence
from .speculation import LlamaSpeculation

_ID_TYPES = (TensorDataType.INT32, TensorDataType.INT64)
_settling = threading.Lock()
free_in_child(_settling)
_executors: weakref.WeakSet[LlamaExecutor] = weakref.WeakSet()


class LlamaExecutor:
    """Implements `StageExecutor`. Input 0: token ids; output 0: float32 logits (1, vocabulary size)."""

    def __init__(
        self, sequence: LlamaSequence, vocabulary_size: int, target_kind: ExecutionTargetKind, draft_limit: int = 0
    ) -> None:
        self.inputs: tuple[Descriptor, ...] = ((TensorDataType.INT32, (1, FREE_DIMENSION)),)
        self.outputs: tuple[Descriptor, ...] = ((TensorDataType.FLOAT32, (1, vocabulary_size)),)
        self.target_kind = target_kind
        self._draft_limit = draft_limit
        self.sequence: Sequence | None = sequence
        self._sequence = sequence
        self._ids: Ids | None = None
        self._held_ids: Ids | None = None
        """The bound ids while a segment is selected: then `_ids` is None, so that runs of tokens need not ask."""
        self.segment: Segment | None = None
        """What the next run consumes instead of the ids."""
        self._target: Storage | None = None
        self._target_data: Bytes | None = None
        self._target_address = 0
        self._wanted = False
        self._row_bytes = vocabulary_size * 4
        self._row: LogitsRow | None = None
        """The last fresh output."""
        _executors.add(self)

    def bind_input(self, index: int, storage: Storage | None) -> None:
        """Bind token ids: INT32 or INT64, (n,) or (1, n), at least one."""
        if index != 0:
            _no_port("input", index)
        if storage is None:
            self._ids = self._held_ids = None
            return
        shape = storage.shape
        is_row = len(shape) == 1 or (len(shape) == 2 and shape[0] == 1)
        if storage.data_type not in _ID_TYPES or not is_row or not shape[-1]:
            raise WinMLError(errors.E_INVALIDARG, "IWinMLStage.BindInput", _ids_text(storage))
        ids = storage.array().reshape(-1)
        if self.segment is None:
            self._ids = ids
        else:
            self._held_ids = ids

    @property
    def segments(self) -> Segments | None:
        """The embedding input; None where the engine would end the process over it."""
        return LlamaSegments(self, self._sequence) if self._sequence.takes_rows else None

    @property
    def speculation(self) -> Speculation | None:
        """Steps over several positions."""
        return LlamaSpeculation(self, self._sequence, self._draft_limit)

    @property
    def saved_state(self) -> SavedState | None:
        """The sequence as a file."""
        return LlamaSavedState(self, self._sequence)

    def keep_row(self) -> None:
        """Give the last fresh output its own memory: something else than a run overwrites the engine's next."""
        if self._row is not None:
            self._row.settle()

    def select_segment(self, segment: Segment | None) -> None:
        """Make the next run consume a segment; None: the bound ids."""
        if self.segment is None:
            self._held_ids = self._ids
        if segment is None:
            self._ids, self.segment, self._held_ids = self._held_ids, None, None
        else:
            self._ids, self.segment = None, segment

    def bind_output(self, index: int, storage: Storage | None, wanted: bool) -> None:
        """Send the logits into `storage`, into fresh memory (None and wanted), or nowhere."""
        if index != 0:
            _no_port("output", index)
        if storage is not None:
            check_descriptor(storage, self.outputs[0], "IWinMLStage.BindOutput")
            if not storage.writable:
                raise WinMLError(errors.E_INVALIDARG, "IWinMLStage.BindOutput", "the tensor is a read-only view")
        self._target = storage
        self._target_data = None
        self._wanted = wanted and storage is None

    def run(self) -> None:
        """Evaluate the bound ids."""
        ids = self._ids
        if ids is None:
            self._run_segment()
            return
        if self._row is not None:
            self._release_row()
        sequence = self._sequence
        target = self._target
        if target is not None:
            sequence.evaluate(ids, True)
            if target.data is not self._target_data:
                self._target_data, self._target_address = target.data, target.address
            ctypes.memmove(self._target_address, sequence.context.row_address(), self._row_bytes)
        elif self._wanted:
            sequence.evaluate(ids, True)
            self._row = LogitsRow(sequence.context.row(), self.outputs[0])
        else:
            sequence.evaluate(ids, False)

    def _run_segment(self) -> None:
        segment = self.segment
        if segment is None:
            raise WinMLError(errors.E_INVALIDARG, "IWinMLPipeline.Run", "input 0, the token ids, is not bound")
        if self._row is not None:
            self._release_row()
        self._sequence.evaluate_segment(segment)
        self.select_segment(None)

    def commit(self) -> None:
        """Move the position over the tokens of the last run."""
        self._sequence.commit()

    def discard(self) -> None:
        """Take the tokens of the last run out of the sequence."""
        segment = self._sequence.discard()
        if segment is not None:
            self.select_segment(segment)

    def output(self, index: int) -> Storage:
        """Return where the logits went."""
        if index != 0:
            _no_port("output", index)
        target = self._target
        storage = self._row if target is None else target
        if storage is None or (target is not None and self._sequence.ends_with_segment):
            text = "output 0 was not produced: embedding rows give none"
            raise WinMLError(errors.E_NOT_VALID_STATE, "IWinMLStage.GetOutput", text)
        return storage

    def abort(self) -> None:
        """Stop a run that another thread is in."""
        self._sequence.abort()

    def watch(self, request: StopRequest) -> None:
        """Look at `request` in each run."""
        self._sequence.watch(request)

    def _release_row(self) -> None:
        """Give the last fresh output its own memory if somebody refers to it: the engine's is overwritten next."""
        row = cast(LogitsRow, self._row)
        reference = weakref.ref(row)
        self._row = None
        del row
        held = reference()
        if held is not None:
            held.settle()


class LogitsRow(Storage):
    """A fresh output. It views the engine's logits, until the next run or somebody who keeps a view settles it."""

    __slots__ = ("is_settled",)

    is_fleeting: ClassVar[bool] = True

    def __init__(self, data: Bytes, descriptor: Descriptor) -> None:
        super().__init__(data, *descriptor)
        self.is_settled = False

    def settle(self) -> None:
        """Copy the logits to memory of its own, once."""
        with _settling:
            if not self.is_settled:
                self.data = self.data.copy()
                self.is_settled = True

    def copy(self) -> Bytes:
        """Copy the logits; a run on another thread waits that long before it overwrites them."""
        with _settling:
            return self.data.copy()


@at_exit
def _settle_rows() -> None:
    """Contexts are freed at exit, and rows may be read after that."""
    for executor in list(_executors):
        executor.keep_row()


def _no_port(what: str, index: int) -> NoReturn:
    raise WinMLError(errors.E_INVALIDARG, "IWinMLStage", f"a GGUF stage has one {what}, there is no {what} {index}")


def _ids_text(storage: Storage) -> str:
    given = descriptor_text(storage.descriptor)
    text = f"token ids are INT32 or INT64 of shape (n,) or (1, n) with n >= 1, not {given}"
    if storage.data_type is TensorDataType.FLOAT32 and len(storage.shape) > 1:
        text += "; embedding rows are selected with bind_embedding_segment"
    return text
