"""`winml-lite chat`: turns from a pipe and from a person, commands, interruptions."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

import genai
from cli import terminal
from cli.main import main
from fakes.language_model import FakeModel, saying

Talk = Callable[..., Result]


@pytest.fixture
def model(monkeypatch: pytest.MonkeyPatch) -> FakeModel:
    fake = FakeModel()
    monkeypatch.setattr(genai, "load", fake.load)
    return fake


def pipe(text: str, *arguments: str) -> Result:
    return CliRunner().invoke(main, ["chat", "-q", *arguments], input=text)


@pytest.fixture
def talk(monkeypatch: pytest.MonkeyPatch) -> Talk:
    """Run a chat with a person who types lines; an exception instead of a line is raised at the prompt."""

    def run(*lines: str | BaseException) -> Result:
        typed = iter(lines)

        def read(prompt: str) -> str | None:
            line = next(typed, None)
            if isinstance(line, BaseException):
                raise line
            return line

        monkeypatch.setattr(terminal, "is_interactive", lambda: True)
        monkeypatch.setattr("cli.chat._read_line", read)
        return CliRunner().invoke(main, ["chat", "-q"])

    return run


def test_each_line_of_a_pipe_is_a_turn(model: FakeModel) -> None:
    model.answers = [saying("Blue"), saying("Red", " then")]
    result = pipe("Why?\n\nAnd at sunset?\n")
    assert (result.exit_code, result.stdout, result.stderr) == (0, "Blue\nRed then\n", "")
    assert [text for _, text, _ in model.asked] == ["Why?", "And at sunset?"]


def test_the_last_line_of_a_pipe_needs_no_end(model: FakeModel) -> None:
    model.answers = [saying("Blue")]
    assert pipe("Why?").stdout == "Blue\n"


def test_a_pipe_keeps_the_history(model: FakeModel) -> None:
    model.answers = [saying("Blue"), saying("Red")]
    pipe("Why?\nAnd?\n", "--system", "Be brief.")
    (chat,) = model.chats
    assert chat.system == "Be brief."
    assert chat.messages == (("user", "Why?"), ("assistant", "Blue"), ("user", "And?"), ("assistant", "Red"))


def test_quotation_marks_mean_nothing_in_a_pipe(model: FakeModel) -> None:
    model.answers = [saying("a"), saying("b")]
    pipe('"""one\ntwo"""\n')
    assert [text for _, text, _ in model.asked] == ['"""one', 'two"""']


def test_an_interruption_ends_a_pipe(model: FakeModel) -> None:
    model.answers = [saying("Bl", KeyboardInterrupt())]
    result = pipe("Why?\nAnd?\n")
    assert (result.exit_code, result.stdout) == (130, "Bl\n")


def test_a_failure_ends_a_pipe(model: FakeModel) -> None:
    model.answers = [saying(genai.WinMLError(0x8007007A, "chat", "too long"))]
    assert pipe("Why?\nAnd?\n").exit_code == 4


def test_a_base_model_cannot_chat(model: FakeModel) -> None:
    model.can_chat = False
    result = pipe("Why?\n")
    assert result.exit_code == 2
    assert "`winml-lite generate -m smollm2` continues text" in result.stderr


def test_a_person_leaves_with_the_end_of_the_input(model: FakeModel, talk: Talk) -> None:
    model.answers = [saying("Blue")]
    result = talk("Why?")
    assert (result.exit_code, result.stdout) == (0, "Blue\n")


def test_an_interruption_stops_the_answer_and_keeps_the_chat(model: FakeModel, talk: Talk) -> None:
    model.answers = [saying("Bl", KeyboardInterrupt()), saying("Red")]
    result = talk("Why?", "And?")
    assert (result.exit_code, result.stdout) == (0, "Bl\nRed\n")
    assert "(stopped)" in result.stderr
    assert model.chats[0].messages == (("user", "Why?"), ("assistant", "Bl"), ("user", "And?"), ("assistant", "Red"))


def test_an_interruption_at_the_prompt_asks_again(model: FakeModel, talk: Talk) -> None:
    model.answers = [saying("Blue")]
    result = talk(KeyboardInterrupt(), "Why?")
    assert (result.exit_code, result.stdout) == (0, "Blue\n")


def test_two_interruptions_at_the_prompt_leave(model: FakeModel, talk: Talk) -> None:
    assert talk(KeyboardInterrupt(), KeyboardInterrupt()).exit_code == 130


def test_a_failed_turn_keeps_the_chat(model: FakeModel, talk: Talk) -> None:
    model.answers = [saying(genai.WinMLError(0x8007007A, "chat", "too long")), saying("Red")]
    result = talk("Why?", "And?")
    assert (result.exit_code, result.stdout) == (0, "Red\n")
    assert "too long\n(the chat goes on; /reset forgets its history)" in result.stderr


def test_s_cli_02_a_block_is_one_message(model: FakeModel, talk: Talk) -> None:
    model.answers = [saying("a"), saying("b"), saying("c")]
    talk('"""', "one", "two", '"""', '"""three', 'four"""', "five")
    assert [text for _, text, _ in model.asked] == ["one\ntwo", "three\nfour", "five"]


def test_a_block_on_one_line(model: FakeModel, talk: Talk) -> None:
    model.answers = [saying("a")]
    talk('"""one"""')
    assert [text for _, text, _ in model.asked] == ["one"]


def test_reset_forgets_the_history(model: FakeModel) -> None:
    model.answers = [saying("Blue"), saying("Red")]
    pipe("Why?\n/reset\nAnd?\n")
    assert model.chats[0].messages == (("user", "And?"), ("assistant", "Red"))


def test_system_sets_shows_and_drops(model: FakeModel) -> None:
    model.answers = [saying("a"), saying("b")]
    result = pipe("/system Be brief.\nWhy?\n/system\n/system -\nAnd?\n")
    assert [system for system, _, _ in model.asked] == ["Be brief.", None]
    assert result.stderr.splitlines() == [
        "system message: Be brief.",
        "system message: Be brief.",
        "system message: (none)",
    ]


def test_exit_leaves(model: FakeModel, talk: Talk) -> None:
    assert talk("/exit", "Why?").exit_code == 0
    assert model.asked == []


def test_help_goes_to_standard_error(model: FakeModel) -> None:
    result = pipe("/help\n")
    assert result.stdout == ""
    assert all(name in result.stderr for name in ("/help", "/reset", "/system", "/save", "/load", "/exit"))


@pytest.mark.parametrize(
    ("line", "message"),
    [("/nope", "no command /nope"), ("/", "no command /"), ("/save", "no command /save without FILE")],
)
def test_unknown_commands_are_not_sent(model: FakeModel, line: str, message: str) -> None:
    assert message in pipe(f"{line}\n").stderr
    assert model.asked == []


def test_two_slashes_send_one(model: FakeModel) -> None:
    model.answers = [saying("a")]
    pipe("//etc is a folder\n")
    assert model.asked[0][1] == "/etc is a folder"


def test_save_and_load(model: FakeModel, tmp_path: Path) -> None:
    file = tmp_path / "my chat.json"
    model.answers = [saying("Blau é"), saying("Red")]
    pipe(f"Why?\n/save {file}\n", "--system", "Be brief.")
    assert json.loads(file.read_text(encoding="utf-8")) == {
        "system": "Be brief.",
        "messages": [{"role": "user", "content": "Why?"}, {"role": "assistant", "content": "Blau é"}],
    }
    pipe(f"/load {file}\nAnd?\n")
    assert model.chats[1].system == "Be brief."
    assert model.chats[1].messages[:2] == (("user", "Why?"), ("assistant", "Blau é"))


@pytest.mark.parametrize(
    "content",
    [
        "no json",
        "[]",
        "{}",
        '{"system": 3, "messages": []}',
        '{"system": null, "messages": [{"role": "user"}]}',
        '{"system": null, "messages": [{"role": "user", "content": 3}]}',
        '{"system": null, "messages": [{"role": "tool", "content": "x"}]}',
    ],
)
def test_a_file_that_is_no_chat_changes_nothing(model: FakeModel, tmp_path: Path, content: str) -> None:
    file = tmp_path / "chat.json"
    file.write_text(content, encoding="utf-8")
    model.answers = [saying("Blue"), saying("Red")]
    result = pipe(f"Why?\n/load {file}\nAnd?\n")
    assert result.exit_code == 0
    assert f"/load {file}: " in result.stderr
    assert len(model.chats[0].messages) == 4


def test_a_file_that_is_absent(model: FakeModel, tmp_path: Path) -> None:
    assert "No such file" in pipe(f"/load {tmp_path / 'absent'}\n").stderr
