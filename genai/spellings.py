"""Keeping what people write apart from what a template writes (design: user text never becomes a control token).

A spelling of a control token in a message is broken by a marker, one character that occurs nowhere in the conversation.
The template renders the broken text; when the prompt is tokenized, the marker is dropped after control tokens were
found, so the model reads the message exactly as it was written, as text.
"""

from __future__ import annotations

import itertools
import re
import string
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

# Marks of prose are not here: plain sentences must stay cheap. Those that a control spelling uses are added.
_MARKS = frozenset("#$%&*+/<=>@[\\]^_`{|}~")


def unused_character(texts: Sequence[str]) -> str:
    """Return a character that is in none of `texts`: a noncharacter, which no text should hold, if one is free."""
    return next(character for character in _candidates() if not any(character in text for text in texts))


def _candidates() -> Iterator[str]:
    yield from map(chr, range(0xFDD0, 0xFDF0))
    for plane in range(1, 17):
        yield from (chr(plane * 0x10000 + 0xFFFE), chr(plane * 0x10000 + 0xFFFF))
    yield from map(chr, range(0xF0000, 0xFFFFE))  # private use


class ControlSpellings:
    """Finds the spellings of a vocabulary's control tokens in text."""

    def __init__(self, spellings: Iterable[str]) -> None:
        self._whole = frozenset(spelling for spelling in spellings if len(spelling) > 1)
        self._lengths = sorted({len(spelling) for spelling in self._whole})
        self._beginnings = frozenset(s[:end] for s in self._whole for end in range(1, len(s)))
        self._endings = frozenset(s[start:] for s in self._whole for start in range(1, len(s)))
        firsts = "".join(sorted({re.escape(spelling[0]) for spelling in self._whole}))
        self._first = re.compile(f"[{firsts}]") if firsts else re.compile(r"(?!)")
        self._folded = "\n".join(sorted(self._whole)).casefold()
        self._letter = next((letter for letter in string.ascii_lowercase if letter not in self._folded), "x")
        self._suspicious = _suspicious(self._whole)

    def inert(self, text: str) -> str:
        """Return `text` with a letter for every character that a control token could be made with.

        All of it is replaced where the whole text is a piece of a spelling, which a template could complete. A text
        that comes back unchanged is harmless.
        """
        bare = text.strip().casefold()
        if bare and bare in self._folded:
            return re.sub(r"\S", self._letter, text)
        return self._suspicious.sub(self._letter, text)

    def broken(self, text: str, marker: str) -> str:
        """Return `text` with a marker in every spelling, and at an end where a neighbour could complete one."""
        cuts = {
            match.start() + 1
            for match in self._first.finditer(text)
            if any(text[match.start() : match.start() + length] in self._whole for length in self._lengths)
        }
        # Templates strip texts and put them side by side.
        bare = text.strip()
        start = len(text) - len(text.lstrip())
        if any(bare[-length:] in self._beginnings for length in range(1, self._reach(bare))):
            cuts.add(start + len(bare))
        if any(bare[:length] in self._endings for length in range(1, self._reach(bare))):
            cuts.add(start)
        if not cuts:
            return text
        bounds = [0, *sorted(cuts), len(text)]
        return marker.join(text[begin:end] for begin, end in itertools.pairwise(bounds))

    def _reach(self, text: str) -> int:
        longest = self._lengths[-1] if self._lengths else 0
        return min(longest, len(text) + 1)


def _suspicious(spellings: Iterable[str]) -> re.Pattern[str]:
    """The characters without which no spelling comes about, whatever happens to a text."""
    marks = set(_MARKS)
    for spelling in spellings:
        found = {character for character in spelling if not character.isalnum() and not character.isspace()}
        if not found:  # a spelling of letters only: every text could make it
            return re.compile(r"\S")
        marks |= found
    return re.compile(f"[{re.escape(''.join(sorted(marks)))}]")


def map_texts(value: Any, change: Callable[[str], str]) -> Any:
    """Return a JSON value with every text in it changed, names of members included."""
    if isinstance(value, str):
        return change(value)
    if isinstance(value, list):
        return [map_texts(item, change) for item in value]
    if isinstance(value, dict):
        return {change(name): map_texts(item, change) for name, item in value.items()}
    return value
