"""Texts of failures, without the places in the engine's source that raised them.

Many begin with a file, a line and a C++ function, whose signature may fill three lines before it comes to what went
wrong. Who wants them finds them in the log. Not here: codes (`api.py`).
"""

from __future__ import annotations

import re

_PLACE = re.compile(r"(?:^|(?<=: )|(?<=\n))(?P<file>\S+\.(?:h|hpp|cc|cpp|cu|cuh|mm|inc)):\d+ ")
_NAME = re.compile(r"\S+ ")
_AFTER_SIGNATURE = re.compile(r"(?: const)?(?: \[[^\[\]]* = [^\[\]]*(?:\[[^\[\]]*\][^\[\]]*)*\])? ")  # [with T = int]


def without_places(text: str) -> str:
    """Return a message without the places in source code that it, or a message inside it, begins with."""
    kept, start = [], 0
    for place in _PLACE.finditer(text):
        end = _message_start(text, place) if place.start() >= start else None
        if end is not None:
            kept.append(text[start : place.start()])
            start = end
    return "".join(kept) + text[start:]


def _message_start(text: str, place: re.Match[str]) -> int | None:
    """Return where the message behind a place begins; None for what is no function, or has nothing behind it."""
    if place["file"].startswith(("/", "./", "../")):
        end = _signature_end(text, place.end())
        after = _AFTER_SIGNATURE.match(text, end) if end is not None else None
    else:  # the compiler for Windows writes the name of a function alone
        after = _NAME.match(text, place.end())
    return after.end() if after is not None and text[after.end() :].strip() else None


def _signature_end(text: str, start: int) -> int | None:
    """Return the end of a C++ function with its parameters, and of a lambda in it; None for what is not one."""
    depth, has_parameters = 0, False
    for position in range(start, len(text)):
        letter = text[position]
        if letter in "(<[{":
            depth += 1
        elif letter in ")]}" or (letter == ">" and text[position - 1] != "-"):
            depth -= 1
            has_parameters |= letter == ")" and not depth
            if not depth and has_parameters and text.startswith(" ", position + 1):
                return position + 1
    return None
