"""A built llama.cpp stage: token ids in, the logits of the last token out (runtime §7, 8, 20.2)."""

from __future__ import annotations

import ctypes
import weakref
from typing import NoReturn, cast

from ... import errors
from ...errors import WinMLError
from ...storage import Bytes, Storage, check_descriptor
from ...values import FREE_DIMENSION, Descriptor, ExecutionTargetKind, TensorDataType
from ..backend import Sequence
from .sequence import Ids, LlamaSequence

_ID_TYPES = (TensorDataType.INT32, TensorDataType.INT64)


class LlamaExecutor:
    """Implements `StageExecutor`. Input 0: token ids; output 0: float32 logits (1, vocabulary size)."""

    def __init__(self, sequence: LlamaSequence, vocabulary_size: int, target_kind: ExecutionTargetKind) -> None:
        self.inputs: tuple[Descriptor, ...] = ((TensorDataType.INT32, (1, FREE_DIMENSION)),)
        self.outputs: tuple[Descriptor, ...] = ((TensorDataType.FLOAT32, (1, vocabulary_size)),)
        self.target_kind = target_kind
        self.sequence: Sequence | None = sequence
        self._sequence = sequence
        self._ids: Ids | None = None
        self._target: Storage | None = None
        self._target_data: Bytes | None = None
        self._target_address = 0
        self._wanted = False
        self._row_bytes = vocabulary_size * 4
        self._row: Storage | None = None
        """The last fresh output: it views the engine's logits until the next run."""

    def bind_input(self, index: int, storage: Storage | None) -> None:
        """Bind token ids: INT32 or INT64, (n,) or (1, n), at least one."""
        if index != 0:
            _no_port("input", index)
        if storage is None:
            self._ids = None
            return
        shape = storage.shape
        if storage.data_type not in _ID_TYPES or len(shape) not in (1, 2) or (len(shape) == 2 and shape[0] != 1):
            check_descriptor(storage, self.inputs[0], "IWinMLStage.BindInput")
            raise WinMLError(errors.E_INVALIDARG, "IWinMLStage.BindInput", _ids_text(storage))
        if shape[-1] == 0:
            raise WinMLError(errors.E_INVALIDARG, "IWinMLStage.BindInput", _ids_text(storage))
        self._ids = storage.array().reshape(-1)

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
            raise WinMLError(errors.E_INVALIDARG, "IWinMLPipeline.Run", "input 0, the token ids, is not bound")
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
            self._row = Storage(sequence.context.row(), *self.outputs[0])
        else:
            sequence.evaluate(ids, False)

    def commit(self) -> None:
        """Move the position over the tokens of the last run."""
        self._sequence.commit()

    def discard(self) -> None:
        """Take the tokens of the last run out of the sequence."""
        self._sequence.discard()

    def output(self, index: int) -> Storage:
        """Return where the logits went."""
        if index != 0:
            _no_port("output", index)
        storage = self._target if self._target is not None else self._row
        if storage is None:
            raise WinMLError(errors.E_NOT_VALID_STATE, "IWinMLStage.GetOutput", "output 0 was not produced")
        return storage

    def abort(self) -> None:
        """Stop a run that another thread is in."""
        self._sequence.abort()

    def _release_row(self) -> None:
        """Give the last fresh output its own memory if somebody refers to it: the engine's is overwritten next."""
        row = cast(Storage, self._row)
        if Storage.open_locks and row.is_locked:
            text = "a tensor with the logits of the last run is locked; close the lock before the next run"
            raise WinMLError(errors.LOCKED, "IWinMLPipeline.Run", text)
        reference = weakref.ref(row)
        self._row = None
        del row
        held = reference()
        if held is not None:
            held.data = held.data.copy()


def _no_port(what: str, index: int) -> NoReturn:
    raise WinMLError(errors.E_INVALIDARG, "IWinMLStage", f"a GGUF stage has one {what}, there is no {what} {index}")


def _ids_text(storage: Storage) -> str:
    return (
        "token ids are INT32 or INT64 of shape (n,) or (1, n) with n >= 1, "
        f"not {storage.data_type.name} of shape {storage.shape}"
    )
