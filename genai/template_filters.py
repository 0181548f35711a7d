"""The filters and tests that chat templates may use (genai §3.3): some of our own and the harmless ones of Jinja.

Each charges the budget for what it makes.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, cast

from jinja2 import TemplateRuntimeError
from jinja2.filters import FILTERS as JINJA_FILTERS
from jinja2.tests import TESTS as JINJA_TESTS

from .template_limits import as_list, as_text, budget, charge_depth, check_strip_characters, spend_sizes, weigh


def _join(value: Iterable[Any], d: str = "", attribute: str | None = None) -> str:
    if attribute is not None:
        raise TemplateRuntimeError("join with an attribute is not available; use map(attribute=...) first")
    texts = [as_text(item) for item in as_list(value)]
    budget().spend(sum(map(len, texts)) + len(texts) * len(d))
    return as_text(d).join(texts)


def _replace(value: Any, old: Any, new: Any, count: int | None = None) -> str:
    text, old, new = as_text(value), as_text(old), as_text(new)
    budget().spend(len(text) + text.count(old) * len(new))
    return text.replace(old, new, -1 if count is None else count)


def _indent(value: Any, width: int | str = 4, first: bool = False, blank: bool = False) -> str:
    text = as_text(value)
    budget().spend(len(text) + (1 + text.count("\n")) * (len(width) if isinstance(width, str) else max(width, 0)))
    return str(JINJA_FILTERS["indent"](text, width, first, blank))


def _trim(value: Any, chars: str | None = None) -> str:
    check_strip_characters(chars)
    text = as_text(value)
    budget().spend(len(text))
    return text.strip(chars)


def _round(value: float, precision: int = 0, method: str = "common") -> float:
    if method != "common" or not -15 <= precision <= 15:
        raise TemplateRuntimeError("round takes -15 to 15 digits and the method 'common'")
    return round(value, precision)


def _escape(value: Any) -> str:
    return str(JINJA_FILTERS["escape"](as_text(value)))


def _tojson(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | str | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """JSON without HTML escapes, non-ASCII characters as they are."""
    padding = len(indent) if isinstance(indent, str) else indent or 0
    if padding > 16:
        raise TemplateRuntimeError("tojson indents by at most 16 characters")
    budget().spend(weigh(value) * (1 + padding))
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def _plain(function: Callable[..., Any]) -> Callable[..., Any]:
    """Charge a filter of Jinja's own for the size of what it is given."""

    @functools.wraps(function)  # keeps the mark that says which first argument the filter wants
    def filtered(*arguments: Any, **named: Any) -> Any:
        spend_sizes(arguments)
        return function(*arguments, **named)

    return filtered


def _compared(function: Callable[..., Any]) -> Callable[..., Any]:
    """Charge something of Jinja's own that compares what it is given, in depth."""

    @functools.wraps(function)
    def compared(*arguments: Any, **named: Any) -> Any:
        values = [as_list(value) if isinstance(value, Iterator) else value for value in arguments]
        for value in values:
            charge_depth(value)
        return function(*values, **named)

    return compared


_PLAIN_FILTERS = """abs capitalize count d default first float int items last length lower map reject rejectattr reverse
select selectattr title upper""".split()
_COMPARING_FILTERS = "dictsort max min sort unique".split()
_COMPARING_TESTS = "eq equalto ge greaterthan gt in le lessthan lt ne".split()  # and those spelled `==`, `<`, ...

TESTS: dict[str, Callable[..., Any]] = {
    name: _compared(test) if name in _COMPARING_TESTS or not name.isidentifier() else test
    for name, test in cast(Mapping[str, Callable[..., Any]], JINJA_TESTS).items()
}
"""All tests of Jinja."""

FILTERS: dict[str, Callable[..., Any]] = {
    **{name: _plain(JINJA_FILTERS[name]) for name in _PLAIN_FILTERS},
    **{name: _compared(JINJA_FILTERS[name]) for name in _COMPARING_FILTERS},
    "e": _escape,
    "escape": _escape,
    "indent": _indent,
    "join": _join,
    "list": as_list,
    "replace": _replace,
    "round": _round,
    "safe": as_text,
    "string": as_text,
    "tojson": _tojson,
    "trim": _trim,
}
