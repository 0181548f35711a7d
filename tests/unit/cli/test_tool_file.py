"""`winml-lite chat --tools`: the functions of a file, the question before a call, what is shown of a call."""

from __future__ import annotations

import io
import json
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

import genai
from cli import terminal
from cli.conversation import Conversation
from cli.main import main
from cli.tool_file import Approval
from cli.turn_notes import shortened
from fakes.language_model import FakeModel, saying
from fakes.tool_model import call, tool_model

CALL = genai.ToolCall("call00001", "add", {"a": 2, "b": 3})
ADD = call("add", '{"a": 2, "b": 3}')
FILE = '''
from __future__ import annotations
from dataclasses import dataclass
from math import sqrt

@dataclass
class Point:
    x: int

def add(a: int, b: int) -> int:
    """Add."""
    return a + b

def far(place: Point) -> int:
    return place.x + _far()

def _far() -> int:
    return 1
'''


def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@pytest.fixture
def model(monkeypatch: pytest.MonkeyPatch) -> FakeModel:
    fake = FakeModel([saying("a")])
    monkeypatch.setattr(genai, "load", fake.load)
    return fake


def run(tmp_path: Path, content: str, *arguments: str) -> Result:
    """Chat from a pipe with a file of tools."""
    file = tmp_path / "my tools.py"
    file.write_text(content, encoding="utf-8")
    return CliRunner().invoke(main, ["chat", "-q", "--tools", str(file), *arguments], input="Why?\n")


def typed(monkeypatch: pytest.MonkeyPatch, text: str, is_person: bool = True) -> None:
    """Have a person type this."""
    monkeypatch.setattr(terminal, "is_interactive", lambda: is_person)
    monkeypatch.setattr(sys, "stdin", io.StringIO(text))


# --- the file ---------------------------------------------------------------------------------------------------------


def test_the_functions_of_the_file_are_tools(model: FakeModel, tmp_path: Path) -> None:
    assert run(tmp_path, FILE).exit_code == 0
    names = [function.__name__ for function in model.chats[0].fields["tools"]]
    assert names == ["add", "far"]  # neither classes, nor what is imported, nor _far


def test_decorated_functions_are_tools_too(model: FakeModel, tmp_path: Path) -> None:
    content = "from functools import cache\n@cache\ndef twice(number: int) -> int:\n    return 2 * number\n"
    assert run(tmp_path, content).exit_code == 0
    assert [function.__name__ for function in model.chats[0].fields["tools"]] == ["twice"]


def test_classes_of_the_file_are_types_of_parameters(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with tool_model(tmp_path, [call("far", '{"place": {"x": 4}}'), "It is 5."]) as fake:
        monkeypatch.setattr(genai, "load", lambda *_, **__: fake.model)
        result = run(tmp_path, FILE, "--yes", "--temperature", "0")
    assert (result.exit_code, result.stdout) == (0, "It is 5.\n")


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ("def (", r"SyntaxError: .*\(my tools.py, line 1\)"),
        ("\n\nx = 1 / 0", "line 3: ZeroDivisionError: division by zero"),
        ("import nowhere_to_be_found", "line 1: ModuleNotFoundError"),
        ("from math import sqrt\ndef _f(): ...", "it defines no functions whose names begin without an underscore"),
        ("async def f(): ...", "f is a coroutine function"),
    ],
)
def test_a_file_that_gives_no_tools(model: FakeModel, tmp_path: Path, content: str, problem: str) -> None:
    result = run(tmp_path, content)
    assert result.exit_code == 2
    assert f"{tmp_path / 'my tools.py'}: " in result.stderr
    assert re.search(problem, result.stderr)
    assert model.loads == []


def test_a_function_that_cannot_be_a_tool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with tool_model(tmp_path, []) as fake:
        monkeypatch.setattr(genai, "load", lambda *_, **__: fake.model)
        result = run(tmp_path, "def add(a): ...")
    assert result.exit_code == 2
    assert "my tools.py: tool add(): parameter 'a' has no annotation" in result.stderr


def test_yes_goes_with_tools(model: FakeModel) -> None:
    result = CliRunner().invoke(main, ["chat", "--yes"], input="Why?\n")
    assert (result.exit_code, "--yes goes with --tools" in result.stderr) == (2, True)


def test_the_switch_of_thinking(model: FakeModel) -> None:
    model.answers = [saying("a"), saying("b"), saying("c")]
    for arguments in ([], ["--thinking"], ["--no-thinking"]):
        CliRunner().invoke(main, ["chat", *arguments], input="Why?\n")
    fields = [chat.fields for chat in model.chats]
    assert fields == [{}, {"enable_thinking": True}, {"enable_thinking": False}]


# --- the question -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "verdict"),
    [("y\n", True), ("Yes\n", True), ("n\n", False), ("no\n", False), ("what?\n\ny\n", True), ("", False)],
)
def test_a_person_is_asked(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], text: str, verdict: bool
) -> None:
    typed(monkeypatch, text)
    assert Approval(False)(CALL) is verdict
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err.startswith("call add(a=2, b=3)? [y]es, [n]o, [a]lways add: ")


