"""`winml-lite chat`: turns from a pipe and from a person, commands, interruptions."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

import genai
from cli import terminal
from cli.line_input import LineReader
from cli.main import main
from fakes.language_model import Answer, FakeModel, saying
from genai.results import TextGenerationFinishReason

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

    def run(*lines: str | BaseException | None) -> Result:
        typed = iter(lines)

        def read(reader: LineReader, prompt: str) -> str | None:
            line = next(typed, None)
            if isinstance(line, BaseException):
                raise line
            return line

        monkeypatch.setattr(terminal, "is_interactive", lambda: True)
        monkeypatch.setattr(LineReader, "read", read)
        monkeypatch.setattr("cli.chat.editing", lambda history: contextlib.nullcontext())
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


def test_a_failed_turn_of_a_pipe_keeps_the_others_and_decides_the_exit_code(model: FakeModel) -> None:
    model.answers = [saying(genai.WinMLError(0x8007007A, "generate", "too long")), saying("Red")]
    result = pipe("Why?\nAnd?\n")
    assert (result.exit_code, result.stdout) == (2, "Red\n")
    assert result.stderr.startswith("Error: too long; ")


def test_the_first_failure_of_a_pipe_decides_the_exit_code(model: FakeModel) -> None:
    model.answers = [
        saying(genai.WinMLError(0x80004005, "IWinMLPipeline.Run", "broken")),
        saying(genai.WinMLError(0x8007007A, "generate", "too long")),
    ]
    assert pipe("Why?\nAnd?\n").exit_code == 4


@pytest.mark.parametrize("line", ["/help", "/exit", "/reset", "//two", "/etc/hosts", "/"])
def test_a_line_of_a_pipe_that_begins_with_a_slash_is_a_turn(model: FakeModel, line: str) -> None:
    model.answers = [saying("a"), saying("b")]
    result = pipe(f"{line}\nAnd?\n")
    assert (result.exit_code, result.stdout, result.stderr) == (0, "a\nb\n", "")
    assert [text for _, text, _ in model.asked] == [line, "And?"]


def test_answers_vary_unless_the_temperature_is_0(model: FakeModel) -> None:
    model.answers = [saying("a"), saying("b")]
    pipe("Why?\n")
    pipe("Why?\n", "--temperature", "0")
    first, second = (options for _, _, options in model.asked)
    assert (first.temperature, first.top_k, first.top_p, first.min_p) == (0.7, 40, 0.95, 0.05)
    assert (first.max_new_tokens, second.temperature) == (512, 0)


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
    model.answers = [saying(genai.WinMLError(0x80004005, "run", "broken")), saying("Red")]
    result = talk("Why?", "And?")
    assert (result.exit_code, result.stdout) == (0, "Red\n")
    assert "Error: broken (0x80004005)\n(the chat goes on; /reset forgets its history)" in result.stderr


def test_a_full_context_tells_the_option_and_the_commands(model: FakeModel, talk: Talk) -> None:
    model.answers = [saying(genai.WinMLError(0x8007007A, "generate", "9 tokens do not fit; load with more"))]
    lines = talk("Why?").stderr.splitlines()
    assert lines[-3:] == [
        "Error: 9 tokens do not fit; shorten the prompt or give a larger --context-length (0x8007007A)",
        "(the chat goes on: /undo drops the last exchange, /reset the whole history)",
        "",
    ]


def test_an_answer_that_fills_the_context_tells_the_commands(model: FakeModel, monkeypatch: pytest.MonkeyPatch) -> None:
    model.answers = [Answer(("a",), TextGenerationFinishReason.SEQUENCE_CAPACITY)]
    result = CliRunner().invoke(main, ["chat"], input="Why?\n")
    assert result.stderr.endswith("(cut: the context is full, see --context-length; /undo or /reset makes room)\n")


def test_undo_drops_the_last_exchange(model: FakeModel, talk: Talk) -> None:
    model.answers = [saying("Blue"), saying("Red"), saying("Green")]
    result = talk("Why?", "And\nthen?", "/undo", "Grass?")
    assert "(dropped: And...)" in result.stderr
    assert model.chats[0].messages == (
        ("user", "Why?"),
        ("assistant", "Blue"),
        ("user", "Grass?"),
        ("assistant", "Green"),
    )


def test_undo_without_an_exchange(model: FakeModel, talk: Talk) -> None:
    assert "(there is nothing to undo)" in talk("/undo").stderr


def test_a_paste_that_begins_with_a_slash_is_a_message(model: FakeModel, talk: Talk) -> None:
    model.answers = [saying("a")]
    talk("/etc/hosts\n/etc/passwd")
    assert model.asked[0][1] == "/etc/hosts\n/etc/passwd"


def test_s_cli_02_a_block_is_one_message(model: FakeModel, talk: Talk) -> None:
    model.answers = [saying("a"), saying("b"), saying("c")]
    talk('"""', "one", "two", '"""', '"""three', 'four"""', "five")
    assert [text for _, text, _ in model.asked] == ["one\ntwo", "three\nfour", "five"]


def test_ctrl_d_ends_a_block_and_not_the_chat(model: FakeModel, talk: Talk) -> None:
    model.answers = [saying("a"), saying("b")]
    talk('"""', "one", None, "two")
    assert [text for _, text, _ in model.asked] == ["one", "two"]


