"""The environment in which untrusted chat templates run (genai 3.3).

Jinja's immutable sandbox with three more walls. *Names*: filters, globals, and the attributes of each type are lists of
what may be used, everything else is refused. *Size*: whatever can make a long text or a large list is charged to a budget
before it is made. *Time*: the same budget has a deadline, looked at in every loop turn, call and operation. A rewrite of the
template's syntax tree puts these checks where Jinja has no hook for them.

Not here: what a template is given and how it is chosen (`template.py`, `conversation.py`).
"""

from __future__ import annotations

import functools
import json
import re
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

from jinja2 import TemplateError, TemplateRuntimeError, Undefined, nodes, pass_context
from jinja2.ext import Extension
from jinja2.filters import FILTERS
from jinja2.parser import Parser
from jinja2.runtime import Context, LoopContext
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.utils import Namespace
from jinja2.visitor import NodeTransformer

_NUMBER_BITS = 4096  # of an integer that a template may compute
_TIME_CHECK_EVERY = 64  # charges between two looks at the clock


@dataclass(frozen=True, slots=True)
class TemplateLimits:
    """How much one rendering may use."""

    seconds: float = 2.0
    """Processor time of the rendering thread."""
    characters: int = 1 << 27
    """Characters and list entries made on the way, all together."""
    rendered: int = 1 << 24
    """Characters of one finished text."""


class TemplateLimitError(TemplateRuntimeError):
    """A template used more than its limits allow."""


class _Budget:
    """What is left for one rendering."""

    def __init__(self, limits: TemplateLimits) -> None:
        self._limits = limits
        self._left = limits.characters
        self._deadline = time.thread_time() + limits.seconds
        self._charges = 0

    def spend(self, amount: int = 1) -> None:
        """Charge for what is about to be made."""
        self._left -= amount
        if self._left < 0:
            raise TemplateLimitError(f"the template makes more than {self._limits.characters} characters")
        self._charges += 1
        if (self._charges % _TIME_CHECK_EVERY == 0 or amount > 4096) and time.thread_time() > self._deadline:
            raise TemplateLimitError(f"the template runs longer than {self._limits.seconds} seconds")

    def check_rendered(self, length: int) -> None:
        if length > self._limits.rendered:
            raise TemplateLimitError(f"the template renders more than {self._limits.rendered} characters")


_budget: ContextVar[_Budget] = ContextVar("template_budget")


@contextmanager
def limited(limits: TemplateLimits) -> Iterator[None]:
    """Give the block a fresh budget; every rendering needs one."""
    token = _budget.set(_Budget(limits))
    try:
        yield
    finally:
        _budget.reset(token)


def _spend_sizes(values: Iterable[Any]) -> None:
    _budget.get().spend(1 + sum(len(value) for value in values if isinstance(value, (str, list, tuple, dict))))


def _weigh(value: Any) -> int:
    """Return how large `value` is when written out, at least; charges for every entry on the way.

    A list that holds a list twice, many times over, is small in memory and endless on paper: it cannot pass here.
    """
    budget = _budget.get()
    weight = 0
    stack = [(value, 1)]
    while stack:
        item, depth = stack.pop()
        budget.spend()
        weight += depth
        if isinstance(item, str):
            weight += len(item)
        elif isinstance(item, dict):
            stack.extend((entry, depth + 1) for pair in item.items() for entry in pair)
        elif isinstance(item, (list, tuple)):
            stack.extend((entry, depth + 1) for entry in item)
    return weight


def _as_text(value: Any) -> str:
    """The text of `value` in output; only plain data has one."""
    if isinstance(value, str):
        return str(value)
    if isinstance(value, (list, tuple, dict)):
        _budget.get().spend(_weigh(value))
        return str(value)
    if value is None or isinstance(value, (int, float, Undefined)):
        return str(value)
    raise TemplateRuntimeError(f"a {type(value).__name__} has no text")


def _as_list(value: Iterable[Any]) -> list[Any]:
    items = []
    for item in value:
        _budget.get().spend()
        items.append(item)
    return items


# Filters ---------------------------------------------------------------------------------------------------------------


def _join(value: Iterable[Any], d: str = "", attribute: str | None = None) -> str:
    if attribute is not None:
        raise TemplateRuntimeError("join with an attribute is not available; use map(attribute=...) first")
    texts = [_as_text(item) for item in _as_list(value)]
    _budget.get().spend(sum(map(len, texts)) + len(texts) * len(d))
    return _as_text(d).join(texts)


def _replace(value: Any, old: str, new: str, count: int | None = None) -> str:
    text = _as_text(value)
    _budget.get().spend(len(text) + text.count(old) * len(new))
    return text.replace(old, new, -1 if count is None else count)


