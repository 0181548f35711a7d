"""Stop strings in streamed text: nothing that may still become part of a stop is released (genai §8, cases S-STP).

The matcher is the automaton of Aho and Corasick (Efficient string matching: an aid to bibliographic search, 1975). Its
state is the longest end of the text that begins some stop, which is exactly what has to be held back; each character
costs a few dictionary look-ups, whatever the length of the text and of the stops.
"""

from __future__ import annotations

from collections.abc import Iterable


class StopText:
    """Cuts a stream of fragments before its first stop; how the text is split into fragments does not matter.

    The match that starts first wins, of two that start together the one that is complete first. A stop inside another
    stop (stops "abcd" and "bc", text "abc") therefore waits until the outer one has failed or the text ends. `matched`
    is the stop that was found, or None; from then on `push` and `flush` return "". With `include` the stop itself is
    released at the end of the text.
    """

    __slots__ = (
        "_depth",
        "_fallback",
        "_first",
        "_found",
        "_includes",
        "_longest",
        "_next",
        "_state",
        "held",
        "matched",
    )

    def __init__(self, stops: Iterable[str], include: bool = False) -> None:
        self.matched: str | None = None
        self.held = ""
        """What came in and was not released yet."""
        self._includes = include
        self._state = 0
        self._found: tuple[int, int] | None = None  # start in `held` and length of the best match so far
        self._build(tuple(stops))

    def _build(self, stops: tuple[str, ...]) -> None:
        """Make the automaton. State 0 is "no stop has begun"; the others are the beginnings of stops."""
        self._next: list[dict[str, int]] = [{}]
        self._depth = [0]  # length of the beginning
        self._longest = [0]  # length of the longest stop that ends here
        for stop in stops:
            if not stop:
                raise ValueError("an empty stop would match before the first character")
            state = 0
            for character in stop:
                if character not in self._next[state]:
                    self._next[state][character] = len(self._next)
                    self._next.append({})
                    self._depth.append(self._depth[state] + 1)
                    self._longest.append(0)
                state = self._next[state][character]
            self._longest[state] = len(stop)
        self._first = frozenset(self._next[0])
        self._fallback = [0] * len(self._next)  # the longest shorter beginning that ends the same way
        queue = list(self._next[0].values())
        for state in queue:
            for character, following in self._next[state].items():
                queue.append(following)
                self._fallback[following] = self._advance(self._fallback[state], character)
            self._longest[state] = self._longest[state] or self._longest[self._fallback[state]]

    def _advance(self, state: int, character: str) -> int:
        while (following := self._next[state].get(character)) is None:
            if state == 0:
                return 0
            state = self._fallback[state]
        return following

    def push(self, fragment: str) -> str:
        """Take the next fragment; return the text that is now certain to come before any stop."""
        if self.matched is not None:
            return ""
        if self._state == 0 and self._found is None and self._first.isdisjoint(fragment):
            return fragment
        position = len(self.held)
        self.held += fragment
        for character in fragment:
            position += 1
            self._state = self._advance(self._state, character)
            length = self._longest[self._state]
            if length and (self._found is None or position - length < self._found[0]):
                self._found = (position - length, length)
            if self._found is not None and position - self._depth[self._state] >= self._found[0]:
                return self._finish()
        return self._release(position - self._depth[self._state])

    def flush(self) -> str:
        """End the text; return what was held back. A match that was waiting for a longer stop counts now."""
        if self._found is not None and self.matched is None:
            return self._finish()
        self._state = 0
        return self._release(len(self.held))

    def _release(self, count: int) -> str:
        released, self.held = self.held[:count], self.held[count:]
        if self._found is not None:
            self._found = (self._found[0] - count, self._found[1])
        return released

    def _finish(self) -> str:
        assert self._found is not None
        start, length = self._found
        self.matched = self.held[start : start + length]
        released, self.held = self.held[: start + length if self._includes else start], ""
        return released
