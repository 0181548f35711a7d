"""Turns with tools in the manner of well-known families: each has its own template and its own way to write calls."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from fakes.tool_model import tool_model
from genai.tool_dialects import find_dialect

pytestmark = pytest.mark.peer

TEMPLATES = {
    row["name"]: row["text"]
    for row in tomllib.loads(Path(__file__).with_name("chat_templates.toml").read_text(encoding="utf-8"))["template"]
    if "tools" in row["uses"]
}
ARGUMENTS = '{"a": 2, "b": 3}'
BY_HAND = {
    "glm-4.5": (
        "<tool_call>add\n<arg_key>a</arg_key>\n<arg_value>2</arg_value>\n"
        "<arg_key>b</arg_key>\n<arg_value>3</arg_value>\n</tool_call>"
    ),
    "lfm2": "<|tool_call_start|>[add(a=2, b=3)]<|tool_call_end|>",
    "qwen3-coder": (
        "<tool_call>\n<function=add>\n<parameter=a>\n2\n</parameter>\n"
        "<parameter=b>\n3\n</parameter>\n</function>\n</tool_call>"
    ),
}


def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


def call_of(name: str) -> str:
    """A call as the family writes it."""
    written = find_dialect(TEMPLATES[name]).written
    if written is None:
        return BY_HAND[find_dialect(TEMPLATES[name]).name]
    parts = (
        written.first,
        written.before_name,
        "add",
        written.before_arguments,
        ARGUMENTS,
        written.after,
        written.last,
    )
    return "".join(parts)


@pytest.mark.parametrize("name", TEMPLATES)
def test_a_turn_with_a_call_and_one_after_it(tmp_path: Path, name: str) -> None:
    answers = [call_of(name), "It is 5.", call_of(name), "Still 5."]
    with tool_model(tmp_path, answers, template=TEMPLATES[name]) as fake:
        chat = fake.model.chat("Be kind.", tools=[add])
        first = chat.send("What is 2 + 3?")
        assert (first.text, first.tool_calls[0].result, first.reasoning) == ("It is 5.", "5", "")
        second = chat.send("Really?")
        assert (second.text, second.tool_calls[0].value) == ("Still 5.", 5)
    assert len(fake.prompts) == 4
