"""Grammars for the constraint engine, as text (genai 3.6): JSON schemas, regular expressions, choices, tool calls.

The language is that of llguidance: Lark rules with `%json {schema}` for JSON, which the engine compiles itself. Nothing
here loads the engine; whether it accepts a grammar shows when a constraint is made (`constraint_engine.py`). Grammars
of llama.cpp are converted in `grammar_gbnf.py`.

JSON gets at most one space, or a line end and 20 spaces, at each place where blanks may be: an unsure model would fill
its answer with them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from winml_lite import WinMLError

from .codes import E_INVALIDARG
from .grammar_gbnf import gbnf_to_lark

Schema: TypeAlias = Mapping[str, Any] | bool
"""A JSON schema: an object, or True for any value and False for none."""

SYNTAX = "llguidance"
SYNTAX_VERSION = 1
MAX_RULES = 2000
"""Most rules of a grammar: the engine descends into chains of them."""
_BLANKS = r"( |\n {0,20})"
_GBNF_RULE = re.compile(r"^\s*[\w-]+\s*::=", re.MULTILINE)
_LARK_RULE = re.compile(r"^\s*[?!]*[\w-]+(?:\.\d+)?(?:\[[^\]\n]*\])?(?:::[^\s:]+)?\s*:", re.MULTILINE)
_BETWEEN_PARTS = re.compile(r"(\s+)")


def json_object_grammar(reasoning_end: str | None = None, tokens: Mapping[str, int] | None = None) -> str:
    """Return the grammar of any JSON object; for `reasoning_end` and `tokens` see `json_schema_grammar`."""
    return json_schema_grammar({"type": "object"}, reasoning_end=reasoning_end, tokens=tokens)


def json_schema_grammar(
    schema: Schema,
    *,
    strict: bool = True,
    reasoning_end: str | None = None,
    tokens: Mapping[str, int] | None = None,
) -> str:
    """Return the grammar of JSON texts that a schema allows; properties come in the order of the schema.

    strict: a keyword that a grammar cannot express is an error when the constraint is made; otherwise it is ignored.
    reasoning_end: the mark that ends a reasoning block which the prompt has opened; the JSON comes after it.
    tokens: ids of the marks that are special tokens of the vocabulary.
    Raises WinMLError 0x80070057 for what is not JSON, or a schema that allows nothing.
    """
    return _started(f"%json {_schema_text(schema, strict)}", reasoning_end, tokens or {})


def regex_grammar(pattern: str, reasoning_end: str | None = None, tokens: Mapping[str, int] | None = None) -> str:
    """Return the grammar of the texts that match a regular expression from end to end.

    The dialect is that of Rust's `regex` crate: no look-around, no back references.
    """
    return _started(f"/{_delimited(pattern)}/", reasoning_end, tokens or {})


def choices_grammar(
    choices: Iterable[str], reasoning_end: str | None = None, tokens: Mapping[str, int] | None = None
) -> str:
    """Return the grammar of exactly these texts."""
    lexeme = " | ".join(map(_literal, choices))
    return _started("CHOICE", reasoning_end, tokens or {}) + f"CHOICE: {lexeme}\n"


def text_grammar(text: str) -> str:
    """Return the engine's form of a grammar that a user wrote, in Lark or in GBNF (recognised by `::=`).

    Raises WinMLError 0x80070057 with line and column for a mistake in GBNF, and for too many rules.
    """
    rules = max(len(_GBNF_RULE.findall(text)), len(_LARK_RULE.findall(text)))
    if rules > MAX_RULES:
        raise WinMLError(E_INVALIDARG, "grammar", f"the grammar has {rules} rules; {MAX_RULES} are the most")
    return gbnf_to_lark(text) if _GBNF_RULE.search(text) else text


@dataclass(frozen=True, slots=True)
class CallSyntax:
    """How a model family writes tool calls: `first`, the calls with `separator` between them, `last`.

    A call is `before_name`, the name, `before_arguments`, the arguments as JSON, `after`. Blanks in these texts stand
    for any few blanks.
    """

    first: str
    before_name: str
    before_arguments: str
    after: str
    separator: str
    last: str

    def spelled(self, name: str) -> str:
        """Return a name as a call has it: inside quotes as JSON."""
        return json.dumps(name, ensure_ascii=False)[1:-1] if self.before_arguments.startswith('"') else name


def tool_call_grammar(
    tools: Sequence[tuple[str, Schema]],
    syntax: CallSyntax,
    *,
    parallel: bool,
    reasoning_end: str | None = None,
    tokens: Mapping[str, int] | None = None,
) -> str:
    """Return the grammar of calls of these tools, each a name and the schema of its arguments.

    parallel: one or more calls; otherwise exactly one. `reasoning_end` and `tokens` as in `json_schema_grammar`;
    `tokens` also holds the marks of the call syntax that are special tokens.
    """
    tokens = tokens or {}
    calls, rules = [], []
    for index, (name, schema) in enumerate(tools):
        calls.append(f"call_{index}")
        spelled = _literal(syntax.spelled(name))
        begin = f"{_marks(syntax.before_name, tokens)} {spelled} {_marks(syntax.before_arguments, tokens)}"
        end = _marks(syntax.after, tokens)
        rules.append(f"call_{index}: {begin.strip()} arguments_{index} {end}".rstrip())
        rules.append(f"arguments_{index}: %json {_schema_text(schema, strict=False)}")
    more = f" ({_marks(syntax.separator, tokens)} call)*" if parallel else ""
    body = f"{_marks(syntax.first, tokens)} call{more} {_marks(syntax.last, tokens)}".strip()
    lines = [f"call: {' | '.join(calls)}", *rules, r"BLANKS: /[ \t\r\n]{0,20}/"]
    return _started(body, reasoning_end, tokens) + "\n".join(lines) + "\n"


def _started(body: str, reasoning_end: str | None, tokens: Mapping[str, int]) -> str:
    """Make `body` the start of a grammar, after a reasoning block where one is open."""
    if reasoning_end is None:
        return f"start: {body}\n"
    blanks = r"/[ \t\r\n]{0,20}/"
    if reasoning_end in tokens:
        return f"start: reasoning answer\nanswer: {blanks} {body}\nreasoning: /(?s:.*)/ <[{tokens[reasoning_end]}]>\n"
    block = f"reasoning[suffix={_literal(reasoning_end)}]: /(?s:.*)/"
    return f"start: reasoning answer\nanswer: {blanks} {body}\n{block}\n"


def _schema_text(schema: Schema, strict: bool) -> str:
    if schema is False:
        raise WinMLError(E_INVALIDARG, "JSON schema", "the schema false allows no JSON at all")
    options = {"whitespace_pattern": _BLANKS, "lenient": not strict}
    try:
        return json.dumps({**({} if schema is True else schema), "x-guidance": options}, allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise WinMLError(E_INVALIDARG, "JSON schema", f"the schema is not JSON: {error}") from error


def _literal(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def _marks(text: str, tokens: Mapping[str, int]) -> str:
    """Spell a text of the call syntax: special tokens by id, runs of blanks as any few blanks."""
    spellings = sorted(filter(None, tokens), key=len, reverse=True)
    parts = re.split(f"({'|'.join(map(re.escape, spellings))})", text) if spellings else [text]
    spelled: list[str] = []
    for part in parts:
        if part in tokens:
            spelled.append(f"<[{tokens[part]}]>")
            continue
        pieces = _BETWEEN_PARTS.split(part)
        spelled += ["BLANKS" if piece.isspace() else _literal(piece) for piece in pieces if piece]
    return " ".join(spelled)


def _delimited(pattern: str) -> str:
    """Escape what would end a regular expression in a Lark text: slashes and line ends."""
    ends = {"/": "\\/", "\n": "\\n", "\r": "\\r"}
    spelled: list[str] = []
    characters = iter(pattern)
    for character in characters:
        if character != "\\":
            spelled.append(ends.get(character, character))
            continue
        escaped = next(characters, None)
        if escaped is None:
            raise WinMLError(E_INVALIDARG, "regular expression", f"{pattern!r} ends with a lone backslash")
        spelled.append(ends.get(escaped, f"\\{escaped}"))
    return "".join(spelled)
