"""Argument checks of the text layer (genai §0.3): `bool` and foreign types are TypeError, numbers out of range
ValueError.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable
from enum import Enum, IntEnum
from typing import Any, TypeVar

E = TypeVar("E", bound=IntEnum)
T = TypeVar("T")


def index_value(value: Any, name: str, maximum: int = 0xFFFFFFFF, minimum: int = 0) -> int:
    """Return an integer in `minimum..maximum`; everything with `__index__` counts, `bool` does not."""
    if isinstance(value, bool) or not hasattr(value, "__index__") or type(value).__name__ in ("bool", "bool_"):
        raise TypeError(f"{name} must be an integer, not {type(value).__name__}")
    try:
        number = operator.index(value)
    except TypeError:  # an array of several numbers
        raise TypeError(f"{name} must be an integer, not {type(value).__name__}") from None
    if not minimum <= number <= maximum:
        raise ValueError(f"{name} must be in {minimum}..{maximum}, not {number}")
    return number


def enum_value(value: Any, enum: type[E], name: str) -> E:
    """Return a member of `enum` from a member or its number, which a bool or another enumeration's member is not."""
    is_other = isinstance(value, Enum) and not isinstance(value, enum)
    if isinstance(value, bool) or is_other or not hasattr(value, "__index__"):
        raise TypeError(f"{name} must be {_with_article(enum)}, not {type(value).__name__}")
    return enum(operator.index(value))


def instance_of(value: Any, kind: type[T], name: str) -> T:
    """Return `value` when it is a `kind`."""
    if not isinstance(value, kind):
        raise TypeError(f"{name} must be {_with_article(kind)}, not {type(value).__name__}")
    return value


def text_or_token_ids(value: Any, name: str) -> str | list[int]:
    """Return a text as it is, token ids as a list; bytes are neither."""
    if isinstance(value, str):
        return value
    if isinstance(value, bytes | bytearray | memoryview) or not isinstance(value, Iterable):
        raise TypeError(f"{name} must be str or token ids, not {type(value).__name__}")
    return [index_value(token_id, "token id") for token_id in value]


def _with_article(kind: type) -> str:
    name = kind.__name__
    return f"{'an' if name[0] in 'AEIOUaeio' else 'a'} {name}"
