"""Choosing the next token from one row of logits (genai §5.4 and 8).

    NaN out → bias → own processors → penalties → (log probabilities) → no end yet → no n-gram twice → DRY → constraint
    → greedy, or temperature → top-n-sigma → top-k → typical-p → top-p → min-p → XTC → draw

Here: the order of these steps. What changes the row is in `row_edits.py`, `penalties.py` and `repetitions.py`;
`candidates.py` and `filters.py` find the few tokens that a draw needs. All arithmetic behind the row itself is in
double precision, so the same row and seed give the same token whatever produced the row.

Between two runs of a model the caches are cold and each NumPy call costs tens of microseconds, hence few calls on whole
rows, no step that is switched off, and no Python loop over the vocabulary.

Worked example, z = [2, 1, 0.5, -1]: probabilities .609 .224 .136 .030, so top_p=.8 keeps tokens 0 and 1. With
temperature=2 they are .434 .263 .205 .097 and it keeps 0, 1 and 2: the temperature comes first.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from winml_lite import WinMLError

from .candidates import NO_TOKEN, Candidates, TopCandidates
from .codes import INVALID_DATA, NO_LEGAL_TOKEN
from .filters import FilteredCandidates
from .log_probabilities import token_logprob
from .logit_bias import LogitBias
from .option_values import callables
from .options import TextGenerationOptions
from .penalties import Penalties
from .random_numbers import UNIT, split_mix64, unit_interval
from .repetitions import Dry, NoRepeat
from .results import TokenLogprob
from .row_edits import Bias, EndBan, Processors, RowEdit

Row = npt.NDArray[Any]


class LegalTokens(Protocol):
    """What a constraint permits at one place."""

    def allows(self, token_id: int) -> bool:
        """Whether one token is legal."""

    def mask(self) -> npt.NDArray[np.uint8] | None:
        """Return one bit for each token, the lowest bit of the first byte for token 0; None permits all.

        Tokens past its end are not legal.
        """


def fresh_seed() -> int:
    """Return a seed of 1 to 2**53 - 1: numbers that survive JSON readers that keep all numbers as doubles."""
    return int.from_bytes(os.urandom(8), "little") >> 11 or 1


class TokenSelector:
    """Selects the tokens of one operation, composed once from its options.

    `vocabulary_size` is the length of a row, 0 where the first row is to say it (a vocabulary may be padded beyond the
    tokens of its tokenizer); `prompt_ids` is what precedes the output. `eos_token_ids` is what `min_new_tokens` and
    `ignore_eos` ban, `token_bytes` finds the sequence breakers of DRY that are texts.

    `seed` is the seed really used: that of the options, or a fresh one for 0. One random number belongs to each sampled
    token, none to greedy selection. `logprob` is that of the token that was selected last, None without `top_logprobs`.

    ValueError for a bias on a token outside the vocabulary, and for text breakers without `token_bytes`.
    """

    def __init__(
        self,
        options: TextGenerationOptions,
        vocabulary_size: int,
        prompt_ids: Iterable[int] = (),
        *,
        eos_token_ids: Iterable[int] = (),
        token_bytes: Callable[[int], bytes] | None = None,
    ) -> None:
        self.seed = options.seed or fresh_seed()
        self.logprob: TokenLogprob | None = None
        self._place = 0  # how many tokens were accepted
        self._options = options
        self._prompt_ids = tuple(prompt_ids)
        self._eos_token_ids = tuple(eos_token_ids)
        self._token_bytes = token_bytes
        self._shape: tuple[int, ...] | None = None
        self._edits: tuple[RowEdit, ...] = ()  # up to the row whose log probabilities are reported
        self._bans: tuple[RowEdit, ...] = ()  # behind it
        self._end_ban: EndBan | None = None
        self._work: Row | None = None
        self._candidates: Candidates | None = None
        self._masked_row: Row | None = None
        if vocabulary_size:
            self._compose(vocabulary_size)

    def _compose(self, size: int) -> None:
        """Make the steps that the options ask for."""
        options, prompt = self._options, self._prompt_ids
        edits: list[RowEdit] = []
        if isinstance(options.logit_bias, LogitBias):
            edits.append(Bias(options.logit_bias, size))
        if options.logits_processors:
            edits.append(Processors(callables(options.logits_processors, "logits_processors"), prompt))
        if options.repetition_penalty != 1 or options.presence_penalty or options.frequency_penalty:
            edits.append(Penalties(options, size, prompt))
        bans: list[RowEdit] = []
        if self._eos_token_ids and (options.ignore_eos or options.min_new_tokens):
            self._end_ban = EndBan(self._eos_token_ids, None if options.ignore_eos else options.min_new_tokens, size)
            bans.append(self._end_ban)
        if options.no_repeat_ngram_size:
            bans.append(NoRepeat(options.no_repeat_ngram_size, size, prompt))
        if options.dry_multiplier:
            bans.append(Dry(options, size, prompt, self._token_bytes))
        self._edits, self._bans = tuple(edits), tuple(bans)
        if edits or bans:
            self._work = np.empty(size, np.float64)
        if options.temperature > 0 and options.top_k != 1:
            self._candidates = _candidates_of(options, size)
        self._prompt_ids = ()
        self._shape = (size,)

    def select(self, row: Row, legal: LegalTokens | None = None) -> int:
        """Return the id of the next token; until `accept`, which makes it count, an equal row gives the same one.

        row: float32 logits of shape (vocabulary_size,), left unchanged; float64 is used as it is, other types become
        float32.
        legal: the tokens that a constraint permits; None permits all.
        Raises WinMLError 0x8007000D when no logit is above minus infinity, 0x80070491 when a constraint leaves none,
        0x8007000D for a row of another shape; what the caller's own processors raise passes through.
        """
        if row.shape != self._shape:
            if self._shape is not None or row.ndim != 1 or not row.size:
                wanted = "one dimension" if self._shape is None else f"shape {self._shape}"
                raise WinMLError(INVALID_DATA, "logits", f"a row of {wanted} was expected, not {row.shape}")
            self._compose(row.size)
        if row.dtype.char not in "fd":
            row = row.astype(np.float32)
        count = self._options.top_logprobs
        scored = row
        if self._work is not None:
            row = scored = self._edited(row)
            if self._bans:
                scored = row if count is None else row.copy()
                for ban in self._bans:
                    ban.apply(row)
        token_id = self._choose(row) if legal is None else self._choose_legal(row, legal)
        if token_id == NO_TOKEN:
            raise self._nothing_left(legal is not None)
        if count is not None:
            mask = None if legal is None else legal.mask()
            self.logprob = token_logprob(scored if mask is None else self._masked(scored, mask), token_id, count)
        return token_id

    def _edited(self, row: Row) -> Row:
        """Return the row in double precision with biases, processors and penalties, in a buffer that is used again."""
        work = self._work
        assert work is not None
        np.copyto(work, row)
        for edit in self._edits:
            edit.apply(work)
        return work

    def _choose(self, row: Row) -> int:
        candidates = self._candidates
        if candidates is None:
            return _highest(row)
        number = split_mix64(self.seed, self._place)
        if self._options.xtc_probability:
            # Another number that takes none of the sequence: the first of a sequence that this one begins.
            candidates.excludes_top = unit_interval(split_mix64(number)) < self._options.xtc_probability
        return candidates.draw(row, (number >> 11) * UNIT)

    def _choose_legal(self, row: Row, legal: LegalTokens) -> int:
        if self._candidates is None:  # greedy: mostly the best token of all is legal, and no mask is needed
            token_id = int(row.argmax())
            value = row.item(token_id)
            if value > -np.inf and legal.allows(token_id):  # not so for NaN
                return token_id
        mask = legal.mask()
        token_id = self._choose(row if mask is None else self._masked(row, mask))
        if token_id == NO_TOKEN and mask is not None and self._end_ban is not None and self._end_ban.lift(row):
            # The constraint has come to its end: it leaves nothing but the end of the text, so that is what follows.
            return _highest(self._masked(row, mask))
        return token_id

    def _masked(self, row: Row, mask: npt.NDArray[np.uint8]) -> Row:
        """Return the permitted logits, the others minus infinity, in a buffer that the next call reuses."""
        masked = self._masked_row
        if masked is None or masked.dtype != row.dtype:
            self._masked_row = masked = np.empty_like(row)
        masked.fill(-np.inf)
        np.copyto(masked, row, where=np.unpackbits(mask, count=row.size, bitorder="little").view(np.bool_))
        return masked

    def _nothing_left(self, is_constrained: bool) -> WinMLError:
        after = "" if self._work is None else ", after what the options change in it"
        if is_constrained:
            return WinMLError(NO_LEGAL_TOKEN, "sampling", f"the constraint leaves no token of the row to choose{after}")
        return WinMLError(INVALID_DATA, "sampling", f"no logit of the row is above minus infinity{after}")

    def accept(self, token_id: int) -> None:
        """Count `token_id` as emitted."""
        self._place += 1
        for edit in self._edits:
            edit.accept(token_id)
        for ban in self._bans:
            ban.accept(token_id)

    def again(self, prompt_ids: Iterable[int], token_ids: Iterable[int]) -> TokenSelector:
        """Return a selector as this one was when it had accepted exactly `token_ids` after `prompt_ids`."""
        size = self._shape[0] if self._shape is not None else 0
        selector = TokenSelector(
            self._options, size, prompt_ids, eos_token_ids=self._eos_token_ids, token_bytes=self._token_bytes
        )
        selector.seed = self.seed
        for token_id in token_ids:
            selector.accept(token_id)
        return selector


def _highest(row: Row) -> int:
    """Return the id of the highest logit, of equal ones the lowest; NO_TOKEN when none is above minus infinity."""
    token_id = int(row.argmax())
    value = row.item(token_id)
    if value != value:  # argmax stops at the first NaN
        row = np.where(np.isnan(row), -np.inf, row)
        token_id = int(row.argmax())
        value = row.item(token_id)
    return token_id if value > -np.inf else NO_TOKEN


def _candidates_of(options: TextGenerationOptions, vocabulary_size: int) -> Candidates:
    if options.typical_p < 1 or options.top_n_sigma:
        return FilteredCandidates(options, vocabulary_size)
    has_top_k = 0 < options.top_k < vocabulary_size
    return TopCandidates(options, vocabulary_size) if has_top_k else Candidates(options, vocabulary_size)
