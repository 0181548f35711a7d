"""What switches a lazy constraint on: tokens, texts and patterns in the output so far (genai §3.7)."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable, Iterable

from winml_lite import WinMLError

from .codes import E_INVALIDARG
from .conversation_result import ConversationConstraintTrigger, ConversationConstraintTriggerType

Type = ConversationConstraintTriggerType


class TriggerWatch:
    """Reads the output of one generation until a trigger is found in it.

    Works on bytes: a token may end inside a character, and a trigger may begin inside a token. `token_bytes` gives the
    bytes of a token. WinMLError 0x80070057 for a trigger that can never be found.
    """

    def __init__(self, triggers: Iterable[ConversationConstraintTrigger], token_bytes: Callable[[int], bytes]) -> None:
        self._token_bytes = token_bytes
        triggers = tuple(triggers)
        self._token_ids = {trigger.token_id for trigger in triggers if trigger.type == Type.TOKEN}
        self._texts = [trigger.value.encode() for trigger in triggers if trigger.type == Type.TEXT]
        self._patterns = [
            (_compiled(trigger.value), trigger.type == Type.FULL_PATTERN)
            for trigger in triggers
            if trigger.type in (Type.PATTERN, Type.FULL_PATTERN)
        ]
        if not triggers or b"" in self._texts or None in self._token_ids:
            raise WinMLError(
                E_INVALIDARG, "constraint", "a lazy constraint needs triggers, each with a token or a text"
            )
        self._data = bytearray()
        self._starts: list[int] = []

    def restart(self) -> None:
        """Forget the output."""
        self._data = bytearray()
        self._starts = []

    def push(self, token_id: int) -> tuple[int, bytes] | None:
        """Read a token; None while nothing has triggered.

        Otherwise the constraint begins in token number `index`, of which it sees only the last bytes; b"" for all of
        it. Returns (index, last bytes).
        """
        before = len(self._data)
        self._starts.append(before)
        self._data += self._token_bytes(token_id)
        if token_id in self._token_ids:
            return len(self._starts) - 1, b""
        places = [place for place in (*self._found_texts(before), *self._found_patterns()) if place is not None]
        if not places:
            return None
        place = min(places)
        index = bisect_right(self._starts, place) - 1
        if self._starts[index] == place:
            return index, b""
        end = self._starts[index + 1] if index + 1 < len(self._starts) else len(self._data)
        return index, bytes(self._data[place:end])

    def _found_texts(self, before: int) -> list[int]:
        """Places of texts that end in the newest token."""
        places = [self._data.find(text, max(before - len(text) + 1, 0)) for text in self._texts]
        return [place for place in places if place >= 0]

    def _found_patterns(self) -> list[int]:
        if not self._patterns:
            return []
        text = self._data.decode("utf-8", "surrogateescape")
        places = []
        for pattern, is_full in self._patterns:
            match = pattern.fullmatch(text) if is_full else pattern.search(text)
            if match is not None:
                group = next((number for number in range(1, pattern.groups + 1) if match.group(number)), 0)
                places.append(len(text[: match.start(group)].encode("utf-8", "surrogateescape")))
        return places


def _compiled(pattern: str) -> re.Pattern[str]:
    try:
        return re.compile(pattern)
    except re.error as error:
        raise WinMLError(E_INVALIDARG, "constraint", f"the trigger pattern {pattern!r} is wrong: {error}") from error
