"""A session worked out from scratch for every token (genai 6): no state but lists of ids, no model but a function.

It says what a real session must hold and answer after any calls. Its model is asked for the whole sequence each time.
"""

from __future__ import annotations

import codecs
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from fakes.reference_sampler import draw, penalised
from genai.options import TextGenerationOptions

E_INVALIDARG, E_NOT_VALID_STATE, INSUFFICIENT_BUFFER = 0x80070057, 0x8007139F, 0x8007007A
_ROUNDING = 1e-4  # by which an engine may move a draw; greedy choices that are nearer than this are ties
_MASK = 2**64 - 1

Logits = Callable[[Sequence[int]], npt.NDArray[np.float32]]


class Refused(Exception):
    """A call that a session must refuse, with its HRESULT."""

    def __init__(self, code: int) -> None:
        super().__init__(f"0x{code:08X}")
        self.code = code


@dataclass
class ReferenceSession:
    """States, retained sequence, how much of it is evaluated, and the operation that is open."""

    logits: Logits
    vocabulary_size: int
    capacity: int
    """A large number for a state without bounds."""
    eos: frozenset[int]
    pieces: Sequence[bytes]
    may_start_over: bool = False
    """Whether the model's state cannot always go back, and then starts again."""
    state: str = "EMPTY"
    retained: list[int] = field(default_factory=list)
    evaluated: int = 0
    fails_with: int = 0
    """The code that the next run of the model fails with."""

    def generate(self, prompt: Sequence[int], options: TextGenerationOptions) -> ReferenceStream:
        """Replace the sequence; its common beginning with the new one stays evaluated."""
        if self.state in ("ACTIVE", "RESET_REQUIRED"):
            raise Refused(E_NOT_VALID_STATE)
        if max(prompt) >= self.vocabulary_size:
            raise Refused(E_INVALIDARG)
        if len(prompt) > self.capacity:
            raise Refused(INSUFFICIENT_BUFFER)
        known = self.retained[: self.evaluated]
        shared = [a == b for a, b in zip(known, prompt[:-1], strict=False)]
        self.evaluated = [*shared, False].index(False)
        self.retained = list(prompt)
        return ReferenceStream(self, options, None)

    def resume(self, suffix: Sequence[int], options: TextGenerationOptions) -> ReferenceStream:
        """Append to the sequence."""
        if self.state != "READY":
            raise Refused(E_NOT_VALID_STATE)
        if any(token_id >= self.vocabulary_size for token_id in suffix):
            raise Refused(E_INVALIDARG)
        if not suffix and self.evaluated == len(self.retained):
            raise Refused(E_INVALIDARG)
        if len(self.retained) + len(suffix) > self.capacity:
            raise Refused(INSUFFICIENT_BUFFER)
        before = self.retained
        self.retained = [*before, *suffix]
        return ReferenceStream(self, options, before)

    def reset(self) -> None:
        """Forget the sequence."""
        if self.state == "ACTIVE":
            raise Refused(E_NOT_VALID_STATE)
        self.state, self.retained, self.evaluated = "EMPTY", [], 0


