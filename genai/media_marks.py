"""Marks for media in the text of a prompt, which is split at them once a template has placed them (genai §9.2)."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TypeAlias

from .conversation_checks import unsupported

Place: TypeAlias = tuple[int, int]
"""A message and a part of its content, both counted from 0."""


class MediaMarks:
    """Marks that stand for media in a text: `character`, which is in no text of the request, around a number."""

    def __init__(self, character: str, places: Sequence[Place]) -> None:
        self._character = character
        self.places = tuple(places)
        self._mark = re.compile(f"{character}([0-9]+){character}")

    def mark(self, place: Place) -> str:
        """Return the mark of the media at a place."""
        return f"{self._character}{self.places.index(place)}{self._character}"

    def split(self, text: str) -> tuple[list[str], tuple[Place, ...]]:
        """Return the texts around the media, and the places of the media in the order of the text.

        NotSupportedError when not each of them is there once.
        """
        texts = self._mark.split(text)
        numbers = [int(number) for number in texts[1::2]]
        for number, (message, part) in enumerate(self.places):
            if (count := numbers.count(number)) != 1:
                unsupported(f"the chat template shows part {part} of message {message} {count} times instead of once")
        return texts[::2], tuple(self.places[number] for number in numbers)