def test_always_holds_for_this_tool(monkeypatch: pytest.MonkeyPatch) -> None:
    typed(monkeypatch, "a\nn\n")
    approval = Approval(False)
    other = genai.ToolCall("call00002", "sub", {})
    assert [approval(CALL), approval(CALL), approval(other)] == [True, True, False]


def test_without_a_person_nothing_is_allowed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    typed(monkeypatch, "y\n", is_person=False)
    approval = Approval(False)
    assert [approval(CALL), approval(CALL)] == ["nobody is at the terminal to allow them"] * 2
    assert (
        capsys.readouterr().err
        == "(calls are refused, because nobody is at the terminal to allow them; --yes allows them)\n"
    )


def test_yes_allows_everything(monkeypatch: pytest.MonkeyPatch) -> None:
    typed(monkeypatch, "n\n")
    assert Approval(True)(CALL) is True


def test_long_calls_are_shortened_to_one_line() -> None:
    assert shortened("a\n b") == "a b"
    assert shortened("a" * 400) == "a" * 297 + "..."


# --- what is shown ----------------------------------------------------------------------------------------------------


def answered(tmp_path: Path, answers: list[str], use: Callable[[Conversation], Any], **options: bool) -> None:
    """Use a conversation with the tool `add`."""
    with tool_model(tmp_path, answers) as fake:
        chat = fake.model.chat(tools=[add])
        use(Conversation(chat, genai.TextGenerationOptions(), options.get("quiet", False), Approval(True)))


def test_calls_are_shown_beside_the_answer(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    answered(tmp_path, [f"Wait.\n{ADD}", "It is 5."], lambda chat: chat.answer("2 + 3?"))
    shown = capsys.readouterr()
    assert (shown.out, shown.err) == ("Wait.\nIt is 5.\n", "add(a=2, b=3) -> 5\n")


def test_reasoning_is_shown_beside_the_answer(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    answered(tmp_path, [f"<think>Hm.</think>{ADD}", "<think>So.</think>It is 5."], lambda chat: chat.answer("2 + 3?"))
    shown = capsys.readouterr()
    assert (shown.out, shown.err) == ("It is 5.\n", "Hm.\nadd(a=2, b=3) -> 5\nSo.\n")


def test_quiet_shows_neither(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    answered(tmp_path, [f"<think>Hm.</think>{ADD}", "It is 5."], lambda chat: chat.answer("2 + 3?"), quiet=True)
    shown = capsys.readouterr()
    assert (shown.out, shown.err) == ("It is 5.\n", "")


def test_a_chat_with_calls_is_saved_and_loaded(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "chat.json"

    def use(chat: Conversation) -> None:
        chat.take("2 + 3?")
        chat.take(f"/save {file}")
        chat.take("/reset")
        chat.take(f"/load {file}")
        chat.take("Really?")

    with tool_model(tmp_path, [ADD, "It is 5.", "Yes."]) as fake:
        own = fake.model.chat(tools=[add])
        use(Conversation(own, genai.TextGenerationOptions(), False, Approval(True)))
    assert [message.role for message in own.messages] == ["user", "assistant", "tool", "assistant", "user", "assistant"]
    assert (own.messages[1].tool_calls[0].name, own.messages[2].tool_name) == ("add", "add")
    assert "(loaded 4 messages from " in capsys.readouterr().err


def test_undo_drops_a_turn_with_its_calls(tmp_path: Path) -> None:
    def use(chat: Conversation) -> None:
        chat.take("2 + 3?")
        chat.take("/undo")

    with tool_model(tmp_path, [ADD, "It is 5."]) as fake:
        own = fake.model.chat(tools=[add])
        use(Conversation(own, genai.TextGenerationOptions(), True, Approval(True)))
        assert own.messages == ()


def test_generate_shows_reasoning_beside_the_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with tool_model(tmp_path, ["<think>Hm.</think>Yes."] * 3) as fake:
        monkeypatch.setattr(fake.model, "close", lambda: None)
        monkeypatch.setattr(genai, "load", lambda *_, **__: fake.model)
        loud = CliRunner().invoke(main, ["generate", "Why?"])
        quiet = CliRunner().invoke(main, ["generate", "-q", "Why?"])
        record = json.loads(CliRunner().invoke(main, ["generate", "-q", "--json", "Why?"]).stdout)
    assert (loud.stdout, loud.stderr.splitlines()[1:]) == ("Yes.\n", ["Hm."])
    assert (quiet.stdout, quiet.stderr) == ("Yes.\n", "")
    assert (record["text"], record["reasoning"]) == ("Yes.", "Hm.")


def test_a_template_of_ones_own(model: FakeModel, tmp_path: Path) -> None:
    file = tmp_path / "chat.jinja"
    file.write_text("{{ messages }}", encoding="utf-8")
    assert CliRunner().invoke(main, ["chat", "--chat-template", str(file)], input="Why?\n").exit_code == 0
    assert model.loads[0][1]["chat_template"] == "{{ messages }}"
