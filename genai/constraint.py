"""Constraints that a program drives itself, or gives to a session (genai §4): the public classes.

What a constraint means is `constraint_state.py`; grammars are `grammar.py`.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from numbers import Real
from typing import TYPE_CHECKING, Any

from winml_lite import NotSupportedError, WinMLError

from .affinity import ThreadAffinity
from .checks import index_value, instance_of
from .closing import Closing
from .codes import E_INVALIDARG, NO_LEGAL_TOKEN, NOT_SUPPORTED
from .constraint_engine import Mask
from .constraint_state import ConstraintCore, TokenConstraintState
from .constraint_trigger import TriggerWatch
from .conversation_result import ConstraintVocabularyIdentity, ConversationFormatResult
from .grammar import SYNTAX, SYNTAX_VERSION

if TYPE_CHECKING:
    from .vocabulary import TokenizerCore


@dataclass(frozen=True, slots=True)
class TokenConstraintCandidate:
    """A token that could come next, and its logit. NaN and infinities are allowed; a finite logit must fit float32."""

    token_id: int
    logit: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "token_id", index_value(self.token_id, "token_id"))
        object.__setattr__(self, "logit", _logit_value(self.logit))


def _logit_value(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, Real):
        raise TypeError(f"logit must be a number, not {type(value).__name__}")
    try:
        logit = float(value)
        struct.pack("<f", logit)
    except OverflowError:
        raise ValueError("logit must fit a 32-bit float") from None
    return logit


class TokenConstraint(Closing):
    """What the tokens of one generation may be. Make it with `Tokenizer.create_constraint` and its relatives.

    Give it to a session, which drives it, or drive it by hand: filter or select, then accept. Only the creating thread
    may use it.
    """

    def __init__(self, core: ConstraintCore, identity: ConstraintVocabularyIdentity) -> None:
        self._core: ConstraintCore | None = core
        self._identity = identity
        self._affinity = ThreadAffinity()

    def __repr__(self) -> str:
        if self._core is None:
            return "<TokenConstraint (closed)>"
        return f"<TokenConstraint {self._core.status.name}, {len(self._core.accepted)} tokens accepted>"

    @property
    def vocabulary_identity(self) -> ConstraintVocabularyIdentity:
        """The vocabulary that the constraint was made for: that of its tokenizer."""
        self._open()
        return self._identity

    @property
    def state(self) -> TokenConstraintState:
        """Status, flags and counts at present."""
        return self._open().state

    def filter_candidates(self, candidates: Iterable[TokenConstraintCandidate]) -> tuple[TokenConstraintCandidate, ...]:
        """Return the legal candidates in their order; nothing changes.

        WinMLError 0x80070491 when none is legal, 0x80070057 for an id that is unknown or occurs twice.
        """
        core = self._open()
        given = _candidates(candidates)
        if len({candidate.token_id for candidate in given}) < len(given):
            raise WinMLError(E_INVALIDARG, "filter_candidates", "a token occurs twice among the candidates")
        legal = _legal(core, given, "filter_candidates")
        if not legal:
            raise WinMLError(NO_LEGAL_TOKEN, "filter_candidates", "no candidate is legal")
        return legal

    def select_highest_allowed_candidate(self, candidates: Sequence[TokenConstraintCandidate]) -> int:
        """Return the legal token of the highest logit, of equal ones the lowest id; it is not accepted yet.

        The ids must ascend (0x80070057). NaN and minus infinity are never chosen; 0x80070491 when nothing is left.
        """
        core = self._open()
        given = _candidates(candidates)
        if any(second.token_id <= first.token_id for first, second in pairwise(given)):
            raise WinMLError(
                E_INVALIDARG, "select_highest_allowed_candidate", "the ids of the candidates must ascend strictly"
            )
        legal = _legal(core, given, "select_highest_allowed_candidate")
        possible = [candidate for candidate in legal if candidate.logit > -math.inf]
        if not possible:
            raise WinMLError(NO_LEGAL_TOKEN, "select_highest_allowed_candidate", "no candidate is legal")
        return max(possible, key=lambda candidate: candidate.logit).token_id

    def accept_token(self, token_id: int) -> None:
        """Take `token_id` as the next token of the output.

        WinMLError 0x80070057 for an illegal one, after which the constraint is POISONED; 0x8007139F when it is
        COMPLETED or POISONED, or while a session uses it.
        """
        core = self._open()
        core.check_free()
        core.accept(index_value(token_id, "token_id"))

    def is_stop_token(self, token_id: int) -> bool:
        """Whether this token ends the output: it is one of the tokenizer's EOS tokens."""
        return index_value(token_id, "token_id") in self._open().table.eos_token_ids

    def is_preserved_token(self, token_id: int) -> bool:
        """Whether this is a stop token that stays in the output all the same."""
        return self.is_stop_token(token_id) and token_id in self._open().preserved

    def reset(self) -> None:
        """Begin anew, also after an illegal token. 0x8007139F while a session uses the constraint."""
        core = self._open()
        core.check_free()
        core.reset()

    def close(self) -> None:
        """Give the grammar up. Again is fine; a session that uses the constraint goes on with it."""
        self._affinity.check("TokenConstraint")
        self._core = None

    def _check_open(self) -> ConstraintCore:
        return self._open()

    def _open(self) -> ConstraintCore:
        self._affinity.check("TokenConstraint")
        if self._core is None:
            raise RuntimeError("TokenConstraint is closed")
        return self._core


