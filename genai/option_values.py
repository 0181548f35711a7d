"""Checks of single option values (genai §0.3): wrong types are TypeError, values out of range ValueError."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from numbers import Real
from typing import Any

from .checks import index_value


def finite(value: Any, name: str) -> float:
    """Return `value` as a finite float; integers and NumPy scalars are numbers, bool is not (TypeError)."""
    if isinstance(value, bool) or not isinstance(value, Real):
        raise TypeError(f"{name} must be a number, not {type(value).__name__}")
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if not math.isfinite(number):
        raise ValueError(f"{name} must be finite, not {value}")
    return number


def flag(value: Any, name: str) -> bool:
    """Return a bool; nothing else counts as one."""
    if not isinstance(value, bool):
        raise TypeError(f"{name} must be a bool, not {type(value).__name__}")
    return value


def stop_texts(value: Any) -> tuple[str, ...]:
    """Return stop strings as a tuple; one str is one stop, an empty one is ValueError."""
    if value is None:
        raise TypeError("stop must be a str or an iterable of str, not None")
    if not isinstance(value, Iterable):
        raise TypeError(f"stop must be a str or an iterable of str, not {type(value).__name__}")
    stops = (value,) if isinstance(value, str) else tuple(value)
    for stop in stops:
        if not isinstance(stop, str):
            raise TypeError(f"stop must hold str, not {type(stop).__name__}")
        if not stop:
            raise ValueError("stop must not hold an empty string: it would match before the first token")
    return stops


def sequence_breakers(value: Any) -> tuple[str | int, ...]:
    """Return texts and token ids as a tuple; one str or one id is one breaker, an empty text is ValueError."""
    name = "dry_sequence_breakers"
    if value is None:
        raise TypeError(f"{name} must be texts or token ids, not None")
    breakers = tuple(value) if isinstance(value, Iterable) and not isinstance(value, str) else (value,)
    if "" in breakers:
        raise ValueError(f"{name} must not hold an empty text: it would break every repetition")
    return tuple(item if isinstance(item, str) else index_value(item, name) for item in breakers)


def callables(value: Any, name: str) -> tuple[Callable[..., Any], ...]:
    """Return functions as a tuple; one function is one of them."""
    if not isinstance(value, Iterable) and not callable(value):
        raise TypeError(f"{name} must be callables, not {type(value).__name__}")
    functions = (value,) if callable(value) else tuple(value)
    for function in functions:
        if not callable(function):
            raise TypeError(f"{name} must hold callables, not {type(function).__name__}")
    return functions


def optional_callable(value: Any, name: str) -> Callable[..., Any] | None:
    """Return a function or None."""
    if value is None:
        return None
    if not callable(value):
        raise TypeError(f"{name} must be a callable or None, not {type(value).__name__}")
    function: Callable[..., Any] = value
    return function
