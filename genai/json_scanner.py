"""Where a JSON value ends, found while the text arrives (RFC 8259).

Strict, so that a malformed value is noticed at its first wrong character; a value's text is never looked at twice. Not
here: what a value means (`json.loads` says that once it is complete).
"""

from __future__ import annotations

import re

_DEPTH_LIMIT = 128
"""Of nested arrays and objects; Python's own parser gives up at some thousand."""
_CLOSABLE = ("comma", "first key", "first item")
_BLANKS = re.compile(r"[ \t\n\r]*")
_PLAIN = re.compile(r'[^"\\\x00-\x1f]*')
_SCALAR = re.compile(r"[-+.0-9A-Za-z]*")
_SCALAR_VALUE = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?|true|false|null")


class JsonScanner:
    """Takes one JSON value in pieces, until it is complete or has a problem."""

    __slots__ = ("_digits", "_expected", "_is_key", "_open", "_scalar", "is_complete", "problem")

    def __init__(self) -> None:
        self.is_complete = False
        self.problem: str | None = None
        """Why the text cannot go on as JSON."""
        self._open: list[str] = []
        self._expected = "value"
        self._is_key = False
        self._scalar: list[str] = []
        self._digits = 0

    def feed(self, text: str, position: int) -> int:
        """Take `text` from `position` on; return where the value ends or goes wrong, else the end of the text."""
        while position < len(text) and not self.is_complete and self.problem is None:
            if self._expected == "string":
                position = self._string(text, position)
            elif self._expected == "scalar":
                position = self._number_or_word(text, position)
            elif self._expected in ("escape", "digit"):
                position += self._escape(text[position])
            else:
                position = _match_end(_BLANKS, text, position)
                if position < len(text):
                    position += self._punctuation(text[position])
        return position

    def _string(self, text: str, position: int) -> int:
        position = _match_end(_PLAIN, text, position)
        if position == len(text):
            return position
        if text[position] == "\\":
            self._expected = "escape"
        elif text[position] == '"':
            if self._is_key:
                self._expected = "colon"
            else:
                self._end_value()
        else:
            self.problem = f"a string holds the control character {text[position]!r}"
            return position
        return position + 1

    def _escape(self, character: str) -> int:
        if self._expected == "escape" and character == "u":
            self._digits = 4
        elif character not in ("0123456789abcdefABCDEF" if self._digits else '"\\/bfnrt'):
            return self._refuse(character)
        elif self._digits:
            self._digits -= 1
        self._expected = "digit" if self._digits else "string"
        return 1

    def _number_or_word(self, text: str, position: int) -> int:
        end = _match_end(_SCALAR, text, position)
        self._scalar.append(text[position:end])
        if end < len(text):
            scalar = "".join(self._scalar)
            if _SCALAR_VALUE.fullmatch(scalar):
                self._end_value()
            else:
                self.problem = f"{scalar[:40] or text[end]!r} is no JSON value"
            self._scalar = []
        return end

    def _punctuation(self, character: str) -> int:
        """Take one character between strings, numbers and words; 0 when it is not taken here."""
        expected = self._expected
        if expected in _CLOSABLE and self._open and character == self._open[-1]:
            self._open.pop()
            self._end_value()
        elif expected == "comma" and character == ",":
            self._expected = "key" if self._open[-1] == "}" else "value"
        elif expected == "colon" and character == ":":
            self._expected = "value"
        elif expected in ("key", "first key") and character == '"':
            self._expected, self._is_key = "string", True
        elif expected in ("value", "first item"):
            return self._begin_value(character)
        else:
            return self._refuse(character)
        return 1

    def _begin_value(self, character: str) -> int:
        if character == '"':
            self._expected, self._is_key = "string", False
        elif character in "{[" and len(self._open) == _DEPTH_LIMIT:
            self.problem = f"the value is nested deeper than {_DEPTH_LIMIT} levels"
            return 0
        elif character in "{[":
            self._open.append("}" if character == "{" else "]")
            self._expected = "first key" if character == "{" else "first item"
        else:
            self._expected = "scalar"
            return 0
        return 1

    def _end_value(self) -> None:
        self.is_complete = not self._open
        self._expected = "comma"

    def _refuse(self, character: str) -> int:
        self.problem = f"the character {character!r} cannot stand here in JSON"
        return 0


def _match_end(pattern: re.Pattern[str], text: str, position: int) -> int:
    match = pattern.match(text, position)
    return match.end() if match else position
