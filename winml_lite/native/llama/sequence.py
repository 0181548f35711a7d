"""The token sequence of a stage: its position and capacity, and feeding it (runtime §20.2, 20.5, 20.6).

A run is evaluated first and then committed or discarded, so that the position moves only when the whole pipeline
succeeded. Whatever ends an evaluation (an error of the engine, an abort, KeyboardInterrupt), the tokens of a run that
was not committed are taken out again.

KeyboardInterrupt may also strike between a native call and the numbers kept here. So `_pending` is set before the
memory changes and cleared after it, and while it is set the next use first truncates the memory to the position.

Recurrent layers cannot go back, so there an abort takes effect between the batches of a run only, and what an interrupt
has cut off behind its last batch stays in memory: the same tokens, when they come again, need no second evaluation.
"""

from __future__ import annotations

import ctypes
from functools import partial
from typing import Any, NoReturn

import numpy as np
import numpy.typing as npt

from ... import errors
from ...errors import WinMLError
from ..activity import apart
from ..stopping import StopRequest
from .context import MAX_ROWS, AbortFlag, Context, ContextSettings, decode_error
from .guard import takes_rows
from .model import LlamaModel
from .predictor import PredictingContext
from .segments import Segment, Spans, check_plan, feed_segment

_RUN = "IWinMLPipeline.Run"
_MAX_POSITIONS = 0x7FFFFFFF
Ids = npt.NDArray[np.int32] | npt.NDArray[np.int64]


