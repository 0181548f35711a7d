"""One generation: select, stop, emit (genai §6.5, 6.7). Running the model is `evaluation.py`.

`read_next` runs the model at most once beside pieces of the prompt, and only for the token it returns: there is no
look-ahead.
"""

from __future__ import annotations

from time import perf_counter
from typing import TYPE_CHECKING

from winml_lite import WinMLError

from .cancellation import CancellationLatch, CancellationSource
from .endpoints import Row
from .options import TextGenerationOptions
from .results import (
    TextGenerationFinishReason,
    TextGenerationResult,
    TextGenerationTimings,
    TextGenerationUpdate,
    TokenLogprob,
)
from .stopping import StopText

if TYPE_CHECKING:
    from .constraint_state import ConstraintCore
    from .sequence import SequenceCore

Reason = TextGenerationFinishReason


class GenerationLoop:
    """The running generation of a `SequenceCore`.

    `restore` is the sequence before a continue (None for a new sequence); it comes back when nothing was evaluated. A
    constraint starts over, and has no other user until the end.
    """

    def __init__(
        self,
        core: SequenceCore,
        options: TextGenerationOptions,
        cancellation: CancellationSource,
        restore: list[int] | None,
        constraint: ConstraintCore | None = None,
    ) -> None:
        self._core = core
        self._options = options
        self._latch = cancellation.latch
        self._restore = restore
        self._prompt_token_count = len(core.retained)
        self.start_position = core.evaluated
        self._row_cell_count = core.row_cell_count
        self._capacity = core.capacity - self._row_cell_count if core.capacity else None
        self._selector = core.make_selector(options)
        self._decoder = core.tokenizer.create_decoder(continuation=True)
        self._stop_text = StopText(options.stop, options.include_stop) if options.stop else None
        self._stopping = options.stopping
        self._eos = frozenset(core.eos_token_ids)
        self._stop_ids = frozenset(options.stop_token_ids)
        self._evaluation = core.make_evaluation(options, self._latch)
        self._token_ids: list[int] = []
        self._fragments: list[str] = []
        self._logprobs: list[TokenLogprob] | None = None if options.top_logprobs is None else []
        self._prompt_seconds = 0.0
        self._decode_seconds = 0.0
        self._prompt_evaluated = 0
        self._error: WinMLError | None = None
        self._reason: TextGenerationFinishReason | None = None
        self._result: TextGenerationResult | None = None
        self._last_reason: TextGenerationFinishReason | None = None
        self._is_complete: bool | None = None
        self._constraint = constraint
        if constraint is not None:
            constraint.claim(self)
        self._latch.on_cancel(core.feed.abort)

    @property
    def result(self) -> TextGenerationResult | None:
        """The result; None before the end."""
        if self._result is None and self._reason is not None:
            self._result = self._make_result(self._reason)
        return self._result

    @property
    def latch(self) -> CancellationLatch:
        """What cancels this generation."""
        return self._latch

    @property
    def reused_token_count(self) -> int:
        """Prompt tokens that were not evaluated again."""
        return self.start_position

    def read_next(self) -> TextGenerationUpdate | None:
        """Return the next update, None at the end and ever after. Failures of the model end the generation, they are
        not raised.

        A KeyboardInterrupt passes through and loses nothing: the next read goes on.
        """
        if self._reason is not None:
            self._leave()
            return None
        started = perf_counter()
        is_first = not self._token_ids
        try:
            return self._advance()
        except WinMLError as error:
            self._error = error
            return self._finish(Reason.ERROR)
        finally:
            elapsed = perf_counter() - started
            if is_first:
                self._prompt_seconds += elapsed
            else:
                self._decode_seconds += elapsed

    def _advance(self) -> TextGenerationUpdate | None:
        limit = self._limit()
        if self._stopping is not None and (limit is None or limit > Reason.STOP_TOKEN) and self._is_stopped():
            limit = Reason.STOP_TOKEN
        if limit is not None:
            return self._finish(limit)
        if self._latch.is_canceled:
            return self._finish(Reason.CANCELED)
        row = self._evaluation.next_row()
        if row is None or self._latch.is_canceled:
            return self._finish(Reason.CANCELED)
        constraint = self._constraint
        token_id = self._selector.select(row) if constraint is None else self._select(row, constraint)
        if token_id in self._eos:
            reason = Reason.EOS_TOKEN
        elif token_id in self._stop_ids or (constraint is not None and constraint.is_completed):
            reason = Reason.STOP_TOKEN
        else:
            return self._emit(token_id)
        if constraint is None or token_id not in constraint.preserved:
            return self._finish(reason)
        self._last_reason = reason
        return self._emit(token_id)

    def _select(self, row: Row, constraint: ConstraintCore) -> int:
        """Select a legal token, and have the constraint accept it."""
        if len(constraint.accepted) > len(self._token_ids):
            return constraint.accepted[-1]  # an interrupt fell between its acceptance and its use
        token_id = self._selector.select(row, constraint)
        constraint.accept(token_id)
        return token_id

    def _limit(self) -> TextGenerationFinishReason | None:
        """The limit that the last emitted token has reached, if any."""
        if self._last_reason is not None:
            return self._last_reason
        if self._has_stop_match():
            return Reason.STOP_TOKEN
        if len(self._token_ids) == self._options.max_new_tokens:
            return Reason.MAX_TOKENS
        if len(self._core.retained) == self._capacity:
            return Reason.SEQUENCE_CAPACITY
        return None

    def _is_stopped(self) -> bool:
        """Ask the caller's predicate. It is asked before the next token is made, so what it raises loses nothing."""
        assert self._stopping is not None
        if not self._token_ids:
            return False
        held = self._stop_text.held if self._stop_text is not None else ""
        return bool(self._stopping(tuple(self._token_ids), "".join(self._fragments) + held))

    def _emit(self, token_id: int) -> TextGenerationUpdate:
        self._evaluation.accept(token_id)
        self._token_ids.append(token_id)
        self._selector.accept(token_id)
        fragment = self._decoder.decode_token(token_id)
        if self._stop_text is not None:
            fragment = self._stop_text.push(fragment)
            if self._stop_text.matched is None and self._limit() is not None:
                fragment += self._stop_text.flush()
        self._fragments.append(fragment)
        if self._logprobs is None:
            return TextGenerationUpdate(token_id, fragment)
        logprob = self._selector.logprob
        assert logprob is not None
        self._logprobs.append(logprob)
        return TextGenerationUpdate(token_id, fragment, logprob)

    def _finish(self, reason: TextGenerationFinishReason) -> TextGenerationUpdate | None:
        """End. Text that was held back for a stop string comes out as a last update without a token."""
        tail = self._stop_text.flush() if self._stop_text is not None else ""
        if self._has_stop_match() and reason is Reason.EOS_TOKEN:
            reason = Reason.STOP_TOKEN  # the match was waiting for a longer stop
        self._fragments.append(tail)
        evaluated = min(self._core.evaluated, self._prompt_token_count)
        self._prompt_evaluated = max(evaluated - self.start_position, 0)
        if self._constraint is not None:
            self._is_complete = self._constraint.can_stop
        self._reason = reason
        self._leave()
        return TextGenerationUpdate(None, tail) if tail else None

    def _leave(self) -> None:
        """Give the core free. Doing it again is fine, and needed when an interrupt cut the first time short."""
        core = self._core
        self._latch.off_cancel(core.feed.abort)
        self._evaluation.settle()
        if self._constraint is not None:
            self._constraint.release(self)
        ran = core.evaluated > self.start_position
        core.finished(self, ran, self._reason is Reason.ERROR, self._restore)

    def _has_stop_match(self) -> bool:
        return self._stop_text is not None and self._stop_text.matched is not None

    def _make_result(self, reason: TextGenerationFinishReason) -> TextGenerationResult:
        text = "".join(self._fragments)
        match = self._stop_text.matched if self._stop_text is not None else None
        return TextGenerationResult(
            text=text,
            token_ids=tuple(self._token_ids),
            finish_reason=reason,
            error_code=self._error.hresult if self._error is not None else 0,
            prompt_token_count=self._prompt_token_count + self._row_cell_count,
            speculative_statistics=self._evaluation.statistics,
            stop_match=match,
            seed=self._selector.seed,
            timings=TextGenerationTimings(
                self._prompt_seconds, self._decode_seconds, self._prompt_evaluated, len(self._token_ids)
            ),
            error_message=_message(self._error) if self._error is not None else None,
            constraint_complete=self._is_complete,
            parse=self._constraint.parse if self._constraint is not None else None,
            logprobs=None if self._logprobs is None else tuple(self._logprobs),
            stop_offset=None if match is None else len(text) - len(match) * self._options.include_stop,
        )

    def close(self) -> None:
        """End an unfinished generation as CANCELED without running the model again."""
        if self._reason is None:
            self._finish(Reason.CANCELED)
        else:
            self._leave()


def _message(error: WinMLError) -> str:
    """What failed, without the code, which the result has already."""
    return ": ".join(part for part in (error.context, error.native_message) if part)
