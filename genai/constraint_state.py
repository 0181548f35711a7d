"""How far one generation has come under its constraint (genai §4): statuses, stop tokens, lazy constraints.

`ConstraintCore` stands behind the public `TokenConstraint` and behind the short road. It has no thread rule of its own.
An interrupt may strike anywhere: the tokens accepted so far are the truth, and the engine's matcher is made anew from
them where it may have been cut short.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum, IntFlag

from winml_lite import WinMLError

from .codes import E_INVALIDARG, E_NOT_VALID_STATE
from .constraint_engine import GrammarMatcher, Mask, TokenTable
from .constraint_trigger import TriggerWatch


class TokenConstraintStatus(IntEnum):
    """Whether a constraint takes more tokens."""

    ACTIVE = 0
    COMPLETED = 1
    POISONED = 2


class TokenConstraintStateFlags(IntFlag):
    """What holds at the present place: waiting for a trigger, and whether the text may end here."""

    NONE = 0
    AWAITING_TRIGGER = 1
    CAN_STOP = 2


@dataclass(frozen=True, slots=True)
class TokenConstraintState:
    """A snapshot of a constraint. The peaks are 0: the engine keeps no stack."""

    status: TokenConstraintStatus
    state_flags: TokenConstraintStateFlags
    accepted_token_count: int
    """Accepted tokens, those before a trigger included."""
    peak_stack_count: int
    peak_stack_depth: int


Status = TokenConstraintStatus
Flags = TokenConstraintStateFlags


class ConstraintCore:
    """The state of one constrained generation.

    `token_bytes` gives the bytes of a token. `watch` makes the constraint lazy: everything is legal until it has found
    a trigger. `parse` makes the value of a complete text, `preserved` are stop tokens that stay in the output.
    """

    def __init__(
        self,
        table: TokenTable,
        grammar: str,
        token_bytes: Callable[[int], bytes],
        watch: TriggerWatch | None = None,
        parse: Callable[[str], object] | None = None,
        preserved: frozenset[int] = frozenset(),
    ) -> None:
        self.table = table
        self.parse = parse
        self.preserved = preserved
        self._token_bytes = token_bytes
        self._watch = watch
        self._fresh = table.matcher(grammar)
        self._user: weakref.ref[object] | None = None
        self._start()

    def _start(self) -> None:
        self._is_torn = True
        self.accepted: list[int] = []
        self._rewind()
        self._is_torn = False

    def _rewind(self) -> None:
        """Go back to the start, with `accepted` as it is."""
        self.status = Status.ACTIVE
        self._matcher: GrammarMatcher | None = None if self._watch is not None else self._fresh.copy()
        if self._watch is not None:
            self._watch.restart()

    # --- one user at a time -------------------------------------------------------------------------------------------

    def claim(self, user: object) -> None:
        """Start over for `user`, a generation. 0x8007139F while another one is using the constraint."""
        self.check_free()
        self._start()
        self._user = weakref.ref(user)

    def release(self, user: object) -> None:
        """Give the constraint back; again is fine."""
        if self._user is not None and self._user() is user:
            self._user = None

    def check_free(self) -> None:
        """Raise 0x8007139F while a generation is using the constraint."""
        if self._user is not None and self._user() is not None:
            raise WinMLError(E_NOT_VALID_STATE, "constraint", "a generation is using the constraint")

    # --- queries ------------------------------------------------------------------------------------------------------

    @property
    def is_completed(self) -> bool:
        """Whether a stop token has ended the text."""
        return self.status is Status.COMPLETED

    @property
    def can_stop(self) -> bool:
        """Whether the text may end here, or has ended."""
        self._mend()
        if self.status is not Status.ACTIVE:
            return self.status is Status.COMPLETED
        return self._matcher is None or self._matcher.is_accepting

    def is_whole(self, count: int) -> bool:
        """Whether the first `count` accepted tokens are a text that may end there."""
        last = self.accepted[count:]
        if not last or self.is_completed:
            return self.can_stop
        self.keep(count)
        is_whole = self.can_stop
        for token_id in last:
            self.accept(token_id)
        return is_whole

    @property
    def state(self) -> TokenConstraintState:
        self._mend()
        flags = Flags.NONE
        if self.status is Status.ACTIVE:
            flags |= Flags.AWAITING_TRIGGER if self._matcher is None else Flags.NONE
            flags |= Flags.CAN_STOP if self.can_stop else Flags.NONE
        return TokenConstraintState(self.status, flags, len(self.accepted), 0, 0)

    def allows(self, token_id: int) -> bool:
        """Whether a token is legal next. 0x8007139F after the end."""
        self._check_active("filter")
        matcher = self._matcher
        if matcher is None:
            return token_id < self.table.token_count
        if token_id in self.table.special_token_ids:
            return (token_id in self.table.eos_token_ids and matcher.is_accepting) or matcher.allows_special(token_id)
        return matcher.allows(token_id)

    def mask(self) -> Mask | None:
        """Return which tokens are legal next, None when all are; the next call reuses the buffer.

        0x8007139F after the end. 0x8007000E, which poisons, when the grammar has become too complex.
        """
        self._check_active("filter")
        if self._matcher is None:
            return None
        try:
            return self._matcher.mask()
        except WinMLError:
            self.status = Status.POISONED
            raise

    # --- changes ------------------------------------------------------------------------------------------------------

    def accept(self, token_id: int) -> None:
        """Take the next token. 0x80070057 for an illegal one, which poisons; 0x8007139F after the end."""
        self._check_active("accept_token")
        self._is_torn = True
        self.accepted.append(token_id)
        try:
            is_legal = self._advance(len(self.accepted) - 1)
        except WinMLError:
            self._poison(len(self.accepted) - 1)
            raise
        if not is_legal:
            self._poison(len(self.accepted) - 1)
            raise WinMLError(E_INVALIDARG, "accept_token", f"the constraint does not allow token {token_id} here")
        self._is_torn = False

    def keep(self, count: int) -> bool:
        """Forget what was accepted after the first `count` tokens; False when there is nothing to forget."""
        if len(self.accepted) <= count:
            return False
        self._is_torn = True
        del self.accepted[count:]
        return True

    def _poison(self, place: int) -> None:
        """End at `accepted[place]`, which could not be taken."""
        del self.accepted[place:]
        self.status = Status.POISONED
        self._is_torn = False

    def _advance(self, place: int) -> bool:
        """Move on by `accepted[place]`; False when it is illegal."""
        token_id = self.accepted[place]
        matcher = self._matcher
        if token_id in self.table.eos_token_ids:
            is_legal = matcher is None or matcher.is_accepting or matcher.allows_special(token_id)
            if is_legal:
                self.status = Status.COMPLETED
            return is_legal
        if matcher is not None:
            is_barred = token_id in self.table.special_token_ids and not matcher.allows_special(token_id)
            return not is_barred and matcher.advance([token_id])
        if token_id >= self.table.token_count:
            return False
        assert self._watch is not None
        hit = self._watch.push(token_id)
        if hit is None:
            return True
        index, tail = hit
        replayed = self.accepted[index : place + 1]
        if tail:
            replayed[:1] = spelled = self.table.spell(tail, self._token_bytes)
            if not spelled:
                return False
        self._matcher = self._fresh.copy()
        return self._matcher.advance(replayed)

    def reset(self) -> None:
        """Begin anew, also after an illegal token."""
        self._start()

    def _mend(self) -> None:
        """Read all accepted tokens again when an interrupt has cut a step short."""
        if not self._is_torn:
            return
        self._rewind()
        for place in range(len(self.accepted)):
            if not self._advance(place):
                return self._poison(place)
        self._is_torn = False

    def _check_active(self, what: str) -> None:
        self._mend()
        if self.status is not Status.ACTIVE:
            raise WinMLError(E_NOT_VALID_STATE, what, f"the constraint is {self.status.name}: reset() begins it anew")
