"""Drafts from the text itself: what followed the last time that its last tokens occurred (genai §7, lookup rule).

For n = 8 down to 2 the most recent earlier occurrence of the last n tokens is looked for; the tokens that followed it
are the draft. Each n has a table from n tokens to the place where they ended last, so a token costs a few look-ups and
never a scan of the sequence.

How often such a guess is right depends on n and on the text. It is learned at every token of the output, drafted or
not: the guess is compared with what was chosen. So a text that does not repeat costs nothing, and one that begins to
repeat is noticed at once.
"""

from __future__ import annotations

from collections.abc import Sequence

LONGEST, SHORTEST = 8, 2
_RATE = 0.125
"""Weight of the latest guess in what is learned."""
_FIRST_CHANCES = (0.0, 0.0, 0.35, 0.5, 0.6, 0.7, 0.75, 0.8, 0.85)
"""How often a guess after n equal tokens is thought to be right before any was seen."""


class PromptLookup:
    """Implements `DraftSource`: the lookup in one growing sequence."""

    pipelines = ()

    def __init__(self) -> None:
        self._chances = list(_FIRST_CHANCES)
        self.begin([])

    def begin(self, sequence: Sequence[int]) -> None:
        """Start over with the prompt of another operation; what was learned stays."""
        self._ends: list[dict[int, int]] = [{} for _ in range(LONGEST + 1)]
        """For each n: where the n tokens that a key is made of occurred last, as the number of tokens up to there."""
        self._keys = [0] * (LONGEST + 1)
        """For each n the key of the last n tokens, 32 bits a token."""
        self._count = 0
        self._match, self._next = 0, 0
        """How many of the last tokens have occurred before, and the place of the token that followed them then."""
        self._index(sequence)

    def outlook(self, sequence: Sequence[int], most: int) -> Sequence[float]:
        """Return the chance of each token that would be drafted: each, if right, makes the match longer by one."""
        for place in range(self._count, len(sequence)):
            if self._match:
                self._learn(sequence[self._next] == sequence[place])
            self._push(sequence[place])
        if not self._match:
            return ()
        most = min(most, len(sequence) - self._next)
        return [self._chances[min(length, LONGEST)] for length in range(self._match, self._match + most)]

    def propose(self, sequence: Sequence[int], count: int) -> list[int]:
        """Return up to `count` tokens that followed the last time."""
        return list(sequence[self._next : self._next + count]) if self._match else []

    def observe(self, drafted: int, accepted: int) -> None:
        """Nothing to do: `outlook` sees every token."""

    def abort(self) -> None:
        """Nothing takes long here."""

    def close(self) -> None:
        """Nothing to give up."""

    def _index(self, sequence: Sequence[int]) -> None:
        for token_id in sequence:
            self._push(token_id)

    def _learn(self, was_right: bool) -> None:
        chance = self._chances[self._match]
        self._chances[self._match] = chance + _RATE * (was_right - chance)

    def _push(self, token_id: int) -> None:
        keys, ends = self._keys, self._ends
        self._count = count = self._count + 1
        self._match = 0
        for length in range(min(LONGEST, count), SHORTEST - 1, -1):
            keys[length] = key = keys[length - 1] << 32 | token_id
            table = ends[length]
            if not self._match:
                end = table.get(key)
                if end is not None:
                    self._match, self._next = length, end
            table[key] = count
        keys[1] = token_id