def _candidates(candidates: Iterable[TokenConstraintCandidate]) -> list[TokenConstraintCandidate]:
    return [instance_of(candidate, TokenConstraintCandidate, "a candidate") for candidate in candidates]


def _legal(
    core: ConstraintCore, candidates: list[TokenConstraintCandidate], what: str
) -> tuple[TokenConstraintCandidate, ...]:
    mask = core.mask()
    for candidate in candidates:
        if candidate.token_id >= core.table.token_count:
            raise WinMLError(E_INVALIDARG, what, f"the vocabulary has no token {candidate.token_id}")
    if mask is None:
        return tuple(candidates)
    return tuple(candidate for candidate in candidates if _is_set(mask, candidate.token_id))


def _is_set(mask: Mask, token_id: int) -> bool:
    return bool(mask[token_id >> 3] >> (token_id & 7) & 1)


def create_constraint(core: TokenizerCore, grammar: str) -> TokenConstraint:
    """Return a constraint of a grammar in the engine's form."""
    table = core.token_table
    return TokenConstraint(ConstraintCore(table, grammar, core.token_text_bytes), core.identity)


def create_conversation_constraint(core: TokenizerCore, result: ConversationFormatResult) -> TokenConstraint:
    """Return the constraint that a formatted conversation asks for; for errors see `Tokenizer.create_constraint`."""
    return TokenConstraint(conversation_constraint(core, result), core.identity)


def conversation_constraint(core: TokenizerCore, result: ConversationFormatResult) -> ConstraintCore:
    """Return what stands behind such a constraint; it has no thread rule."""
    if result.tokenizer._open is not core:
        raise WinMLError(E_INVALIDARG, "create_constraint", "the conversation was formatted by another tokenizer")
    constraint = result.constraint
    if constraint is None:
        raise NotSupportedError(NOT_SUPPORTED, "create_constraint", "the conversation asks for no constraint")
    if (constraint.syntax, constraint.syntax_version) != (SYNTAX, SYNTAX_VERSION):
        syntax = f"{constraint.syntax} {constraint.syntax_version}"
        raise NotSupportedError(NOT_SUPPORTED, "create_constraint", f"constraints of the syntax {syntax} are unknown")
    table = core.token_table
    piece = core.token_text_bytes
    watch = TriggerWatch(result.constraint_triggers, piece) if constraint.lazy else None
    preserved = frozenset(token.token_id for token in result.preserved_tokens if token.token_id is not None)
    return ConstraintCore(table, constraint.value, piece, watch, preserved=preserved)
