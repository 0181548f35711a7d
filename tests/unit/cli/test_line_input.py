"""Lines of a person: pastes, type-ahead, the end of the input, history."""

from __future__ import annotations

import os
import re
import select
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from cli import line_input
from cli.line_input import LineReader, editing

Type = Callable[..., None]
ROOT = Path(__file__).resolve().parents[3]
ECHOING = """
import sys
from pathlib import Path
from cli.line_input import LineReader, editing
with editing(Path(sys.argv[1])):
    reader = LineReader()
    while (line := reader.read("> ")) != "leave":
        print(repr(line))
"""


@pytest.fixture
def typed(monkeypatch: pytest.MonkeyPatch) -> Type:
    """Let a person type lines: `waiting` says, question by question, whether more input is there."""

    def start(*lines: str | BaseException, waiting: list[bool]) -> None:
        coming = iter(lines)

        def read(prompt: str = "") -> str:
            line = next(coming)
            if isinstance(line, BaseException):
                raise line
            return line

        monkeypatch.setattr("builtins.input", read)
        monkeypatch.setattr(line_input, "_is_waiting", lambda seconds: waiting.pop(0))

    return start


def test_a_line(typed: Type) -> None:
    typed("one", waiting=[False, False])
    assert LineReader().read("> ") == "one"


def test_lines_that_are_there_at_once_are_one(typed: Type) -> None:
    typed("one", "two", "", "three", waiting=[False, True, True, True, False])
    assert LineReader().read("> ") == "one\ntwo\n\nthree"


def test_lines_typed_before_the_prompt_stay_lines(typed: Type) -> None:
    typed("one", "two", waiting=[True, True])
    reader = LineReader()
    assert [reader.read("> "), reader.read("> ")] == ["one", "two"]


@pytest.mark.parametrize("line", ["one\rtwo\r", "one\r\ntwo\r\n", "one\ntwo\n"])
def test_line_ends_of_a_marked_paste(typed: Type, line: str) -> None:
    typed(line, waiting=[False, False])
    assert LineReader().read("> ") == "one\ntwo"


def test_the_end_of_the_input(typed: Type) -> None:
    typed(EOFError(), waiting=[False])
    assert LineReader().read("> ") is None


def test_the_end_of_the_input_right_behind_a_line_is_kept(typed: Type) -> None:
    typed("one", EOFError(), waiting=[False, True, False])
    reader = LineReader()
    assert [reader.read("> "), reader.read("> ")] == ["one", None]


def test_the_end_of_the_input_is_told_once(typed: Type) -> None:
    typed("one", EOFError(), "two", waiting=[False, True, False, False, False])
    reader = LineReader()
    assert [reader.read("... "), reader.read("... "), reader.read("> ")] == ["one", None, "two"]


@pytest.mark.skipif(sys.platform == "win32", reason="no pseudo terminals")
def test_a_line_is_followed_by_what_comes_after_it_also_behind_an_end_of_the_input(tmp_path: Path) -> None:
    readline = pytest.importorskip("readline")
    if "libedit" in (readline.__doc__ or ""):
        pytest.skip("libedit shows lines in its own way")
    import pty

    own, other = pty.openpty()
    program = [sys.executable, "-c", ECHOING, str(tmp_path / "history")]
    environment = {**os.environ, "TERM": "xterm", "PYTHONPATH": str(ROOT)}
    with subprocess.Popen(program, stdin=other, stdout=other, stderr=other, env=environment) as process:
        os.close(other)
        try:
            shown = [_until_prompt(own)]
            for line in (b"one\r", b"\x04", b"two\r", b"three\r", b"four\rfive\r"):
                os.write(own, line)
                shown.append(_until_prompt(own))
            os.write(own, b"leave\r")
            process.wait(30)
        finally:
            process.kill()
    os.close(own)
    assert shown[1] == b"one\r\n'one'\r\n> "
    assert shown[3:5] == [b"two\r\n'two'\r\n> ", b"three\r\n'three'\r\n> "]
    assert shown[5].endswith(b"'four\\nfive'\r\n> ")  # a paste is one message still


def _until_prompt(terminal: int) -> bytes:
    """What a terminal shows up to the prompt, without the marks that switch its paste mode; it fails without one."""
    shown = b""
    while not shown.endswith(b"> "):
        assert select.select([terminal], [], [], 30)[0], shown
        shown = re.sub(rb"\x1b\[\?2004[hl]\r?", b"", shown + os.read(terminal, 1024))
    return shown


def test_history_is_kept_between_sessions(tmp_path: Path) -> None:
    readline = pytest.importorskip("readline")
    file = tmp_path / "home" / "history"
    readline.clear_history()
    with editing(file):
        readline.add_history("first question")
    readline.clear_history()
    with editing(file):
        assert readline.get_history_item(1) == "first question"
    readline.clear_history()


def test_a_history_that_cannot_be_kept_is_no_failure(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with editing(tmp_path / "file" / "history"):
        pass
