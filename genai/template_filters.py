"""The filters that chat templates may use (genai 3.3): a few of our own, the harmless ones of Jinja, and no others.

Each charges the budget for what it makes.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Iterable
from typing import Any

from jinja2 import TemplateRuntimeError
from jinja2.filters import FILTERS as JINJA_FILTERS

from .template_limits import as_list, as_text, budget, spend_sizes, weigh


def _join(value: Iterable[Any], d: str = "", attribute: str | None = None) -> str:
    if attribute is not None:
        raise TemplateRuntimeError("join with an attribute is not available; use map(attribute=...) first")
    texts = [as_text(item) for item in as_list(value)]
    budget().spend(sum(map(len, texts)) + len(texts) * len(d))
    return as_text(d).join(texts)


def _replace(value: Any, old: str, new: str, count: int | None = None) -> str:
    text = as_text(value)
    budget().spend(len(text) + text.count(old) * len(new))
    return text.replace(old, new, -1 if count is None else count)


def _indent(value: Any, width: int | str = 4, first: bool = False, blank: bool = False) -> str:
    padding = width if isinstance(width, str) else " " * min(width, 100)
    text = as_text(value)
    lines = text.splitlines(keepends=True)
    budget().spend(len(text) + len(lines) * len(padding))
    return "".join(
        line if (index == 0 and not first) or (not blank and not line.strip()) else padding + line
        for index, line in enumerate(lines)
    )


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


_PLAIN_FILTERS = """abs capitalize count d default dictsort first float int items last length lower map max min
reject rejectattr reverse select selectattr sort title trim unique upper""".split()

FILTERS: dict[str, Callable[..., Any]] = {name: _plain(JINJA_FILTERS[name]) for name in _PLAIN_FILTERS} | {
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
}