def _indent(value: Any, width: int | str = 4, first: bool = False, blank: bool = False) -> str:
    padding = width if isinstance(width, str) else " " * min(width, 100)
    text = _as_text(value)
    lines = text.splitlines(keepends=True)
    _budget.get().spend(len(text) + len(lines) * len(padding))
    return "".join(
        line if (index == 0 and not first) or (not blank and not line.strip()) else padding + line
        for index, line in enumerate(lines)
    )


def _round(value: float, precision: int = 0, method: str = "common") -> float:
    if method != "common" or not -15 <= precision <= 15:
        raise TemplateRuntimeError("round takes -15 to 15 digits and the method 'common'")
    return round(value, precision)


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
    _budget.get().spend(_weigh(value) * (1 + padding))
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def _plain(function: Callable[..., Any]) -> Callable[..., Any]:
    """Charge a filter of Jinja's own for the size of what it is given."""

    @functools.wraps(function)  # keeps the mark that says which first argument the filter wants
    def filtered(*arguments: Any, **named: Any) -> Any:
        _spend_sizes(arguments)
        return function(*arguments, **named)

    return filtered


_PLAIN_FILTERS = """abs capitalize count d default dictsort first float int items last length list lower map max min reject
rejectattr reverse select selectattr sort title trim unique upper""".split()

_FILTERS: dict[str, Callable[..., Any]] = {name: _plain(FILTERS[name]) for name in _PLAIN_FILTERS} | {
    "e": lambda value: str(FILTERS["escape"](_as_text(value))),
    "escape": lambda value: str(FILTERS["escape"](_as_text(value))),
    "indent": _indent,
    "join": _join,
    "list": _as_list,
    "replace": _replace,
    "round": _round,
    "safe": _as_text,
    "string": _as_text,
    "tojson": _tojson,
}

# Attributes ------------------------------------------------------------------------------------------------------------

_ATTRIBUTES: tuple[tuple[type, frozenset[str]], ...] = tuple(
    (kind, frozenset(names.split()))
    for kind, names in (
        (
            str,
            """capitalize casefold count endswith find index isalnum isalpha isdecimal isdigit islower isnumeric isspace
            istitle isupper join lower lstrip partition removeprefix removesuffix replace rfind rindex rpartition rsplit
            rstrip split splitlines startswith strip swapcase title upper""",
        ),
        (dict, "get items keys values"),
        (list, "count index"),
        (tuple, "count index"),
        (LoopContext, "changed cycle depth depth0 first index index0 last length nextitem previtem revindex revindex0"),
    )
)


def _check_text_method(text: str, name: str, arguments: tuple[Any, ...]) -> tuple[Any, ...]:
    """Charge for a method of a text; returns the arguments, generators made into lists."""
    budget = _budget.get()
    budget.spend(len(text))
    if name == "replace" and len(arguments) >= 2:
        old, new = arguments[:2]
        if isinstance(old, str) and isinstance(new, str):
            budget.spend(text.count(old) * len(new))
    elif name == "join" and arguments:
        items = _as_list(arguments[0])
        budget.spend(sum(len(text) + len(item) for item in items if isinstance(item, str)))
        return (items, *arguments[1:])
    return arguments


_WIDE_FIELD = re.compile(r"%[^a-zA-Z%]*?(\d{4,}|\*)")


