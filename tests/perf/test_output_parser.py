"""Reading a model's output costs the same per piece, however long the output is and whatever it holds."""

from __future__ import annotations

import sys
from types import FrameType

import pytest

from fakes.outputs import events_of, parser_of

pytestmark = pytest.mark.perf


def calls_of(name: str, text: str) -> int:
    """How many functions of the project, and of Python, reading a text in pieces of eight characters enters."""
    pieces = [text[start : start + 8] for start in range(0, len(text), 8)]
    parser = parser_of(name)
    entered = 0

    def note(frame: FrameType, event: str, argument: object) -> None:
        nonlocal entered
        entered += event in ("call", "c_call")

    sys.setprofile(note)
    try:
        events_of(parser, pieces)
    finally:
        sys.setprofile(None)
    return entered


@pytest.mark.parametrize(
    ("name", "begin", "repeated"),
    [
        ("hermes", "", "hello world "),
        ("hermes", "", "<tool_cal"),
        ("hermes", "", '<tool_call>{"name": "f", "arguments": {}}</tool_call>\n'),
        ("hermes", '<tool_call>{"name": "f", "arguments": {"a": "', "text "),
        ("hermes", "<think>", "\n \n"),
        ("llama-3", "", "[1, "),
        ("llama-3", "", " \n"),
        ("qwen3-coder", "<function=f>", "<parameter=a>\n1\n</parameter>\n"),
        ("gemma-4", "<|tool_call>call:f{", 'a:[1,<|"|>b<|"|>],'),
        ("lfm2", "<|tool_call_start|>[f(a=[", "'b\\n', 1, "),
        ("harmony", "<|channel|>", "to=functions."),
    ],
)
def test_twice_the_text_is_twice_the_work(name: str, begin: str, repeated: str) -> None:
    once = calls_of(name, begin + repeated * 300)
    twice = calls_of(name, begin + repeated * 600)
    assert twice <= 2.2 * once