class LlamaSequence:
    """One sequence in one context."""

    __slots__ = (
        "_abort",
        "_engine_abort",
        "_is_cut",
        "_limit",
        "_marked",
        "_pending",
        "_position",
        "_prompt",
        "_quiet",
        "_replay",
        "_single",
        "_token",
        "_token_pointer",
        "_tokens",
        "_vocabulary_size",
        "capacity",
        "context",
        "declared_capacity",
        "model",
        "settings",
        "spans",
        "takes_rows",
    )

    def __init__(self, model: LlamaModel, capacity: int, settings: ContextSettings) -> None:
        api = model.library.api
        self.model = model
        self.settings = settings
        self._vocabulary_size = model.vocabulary_size
        self._engine_abort = AbortFlag()
        self._abort = AbortFlag() if model.keeps_recurrent_state else self._engine_abort
        """What stops a run: inside a batch, too, where its effect can be taken back."""
        self.capacity = capacity
        self.declared_capacity: int | None = api.llama_model_n_ctx_train(model.pointer)
        self._position = 0
        self._pending = 0
        """Tokens that may be in memory beyond the position: of a run that is neither committed nor discarded, or of a
        rewind that has not ended."""
        self._replay: tuple[npt.NDArray[np.int32], bool] | None = None
        """The pending tokens, and whether the logits of the last one are there, when they are to stay in memory."""
        self._is_cut = False
        """Whether a rewind or a reset has begun and not ended."""
        self.takes_rows = takes_rows(model.file, model.has_row_axes)
        """Whether segments can be fed at all."""
        self._limit = capacity
        """Position that the capacity allows: less than it by what segments take beyond one cell per position."""
        self.spans = Spans()
        self.context = self._make_context(capacity)
        # In a batch without positions and sequence ids the engine continues sequence 0; without output marks it gives
        # the logits of the last token.
        self._token = (ctypes.c_int32 * 1)()
        self._token_pointer = ctypes.POINTER(ctypes.c_int32)
        self._single: Any = api.llama_batch()
        self._single.n_tokens = 1
        self._single.token = self._token  # a structure takes an array of the type its field points to
        self._prompt: Any = api.llama_batch()
        self._quiet = (ctypes.c_int8 * settings.batch_size)()
        """Output marks of a batch whose logits nobody reads."""
        self._marked = (ctypes.c_int8 * MAX_ROWS)(*[1] * MAX_ROWS)
        """Output marks of a batch whose logits are all read."""

    def _make_context(self, capacity: int) -> Context:
        make = PredictingContext if self.model.predicts else Context
        return make(self.model, capacity, self.settings, self._engine_abort)

    @property
    def position(self) -> int:
        return self._position

    @property
    def room(self) -> int:
        """How many tokens the capacity still allows."""
        return self._limit - self._position

    def abort(self) -> None:
        """Make the evaluation that another thread is in fail soon."""
        self._abort.set()

    def watch(self, request: StopRequest) -> None:
        """Look at `request` in each evaluation."""
        self._abort.request = request

    def evaluate(self, ids: Ids, wants_logits: bool) -> None:
        """Append the tokens; the logits of the last one are then in the context if they are wanted."""
        done = self._known(ids, wants_logits) if self._pending else 0
        self._abort.clear()
        if done or ids.size != 1:
            self._evaluate_prompt(ids, wants_logits, done)
            return
        token = ids.item()
        if not 0 <= token < self._vocabulary_size:
            self._refuse_id(token, 0)
        if self._position >= self._limit:
            self._refuse_length(1)
        self._token[0] = token
        batch = self._single
        batch.logits = None if wants_logits else self._quiet
        self._pending = 1  # before the call: an exception may arrive right behind it
        status = self.context.decode(batch)
        if status:
            self._fail(status)

    def evaluate_all(self, ids: Ids, address: int) -> None:
        """Append the tokens and copy the logits of each to `address`, float32 (tokens, vocabulary size)."""
        if self._pending:
            self.take_back()
        self._abort.clear()
        tokens = self._admitted(ids)
        row_bytes = self._vocabulary_size * 4
        for start in range(0, tokens.size, self.context.row_count):
            stop = min(start + self.context.row_count, tokens.size)
            self._decode_part(tokens, start, stop, self._marked)
            self.context.copy_rows(stop - start, address + start * row_bytes)

    def _known(self, ids: Ids, wants_logits: bool) -> int:
        """How many of the tokens are in memory since an interrupt; anything else that is there is taken out."""
        if self._replay is None:
            self.discard()
        if self._replay is None:
            return 0
        tokens, has_logits = self._replay
        count = tokens.size
        fits = ids.size > count or (ids.size == count and (has_logits or not wants_logits))
        if fits and np.array_equal(ids[:count], tokens):
            self._replay = None
            return count
        self.take_back()
        return 0

    def _evaluate_prompt(self, ids: Ids, wants_logits: bool, done: int) -> None:
        """Evaluate the tokens without the first `done`, which are in memory."""
        tokens = self._admitted(ids)
        count, size = tokens.size, self.context.batch_size
        for start in range(done, count, size):
            stop = min(start + size, count)
            self._decode_part(tokens, start, stop, None if wants_logits and stop == count else self._quiet)

    def _admitted(self, ids: Ids) -> npt.NDArray[np.int32]:
        """Check the tokens of an evaluation and mark them as pending."""
        count = ids.size
        wrong = np.flatnonzero((ids < 0) | (ids >= self._vocabulary_size))
        if wrong.size:
            self._refuse_id(ids.item(wrong[0]), int(wrong[0]))
        if count > self.room:
            self._refuse_length(count)
        self._tokens = tokens = np.ascontiguousarray(ids, np.int32)
        self._pending = count
        return tokens

    def _decode_part(self, tokens: npt.NDArray[np.int32], start: int, stop: int, marks: Any) -> None:
        """Evaluate some of the tokens; `marks` say whose logits are wanted, None: those of the last one."""
        batch = self._prompt
        batch.n_tokens = stop - start
        batch.token = ctypes.cast(tokens.ctypes.data + start * tokens.itemsize, self._token_pointer)
        batch.logits = marks
        status = self.context.decode(batch)
        if status:
            self._fail(status)
        if self._abort.is_set and stop < tokens.size:  # not every device looks at the callback
            self._fail(2)

    def evaluate_segment(self, segment: Segment) -> None:
        """Append embedding rows and the tokens around them; there are no logits then."""
        if self._pending:
            self.take_back()
        self._abort.clear()
        plan = segment.plan
        check_plan(self.model, self.context.batch_size, plan)
        segment.check_finite()
        if plan.cell_count > self.room:
            self._refuse_length(plan.cell_count)
        self._pending = plan.position_count
        self.spans.add(self._position, segment)
        self._limit = self.capacity - self.spans.surplus
        feed = partial(feed_segment, self.model, self.context, segment, self._position, self._abort)
        status = apart(feed, self._abort.set, may_leave=False)  # changing the attention makes it log
        if status:
            self._fail(status)

    @property
    def ends_with_segment(self) -> bool:
        """Whether no token has followed the last segment."""
        return self.spans.ends_at(self._position + self._pending)

    def commit(self) -> None:
        """Keep the tokens of the last evaluation: the position moves."""
        self._position += self._pending
        self._pending = 0
        self._replay = None

    def expect(self, count: int) -> None:
        """Say that `count` tokens may be in memory beyond the position; then commit or discard them."""
        self._pending = count

    def discard(self) -> Segment | None:
        """Take the tokens of the last evaluation out again; return its segment if it was one.

        Where that cannot be, they stay, to be taken for done when they come again; what an evaluation that did not end
        has left makes the sequence start again at 0.
        """
        dropped = self._drop_spans()
        if self._pending and self._replay is None:
            if self._truncate():
                self._pending, self._is_cut = 0, False
            elif dropped is None and not self._is_cut and self.context.end == self._position + self._pending:
                batch = self._single if self._pending == 1 else self._prompt
                last = np.array(self._token, np.int32) if self._pending == 1 else self._tokens.copy()
                self._replay = last, not batch.logits
            else:
                self.reset()
        return dropped

    def take_back(self) -> None:
        """Discard; if the tokens cannot be taken out the sequence is reset, which is E_FAIL."""
        before = self._position
        self.discard()
        if self._pending:
            self.reset()
        if self._position != before:
            raise WinMLError(errors.E_FAIL, _RUN, f"{self.model.path}: {_reset_text(before)}")

    def rewind(self, position: int) -> None:
        """Truncate to `position`; 0x80070057 beyond the present one, or where the architecture cannot go back."""
        self.discard()
        if position == self._position:
            return
        if position > self._position:
            text = f"the sequence is at {self._position}, it cannot go forward to {position}"
            raise WinMLError(errors.E_INVALIDARG, "IWinMLStage.RewindTo", text)
        self.spans.check_cut(position)
        before = self._position, self._pending
        self._mark(position)
        done = self._truncate()
        if done:
            self._pending, self._replay = 0, None
        else:
            self._position, self._pending = before
        self._is_cut = False
        self._drop_spans()
        if not done:
            kept = self.context.snapshots and f", and by up to {self.context.snapshots} tokens inside the last batch"
            text = f"{self.model.path}: the state at {position} is gone; this model goes back to 0{kept or ''}"
            raise WinMLError(errors.E_INVALIDARG, "IWinMLStage.RewindTo", text)

    def set_capacity(self, capacity: int) -> None:
        """Make a context of another capacity; the sequence starts again at 0 unless it is the present capacity."""
        if capacity == self.capacity:
            return
        if not 0 < capacity <= _MAX_POSITIONS:
            text = f"a capacity lies in 1..{_MAX_POSITIONS}, not at {capacity}"
            raise WinMLError(errors.E_INVALIDARG, "IWinMLStage.SetSequenceCapacity", text)
        context = apart(lambda: self._make_context(capacity), self._abort.set)
        self._mark(0)
        self.capacity = capacity
        self.context = context
        self._pending, self._replay, self._is_cut = 0, None, False
        self._drop_spans()

    def reset(self) -> None:
        """Drop the whole sequence: position 0."""
        self._mark(0)
        self.context.forget()
        self._pending, self._replay, self._is_cut = 0, None, False
        self._drop_spans()

    def _drop_spans(self) -> Segment | None:
        """Forget where segments beyond the position are; return the last one if it was there."""
        dropped = self.spans.cut(self._position)
        if dropped is not None:
            self.context.set_causal(True)  # an interrupt may have left it otherwise
        self._limit = self.capacity - self.spans.surplus
        return dropped

    def _mark(self, position: int) -> None:
        """Move the position back, before the memory follows."""
        self._is_cut = True
        self._pending += self._position - position
        self._position = position

    def _truncate(self) -> bool:
        """Take everything beyond the position out of the memory; False when the architecture cannot."""
        if self._position == 0:
            self.context.forget()
            return True
        return self.context.truncate(self._position)

    def _fail(self, status: int) -> NoReturn:
        before = self._position
        self.discard()
        error = decode_error(status, _RUN, self.model.path)
        if self._position == before:
            raise error
        raise WinMLError(error.hresult, _RUN, f"{error.native_message}; {_reset_text(before)}")

    def _refuse_id(self, token: int, index: int) -> NoReturn:
        text = f"token id {token} at index {index} is not in 0..{self._vocabulary_size - 1}"
        raise WinMLError(errors.E_INVALIDARG, _RUN, text)

    def _refuse_length(self, count: int) -> NoReturn:
        text = (
            f"{count} tokens at position {self._position} pass the capacity of {self.capacity}; "
            "set a larger sequence capacity, or feed fewer tokens"
        )
        raise WinMLError(errors.E_BOUNDS, _RUN, text)


def _reset_text(position: int) -> str:
    return f"this architecture cannot go back to position {position}, so the sequence was reset"
