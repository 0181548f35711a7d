"""A chat template: compiled once, rendered in the sandbox, and asked what it uses (genai §3.3).

Not here: the walls of the sandbox (`template_sandbox.py`), and what the template is given (`conversation.py`).
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any

from jinja2 import Template, TemplateSyntaxError, nodes
from jinja2.meta import find_undeclared_variables

from winml_lite import WinMLError

from .codes import INVALID_DATA
from .template_limits import TemplateLimits, limited
from .template_sandbox import CheckInserter, SandboxEnvironment

_SOURCE_LIMIT = 1 << 17

_DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
_MONTHS = (
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
)


@functools.cache
def _environment() -> SandboxEnvironment:
    return SandboxEnvironment()


class ChatTemplate:
    """One template. Safe to use from several threads.

    `name` is said in errors. WinMLError 0x8007000D with the reason for a template that does not compile.
    """

    def __init__(self, source: str, name: str, limits: TemplateLimits | None = None) -> None:
        self.source = source
        self.name = name
        self._limits = limits or TemplateLimits()
        if len(source) > _SOURCE_LIMIT:
            raise WinMLError(INVALID_DATA, name, f"the template is longer than {_SOURCE_LIMIT} characters")
        try:
            self._template = _compile(source)
        except TemplateSyntaxError as error:
            raise WinMLError(INVALID_DATA, name, f"line {error.lineno}: {error.message}") from error
        except Exception as error:  # Python's compiler has limits of its own, such as the depth of blocks
            raise WinMLError(INVALID_DATA, name, f"the template cannot be compiled: {error}") from error

    def render(self, variables: Mapping[str, Any], now: Callable[[], datetime]) -> str:
        """Render with `variables`; `now` is the clock of `strftime_now`.

        WinMLError 0x8007000D with the template's own text when it raises, or with the limit when it exceeds one. A
        WinMLError from inside a variable passes.
        """
        clock = functools.partial(_strftime_now, now)
        try:
            with limited(self._limits):
                return self._template.render(variables, strftime_now=clock)
        except WinMLError:
            raise
        except Exception as error:  # whatever a template does wrong: Python's errors pass through Jinja unchanged
            raise WinMLError(INVALID_DATA, self.name, str(error) or type(error).__name__) from error

    @functools.cached_property
    def variables(self) -> frozenset[str]:
        """The variables it reads."""
        return frozenset(find_undeclared_variables(_environment().parse(self.source)))

    @functools.cached_property
    def mentioned(self) -> frozenset[str]:
        """Attribute names and string constants in it: fields it never mentions it cannot show."""
        tree = _environment().parse(self.source)
        attributes = {node.attr for node in tree.find_all(nodes.Getattr)}
        return frozenset(
            attributes | {node.value for node in tree.find_all(nodes.Const) if isinstance(node.value, str)}
        )


def _compile(source: str) -> Template:
    environment = _environment()
    tree = environment.parse(source)
    tree = CheckInserter().visit(tree)
    tree.set_environment(environment)
    code = environment.compile(tree)
    return Template.from_code(environment, code, environment.globals)


def _strftime_now(now: Callable[[], datetime], format: str) -> str:
    return format_time(now(), str(format))


def format_time(moment: datetime, format: str) -> str:
    """Like `strftime` in the C locale, the same on every system; ValueError for a directive it does not know."""
    hour = moment.hour % 12 or 12
    offset = moment.strftime("%z")
    values = {
        "%": "%",
        "A": _DAYS[moment.weekday()],
        "B": _MONTHS[moment.month - 1],
        "H": f"{moment.hour:02}",
        "I": f"{hour:02}",
        "M": f"{moment.minute:02}",
        "S": f"{moment.second:02}",
        "Y": f"{moment.year:04}",
        "Z": moment.tzname() or "",
        "a": _DAYS[moment.weekday()][:3],
        "b": _MONTHS[moment.month - 1][:3],
        "d": f"{moment.day:02}",
        "e": f"{moment.day:2}",
        "h": _MONTHS[moment.month - 1][:3],
        "j": f"{moment.timetuple().tm_yday:03}",
        "m": f"{moment.month:02}",
        "p": "AM" if moment.hour < 12 else "PM",
        "u": str(moment.isoweekday()),
        "w": str(moment.isoweekday() % 7),
        "y": f"{moment.year % 100:02}",
        "z": offset,
    }
    values |= {
        "D": f"{values['m']}/{values['d']}/{values['y']}",
        "F": f"{values['Y']}-{values['m']}-{values['d']}",
        "R": f"{values['H']}:{values['M']}",
        "T": f"{values['H']}:{values['M']}:{values['S']}",
    }
    texts = []
    characters = iter(format)
    for character in characters:
        if character != "%":
            texts.append(character)
            continue
        directive = next(characters, "")
        bare = directive == "-"  # without the leading zero or blank
        if bare:
            directive = next(characters, "")
        if directive not in values:
            raise ValueError(f"strftime_now does not know %{'-' if bare else ''}{directive}")
        value = values[directive]
        texts.append((value.lstrip("0 ") or "0") if bare else value)
    return "".join(texts)
