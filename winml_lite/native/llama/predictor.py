"""The predictor that some models carry (runtime §10.3): a further layer that guesses the token after the next.

It has a context of its own, whose sequence runs beside that of the model: each token enters it together with the hidden
state that the model had before that token. A draft is such a pair, then the token that the predictor thinks likeliest
with the predictor's own hidden state, and so on; afterwards the guesses are forgotten.

Tokens are handed over late, all at once when a draft is asked for, so that what is taken back meanwhile costs nothing.
"""

from __future__ import annotations

import ctypes
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from ...errors import E_FAIL, E_UNEXPECTED, LLAMA_DECODE_STATUS, WinMLError
from ...files.artifact import GgufArtifact
from .api import predictor_api, retyped
from .context import AbortFlag, Context, ContextSettings
from .model import LlamaModel

Tokens = npt.NDArray[np.int32]
Rows = npt.NDArray[np.float32]

_ARCHITECTURES = ("qwen35", "qwen35moe")  # one predictor layer with a memory of its own; others are driven otherwise
_PROPOSE = "IWinMLStage.ProposeDraftTokens"
_INTEGERS = ctypes.POINTER(ctypes.c_int32)
_FLOATS = ctypes.POINTER(ctypes.c_float)


def has_predictor(artifact: GgufArtifact) -> bool:
    """Whether a file has a predictor that this package drives."""
    file = artifact.file
    return (
        file.architecture in _ARCHITECTURES
        and file.metadata.get(f"{file.architecture}.nextn_predict_layers") == 1
        and predictor_api() is not None
    )


class _Noted(NamedTuple):
    """How far the predictor has followed; replaced as a whole, so no interruption tears it."""

    origin: int
    """Position of the first token that it knows."""
    fed: int
    """Position up to which tokens are in its memory."""
    waiting: int
    """Tokens behind that, which wait in the buffers of the context."""
    hidden: npt.NDArray[np.float32]
    """The hidden state behind the last of them; zeros while it is unknown."""

    @property
    def stop(self) -> int:
        return self.fed + self.waiting


