"""A session worked out from scratch for every token (genai 6): no state but lists of ids, no model but a function.

It says what a real session must hold and answer after any calls. Its model is asked for the whole sequence each time.
"""

from __future__ import annotations

import codecs
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from fakes.reference_sampler import draw, penalised, prolonged, repeated
from genai.options import TextGenerationOptions

E_INVALIDARG, E_NOT_VALID_STATE, INSUFFICIENT_BUFFER = 0x80070057, 0x8007139F, 0x8007007A
INVALID_DATA, NO_LEGAL_TOKEN = 0x8007000D, 0x80070491
_ROUNDING = 1e-4  # by which an engine may move a draw; greedy choices that are nearer than this are ties
_MASK = 2**64 - 1

Logits = Callable[[Sequence[int]], npt.NDArray[np.float32]]


@dataclass(frozen=True)
class Letters:
    """A constraint: `least` to `most` of the tokens `ids`, then one of `ends`."""

    ids: frozenset[int]
    least: int
    most: int
    ends: frozenset[int]

    def can_stop(self, count: int) -> bool:
        """Whether `count` tokens are enough."""
        return count >= self.least

    def legal(self, count: int) -> set[int]:
        """What may follow `count` tokens."""
        return set(self.ids if count < self.most else ()) | set(self.ends if self.can_stop(count) else ())


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

    def generate(
        self, prompt: Sequence[int], options: TextGenerationOptions, constraint: Letters | None = None
    ) -> ReferenceStream:
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
        return ReferenceStream(self, options, None, constraint)

    def resume(
        self, suffix: Sequence[int], options: TextGenerationOptions, constraint: Letters | None = None
    ) -> ReferenceStream:
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
        return ReferenceStream(self, options, before, constraint)

    def saved(self) -> tuple[list[int], int]:
        """The sequence and how much of it is evaluated, to `load`."""
        if self.state != "READY":
            raise Refused(E_NOT_VALID_STATE)
        return list(self.retained), self.evaluated

    def load(self, saved: tuple[list[int], int]) -> None:
        """Go on from a sequence of before."""
        if self.state not in ("EMPTY", "READY"):
            raise Refused(E_NOT_VALID_STATE)
        self.state, self.retained, self.evaluated = "READY", list(saved[0]), saved[1]

    def reset(self) -> None:
        """Forget the sequence."""
        if self.state == "ACTIVE":
            raise Refused(E_NOT_VALID_STATE)
        self.state, self.retained, self.evaluated = "EMPTY", [], 0


class ReferenceStream:
    """One operation; `before` is the sequence before a continue."""

    def __init__(
        self,
        session: ReferenceSession,
        options: TextGenerationOptions,
        before: list[int] | None,
        constraint: Letters | None,
    ) -> None:
        session.state = "ACTIVE"
        self._session, self._options, self._before, self._constraint = session, options, before, constraint
        self._prompt, self._start = list(session.retained), session.evaluated
        self.is_cancelled = False
        self.prompt_token_count = len(self._prompt)
        self.evaluated_prompt_count = 0
        self.emitted: list[int] = []
        self.reason: str | None = None
        self.error_code = 0
        self.stop_match: str | None = None
        self.alternatives: set[int] = set()
        """What the last selected token may be instead, but for rounding."""
        self.logprobs = np.zeros(session.vocabulary_size)
        """Of all tokens, where the last one was selected."""

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
        stopping = options.stopping
        if stopping is not None and self.emitted and stopping(tuple(self.emitted), self._decoded()):
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
        if token_id < 0:
            self.error_code = INVALID_DATA if self._constraint is None else NO_LEGAL_TOKEN
            self._finish("ERROR")
            return None
        if token_id in session.eos:
            self._finish("EOS_TOKEN" if self._stop_position(is_end=True) is None else "STOP_TOKEN")
            return None
        if token_id in options.stop_token_ids or (self._constraint is not None and token_id in self._constraint.ends):
            self._finish("STOP_TOKEN")
            return None
        session.retained.append(token_id)
        self.emitted.append(token_id)
        return token_id

    def _select(self, row: npt.NDArray[np.float32]) -> int:
        options = self._options
        z = self._restricted(*self._changed(np.array(row, np.float64)))
        if options.temperature == 0 or options.top_k == 1:
            self.alternatives = set(np.flatnonzero(z >= z.max() - _ROUNDING).tolist())
            return draw(z, TextGenerationOptions(), 0)
        number = _number(options.seed, len(self.emitted))
        excludes_top = _unit(_number(number, 0)) < options.xtc_probability
        chosen = [draw(z, options, _unit(number) + d, excludes_top) for d in (-_ROUNDING, 0, _ROUNDING)]
        self.alternatives = set(chosen)
        return chosen[1]

    def _changed(self, z: npt.NDArray[np.float64]) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
        """The row with all that the options change in it, and before tokens are banned or slowed."""
        options, history = self._options, [*self._prompt, *self.emitted]
        for token_id, bias in dict(options.logit_bias or {}).items():
            z[int(token_id)] += bias
        for processor in tuple(options.logits_processors):  # type: ignore[arg-type]
            z = processor(tuple(history), z)
        z = penalised(z, options, self._prompt, self.emitted)
        scored = z.copy()
        if options.ignore_eos or len(self.emitted) < options.min_new_tokens:
            z[list(self._session.eos)] = -math.inf
        if options.no_repeat_ngram_size:
            z[list(repeated(history, options.no_repeat_ngram_size))] = -math.inf
        if options.dry_multiplier:
            for token_id, length in prolonged(history, options.dry_allowed_length).items():
                z[token_id] -= options.dry_multiplier * options.dry_base ** (length - options.dry_allowed_length)
        return z, scored

    def _restricted(self, z: npt.NDArray[np.float64], scored: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        """The row of legal tokens; their log probabilities are noted."""
        if self._constraint is not None:
            legal = list(self._constraint.legal(len(self.emitted)))
            mask = np.full(z.size, -math.inf)
            mask[legal] = 0
            scored = scored + mask
            ends = sorted(self._constraint.ends & self._session.eos & set(legal))
            bans_end = self._options.ignore_eos or len(self.emitted) < self._options.min_new_tokens
            is_over = bans_end and not np.any(z + mask > -math.inf)
            z = z + mask
            if is_over:  # the text ends where nothing else is left, whatever the options say of its end
                z[ends] = scored[ends]
        peak = scored.max()
        self.logprobs = scored - peak - math.log(float(np.exp(scored - peak).sum())) if peak > -math.inf else scored
        return z

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

    @property
    def is_complete(self) -> bool | None:
        """Whether the output is all that the constraint asks for; None without one."""
        if self._constraint is None:
            return None
        return self.stop_match is None and self._constraint.can_stop(len(self.emitted))

    # --- text

    @property
    def text(self) -> str:
        """What was emitted, up to the first stop; without half a character at the end."""
        position = self._stop_position(is_end=True)
        if position is not None and self._options.include_stop:
            position += len(self._stop_at(position))
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


def _number(seed: int, index: int) -> int:
    """SplitMix64 (Steele, Lea, Flood): one of the numbers that `seed` begins."""
    mixed = (seed + (index + 1) * 0x9E3779B97F4A7C15) & _MASK
    mixed = ((mixed ^ (mixed >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    mixed = ((mixed ^ (mixed >> 27)) * 0x94D049BB133111EB) & _MASK
    return mixed ^ (mixed >> 31)


def _unit(number: int) -> float:
    return (number >> 11) * 2.0**-53
