"""Constrained answers on the short road: what json_schema, regex, choices and grammar ask for, and what they give back.

A Pydantic model class may stand for its schema; the answer is then read into an instance. Pydantic itself is never
imported: a class counts by its methods. Grammars as such are `grammar.py`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from winml_lite import WinMLError

from .checks import instance_of
from .codes import E_INVALIDARG
from .constraint_state import ConstraintCore
from .conversation_output import special_marks
from .grammar import Schema, choices_grammar, json_schema_grammar, regex_grammar, text_grammar

if TYPE_CHECKING:
    from .conversation_result import ConversationFormatResult
    from .vocabulary import TokenizerCore

Tokens: TypeAlias = Mapping[str, int]
_NAMES = ("json_schema", "regex", "choices", "grammar")


@dataclass(frozen=True, slots=True)
class AnswerForm:
    """What an answer must look like, and how its text becomes a value."""

    _grammar: Callable[[str | None, Tokens], str]
    _parse: Callable[[str], object]
    _may_follow_reasoning: bool = True

    def constraint(self, core: TokenizerCore, formatted: ConversationFormatResult | None) -> ConstraintCore:
        """Return the constraint of one answer. After a prompt that leaves reasoning open the reasoning comes first, but
        a grammar of the user's own is the whole answer.
        """
        end = _reasoning_end(formatted) if self._may_follow_reasoning else None
        tokens = {} if end is None else special_marks(core.vocabulary, end)
        parse = self._parse if end is None else lambda text: self._parse(text.partition(end)[2].lstrip())
        return ConstraintCore(core.token_table, self._grammar(end, tokens), core.token_text_bytes, parse=parse)


def answer_form(fields: Mapping[str, Any]) -> AnswerForm | None:
    """Return the form that the arguments json_schema, regex, choices and grammar ask for, None for a free answer.

    TypeError for more than one of them and for wrong types, ValueError for no choices, WinMLError for a wrong schema.
    """
    given = {name: fields.get(name) for name in _NAMES if fields.get(name) is not None}
    if not given:
        return None
    if len(given) > 1:
        raise TypeError(f"give one of {' and '.join(given)}, not both")
    [(name, value)] = given.items()
    if name == "json_schema":
        return _schema_form(value)
    if name == "regex":
        pattern = instance_of(value, str, "regex")
        return AnswerForm(lambda end, tokens: regex_grammar(pattern, end, tokens), str)
    if name == "choices":
        choices = choice_values(value)
        return AnswerForm(lambda end, tokens: choices_grammar(choices, end, tokens), str)
    text = text_grammar(instance_of(value, str, "grammar"))
    return AnswerForm(lambda end, tokens: text, str, _may_follow_reasoning=False)


def schema_value(schema: Any) -> Schema:
    """Return a schema from a mapping, a bool or JSON text."""
    if isinstance(schema, str):
        try:
            schema = json.loads(schema)
        except (ValueError, RecursionError) as error:
            raise WinMLError(E_INVALIDARG, "JSON schema", f"the schema is not JSON: {error}") from error
        if not isinstance(schema, dict | bool):
            raise WinMLError(E_INVALIDARG, "JSON schema", "a JSON schema is an object, true or false")
    if not isinstance(schema, Mapping | bool):
        raise TypeError(f"a JSON schema is a mapping, JSON text or a Pydantic model class, not {_name(schema)}")
    return schema


def choice_values(choices: Any) -> tuple[str, ...]:
    """Return choices as a tuple of texts."""
    if isinstance(choices, str) or not isinstance(choices, Iterable):
        raise TypeError(f"choices must be several texts, not {_name(choices)}")
    texts = tuple(instance_of(choice, str, "a choice") for choice in choices)
    if not texts or "" in texts:
        raise ValueError("choices must be one or more texts, none of them empty")
    return texts


def _schema_form(given: Any) -> AnswerForm:
    make = getattr(given, "model_json_schema", None)
    read = getattr(given, "model_validate_json", None)
    if isinstance(given, type) and callable(make) and callable(read):
        schema, parse = _closed(make()), read
    else:
        schema, parse = schema_value(given), json.loads
    return AnswerForm(lambda end, tokens: json_schema_grammar(schema, reasoning_end=end, tokens=tokens), parse)


def _closed(schema: Any) -> Any:
    """Shut the objects of a model class, which would only ignore what it has no field for."""
    if isinstance(schema, list):
        return [_closed(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    closed = {name: value if name in ("default", "const", "enum") else _closed(value) for name, value in schema.items()}
    if schema.get("type") == "object" and "properties" in schema:
        closed.setdefault("additionalProperties", False)
    return closed


def _reasoning_end(formatted: ConversationFormatResult | None) -> str | None:
    if formatted is None:
        return None
    syntax = formatted.output_syntax
    return syntax.reasoning.closing if syntax.starts_in_reasoning and syntax.reasoning is not None else None


def _name(value: object) -> str:
    return value.__name__ if isinstance(value, type) else type(value).__name__
