"""What decoding costs per token: no native call, no table lookup and no growth after a token was seen once."""

from __future__ import annotations

import sys
from collections.abc import Callable

import pytest

from genai.decoder import PieceTable, TokenizerDecoder

pytestmark = pytest.mark.perf


def python_calls(action: Callable[[], object]) -> int:
    """Number of Python functions that `action` enters, itself included."""
    entered = 0

    def profile(frame: object, event: str, argument: object) -> None:
        nonlocal entered
        entered += event == "call"

    sys.setprofile(profile)
    try:
        action()
    finally:
        sys.setprofile(None)
    return entered


def test_a_known_token_of_whole_characters_costs_one_call() -> None:
    decoder = TokenizerDecoder(PieceTable(lambda token_id: b" word", strips_space=True), continuation=True)
    decoder.decode_token(1)
    assert python_calls(lambda: decoder.decode_token(1)) == 2  # the lambda, and decode_token


def test_decoding_does_not_grow_with_the_text() -> None:
    pieces = [b"word", b"\xe2\x82", b"\xac", b" and"]
    decoder = TokenizerDecoder(PieceTable(pieces.__getitem__, strips_space=False), continuation=False)

    def round_of_tokens() -> None:
        for token_id in (0, 1, 2, 3):
            decoder.decode_token(token_id)

    round_of_tokens()
    early = python_calls(round_of_tokens)
    for _ in range(2000):
        round_of_tokens()
    assert python_calls(round_of_tokens) == early
