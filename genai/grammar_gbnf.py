"""Grammars in llama.cpp's notation (GBNF) as Lark text for the constraint engine (genai 3.6).

    root ::= item ("," item)*          start: item ("," item)*
    item ::= [a-z]+ "!"?          ->   ITEM: /[a-z]/+ "!"?

The engine reads lexemes greedily and parses only between them. So each part of a grammar that needs no recursion
becomes one lexeme, as large as possible: inside a lexeme every way to read a text counts, as GBNF wants it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from .gbnf import Choice, GbnfParser, Lexeme, Node, Reference, Repetition, Sequence, Special, references


def gbnf_to_lark(text: str) -> str:
    """Return the Lark text of a GBNF grammar; 0x80070057 with line and column for a mistake in it."""
    rules = GbnfParser(text).rules()
    return _Writer(rules).lark()


def _has_special(node: Node) -> bool:
    if isinstance(node, Repetition):
        return _has_special(node.part)
    if isinstance(node, Sequence | Choice):
        return any(map(_has_special, node.parts))
    return isinstance(node, Special)


class _Writer:
    """Writes rules as Lark text: those without recursion as lexemes (capital names), the others as rules."""

    def __init__(self, rules: dict[str, Node]) -> None:
        self._rules = rules
        self._regular = _regular_rules(rules)
        self._names = self._lark_names()
        self._lexemes: dict[str, str] = {}
        """Parts of rules that became lexemes, by their text."""

    def lark(self) -> str:
        """Return the whole grammar."""
        lines = []
        for name, node in self._rules.items():
            if name in self._regular:
                lines.append(f"{self._names[name]}: {self._regular_text(node)}")
            else:
                lines.append(f"{self._names[name]}: {self._rule_text(node)}")
        if "root" in self._regular:
            lines.insert(0, f"start: {self._names['root']}")
        lines += [f"{name}: {text}" for text, name in self._lexemes.items()]
        return "\n".join(lines) + "\n"

    def _lark_names(self) -> dict[str, str]:
        """Name each rule: the same letters where possible, in the case that says lexeme or rule."""
        names: dict[str, str] = {}
        taken = {"start"}
        for name in self._rules:
            base = re.sub(r"[^a-z0-9]+", "_", name.lower()).strip("_")
            base = f"r_{base}" if not base or base[0].isdigit() or base == "start" else base
            unique = base
            while unique in taken:
                unique += "_x"
            taken.add(unique)
            names[name] = unique.upper() if name in self._regular else unique
        if "root" not in self._regular:
            names["root"] = "start"
        return names

    def _is_regular(self, node: Node) -> bool:
        return not _has_special(node) and all(reference.name in self._regular for reference in references(node))

    def _regular_text(self, node: Node) -> str:
        """Spell a part without recursion, for use inside a lexeme."""
        if isinstance(node, Lexeme | Special):
            return node.lark
        if isinstance(node, Reference):
            return self._names[node.name]
        if isinstance(node, Repetition):
            return f"({self._regular_text(node.part)}){node.lark}"
        joined = (" | " if isinstance(node, Choice) else " ").join(map(self._regular_text, node.parts))
        return f"({joined})" if node.parts else '""'

    def _rule_text(self, node: Node) -> str:
        """Spell a part of a rule; what is regular in it becomes a lexeme."""
        if isinstance(node, Lexeme | Special | Reference):
            return self._regular_text(node)
        if self._is_regular(node):
            text = self._regular_text(node)
            return self._lexemes.setdefault(text, f"PART_{len(self._lexemes)}_X")
        if isinstance(node, Repetition):
            return f"({self._rule_text(node.part)}){node.lark}"
        if isinstance(node, Choice):
            return "(" + " | ".join(map(self._rule_text, node.parts)) + ")"
        assert isinstance(node, Sequence)
        return "(" + " ".join(map(self._rule_text, self._joined(node))) + ")"

    def _joined(self, node: Sequence) -> Iterator[Node]:
        """Join neighbours that are regular into one part."""
        run: list[Node] = []
        for part in node.parts:
            if self._is_regular(part):
                run.append(part)
                continue
            if run:
                yield run[0] if len(run) == 1 else Sequence(tuple(run))
                run = []
            yield part
        if run:
            yield run[0] if len(run) == 1 else Sequence(tuple(run))


def _regular_rules(rules: dict[str, Node]) -> set[str]:
    """Names of the rules that lead to no recursion and to no special token."""
    needs = {name: {reference.name for reference in references(node)} for name, node in rules.items()}
    regular: set[str] = set()
    candidates = {name for name, node in rules.items() if not _has_special(node)}
    while ready := {name for name in candidates - regular if needs[name] <= regular}:
        regular |= ready
    return regular