class ReferenceStream:
    """One operation; `before` is the sequence before a continue."""

    def __init__(self, session: ReferenceSession, options: TextGenerationOptions, before: list[int] | None) -> None:
        session.state = "ACTIVE"
        self._session, self._options, self._before = session, options, before
        self._prompt, self._start = list(session.retained), session.evaluated
        self._random = options.seed
        self.is_cancelled = False
        self.prompt_token_count = len(self._prompt)
        self.evaluated_prompt_count = 0
        self.emitted: list[int] = []
        self.reason: str | None = None
        self.error_code = 0
        self.stop_match: str | None = None
        self.alternatives: set[int] = set()
        """What the last selected token may be instead, but for rounding."""

    def began(self, evaluated: int) -> None:
        """Learn how much the real session has kept."""
        if evaluated == 0 and self._session.may_start_over:
            self._session.evaluated = self._start = 0

    @property
    def runs_next(self) -> bool:
        """Whether the next read runs the model."""
        return self.reason is None and self._limit() is None and not self.is_cancelled

    def _limit(self) -> str | None:
        options, session = self._options, self._session
        is_out_of_tokens = len(self.emitted) == options.max_new_tokens
        is_limited = is_out_of_tokens or len(session.retained) == session.capacity
        if self._stop_position(is_end=is_limited) is not None:
            return "STOP_TOKEN"
        return ("MAX_TOKENS" if is_out_of_tokens else "SEQUENCE_CAPACITY") if is_limited else None

    def read(self) -> int | None:
        """The next token; None at the end."""
        session, options = self._session, self._options
        if self.reason is not None:
            return None
        limit = self._limit()
        if limit is not None:
            self._finish(limit)
            return None
        if self.is_cancelled:
            self._finish("CANCELED")
            return None
        if session.fails_with:
            self.error_code, session.fails_with = session.fails_with, 0
            self._finish("ERROR")
            return None
        session.evaluated = len(session.retained)
        token_id = self._select(session.logits(session.retained))
        if token_id in session.eos:
            self._finish("EOS_TOKEN" if self._stop_position(is_end=True) is None else "STOP_TOKEN")
            return None
        if token_id in options.stop_token_ids:
            self._finish("STOP_TOKEN")
            return None
        session.retained.append(token_id)
        self.emitted.append(token_id)
        return token_id

    def _select(self, row: npt.NDArray[np.float32]) -> int:
        z = penalised(row, self._options, self._prompt, self.emitted)
        if self._options.temperature == 0:
            self.alternatives = set(np.flatnonzero(z >= z.max() - _ROUNDING).tolist())
            return draw(z, self._options, 0)
        self._random, u = _draw(self._random)
        self.alternatives = {draw(z, self._options, u + d) for d in (-_ROUNDING, 0, _ROUNDING)}
        return draw(z, self._options, u)

    def run_cut(self, position: int, is_cancelled: bool) -> None:
        """A read that ran the model, was cancelled or interrupted meanwhile, and left the state at `position`."""
        assert position <= len(self._session.retained)
        if not self._session.may_start_over or not self.emitted:
            position = max(position, self._session.evaluated)  # it is less when the session has let go of the sequence
        self._session.evaluated = position
        if is_cancelled:
            self._finish("CANCELED")

    def close(self) -> None:
        """End an unfinished operation."""
        if self.reason is None:
            self._finish("CANCELED")

    def _finish(self, reason: str) -> None:
        """End; None is what a read at the end gives."""
        session = self._session
        self.reason = reason
        self.evaluated_prompt_count = max(min(session.evaluated, self.prompt_token_count) - self._start, 0)
        position = self._stop_position(is_end=True)
        if position is not None:
            self.stop_match = self._stop_at(position)
        if reason == "ERROR":
            session.state, session.retained, session.evaluated = "RESET_REQUIRED", [], 0
        elif self.emitted or session.evaluated > self._start:
            session.state = "READY"
        elif self._before is not None:
            session.state, session.retained = "READY", self._before
        else:
            session.state, session.retained, session.evaluated = "EMPTY", [], 0

    # --- text

    @property
    def text(self) -> str:
        """What was emitted, up to the first stop; without half a character at the end."""
        position = self._stop_position(is_end=True)
        return self._decoded()[:position]

    def _decoded(self) -> str:
        joined = b"".join(self._session.pieces[token_id] for token_id in self.emitted)
        return codecs.getincrementaldecoder("utf-8")("replace").decode(joined)

    def _stop_position(self, is_end: bool = False) -> int | None:
        """Where the first stop begins; while the text goes on, only when none that begins earlier may still come."""
        text = self._decoded()
        found = [text.find(stop) for stop in self._options.stop]
        first = min((position for position in found if position >= 0), default=None)
        if first is None or is_end:
            return first
        may_come = any(stop.startswith(text[i:]) for i in range(first) for stop in self._options.stop)
        return None if may_come else first

    def _stop_at(self, position: int) -> str:
        text = self._decoded()
        return min((stop for stop in self._options.stop if text.startswith(stop, position)), key=len)


def _draw(state: int) -> tuple[int, float]:
    """SplitMix64 (Steele, Lea, Flood): the next state, and a number in [0, 1)."""
    state = (state + 0x9E3779B97F4A7C15) & _MASK
    mixed = ((state ^ (state >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    mixed = ((mixed ^ (mixed >> 27)) * 0x94D049BB133111EB) & _MASK
    return state, ((mixed ^ (mixed >> 31)) >> 11) * 2.0**-53
