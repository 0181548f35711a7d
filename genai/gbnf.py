"""Grammars in llama.cpp's notation (GBNF), read into a tree.

A rule begins where a name is followed by `::=`; line ends mean nothing else. Not here: what becomes of the tree
(`grammar_gbnf.py`).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NoReturn, TypeAlias

from winml_lite import WinMLError

from .codes import E_INVALIDARG

MAX_DEPTH = 64
"""Deepest nesting of groups."""
_TOKEN = re.compile(
    r"""(?P<space>\s+|\#[^\n]*)
      | (?P<define>::=)
      | (?P<name>[A-Za-z0-9_-]+)
      | (?P<literal>"(?:[^"\\\n]|\\.)*")
      | (?P<class>\[(?:[^\]\\]|\\.)*\])
      | (?P<token><\[[0-9,^*-]+\]>|<[^<>\s]+>)
      | (?P<repeat>[*+?]|\{\s*\d+\s*(?:,\s*\d*\s*)?\})
      | (?P<mark>[|().])
    """,
    re.VERBOSE,
)
_ESCAPE = re.compile(r"\\(?:x([0-9a-fA-F]{2})|u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|(.))|(.)", re.DOTALL)
_NAMED_ESCAPES = {"n": "\n", "r": "\r", "t": "\t", "\\": "\\", '"': '"', "[": "[", "]": "]", "^": "^", "-": "-"}


@dataclass(frozen=True, slots=True)
class Lexeme:
    """A literal or a character class, as Lark spells it."""

    lark: str


@dataclass(frozen=True, slots=True)
class Special:
    """A special token by its name or id."""

    lark: str


@dataclass(frozen=True, slots=True)
class Reference:
    """A rule by its name; `place` is where the grammar says so."""

    name: str
    place: int


@dataclass(frozen=True, slots=True)
class Sequence:
    """Parts one after the other; none for an empty text."""

    parts: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Choice:
    """One of the parts."""

    parts: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Repetition:
    """A part as often as `lark` says: `*`, `+`, `?` or `{m,n}`."""

    part: Node
    lark: str


Node: TypeAlias = Lexeme | Special | Reference | Sequence | Choice | Repetition


def _fail(text: str, place: int, problem: str) -> NoReturn:
    line = text.count("\n", 0, place) + 1
    column = place - text.rfind("\n", 0, place)
    raise WinMLError(E_INVALIDARG, "grammar", f"line {line}, column {column}: {problem}")


class GbnfParser:
    """Reads GBNF by recursive descent."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens = list(self._scan())
        self._next = 0

    def rules(self) -> dict[str, Node]:
        """Return the rules by name; every reference has its rule, and `root` is there."""
        rules: dict[str, Node] = {}
        while self._kind() != "end":
            _, name, place = self._take()
            if self._kind() != "define":
                _fail(self._text, place, f"a rule was expected (name ::= ...), not {name!r}")
            self._take()
            if name in rules:
                _fail(self._text, place, f"the rule {name!r} is defined twice")
            if self._at_end_of_rule():
                _fail(self._text, place, f"the rule {name!r} is empty")
            rules[name] = self._choice(0)
        if "root" not in rules:
            _fail(self._text, 0, "there is no rule 'root'")
        for node in rules.values():
            for reference in references(node):
                if reference.name not in rules:
                    _fail(self._text, reference.place, f"there is no rule {reference.name!r}")
        return rules

    def _scan(self) -> Iterator[tuple[str, str, int]]:
        place = 0
        while place < len(self._text):
            match = _TOKEN.match(self._text, place)
            if match is None:
                _fail(self._text, place, f"{self._text[place]!r} was not expected")
            if match.lastgroup != "space":
                yield str(match.lastgroup), match.group(), place
            place = match.end()
        yield "end", "", place

    def _kind(self) -> str:
        return self._tokens[self._next][0]

    def _take(self) -> tuple[str, str, int]:
        token = self._tokens[self._next]
        self._next += token[0] != "end"
        return token

    def _at_end_of_rule(self) -> bool:
        kind, text, _ = self._tokens[self._next]
        return kind == "end" or text == ")" or (kind == "name" and self._tokens[self._next + 1][0] == "define")

    def _choice(self, depth: int) -> Node:
        if depth > MAX_DEPTH:
            _fail(self._text, self._tokens[self._next][2], f"groups are nested more than {MAX_DEPTH} deep")
        parts = [self._sequence(depth)]
        while self._tokens[self._next][1] == "|":
            self._take()
            parts.append(self._sequence(depth))
        if depth == 0 and self._tokens[self._next][1] == ")":
            _fail(self._text, self._tokens[self._next][2], "')' without '('")
        return parts[0] if len(parts) == 1 else Choice(tuple(parts))

    def _sequence(self, depth: int) -> Node:
        parts: list[Node] = []
        while not self._at_end_of_rule() and self._tokens[self._next][1] != "|":
            kind, text, place = self._take()
            if kind == "repeat":
                if not parts:
                    _fail(self._text, place, f"{text!r} has nothing before it to repeat")
                parts[-1] = Repetition(parts[-1], "".join(text.split()))
            else:
                parts.append(self._item(kind, text, place, depth))
        return parts[0] if len(parts) == 1 else Sequence(tuple(parts))

    def _item(self, kind: str, text: str, place: int, depth: int) -> Node:
        if kind == "name":
            return Reference(text, place)
        if kind == "literal":
            return Lexeme(json.dumps("".join(self._characters(text[1:-1], place)), ensure_ascii=False))
        if kind == "class":
            return Lexeme(self._class(text, place))
        if kind == "token":
            return Special(text)
        if text == ".":
            return Lexeme("/(?s:.)/")
        if text != "(":
            _fail(self._text, place, f"{text!r} was not expected")
        inner = self._choice(depth + 1)
        if self._tokens[self._next][1] != ")":
            _fail(self._text, place, "'(' without ')'")
        self._take()
        return inner

    def _characters(self, text: str, place: int) -> Iterator[str]:
        for match in _ESCAPE.finditer(text):
            *codes, named, plain = match.groups()
            code = next((code for code in codes if code), None)
            if plain is not None:
                yield plain
            elif code is not None and int(code, 16) < 0x110000:
                yield chr(int(code, 16))
            elif named in _NAMED_ESCAPES:
                yield _NAMED_ESCAPES[named]
            else:
                _fail(self._text, place, f"unknown escape {match.group()!r}")

    def _class(self, text: str, place: int) -> str:
        body = text[1:-1]
        is_negated = body.startswith("^")
        spelled = [match.group() for match in _ESCAPE.finditer(body[is_negated:])]
        if not spelled:
            _fail(self._text, place, "the character class is empty")
        ranges = ""
        index = 0
        while index < len(spelled):
            first = last = next(self._characters(spelled[index], place))
            if spelled[index + 1 : index + 2] == ["-"] and index + 2 < len(spelled):
                last = next(self._characters(spelled[index + 2], place))
                index += 2
            if last < first:
                _fail(self._text, place, f"the range {first!r} to {last!r} runs backwards")
            ranges += _code(first) if first == last else f"{_code(first)}-{_code(last)}"
            index += 1
        return f"/[{'^' * is_negated}{ranges}]/"


def _code(character: str) -> str:
    """One character inside a class of a regular expression."""
    return character if character.isascii() and character.isalnum() else f"\\x{{{ord(character):x}}}"


def references(node: Node) -> Iterator[Reference]:
    """Return the references in a part of a rule."""
    if isinstance(node, Reference):
        yield node
    elif isinstance(node, Repetition):
        yield from references(node.part)
    elif isinstance(node, Sequence | Choice):
        for part in node.parts:
            yield from references(part)
