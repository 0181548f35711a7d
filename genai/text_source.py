"""Text that arrives in pieces, read by generators that pause until there is more.

A reader written as a generator reads like a parser of a whole text; that the text comes in pieces cannot change what it
finds, because it sees one character, one JSON value or one mark after the other. Everything here takes linear time.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Generator, Iterable
from typing import TypeAlias, TypeVar

from .json_scanner import JsonScanner

T = TypeVar("T")
Reading: TypeAlias = Generator[None, None, T]
"""A reader: it yields whenever it needs more text."""
Sink: TypeAlias = Callable[[str], object]

BLANKS = " \t\n\r"


class TextEndError(Exception):
    """The text ended inside of something."""


class MarkSearch:
    """Finds the first of several marks; of two that begin together, the longer one."""

    def __init__(self, marks: Iterable[str]) -> None:
        marks = sorted(set(marks), key=len, reverse=True)
        self._pattern = re.compile("|".join(map(re.escape, marks)) if marks else r"(?!)")
        self._beginnings = frozenset(mark[:end] for mark in marks for end in range(1, len(mark)))
        self._reach = max(map(len, marks), default=1) - 1

    def find(self, text: str, position: int, is_whole: bool) -> tuple[int, str | None]:
        """Return where the next mark begins, and the mark; without a certain one, how far there is none, and None.

        Looks from `position` on; `is_whole` says that nothing follows the text.
        """
        match = self._pattern.search(text, position)
        held = len(text) if is_whole else self._held(text, position)
        if match is not None and match.start() < held:
            return match.start(), match.group()
        return held, None

    def _held(self, text: str, position: int) -> int:
        """Where the end of `text` begins that may become a mark."""
        starts = range(max(position, len(text) - self._reach), len(text))
        return next((start for start in starts if text[start:] in self._beginnings), len(text))


class TextSource:
    """The text that was given and not yet read."""

    __slots__ = ("_dropped", "_kept", "_kept_from", "_position", "_text", "is_ended", "mark_end")

    def __init__(self, whole: str | None = None) -> None:
        """`whole` is a text that is all there; without it the source is empty and open."""
        self._text = whole or ""
        self._position = 0
        self._dropped = 0
        self._kept: list[str] | None = None
        self._kept_from = 0
        self.is_ended = whole is not None
        self.mark_end = 0
        """How many characters there are up to the end of the last mark that was read."""

    @property
    def consumed(self) -> int:
        """How many characters were read."""
        return self._dropped + self._position

    def append(self, text: str) -> None:
        """Add text; what is still unread is shorter than a mark."""
        if self._kept is not None:
            self._kept.append(self._text[self._kept_from : self._position])
            self._kept_from = 0
        self._text = self._text[self._position :] + text
        self._dropped += self._position
        self._position = 0

    def keep(self) -> None:
        """Keep what is read from here on, for `kept`."""
        self._kept, self._kept_from = [], self._position

    def kept(self) -> str:
        """Return what was read since `keep`, and keep no more."""
        pieces, self._kept = self._kept or [], None
        return "".join([*pieces, self._text[self._kept_from : self._position]])

    def peek(self) -> Reading[str]:
        """Return the next character without reading it; `""` at the end of the text."""
        while self._position == len(self._text) and not self.is_ended:
            yield
        return self._text[self._position : self._position + 1]

    def skip(self) -> None:
        """Read the character that `peek` returned."""
        self._position += 1

    def skip_blanks(self, sink: Sink | None = None) -> Reading[str]:
        """Read blanks and line ends; return the character after them like `peek`."""
        while (character := (yield from self.peek())) and character in BLANKS:
            if sink is not None:
                sink(character)
            self.skip()
        return character

    def next_of(self, characters: str) -> Reading[str]:
        """Return the next character after blanks, which must be one of `characters`, without reading it."""
        character = yield from self.skip_blanks()
        if not character:
            raise TextEndError
        if character not in characters:
            raise ValueError(f"{character!r} stands where one of {characters!r} belongs")
        return character

    def one_of(self, characters: str) -> Reading[str]:
        """Read the next character after blanks, which must be one of `characters`."""
        character = yield from self.next_of(characters)
        self.skip()
        return character

    def until(self, search: MarkSearch, sink: Sink) -> Reading[str | None]:
        """Read up to the next mark and past it, and return it; None when the text ends first."""
        while True:
            end, mark = search.find(self._text, self._position, self.is_ended)
            self._give(end, sink)
            if mark is not None:
                self._position = end + len(mark)
                self.mark_end = self.consumed
                return mark
            if self.is_ended:
                return None
            yield

    def text_until(self, search: MarkSearch) -> Reading[tuple[str, str]]:
        """Read up to the next mark; return the text before it, and the mark. TextEndError without one."""
        pieces: list[str] = []
        mark = yield from self.until(search, pieces.append)
        if mark is None:
            raise TextEndError
        return "".join(pieces), mark

    def text_before(self, search: MarkSearch) -> Reading[str]:
        """Read up to the next mark, which stays unread; marks of one character only. TextEndError without one."""
        text, mark = yield from self.text_until(search)
        self._position -= len(mark)
        self.mark_end = self.consumed
        return text

    def json_value(self, sink: Sink) -> Reading[None]:
        """Read one JSON value as it is written. ValueError when it is malformed, TextEndError when it is cut off."""
        scanner = JsonScanner()
        while True:
            self._give(scanner.feed(self._text, self._position), sink)
            if scanner.is_complete:
                return
            if scanner.problem is not None:
                raise ValueError(scanner.problem)
            if self.is_ended:
                raise TextEndError
            yield

    def json_text(self) -> Reading[str]:
        """Read one JSON value and return it as it is written."""
        pieces: list[str] = []
        yield from self.json_value(pieces.append)
        return "".join(pieces)

    def _give(self, end: int, sink: Sink) -> None:
        if end > self._position:
            text = self._text[self._position : end]
            self._position = end
            sink(text)
