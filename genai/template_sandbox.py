"""The environment in which untrusted chat templates run (genai §3.3).

Jinja's immutable sandbox with three more walls. *Names*: filters, globals, and the attributes of each type are lists of
what may be used, everything else is refused. *Size* and *time*: loops, calls, operations and literals are charged to
the budget of the rendering. A rewrite of the template's syntax tree puts these charges where Jinja has no hook.

Not here: the budget (`template_limits.py`), the filters (`template_filters.py`), what a template is given
(`conversation.py`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Any, NoReturn

from jinja2 import TemplateError, TemplateRuntimeError, Undefined, nodes, pass_context
from jinja2.exceptions import SecurityError
from jinja2.ext import Extension
from jinja2.parser import Parser
from jinja2.runtime import Context, LoopContext
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.utils import Namespace
from jinja2.visitor import NodeTransformer

from .template_filters import FILTERS, TESTS
from .template_limits import (
    OBJECT,
    TemplateLimitError,
    as_list,
    as_text,
    budget,
    charge_depth,
    check_strip_characters,
    size_of,
    spend_sizes,
    weigh,
)

_NUMBER_BITS = 4096  # of an integer that a template may compute
_FORMAT_LENGTH = 1 << 16  # of the text left of `%`

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
    spend = budget().spend
    spend(len(text))
    if name == "replace" and len(arguments) >= 2:
        old, new = arguments[:2]
        if isinstance(old, str) and isinstance(new, str):
            spend(text.count(old) * len(new))
    elif name == "join" and arguments:
        items = as_list(arguments[0])
        spend(sum(len(text) + len(item) for item in items if isinstance(item, str)))
        return (items, *arguments[1:])
    elif name in ("strip", "lstrip", "rstrip") and arguments:
        check_strip_characters(arguments[0])
    elif name in ("split", "rsplit", "splitlines"):
        separators = arguments[:1] if arguments and isinstance(arguments[0], str) else _SEPARATORS
        spend(OBJECT * (1 + sum(text.count(separator) for separator in separators)))
    return arguments


_SEPARATORS = "".join(chr(code) for code in range(0x3001) if chr(code).isspace())  # line ends are among them
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
        self.filters = dict(FILTERS)
        self.tests = dict(TESTS)
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

    def unsafe_undefined(self, obj: Any, attribute: str) -> Undefined:
        """What is not safe is an error at once; of a dict it is only no member."""
        if isinstance(obj, dict):
            member: Undefined = obj.get(attribute, self.undefined(obj=obj, name=attribute))
            return member
        raise SecurityError(f"access to attribute {attribute!r} of a {type(obj).__name__} is not allowed")

    def wrap_str_format(self, value: Any) -> Callable[..., str] | None:
        """`str.format` gets no special road: its widths have no limit, so it is refused like any unlisted method."""
        return None

    def call(self, context: Context, obj: Any, /, *args: Any, **kwargs: Any) -> Any:
        """Every call of a template: charge it, then let the sandbox decide."""
        owner = getattr(obj, "__self__", None)
        if isinstance(owner, str):
            args = _check_text_method(owner, obj.__name__, args)
        else:
            budget().spend()
            if isinstance(owner, (list, tuple)):  # count and index compare
                weigh(owner)
        return super().call(context, obj, *args, **kwargs)

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        """Every arithmetic operation: refuse huge results before they are computed."""
        spend = budget().spend
        spend()
        if isinstance(left, str) and operator == "%":
            if len(left) > _FORMAT_LENGTH or _WIDE_FIELD.search(left):
                raise TemplateRuntimeError("a long format, or a width of more than 999, is not allowed")
            right = _as_format_values(right)
            spend(len(left) + left.count("%") * (1000 + weigh(right)))
        elif operator == "+" and isinstance(left, (str, list, tuple)):
            spend_sizes((left, right))
        elif operator == "*" and isinstance(left, (str, list, tuple)) and isinstance(right, int):
            spend(size_of(left) * max(right, 0))
        elif operator == "*" and isinstance(right, (str, list, tuple)) and isinstance(left, int):
            spend(size_of(right) * max(left, 0))
        elif operator in ("*", "**") and isinstance(left, int) and isinstance(right, int):
            bits = left.bit_length() * right if operator == "**" else left.bit_length() + right.bit_length()
            if bits > _NUMBER_BITS:
                raise TemplateLimitError(f"the template computes a number of more than {_NUMBER_BITS} bits")
        return super().call_binop(context, operator, left, right)

    # The following are called by compiled templates.

    def concat(self, pieces: Iterable[str]) -> str:
        """Join the output of a template, a macro or a block."""
        charge = budget()
        parts = []
        length = 0
        for piece in pieces:
            length += len(piece)
            charge.spend(len(piece))
            charge.check_rendered(length)
            parts.append(piece)
        return "".join(parts)

    def join_texts(self, *values: Any) -> str:
        """The operator `~`."""
        texts = [as_text(value) for value in values]
        spend_sizes(texts)
        return "".join(texts)

    def make_container(self, value: Any) -> Any:
        """A list, tuple or dict that a template writes out: charge for all it holds, however deep."""
        weigh(value)
        return value

    def comparable(self, value: Any) -> Any:
        """A side of a comparison."""
        charge_depth(value)
        return value

    def make_dict(self, *args: Any, **kwargs: Any) -> Any:
        """The global `dict`."""
        return self.make_container(dict(*args, **kwargs))

    def slice_of(self, value: Any, start: Any, stop: Any, step: Any) -> Any:
        """A slice: charge for the copy."""
        part = value[start:stop:step]
        spend_sizes((part,))
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
    return value if isinstance(value, (int, float)) else as_text(value)


@pass_context  # with a context, Jinja does not evaluate constants while it compiles
def _finalize(context: Context, value: Any) -> str:
    return as_text(value)


def _raise_exception(message: Any) -> NoReturn:
    raise TemplateError(as_text(message))


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

    def visit_Compare(self, node: nodes.Compare) -> nodes.Compare:
        self.generic_visit(node)
        node.expr = self._compared(node.expr)
        for operand in node.ops:
            operand.expr = self._compared(operand.expr)
        return node

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

    def _compared(self, node: nodes.Expr) -> nodes.Expr:
        items = node.items if isinstance(node, (nodes.List, nodes.Tuple)) else [node]
        is_constant = all(isinstance(item, nodes.Const) for item in items)
        return node if is_constant else _call("comparable", [node], node)

    def _checked(self, node: nodes.Expr) -> nodes.Expr:
        return _call("make_container", [node], node)


def _call(method: str, arguments: list[nodes.Expr], place: nodes.Node) -> nodes.Call:
    function = nodes.EnvironmentAttribute(method, lineno=place.lineno)
    return nodes.Call(function, arguments, [], None, None, lineno=place.lineno)