class SandboxEnvironment(ImmutableSandboxedEnvironment):
    """The environment of all chat templates. Holds no state of a rendering: safe to use from several threads."""

    intercepted_binops = frozenset({"+", "-", "*", "/", "//", "%", "**"})

    def __init__(self) -> None:
        super().__init__(
            trim_blocks=True,
            lstrip_blocks=True,
            optimized=False,  # nothing of a template is evaluated before there is a budget
            finalize=_finalize,
            extensions=["jinja2.ext.loopcontrols", _GenerationTag],
        )
        self.filters = dict(_FILTERS)
        self.globals = {
            "range": self.globals["range"],
            "namespace": Namespace,
            "dict": self.make_dict,
            "raise_exception": _raise_exception,
        }

    def is_safe_attribute(self, obj: Any, attr: str, value: Any) -> bool:
        """Only the listed attributes of the listed types, and what a namespace holds."""
        if isinstance(obj, Namespace):
            return not attr.startswith("_")
        return any(isinstance(obj, kind) and attr in names for kind, names in _ATTRIBUTES)

    def wrap_str_format(self, value: Any) -> Callable[..., str] | None:
        """`str.format` gets no special road: its widths have no limit, so it is refused like any unlisted method."""
        return None

    def call(self, context: Context, obj: Any, /, *args: Any, **kwargs: Any) -> Any:  # type: ignore[override]
        """Every call of a template: charge it, then let the sandbox decide."""
        owner = getattr(obj, "__self__", None)
        if isinstance(owner, str):
            args = _check_text_method(owner, obj.__name__, args)
        else:
            _budget.get().spend()
        return super().call(context, obj, *args, **kwargs)

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        """Every arithmetic operation: refuse huge results before they are computed."""
        budget = _budget.get()
        budget.spend()
        if isinstance(left, str) and operator == "%":
            if _WIDE_FIELD.search(left):
                raise TemplateRuntimeError("a format with a width of more than 999 is not allowed")
            right = _as_format_values(right)
            budget.spend(len(left) + left.count("%") * (1000 + _weigh(right)))
        elif operator == "+" and isinstance(left, (str, list, tuple)):
            _spend_sizes((left, right))
        elif operator == "*" and isinstance(left, (str, list, tuple)) and isinstance(right, int):
            budget.spend(len(left) * max(right, 0))
        elif operator == "*" and isinstance(right, (str, list, tuple)) and isinstance(left, int):
            budget.spend(len(right) * max(left, 0))
        elif operator in ("*", "**") and isinstance(left, int) and isinstance(right, int):
            bits = left.bit_length() * right if operator == "**" else left.bit_length() + right.bit_length()
            if bits > _NUMBER_BITS:
                raise TemplateLimitError(f"the template computes a number of more than {_NUMBER_BITS} bits")
        return super().call_binop(context, operator, left, right)

    # The following five are called by compiled templates.

    def concat(self, pieces: Iterable[str]) -> str:
        """Join the output of a template, a macro or a block."""
        budget = _budget.get()
        parts = []
        length = 0
        for piece in pieces:
            length += len(piece)
            budget.spend(len(piece))
            budget.check_rendered(length)
            parts.append(piece)
        return "".join(parts)

    def join_texts(self, *values: Any) -> str:
        """The operator `~`."""
        texts = [_as_text(value) for value in values]
        _spend_sizes(texts)
        return "".join(texts)

    def make_container(self, value: Any) -> Any:
        """A list, tuple or dict that a template writes out: charge for all it holds, however deep."""
        _weigh(value)
        return value

    def make_dict(self, *args: Any, **kwargs: Any) -> Any:
        """The global `dict`."""
        return self.make_container(dict(*args, **kwargs))

    def slice_of(self, value: Any, start: Any, stop: Any, step: Any) -> Any:
        """A slice: charge for the copy."""
        part = value[start:stop:step]
        _spend_sizes((part,))
        return part

    def next_turn(self) -> None:
        """A turn of a loop; the call itself is what counts."""


def _as_format_values(values: Any) -> Any:
    """What stands right of `%`: numbers stay, everything else becomes text."""
    if isinstance(values, tuple):
        return tuple(map(_as_format_value, values))
    if isinstance(values, dict):
        return {name: _as_format_value(value) for name, value in values.items()}
    return _as_format_value(values)


def _as_format_value(value: Any) -> Any:
    return value if isinstance(value, (int, float)) else _as_text(value)


@pass_context  # with a context, Jinja does not evaluate constants while it compiles
def _finalize(context: Context, value: Any) -> str:
    return _as_text(value)


def _raise_exception(message: Any) -> None:
    raise TemplateError(_as_text(message))


class _GenerationTag(Extension):
    """`{% generation %}` marks what a trainer learns from; here it only shows its content."""

    tags = {"generation"}  # noqa: RUF012  (Jinja's own attribute)

    def parse(self, parser: Parser) -> list[nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


class CheckInserter(NodeTransformer):
    """Rewrites a syntax tree so that loops, literals, slices and `~` pass through the environment's checks."""

    def visit_For(self, node: nodes.For) -> nodes.For:
        self.generic_visit(node)
        node.body.insert(0, nodes.ExprStmt(_call("next_turn", [], node), lineno=node.lineno))
        return node

    def visit_Concat(self, node: nodes.Concat) -> nodes.Expr:
        self.generic_visit(node)
        return _call("join_texts", node.nodes, node)

    def visit_List(self, node: nodes.List) -> nodes.Expr:
        self.generic_visit(node)
        return node if all(isinstance(item, nodes.Const) for item in node.items) else self._checked(node)

    def visit_Tuple(self, node: nodes.Tuple) -> nodes.Expr:
        self.generic_visit(node)
        constant = all(isinstance(item, nodes.Const) for item in node.items)
        return node if node.ctx != "load" or constant else self._checked(node)

    def visit_Dict(self, node: nodes.Dict) -> nodes.Expr:
        self.generic_visit(node)
        return self._checked(node)

    def visit_Getitem(self, node: nodes.Getitem) -> nodes.Expr:
        self.generic_visit(node)
        if not isinstance(node.arg, nodes.Slice):
            return node
        bounds = (node.arg.start, node.arg.stop, node.arg.step)
        arguments = [bound or nodes.Const(None, lineno=node.lineno) for bound in bounds]
        return _call("slice_of", [node.node, *arguments], node)

    def _checked(self, node: nodes.Expr) -> nodes.Expr:
        return _call("make_container", [node], node)


def _call(method: str, arguments: list[nodes.Expr], place: nodes.Node) -> nodes.Call:
    function = nodes.EnvironmentAttribute(method, lineno=place.lineno)
    return nodes.Call(function, arguments, [], None, None, lineno=place.lineno)
