"""Conversations next to `apply_chat_template` of transformers, on templates of well-known families."""

from __future__ import annotations

import logging
import tomllib
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from fakes.vocabularies import chat_folder
from genai.messages import (
    ChatCompletionContentPart,
    ChatCompletionContinuation,
    ChatCompletionEnableThinking,
    ChatCompletionMessage,
    ChatCompletionRequest,
    ChatCompletionTool,
    ChatCompletionToolCall,
    ChatCompletionToolChoice,
)
from genai.tokenizer import Tokenizer

pytestmark = pytest.mark.peer
logging.getLogger("transformers").setLevel(logging.ERROR)  # it says at import that there is no torch
peer = pytest.importorskip("transformers.utils.chat_template_utils")

TEMPLATES = {
    row["name"]: row
    for row in tomllib.loads(Path(__file__).with_name("chat_templates.toml").read_text(encoding="utf-8"))["template"]
}
NOW = datetime(2026, 3, 5, 14, 7, 9, tzinfo=UTC)
BOS, EOS = "<|endoftext|>", "<|im_end|>"
SCHEMA = (
    '{"type": "object", "properties": {"city": {"type": "string", "enum": ["Łódź", "Nuuk"]}, '
    '"days": {"type": "integer"}}, "required": ["city"]}'
)
TOOL = ChatCompletionTool("weather", SCHEMA, "Tell the <weather> & more.")
Message = ChatCompletionMessage
USER, AGAIN = Message("user", " Hi <b> & é\n"), Message("user", "And 你好?")
SYSTEM, ANSWER = Message("system", "Be kind. "), Message("assistant", "Yo \n")
THOUGHT = Message("assistant", "<think>\nhm\n</think>\n\nYo")
CALL = ChatCompletionToolCall("abcdefghi", "weather", '{"city": "Łódź", "days": 2}')
RESULT = Message("tool", '{"sky": "grey"}', tool_call_id="abcdefghi")
BARE_RESULT = Message("tool", '{"sky": "grey"}')
PARTS = Message("user", content_parts=(ChatCompletionContentPart("text", "a "), ChatCompletionContentPart("text", "b")))


class FixedClock(datetime):
    """A clock that stands still."""

    @classmethod
    def now(cls, tz: Any = None) -> datetime:  # type: ignore[override]
        return NOW


@pytest.fixture(autouse=True)
def fixed_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peer, "datetime", FixedClock)


def using(*abilities: str) -> list[str]:
    """The templates that can show these."""
    return [name for name, row in TEMPLATES.items() if set(abilities) <= set(row["uses"])]


def ours(folder: Path, name: str, *messages: Message, **fields: Any) -> str:
    """The prompt that we make."""
    tokenizer = Tokenizer.from_file(chat_folder(folder, TEMPLATES[name]["text"], bos_token=BOS, eos_token=EOS))
    moment = int(NOW.timestamp())
    return tokenizer.format_conversation(
        ChatCompletionRequest(messages=messages, timestamp_unix_seconds=moment, **fields)
    ).text


def theirs(name: str, *messages: dict[str, Any], add_generation_prompt: bool = True, **fields: Any) -> str:
    """The prompt that transformers makes."""
    source = TEMPLATES[name]["text"]
    options = {"bos_token": BOS, "eos_token": EOS, "add_generation_prompt": add_generation_prompt, **fields}
    (text,), _ = peer.render_jinja_template([list(messages)], chat_template=source, **options)
    return str(text)


def plain(message: Message) -> dict[str, Any]:
    """A message as transformers takes it."""
    content: Any = message.content or ""
    if message.content_parts:
        content = [{"type": part.type, "text": part.text} for part in message.content_parts]
    shown: dict[str, Any] = {"role": message.role, "content": content}
    if message.tool_calls:
        function = {"name": "weather", "arguments": {"city": "Łódź", "days": 2}}
        shown["tool_calls"] = [{"id": "abcdefghi", "type": "function", "function": function}]
    if message.tool_call_id:
        shown["tool_call_id"] = message.tool_call_id
    return shown


TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "weather",
            "description": "Tell the <weather> & more.",
            "parameters": {
                "type": "object",
                "properties": {"city": {"type": "string", "enum": ["Łódź", "Nuuk"]}, "days": {"type": "integer"}},
                "required": ["city"],
            },
        },
    }
]


def test_there_are_enough_families() -> None:
    assert len(TEMPLATES) >= 20
    assert all(row["source"].startswith("https://") for row in TEMPLATES.values())


@pytest.mark.parametrize("add_generation_prompt", [True, False])
@pytest.mark.parametrize("name", TEMPLATES)
@pytest.mark.parametrize("turns", [(USER,), (USER, ANSWER, AGAIN), (USER, THOUGHT, AGAIN)])
def test_turns_render_alike(tmp_path: Path, name: str, turns: tuple[Message, ...], add_generation_prompt: bool) -> None:
    expected = theirs(name, *map(plain, turns), add_generation_prompt=add_generation_prompt)
    assert ours(tmp_path, name, *turns, add_generation_prompt=add_generation_prompt) == expected


@pytest.mark.parametrize("name", using("system"))
def test_system_messages_render_alike(tmp_path: Path, name: str) -> None:
    assert ours(tmp_path, name, SYSTEM, USER) == theirs(name, plain(SYSTEM), plain(USER))


@pytest.mark.parametrize("name", using("parts"))
def test_content_in_parts_renders_alike(tmp_path: Path, name: str) -> None:
    assert ours(tmp_path, name, PARTS) == theirs(name, plain(PARTS))


@pytest.mark.parametrize("name", using("tools"))
def test_tools_render_alike(tmp_path: Path, name: str) -> None:
    none = ChatCompletionToolChoice.NONE
    assert ours(tmp_path, name, USER, tools=(TOOL,), tool_choice=none) == theirs(name, plain(USER), tools=TOOLS)


@pytest.mark.parametrize("name", using("tools"))
def test_tool_calls_and_results_render_alike(tmp_path: Path, name: str) -> None:
    result = RESULT if "tool_call_id" in TEMPLATES[name]["text"] else BARE_RESULT
    turns = (USER, Message("assistant", tool_calls=(CALL,)), result)
    assert ours(tmp_path, name, *turns, tools=(TOOL,), tool_choice=ChatCompletionToolChoice.NONE) == theirs(
        name, *map(plain, turns), tools=TOOLS
    )


@pytest.mark.parametrize("is_on", [True, False])
@pytest.mark.parametrize("name", using("thinking"))
def test_thinking_renders_alike(tmp_path: Path, name: str, is_on: bool) -> None:
    switch = ChatCompletionEnableThinking.ENABLED if is_on else ChatCompletionEnableThinking.DISABLED
    assert ours(tmp_path, name, USER, enable_thinking=switch) == theirs(name, plain(USER), enable_thinking=is_on)


@pytest.mark.parametrize("name", TEMPLATES)
def test_continuations_render_alike(tmp_path: Path, name: str) -> None:
    turns = (USER, Message("assistant", "The capital"))
    text = ours(tmp_path, name, *turns, continuation=ChatCompletionContinuation.CONTENT)
    assert text == theirs(name, *map(plain, turns), add_generation_prompt=False, continue_final_message=True)
