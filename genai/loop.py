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
from .operation_failures import failure_text
from .operation_parts import make_evaluation, make_selector
from .options import TextGenerationOptions
from .results import (
    TextGenerationFinishReason,
    TextGenerationResult,
    TextGenerationTimings,
    TextGenerationUpdate,
    TokenLogprob,
)
from .segmented_prompt import Start
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
        constraint: ConstraintCore | None,
    ) -> None:
        self._core, self._options = core, options
        self._latch = cancellation.latch
        self._restore = restore
        self._prompt_token_count = len(core.retained)
        self.start = Start(core.evaluated, core.evaluated)  # of the prompt: what was consumed before
        self._row_cell_count = core.row_cell_count
        self._capacity = core.capacity - self._row_cell_count if core.capacity else None
        self._selector = make_selector(core, options)
        self._decoder = core.tokenizer.create_decoder(continuation=True)
        self._stop_text = _stop_text(options)
        self._stopping = options.stopping
        self._eos = frozenset(core.eos_token_ids)
        self._stop_ids = frozenset(options.stop_token_ids)
        self._evaluation = make_evaluation(core, options, self._latch)
        self._token_ids: list[int] = []
        self._fragments: list[str] = []
        self._logprobs: list[TokenLogprob] | None = None if options.top_logprobs is None else []
        self._prompt_seconds, self._decode_seconds, self._prompt_evaluated = 0.0, 0.0, 0
        self._error: WinMLError | None = None
        self._reason: TextGenerationFinishReason | None = None
        self._result: TextGenerationResult | None = None
        self._last_reason: TextGenerationFinishReason | None = None
        self._is_torn = False  # whether a read has not come to its end: Ctrl-C, or what a caller's function has raised
        self._handed_out = 0  # how many of the fragments
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
        return self.start.tokens + self.start.cells

    def read_next(self) -> TextGenerationUpdate | None:
        """Return the next update, None at the end and ever after. Failures of the model end the generation, they are
        not raised.

        A KeyboardInterrupt passes through and loses nothing: the next read goes on.
        """
        if self._reason is not None:
            self._leave()
            tail = self._fragments[self._handed_out :]  # of a last read that an interrupt cut short
            self._handed_out = len(self._fragments)
            return TextGenerationUpdate(None, tail[0]) if tail else None
        was_torn, self._is_torn = self._is_torn, True
        started, is_first = perf_counter(), not self._token_ids
        try:
            update = self._go_on() if was_torn else self._advance()
        except WinMLError as error:
            self._error = error
            update = self._finish(Reason.ERROR)
        except (StopIteration, StopAsyncIteration) as error:  # it would pass for the end of the stream
            raise RuntimeError(f"a function of the options raised {type(error).__name__}") from error
        finally:
            elapsed = perf_counter() - started
            if is_first:
                self._prompt_seconds += elapsed
            else:
                self._decode_seconds += elapsed
        self._handed_out = len(self._fragments)
        self._is_torn = False
        return update

    def _go_on(self) -> TextGenerationUpdate | None:
        """Read after a read that did not come to its end."""
        self._mend()
        place = self._handed_out
        return self._update(place) if place < len(self._token_ids) else self._advance()

    def _mend(self) -> None:
        """Work out anew what follows from the emitted tokens; the sequence, which has them, is the truth."""
        sequence, start = self._core.retained, self._prompt_token_count
        emitted = sequence[start:]
        self._selector = self._selector.again(sequence[:start], emitted)
        self._decoder = self._core.tokenizer.create_decoder(continuation=True)
        self._stop_text = _stop_text(self._options)
        self._token_ids, self._fragments = [], []
        for token_id in emitted:
            self._follow(token_id)
        if self._logprobs is not None:
            del self._logprobs[len(emitted) :]
        if self._constraint is not None and self._constraint.keep(len(emitted)):
            self._last_reason = None
        self._flush_at_limit()

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
        token_id = self._selector.select(row, constraint)
        constraint.accept(token_id)
        return token_id

    def _limit(self) -> TextGenerationFinishReason | None:
        """The limit that the last emitted token has reached, if any."""
        if self._last_reason is not None:
            return self._last_reason
        if self._stop_text is not None and self._stop_text.matched is not None:
            return Reason.STOP_TOKEN
        if len(self._token_ids) == self._options.max_new_tokens:
            return Reason.MAX_TOKENS
        if self._prompt_token_count + len(self._token_ids) == self._capacity:
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
        if self._logprobs is not None:
            logprob = self._selector.logprob
            assert logprob is not None
            self._logprobs.append(logprob)
        self._evaluation.accept(token_id)
        self._selector.accept(token_id)
        self._follow(token_id)
        if self._stop_text is not None:
            self._flush_at_limit()
        return self._update(-1)

    def _follow(self, token_id: int) -> None:
        """Take an emitted token into the text."""
        self._token_ids.append(token_id)
        fragment = self._decoder.decode_token(token_id)
        if self._stop_text is not None:
            fragment = self._stop_text.push(fragment)
        self._fragments.append(fragment)

    def _flush_at_limit(self) -> None:
        """Release the text that is held back for a stop when the last emitted token has reached a limit."""
        stop_text = self._stop_text
        if stop_text is not None and stop_text.matched is None and self._token_ids and self._limit() is not None:
            self._fragments[-1] += stop_text.flush()

    def _update(self, place: int) -> TextGenerationUpdate:
        token_id, fragment = self._token_ids[place], self._fragments[place]
        logprobs = self._logprobs
        return TextGenerationUpdate(token_id, fragment, None if logprobs is None else logprobs[place])

    def _finish(self, reason: TextGenerationFinishReason) -> TextGenerationUpdate | None:
        """End. Text that was held back for a stop string comes out as a last update without a token."""
        tail = self._stop_text.flush() if self._stop_text is not None else ""
        if self._has_stop_match() and reason is Reason.EOS_TOKEN:
            reason = Reason.STOP_TOKEN  # the match was waiting for a longer stop
        if tail:
            self._fragments.append(tail)
        evaluated = min(self._core.evaluated, self._prompt_token_count)
        self._prompt_evaluated = max(evaluated - self.start.tokens, 0)
        if evaluated == self._prompt_token_count:  # the last of a prompt are tokens, so its rows are behind
            self._prompt_evaluated += self._row_cell_count - self.start.cells
        if self._constraint is not None:
            self._is_complete = not self._has_stop_match() and self._constraint.is_whole(len(self._token_ids))
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
        ran = core.evaluated > self.start.tokens or bool(self._token_ids)  # a state that starts over is at 0
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
            error_message=failure_text(self._error) if self._error is not None else None,
            constraint_complete=self._is_complete,
            parse=self._constraint.parse if self._constraint is not None else None,
            logprobs=None if self._logprobs is None else tuple(self._logprobs),
            stop_offset=None if match is None else len(text) - len(match) * self._options.include_stop,
        )

    def close(self) -> None:
        """End an unfinished generation as CANCELED without running the model again."""
        if self._reason is None:
            was_torn, self._is_torn = self._is_torn, True
            if was_torn:
                self._mend()
            self._finish(Reason.CANCELED)
            self._handed_out = len(self._fragments)
        else:
            self._leave()


def _stop_text(options: TextGenerationOptions) -> StopText | None:
    return StopText(options.stop, options.include_stop) if options.stop else None
