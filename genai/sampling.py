"""Choosing the next token from one row of logits (genai §5.4).

    NaN out → penalties → constraint → greedy, or temperature → top-k → top-p → min-p → draw

Here: the order of these steps, the random numbers and the penalties. `candidates.py` finds the few tokens that a draw
needs. All arithmetic behind the row itself is in double precision, so the same row and seed give the same token
whatever produced the row.

Between two runs of a model the caches are cold and each NumPy call costs tens of microseconds, hence few calls on whole
rows, no step that is switched off, and no Python loop over the vocabulary.

Worked example, z = [2, 1, 0.5, -1]: probabilities .609 .224 .136 .030, so top_p=.8 keeps tokens 0 and 1. With
temperature=2 they are .434 .263 .205 .097 and it keeps 0, 1 and 2: the temperature comes first.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Iterable
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from winml_lite import WinMLError

from .candidates import NO_TOKEN, Candidates, TopCandidates
from .codes import INVALID_DATA, NO_LEGAL_TOKEN
from .options import TextGenerationOptions

Row = npt.NDArray[Any]


class SplitMix64:
    """The random numbers of one operation (Steele, Lea and Flood, Fast splittable pseudorandom number generators,
    2014).
    """

    __slots__ = ("_state",)

    def __init__(self, seed: int) -> None:
        self._state = seed

    def next(self) -> int:
        """Return the next 64-bit number; the first of seed 1 is 0x910A2DEC89025CC1."""
        self._state = (self._state + 0x9E3779B97F4A7C15) & 0xFFFFFFFFFFFFFFFF
        z = self._state
        z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & 0xFFFFFFFFFFFFFFFF
        z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & 0xFFFFFFFFFFFFFFFF
        return z ^ (z >> 31)

    def random(self) -> float:
        """Return a number in [0, 1), a multiple of 2**-53; the first of seed 1 is 0.566561575172."""
        return (self.next() >> 11) * 2.0**-53


class _Occurrences:
    """How often each token occurs, in two aligned arrays that grow and shrink in place: reading them costs no copy."""

    __slots__ = ("_counts", "_ids", "_slots")

    def __init__(self) -> None:
        self._slots: dict[int, int] = {}
        self._ids = np.zeros(64, np.intp)
        self._counts = np.zeros(64, np.float64)

    @property
    def ids(self) -> npt.NDArray[np.intp]:
        return self._ids[: len(self._slots)]

    @property
    def counts(self) -> npt.NDArray[np.float64]:
        return self._counts[: len(self._slots)]

    def add(self, token_id: int) -> None:
        slot = self._slots.setdefault(token_id, len(self._slots))
        if slot == self._ids.size:
            self._ids = np.concatenate((self._ids, np.zeros_like(self._ids)))
            self._counts = np.concatenate((self._counts, np.zeros_like(self._counts)))
        self._ids[slot] = token_id
        self._counts[slot] += 1

    def remove(self, token_id: int) -> None:
        """Take one occurrence back; the last slot moves into a freed one."""
        slot = self._slots[token_id]
        self._counts[slot] -= 1
        if self._counts[slot] == 0:
            del self._slots[token_id]
            last = len(self._slots)
            if slot != last:
                moved = int(self._ids[last])
                self._slots[moved] = slot
                self._ids[slot] = moved
                self._counts[slot] = self._counts[last]
            self._counts[last] = 0


class _Penalties:
    """Steps 2 and 3: repetition over the last tokens of prompt and output, presence and frequency over the output
    alone.
    """

    def __init__(self, options: TextGenerationOptions, vocabulary_size: int, prompt_ids: Iterable[int]) -> None:
        self._repetition = options.repetition_penalty
        self._presence = options.presence_penalty
        self._frequency = options.frequency_penalty
        self._vocabulary_size = vocabulary_size
        self._work = np.empty(vocabulary_size, np.float64)
        self._recent = _Occurrences()
        self._window: deque[int] | None = None
        if options.repetition_penalty_window:
            self._window = deque()
        self._window_size = options.repetition_penalty_window
        self._emitted = _Occurrences()
        for token_id in prompt_ids:
            self._remember(token_id)

    def _remember(self, token_id: int) -> None:
        if self._repetition == 1:
            return
        if self._has_logit(token_id):
            self._recent.add(token_id)
        if self._window is not None:
            self._window.append(token_id)
            if len(self._window) > self._window_size:
                oldest = self._window.popleft()
                if self._has_logit(oldest):
                    self._recent.remove(oldest)

    def _has_logit(self, token_id: int) -> bool:
        """Prompts may hold ids past the row: models exist with more input than output tokens."""
        return 0 <= token_id < self._vocabulary_size

    def accept(self, token_id: int) -> None:
        self._remember(token_id)
        if self._has_logit(token_id):
            self._emitted.add(token_id)

    def apply(self, row: Row) -> Row:
        """Return the penalised row in double precision, in a buffer that the next call reuses."""
        work = self._work
        np.copyto(work, row)
        with np.errstate(all="ignore"):  # an overflow is a proper infinity, and NaN stays NaN
            if self._repetition != 1:
                ids = self._recent.ids
                z = work[ids]
                work[ids] = np.where(z > 0, z / self._repetition, z * self._repetition)
            if self._frequency or self._presence:
                ids = self._emitted.ids
                work[ids] = work[ids] - self._frequency * self._emitted.counts - self._presence
        return work


class LegalTokens(Protocol):
    """What a constraint permits at one place."""

    def allows(self, token_id: int) -> bool:
        """Whether one token is legal."""

    def mask(self) -> npt.NDArray[np.uint8] | None:
        """Return one bit for each token, the lowest bit of the first byte for token 0; None permits all.

        Tokens past its end are not legal.
        """


class TokenSelector:
    """Selects the tokens of one operation, composed once from its options.

    `vocabulary_size` is the length of a row, 0 where the first row is to say it (a vocabulary may be padded beyond the
    tokens of its tokenizer); `prompt_ids` is what precedes the output. `seed` is the seed really used: that of the
    options, or a fresh one for 0. One random number is drawn per sampled token, none for greedy selection.
    """

    def __init__(self, options: TextGenerationOptions, vocabulary_size: int, prompt_ids: Iterable[int] = ()) -> None:
        self.seed = options.seed or int.from_bytes(os.urandom(8), "little") or 1
        self._random = SplitMix64(self.seed).random
        self._options = options
        self._prompt_ids: tuple[int, ...] = ()
        self._shape: tuple[int, ...] | None = None
        self._penalties: _Penalties | None = None
        self._candidates: Candidates | None = None
        self._masked_row: Row | None = None
        if vocabulary_size:
            self._compose(vocabulary_size, prompt_ids)
        else:
            self._prompt_ids = tuple(prompt_ids)

    def _compose(self, vocabulary_size: int, prompt_ids: Iterable[int]) -> None:
        """Make the steps that the options ask for."""
        options = self._options
        self._shape = (vocabulary_size,)
        if options.repetition_penalty != 1 or options.presence_penalty or options.frequency_penalty:
            self._penalties = _Penalties(options, vocabulary_size, prompt_ids)
        if options.temperature > 0 and options.top_k != 1:
            has_top_k = 0 < options.top_k < vocabulary_size
            kind = TopCandidates if has_top_k else Candidates
            self._candidates = kind(options, vocabulary_size)

    def select(self, row: Row, legal: LegalTokens | None = None) -> int:
        """Return the id of the next token; `accept` makes it count for the penalties.

        row: float32 logits of shape (vocabulary_size,), left unchanged; float64 is used as it is, other types become
        float32.
        legal: the tokens that a constraint permits; None permits all.
        Raises WinMLError 0x8007000D when no logit is above minus infinity, 0x80070491 when a constraint leaves none,
        0x8007000D for a row of another shape.
        """
        if row.shape != self._shape:
            if self._shape is not None or row.ndim != 1 or not row.size:
                wanted = "one dimension" if self._shape is None else f"shape {self._shape}"
                raise WinMLError(INVALID_DATA, "logits", f"a row of {wanted} was expected, not {row.shape}")
            self._compose(row.size, self._prompt_ids)
        if row.dtype.char not in "fd":
            row = row.astype(np.float32)
        if self._penalties is not None:
            row = self._penalties.apply(row)
        token_id = self._choose(row) if legal is None else self._choose_legal(row, legal)
        if token_id == NO_TOKEN:
            if legal is not None:
                raise WinMLError(NO_LEGAL_TOKEN, "sampling", "the constraint leaves no token to choose")
            raise WinMLError(INVALID_DATA, "sampling", "no logit of the row is above minus infinity")
        return token_id

    def _choose(self, row: Row) -> int:
        if self._candidates is not None:
            return self._candidates.draw(row, self._random())
        token_id = int(row.argmax())
        value = row.item(token_id)
        if value != value:  # argmax stops at the first NaN
            row = np.where(np.isnan(row), -np.inf, row)
            token_id = int(row.argmax())
            value = row.item(token_id)
        return token_id if value > -np.inf else NO_TOKEN

    def _choose_legal(self, row: Row, legal: LegalTokens) -> int:
        if self._candidates is None:  # greedy: mostly the best token of all is legal, and no mask is needed
            token_id = int(row.argmax())
            value = row.item(token_id)
            if value > -np.inf and legal.allows(token_id):  # not so for NaN
                return token_id
        mask = legal.mask()
        return self._choose(row if mask is None else self._masked(row, mask))

    def _masked(self, row: Row, mask: npt.NDArray[np.uint8]) -> Row:
        """Return the permitted logits, the others minus infinity, in a buffer that the next call reuses."""
        masked = self._masked_row
        if masked is None or masked.dtype != row.dtype:
            self._masked_row = masked = np.empty_like(row)
        masked.fill(-np.inf)
        np.copyto(masked, row, where=np.unpackbits(mask, count=row.size, bitorder="little").view(np.bool_))
        return masked

    def accept(self, token_id: int) -> None:
        """Count `token_id` as emitted."""
        if self._penalties is not None:
            self._penalties.accept(token_id)
