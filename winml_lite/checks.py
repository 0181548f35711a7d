"""Argument checks made before any engine is asked (runtime §1.3).

Two families: the *index* family raises TypeError for `bool` and non-integers, the *value* family raises ValueError for
them. Both raise ValueError out of range and accept everything with `__index__`, NumPy integers included.
"""

from __future__ import annotations

import operator
import os
from enum import Enum, IntEnum, IntFlag
from typing import Any, TypeVar

E = TypeVar("E", bound=IntEnum | IntFlag)

UINT32_MAX = 0xFFFFFFFF
INT32_MAX = 0x7FFFFFFF
UINT64_MAX = 0xFFFFFFFFFFFFFFFF
THREADS_MAX = 512
"""Most threads of one stage: ggml takes no more, and far more than the machine can start end the process."""


def index_value(value: Any, name: str, maximum: int = UINT32_MAX, minimum: int = 0) -> int:
    """Return `value` as an int in `minimum..maximum` (index family: bool and non-integers are TypeError)."""
    if type(value) is not int:
        if isinstance(value, bool) or not hasattr(value, "__index__") or type(value).__name__ in ("bool_", "bool"):
            raise TypeError(f"{name} must be an integer, not {type(value).__name__}")
        try:
            value = operator.index(value)
        except TypeError:  # an array of several numbers
            raise TypeError(f"{name} must be an integer, not {type(value).__name__}") from None
    if not minimum <= value <= maximum:
        raise ValueError(f"{name} must be in {minimum}..{maximum}, not {value}")
    return int(value)


def number_value(value: Any, name: str, maximum: int = UINT32_MAX, minimum: int = 0) -> int:
    """Return `value` as an int in `minimum..maximum` (value family: every refusal is ValueError)."""
    try:
        return index_value(value, name, maximum, minimum)
    except TypeError as error:
        raise ValueError(str(error)) from None


def member_of(value: Any, kind: type[E]) -> E | None:
    """Return the member of an enumeration that `value` is, or is the number of; None for everything else.

    A bool, a float and the member of another enumeration may equal such a number, and mean something else.
    """
    if isinstance(value, kind):
        return value
    if isinstance(value, Enum):
        return None
    try:
        return kind(index_value(value, "number", UINT64_MAX))
    except (TypeError, ValueError):
        return None


def enum_value(value: Any, kind: type[E], name: str) -> E:
    """Return a member of `kind` from a member or its number (value family: every refusal is ValueError)."""
    found = member_of(value, kind)
    if found is not None:
        return found
    raise ValueError(f"{name} must be a member of {kind.__name__} or its number, not {value!r}")


def text_value(value: Any, name: str) -> str:
    """Return `value` when it is a str, else raise ValueError."""
    if not isinstance(value, str):
        raise ValueError(f"{name} must be a str, not {type(value).__name__}")
    return value


def engine_text(value: Any, name: str) -> str:
    """Return `value` when it is a str that C code gets whole, as UTF-8 that ends with a NUL; else raise ValueError."""
    if "\0" in text_value(value, name):
        raise ValueError(f"{name} must be free of NUL, not {value!r}")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise ValueError(f"{name} must be text, without half of a pair of surrogates, not {value!r}") from None
    return str(value)


def path_value(value: Any, name: str = "path") -> str:
    """Return a path as str; `os.PathLike` is accepted, everything else that is not a str is ValueError."""
    if isinstance(value, os.PathLike):
        value = os.fspath(value)
    return text_value(value, name)


def flag_value(value: Any, name: str) -> bool:
    """Return `value` when it is a real bool, else raise ValueError."""
    if not isinstance(value, bool):
        raise ValueError(f"{name} must be a bool, not {type(value).__name__}")
    return value