class PredictingContext(Context):
    """A context whose model's predictor follows the sequence."""

    __slots__ = ("_abort", "_draft", "_noted", "_row_at_output", "_rows", "_rows_of_batch", "_tokens", "_width")

    def __init__(self, model: LlamaModel, capacity: int, settings: ContextSettings, abort: AbortFlag) -> None:
        super().__init__(model, capacity, settings, abort)
        self._abort = abort
        api = predictor_api()
        assert api is not None
        own = replace(settings, drafts=True, snapshots=0, adapters=(), position_bytes=0)
        self._draft = Context(model, capacity, own, abort)
        self._width = model.library.api.llama_model_n_embd_out(model.pointer)
        self._rows_of_batch = retyped(api.llama_get_embeddings_nextn, ctypes.c_void_p, ctypes.c_void_p)
        self._row_at_output = retyped(
            api.llama_get_embeddings_nextn_ith, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int32
        )
        self.ask(api.llama_set_embeddings_nextn, True, False)  # of every token
        self._draft.ask(api.llama_set_embeddings_nextn, True, True)  # of tokens whose logits are wanted
        self._tokens: Tokens = np.empty(self._draft.batch_size, np.int32)
        """Tokens that the predictor has not been fed yet."""
        self._rows: Rows = np.empty((self._draft.batch_size, self._width), np.float32)
        """For each of them the hidden state before it."""
        self._noted = self._nothing(0)

    def _nothing(self, position: int) -> _Noted:
        return _Noted(position, position, 0, np.zeros(self._width, np.float32))

    def decode(self, batch: Any) -> int:
        status = super().decode(batch)
        if status:
            return status
        if not batch.token:  # rows of media, which the predictor cannot read: it begins anew behind them
            self._noted = self._nothing(self.end)
            return 0
        return self._observe(batch.token, batch.n_tokens)

    def truncate(self, position: int) -> bool:
        done = super().truncate(position)
        if done:
            self._take_back(position)
        return done

    def forget(self) -> None:
        super().forget()
        self._noted = self._nothing(0)

    def read_state(self, path: str) -> str | None:
        problem = super().read_state(path)
        self._noted = self._nothing(self.end)  # the predictor begins anew behind what was read
        return problem

    # Following the sequence

    def _observe(self, tokens: Any, count: int) -> int:
        """Note tokens that the model has just evaluated; returns the status of feeding what there is no room for."""
        start = self.end - count
        if start != self._noted.stop:
            self._noted = self._nothing(start)
        elif self._noted.waiting + count > self._tokens.size:
            status = self._flush()
            if status:
                return status
        noted = self._noted
        row_bytes = self._width * self._rows.itemsize
        states = self._state_address(self.ask(self._rows_of_batch))
        first = noted.waiting
        ctypes.memmove(self._tokens[first:].ctypes.data, tokens, count * self._tokens.itemsize)
        self._rows[first] = noted.hidden
        if count > 1:
            ctypes.memmove(self._rows[first + 1 :].ctypes.data, states, (count - 1) * row_bytes)
        hidden = self._copied(states + (count - 1) * row_bytes)
        self._noted = noted._replace(waiting=first + count, hidden=hidden)
        return 0

    def _take_back(self, position: int) -> None:
        """Forget the tokens from `position` on."""
        noted = self._noted
        if position >= noted.stop:
            return
        if position <= noted.origin:
            self._noted = self._nothing(position)
        elif position < noted.fed:
            self._noted = self._nothing(position)._replace(origin=noted.origin)
        else:
            kept = position - noted.fed
            self._noted = noted._replace(waiting=kept, hidden=self._rows[kept].copy())

    def _flush(self) -> int:
        """Feed the predictor what was noted; returns the status."""
        noted = self._noted
        self._forget_guesses()  # of a draft that was interrupted
        status = self._feed(self._tokens[: noted.waiting], self._rows[: noted.waiting]) if noted.waiting else 0
        if not status:
            self._noted = noted._replace(fed=noted.stop, waiting=0)
        return status

    def _feed(self, tokens: Tokens, rows: Rows, is_draft: bool = False) -> int:
        """Evaluate pairs; of a draft, which is one pair, the logits and the hidden state are wanted."""
        marks = (ctypes.c_int8 * tokens.size)()
        marks[0] = is_draft
        batch = self._model.library.api.llama_batch()
        batch.n_tokens = tokens.size
        batch.token = ctypes.cast(tokens.ctypes.data, _INTEGERS)
        batch.embd = ctypes.cast(rows.ctypes.data, _FLOATS)
        batch.logits = marks
        return self._draft.decode(batch)

    # Drafts

    def propose(self, pending: int, maximum: int) -> list[int]:
        """Draft up to `maximum` tokens behind `pending`; none while the hidden state before it is unknown."""
        if not self._noted.hidden.any():
            return []
        self._abort.clear()
        self._require(self._flush())
        try:
            token, row = pending, self._noted.hidden
            drafted: list[int] = []
            while len(drafted) < maximum:
                # one at a time: behind a longer batch the engine gives the hidden state of its first token
                self._require(self._feed(np.array([token], np.int32), row, is_draft=True))
                token = int(self._draft.row().view(np.float32).argmax())
                row = self._copied(self._state_address(self._draft.ask(self._row_at_output, 0)))
                drafted.append(token)
            return drafted
        finally:
            self._forget_guesses()

    def _forget_guesses(self) -> None:
        self._draft.truncate(self._noted.fed - self._noted.origin)

    def _require(self, status: int) -> None:
        if status:
            text = f"{self._model.path}: the predictor failed, llama_decode returned {status}"
            raise WinMLError(LLAMA_DECODE_STATUS.get(status, E_FAIL), _PROPOSE, text)

    @staticmethod
    def _state_address(address: int | None) -> int:
        if not address:
            raise WinMLError(E_UNEXPECTED, "llama_get_embeddings_nextn", "the engine returned no hidden states")
        return address

    def _copied(self, address: int) -> npt.NDArray[np.float32]:
        """Copy one hidden state."""
        row = np.empty(self._width, np.float32)
        ctypes.memmove(row.ctypes.data, address, row.nbytes)
        return row
