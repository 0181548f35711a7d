"""Streams and progress."""

from __future__ import annotations

import io
import sys
from types import SimpleNamespace

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
    moments = iter((8.0, 8.125, 8.25, 8.3125))
    monkeypatch.setattr("cli.terminal.time", SimpleNamespace(monotonic=lambda: next(moments)))
    progress = Progress("tiny")
    progress("download", 50_000_000, 100_000_000)
    progress("download", 60_000_000, 100_000_000)  # too soon to be drawn
    progress("download", 70_000_000, 100_000_000)
    progress("download", 100_000_000, 100_000_000)
    progress.finish()
    assert stream.getvalue().split("\r") == [
        "",
        "download tiny:  50% of 100.0 MB",
        "download tiny:  70% of 100.0 MB",
        "download tiny: 100% of 100.0 MB\n",
    ]


def test_progress_of_another_model_says_its_name(capsys: pytest.CaptureFixture[str]) -> None:
    progress = Progress("whisper-tiny.en")
    progress("download", 5, 300_000)
    progress("download silero-vad", 5, 200_000)
    progress.finish()
    assert capsys.readouterr().err == "download whisper-tiny.en: 0.3 MB\ndownload silero-vad: 0.2 MB\n"


def test_a_step_that_is_done_leaves_the_line_to_what_comes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", stream := Terminal())
    progress = Progress("tiny")
    progress("download", 100_000_000, 100_000_000)  # and nobody finishes it
    assert stream.getvalue() == "\rdownload tiny: 100% of 100.0 MB\n"
    progress("download", 200_000_000, 200_000_000)  # a second file, of which nobody knew
    progress.finish()
    assert stream.getvalue() == "\rdownload tiny: 100% of 100.0 MB\n\rdownload tiny: 100% of 200.0 MB\n"


def test_a_note_gives_no_orders_to_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    terminal.note("song\x1b[31m\r.wav:\t3 s\nnext")
    assert capsys.readouterr().err == "song\\x1b[31m\\r.wav:\t3 s\nnext\n"


@pytest.mark.parametrize(
    ("columns", "shown"), [(9, "name 30%"), (8, "…me 30%"), (2, "…"), (0, "name 30%")], ids=["fits", "cut", "2", "0"]
)
def test_a_line_that_is_redrawn_fits_into_a_row(columns: int, shown: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", SimpleNamespace(fileno=lambda: 2))
    monkeypatch.setattr("os.get_terminal_size", lambda number: SimpleNamespace(columns=columns))
    assert terminal.fitting("name 30%") == shown


def test_a_line_that_is_redrawn_gives_no_orders_to_the_terminal() -> None:
    assert terminal.fitting("\x1b]0;a.wav") == "\\x1b]0;a.wav"


def test_a_row_of_unknown_length_has_80_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", Terminal())
    assert terminal.fitting("x" * 90) == "…" + "x" * 78
