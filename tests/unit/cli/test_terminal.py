"""Streams and progress."""

from __future__ import annotations

import io
import sys

import pytest

from cli import terminal
from cli.terminal import Progress, size_text


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def wrapped(encoding: str) -> io.TextIOWrapper:
    return io.TextIOWrapper(io.BytesIO(), encoding=encoding)


def content(stream: io.TextIOWrapper) -> bytes:
    stream.flush()
    buffer = stream.buffer
    assert isinstance(buffer, io.BytesIO)
    return buffer.getvalue()


def test_s_cli_01_output_is_utf_8_whatever_the_locale(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PYTHONIOENCODING", raising=False)
    monkeypatch.setattr(sys, "stdout", stream := wrapped("ascii"))
    terminal.prepare_streams()
    terminal.answer("🦙é")
    assert content(stream) == "🦙é".encode()


def test_s_cli_01_a_chosen_encoding_holds_and_never_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONIOENCODING", "cp1252")
    monkeypatch.setattr(sys, "stdout", stream := wrapped("cp1252"))
    terminal.prepare_streams()
    terminal.answer("a🦙é")
    assert content(stream) == b"a?\xe9"


def test_half_a_surrogate_pair_does_not_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PYTHONIOENCODING", raising=False)
    monkeypatch.setattr(sys, "stdout", stream := wrapped("utf-8"))
    terminal.prepare_streams()
    terminal.answer("a\ud800b")
    assert content(stream) == b"a?b"


@pytest.mark.parametrize("stream", [None, io.StringIO()])
def test_s_cli_05_streams_that_are_no_files(monkeypatch: pytest.MonkeyPatch, stream: object) -> None:
    for name in ("stdin", "stdout", "stderr"):
        monkeypatch.setattr(sys, name, stream)
    terminal.prepare_streams()
    terminal.note("nothing happens")
    Progress("x")("download", 1, 2)
    assert terminal.is_interactive() is False


def test_pieces_are_flushed_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdout", stream := wrapped("utf-8"))
    seen = []

    def pieces() -> object:
        yield "a"
        seen.append(stream.buffer.getvalue())  # type: ignore[attr-defined]
        yield "b"

    terminal.answer_stream(pieces())  # type: ignore[arg-type]
    assert (seen, content(stream)) == ([b"a"], b"ab\n")


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0 bytes"),
        (99_999, "99,999 bytes"),
        (100_000, "0.1 MB"),
        (70_712_345, "70.7 MB"),
        (4_200_000_000, "4200.0 MB"),
    ],
)
def test_sizes_that_megabytes_would_not_show_are_bytes(count: int, text: str) -> None:
    assert size_text(count) == text


def test_s_cli_03_progress_without_a_terminal_is_one_line_for_each_step(capsys: pytest.CaptureFixture[str]) -> None:
    progress = Progress("tiny")
    for done in (1, 50, 100):
        progress("download", done, 100_000_000)
    progress("convert", 5, 0)
    progress.finish()
    assert capsys.readouterr().err == "download tiny: 100.0 MB\nconvert tiny: unknown size\n"


def test_progress_on_a_terminal_is_redrawn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", stream := Terminal())
    progress = Progress("tiny")
    progress("download", 50_000_000, 100_000_000)
    progress("download", 60_000_000, 100_000_000)  # too soon to be drawn
    progress("download", 100_000_000, 100_000_000)
    progress.finish()
    assert stream.getvalue() == "\rdownload tiny:  50% of 100.0 MB\rdownload tiny: 100% of 100.0 MB\n"
