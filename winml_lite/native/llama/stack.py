"""Calling native code that recurses once per character.

Most byte-level vocabularies split text with `std::regex`, whose usual implementation recurses for every character of a
match: 322 bytes each, so a word of 26,000 characters overflows a stack of 8 MiB and ends the process. Such text is
given a thread with a stack that is large enough; only the pages it really uses cost memory.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable
from typing import TypeVar

from ...errors import E_OUTOFMEMORY, WinMLError
from ...handles import free_in_child

Result = TypeVar("Result")

_BYTES_PER_CHARACTER = 1024  # three times what was measured
_ALWAYS_FITS = 1000  # characters; the smallest stack of a thread is 512 KiB (macOS)
_SPARE = 1 << 20
_PAGE = 1 << 16
_LONG_BLANKS = re.compile(rb"\s{100,}")
_starting = threading.Lock()
free_in_child(_starting)


def longest_match(text: bytes) -> int:
    """Upper bound of what one step of splitting takes, in bytes: a word and the blanks beside it."""
    if len(text) <= _ALWAYS_FITS:
        return len(text)
    word = max(map(len, text.split()), default=0)
    return word + max(map(len, _LONG_BLANKS.findall(text)), default=100)


def with_stack_for(text: bytes, function: Callable[[], Result]) -> Result:
    """Call `function`, in a thread of its own when the text needs a larger stack than threads have."""
    characters = longest_match(text)
    if characters <= _ALWAYS_FITS:
        return function()
    results: list[Result] = []
    errors: list[BaseException] = []

    def call() -> None:
        try:
            results.append(function())
        except BaseException as error:
            errors.append(error)

    size = -(-(characters * _BYTES_PER_CHARACTER + _SPARE) // _PAGE) * _PAGE
    thread = threading.Thread(target=call, name="winml-lite tokenizer")
    with _starting:
        before = threading.stack_size(size)
        try:
            thread.start()
        except (RuntimeError, MemoryError):
            problem = f"splitting a word of {characters} bytes needs a stack of {size >> 20} MiB"
            raise WinMLError(E_OUTOFMEMORY, "Vocabulary.encode", problem) from None
        finally:
            threading.stack_size(before)
    thread.join()
    if errors:
        raise errors[0]
    return results[0]
