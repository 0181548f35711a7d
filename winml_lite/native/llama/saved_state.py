"""The state of a llama.cpp stage as a file: what the engine itself writes for a sequence, streamed layer by layer.

The engine trusts the sizes in such a file, so whoever calls `read` has verified it (`sequence_state.py`). Another build
of llama.cpp may write another layout without saying so: states are tied to the version of the package.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from ...errors import E_FAIL, E_INVALIDARG, NOT_SUPPORTED, WinMLError
from ..activity import apart

if TYPE_CHECKING:
    from .executor import LlamaExecutor
    from .sequence import LlamaSequence

_SAVE = "IWinMLStage.SaveSequenceState"
_LOAD = "IWinMLStage.LoadSequenceState"
_MORE = 1 << 20
"""Bytes that would be written behind a state that could not be."""


class LlamaSavedState:
    """Implements `SavedState`: a view of an executor and its sequence."""

    __slots__ = ("_executor", "_sequence")

    def __init__(self, executor: LlamaExecutor, sequence: LlamaSequence) -> None:
        self._executor = executor
        self._sequence = sequence

    @property
    def layout(self) -> dict[str, object]:
        settings = self._sequence.settings
        return {
            "engine": f"llama-cpp-python {self._sequence.model.library.version}",
            "key_type": settings.key_type,
            "value_type": settings.value_type,
        }

    def write(self, path: str) -> object:
        sequence = self._sequence
        sequence.take_back()  # of a run that was interrupted
        if not sequence.spans.is_empty:
            raise WinMLError(NOT_SUPPORTED, _SAVE, "the sequence holds embedding rows, which a state file cannot keep")
        problem = apart(lambda: sequence.context.write_state(path), sequence.abort, may_leave=False)
        if problem is not None:
            _check_writable(path)
            raise WinMLError(E_FAIL, _SAVE, f"{path}: {problem}")
        return None

    def read(self, path: str, position: int, told: object) -> None:
        sequence = self._sequence
        if position > sequence.capacity:
            raise WinMLError(E_INVALIDARG, _LOAD, f"{position} positions do not fit into {sequence.capacity}")
        self._executor.keep_row()
        sequence.reset()
        sequence.expect(position)  # before the call: an interruption may fall behind it
        try:
            problem = apart(lambda: sequence.context.read_state(path), sequence.abort, may_leave=False)
            if problem is None and sequence.context.end != position:
                problem = f"the engine read {sequence.context.end} positions instead of {position}"
            if problem is not None:
                raise WinMLError(E_FAIL, _LOAD, f"{path}: {problem}")
            sequence.commit()
        except BaseException:
            sequence.reset()
            raise


def _check_writable(path: str) -> None:
    """Raise the OSError of a file that takes no more: the engine does not say why it wrote less than it wanted."""
    with open(path, "ab") as file:
        file.write(bytes(_MORE))
        file.flush()
        os.fsync(file.fileno())
