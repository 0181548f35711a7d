"""How much one rendering of an untrusted template may make and how long it may run (genai §3.3).

Whatever can make a long text or a large list is charged here before it is made; the same budget has a deadline. Not
here: where the charges are put (`template_sandbox.py`, `template_filters.py`).
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from itertools import chain
from typing import Any

from jinja2 import TemplateRuntimeError, Undefined

_TIME_CHECK_EVERY = 64  # charges between two looks at the clock
ENTRY = 8  # characters that a place in a list counts for
OBJECT = 64  # characters that a new object in a list counts for


@dataclass(frozen=True, slots=True)
class TemplateLimits:
    """How much one rendering may use."""

    seconds: float = 2.0
    """Processor time of the rendering thread."""
    characters: int = 1 << 26
    """Characters made on the way, all together; what else takes memory counts as that many characters."""
    rendered: int = 1 << 24
    """Characters of one finished text."""


class TemplateLimitError(TemplateRuntimeError):
    """A template used more than its limits allow."""


class Budget:
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
        """Refuse a text that is too long."""
        if length > self._limits.rendered:
            raise TemplateLimitError(f"the template renders more than {self._limits.rendered} characters")


_budget: ContextVar[Budget] = ContextVar("template_budget")


@contextmanager
def limited(limits: TemplateLimits) -> Iterator[None]:
    """Give the block a fresh budget; every rendering needs one."""
    token = _budget.set(Budget(limits))
    try:
        yield
    finally:
        _budget.reset(token)


def budget() -> Budget:
    """The budget of the rendering that runs here."""
    return _budget.get()


def spend_sizes(values: Iterable[Any]) -> None:
    """Charge for copies of the texts and containers among `values`."""
    budget().spend(1 + sum(map(size_of, values)))


def size_of(value: Any) -> int:
    """What a shallow copy of `value` counts for."""
    if isinstance(value, str):
        return len(value)
    return len(value) * ENTRY if isinstance(value, (list, tuple, dict)) else 0


def weigh(value: Any) -> int:
    """Return how large `value` is when written out, at least; charges for every entry on the way.

    A list that holds a list twice, many times over, is small in memory and endless on paper: it cannot pass here.
    """
    spend = budget().spend
    weight = 0
    open_: list[Iterator[Any]] = [iter((value,))]
    while open_:
        for item in open_[-1]:
            spend()
            weight += len(open_)  # indented once more at each depth
            if isinstance(item, str):
                weight += len(item)
            elif isinstance(item, dict):
                open_.append(chain.from_iterable(dict.items(item)))
                break
            elif isinstance(item, (list, tuple)):
                open_.append(iter(item))
                break
        else:
            open_.pop()
    return weight


def as_text(value: Any) -> str:
    """The text of `value` in output; only plain data has one."""
    if isinstance(value, str):
        return str(value)
    if isinstance(value, (list, tuple, dict)):
        budget().spend(weigh(value))
        return str(value)
    if value is None or isinstance(value, (int, float, Undefined)):
        return str(value)
    raise TemplateRuntimeError(f"a {type(value).__name__} has no text")


def as_list(value: Iterable[Any]) -> list[Any]:
    """The items of `value`, charged one by one."""
    spend = budget().spend
    items = []
    for item in value:
        spend(OBJECT)
        items.append(item)
    return items


def charge_depth(value: Any) -> None:
    """Charge for a value that will be compared: entry by entry, however often one entry is shared."""
    if isinstance(value, (list, tuple, dict)):
        weigh(value)


def check_strip_characters(characters: Any) -> None:
    """Refuse a long set of characters to strip: every character of the text is looked up in it."""
    if isinstance(characters, str) and len(characters) > 256:
        raise TemplateLimitError("the template strips more than 256 different characters")
