"""Room on the stack for native code that recurses once per character."""

from __future__ import annotations

import threading

import pytest

from winml_lite.errors import E_OUTOFMEMORY, WinMLError
from winml_lite.native.llama import stack
from winml_lite.native.llama.stack import longest_match, with_stack_for


@pytest.mark.parametrize(
    ("text", "length"),
    [
        (b"", 0),
        (b"short text", 10),
        (b"word " * 1000, 4 + 100),
        (b"a" * 5000 + b" b" * 10, 5000 + 100),
        (b"ab " * 1000 + b"\n" * 3000, 2 + 3001),
    ],
)
def test_longest_match(text: bytes, length: int) -> None:
    assert longest_match(text) == length


def test_ordinary_text_stays_in_its_thread() -> None:
    assert with_stack_for(b"word " * 1000, threading.get_ident) == threading.get_ident()


def test_a_long_word_gets_a_thread_and_the_stack_size_is_restored() -> None:
    assert with_stack_for(b"a" * 5000, threading.get_ident) != threading.get_ident()
    assert threading.stack_size() == 0


def test_errors_come_back_from_the_thread() -> None:
    def fail() -> None:
        raise KeyError("inside")

    with pytest.raises(KeyError, match="inside"):
        with_stack_for(b"a" * 5000, fail)


def test_no_room_for_the_stack(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stack, "_BYTES_PER_CHARACTER", 1 << 40)
    with pytest.raises(WinMLError, match="5100 bytes") as caught:
        with_stack_for(b"a" * 5000, threading.get_ident)
    assert caught.value.hresult == E_OUTOFMEMORY
    assert threading.stack_size() == 0