def test_a_block_on_one_line(model: FakeModel, talk: Talk) -> None:
    model.answers = [saying("a")]
    talk('"""one"""')
    assert [text for _, text, _ in model.asked] == ["one"]


def test_reset_forgets_the_history(model: FakeModel, talk: Talk) -> None:
    model.answers = [saying("Blue"), saying("Red")]
    talk("Why?", "/reset", "And?")
    assert model.chats[0].messages == (("user", "And?"), ("assistant", "Red"))


def test_system_sets_shows_and_drops(model: FakeModel, talk: Talk) -> None:
    model.answers = [saying("a"), saying("b")]
    result = talk("/system Be brief.", "Why?", "/system", "/system -", "And?")
    assert [system for system, _, _ in model.asked] == ["Be brief.", None]
    assert result.stderr.splitlines()[1:-1] == [
        "system message: Be brief.",
        "system message: Be brief.",
        "system message: (none)",
    ]


@pytest.mark.parametrize("line", ["/exit", "/quit"])
def test_exit_leaves(model: FakeModel, talk: Talk, line: str) -> None:
    assert talk(line, "Why?").exit_code == 0
    assert model.asked == []


@pytest.mark.parametrize(
    "name", ["/help", "/undo", "/reset", "/system", "/save", "/load", "/exit", "/quit", "Ctrl-D", '"""', "pasted"]
)
def test_help_goes_to_standard_error_and_names_everything(model: FakeModel, talk: Talk, name: str) -> None:
    result = talk("/help")
    assert result.stdout == ""
    assert name in result.stderr


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("/nope", "no command /nope; /help lists them\n"),
        ("/", "no command /; /help lists them\n"),
        ("/save", "no command /save without FILE\n"),
        ("/load missing.json", "/load missing.json: No such file or directory\n"),
    ],
)
def test_unknown_commands_are_not_sent(model: FakeModel, talk: Talk, line: str, message: str) -> None:
    assert message in talk(line).stderr
    assert model.asked == []


def test_two_slashes_send_one(model: FakeModel, talk: Talk) -> None:
    model.answers = [saying("a")]
    talk("//etc is a folder")
    assert model.asked[0][1] == "/etc is a folder"


def test_save_and_load(model: FakeModel, talk: Talk, tmp_path: Path) -> None:
    file = tmp_path / "my chat.json"
    model.answers = [saying("Blau é"), saying("Red")]
    result = talk("/system Be brief.", "Why?", f"/save {file}", f"/save {file}")
    assert f"(saved 2 messages to {file})" in result.stderr
    assert f"(saved 2 messages to {file}, which was overwritten)" in result.stderr
    assert json.loads(file.read_text(encoding="utf-8")) == {
        "system": "Be brief.",
        "messages": [{"role": "user", "content": "Why?"}, {"role": "assistant", "content": "Blau é"}],
    }
    talk(f"/load {file}", "And?")
    assert model.chats[1].system == "Be brief."
    assert model.chats[1].messages[:2] == (("user", "Why?"), ("assistant", "Blau é"))


def test_a_text_with_half_a_character_is_saved_and_loaded(model: FakeModel, talk: Talk, tmp_path: Path) -> None:
    file = tmp_path / "chat.json"
    file.write_text('{"system": null, "messages": [{"role": "user", "content": "\\ud800"}]}', encoding="utf-8")
    again = tmp_path / "again.json"
    assert f"(saved 1 message to {again})" in talk(f"/load {file}", f"/save {again}").stderr
    assert json.loads(again.read_text(encoding="utf-8")) == json.loads(file.read_text(encoding="utf-8"))


def test_a_file_nested_too_deeply_is_refused(model: FakeModel, talk: Talk, tmp_path: Path) -> None:
    file = tmp_path / "chat.json"
    file.write_text("[" * 100_000, encoding="utf-8")
    model.answers = [saying("Red")]
    result = talk(f"/load {file}", "Why?")
    assert "not a file that /save wrote: maximum recursion depth exceeded" in result.stderr
    assert result.stdout == "Red\n"


@pytest.mark.parametrize(
    "content",
    [
        "no json",
        "[]",
        "{}",
        '{"system": 3, "messages": []}',
        '{"system": null, "messages": [{"role": "user"}]}',
        '{"system": null, "messages": [{"role": "user", "content": 3}]}',
        '{"system": null, "messages": [{"role": "critic", "content": "x"}]}',
    ],
)
def test_a_file_that_is_no_chat_changes_nothing(model: FakeModel, talk: Talk, tmp_path: Path, content: str) -> None:
    file = tmp_path / "chat.json"
    file.write_text(content, encoding="utf-8")
    model.answers = [saying("Blue"), saying("Red")]
    result = talk("Why?", f"/load {file}", "And?")
    assert result.exit_code == 0
    assert f"/load {file}: not a file that /save wrote: " in result.stderr
    assert len(model.chats[0].messages) == 4


def test_a_file_that_is_absent(model: FakeModel, talk: Talk, tmp_path: Path) -> None:
    assert "No such file" in talk(f"/load {tmp_path / 'absent'}").stderr
