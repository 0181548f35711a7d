"""Standard streams: answers on standard output, flushed piece by piece; notes and progress on standard error.

An answer that cannot be written is a failure; notes that nobody can read are dropped.
"""

from __future__ import annotations

import errno
import json
import os
import re
import sys
import time
from collections.abc import Iterable
from io import TextIOWrapper
from typing import Any, Self, TextIO

_REDRAW_SECONDS = 0.2
_SMALLEST_IN_MB = 100_000
_USUAL_COLUMNS = 80
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
"""What a terminal takes for orders; names of files, and those in a model, may hold it."""


def prepare_streams() -> None:
    """Make the streams take every text: UTF-8 unless PYTHONIOENCODING says otherwise, and never fail on a character.

    Streams that are no files (notebooks, tests) or absent (windowed programs) are left as they are.
    """
    encoding = None if os.environ.get("PYTHONIOENCODING") else "utf-8"
    for stream in (sys.stdout, sys.stderr, sys.stdin):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(encoding=encoding, errors="replace")


def open_missing_streams() -> None:
    """Give the process the standard streams that it was started without (`>&-`).

    Else the next file that somebody opens would get their number, and what engines print would go into it. Standard
    input is then empty, notes are dropped, and writing an answer fails as it does on a closed file.
    """
    if sys.stdin is None:
        sys.stdin = _nothing(os.O_RDONLY, "r")
    if sys.stdout is None:
        sys.stdout = _nothing(os.O_RDONLY, "w")
    if sys.stderr is None:
        sys.stderr = _nothing(os.O_WRONLY, "w")


def _nothing(flags: int, mode: str) -> TextIO:
    """Open the null device under the lowest free number, which is the missing one."""
    stream = open(os.open(os.devnull, flags), mode, closefd=False)
    assert isinstance(stream, TextIOWrapper)
    return stream


def forget(stream: TextIO) -> None:
    """Let the interpreter's last flush of a stream go nowhere instead of failing once more."""
    with open(os.devnull, "w") as nothing:
        os.dup2(nothing.fileno(), stream.fileno())


class AnswerError(OSError):
    """The answer cannot be written."""

    @classmethod
    def of(cls, error: OSError) -> Self:
        """Make one that says why."""
        reason = "it is closed" if error.errno == errno.EBADF else error.strerror
        return cls(f"the answer cannot be written to standard output: {reason}")


def answer(text: str) -> None:
    """Write a piece of the answer at once. BrokenPipeError when its reader has gone, else AnswerError."""
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except OSError as error:
        forget(sys.stdout)
        if isinstance(error, BrokenPipeError) or (sys.platform == "win32" and error.errno == errno.EINVAL):
            raise BrokenPipeError from error
        raise AnswerError.of(error) from error


def finish_answer() -> None:
    """Write what is still waiting; fails like `answer`."""
    answer("")


def answer_stream(pieces: Iterable[str]) -> None:
    """Write the pieces of an answer as they come, and end the line; an answer that fails at once leaves nothing."""
    last = ""
    try:
        for piece in pieces:
            answer(piece)
            last = piece
    except (BrokenPipeError, AnswerError):
        raise
    except BaseException:
        if last and not last.endswith("\n"):
            answer("\n")
        raise
    if not last.endswith("\n"):
        answer("\n")


def answer_json(value: Any) -> None:
    """Write a value as JSON."""
    answer(json.dumps(value, ensure_ascii=False, indent=2) + "\n")


def note(text: str) -> None:
    """Write a line to standard error, without orders to the terminal; where that cannot be, nothing happens."""
    _tell(f"{without_orders(text)}\n")


def without_orders(text: str) -> str:
    """Return a text in which a terminal finds no orders: control characters but tab and line feed are spelled out."""
    return _CONTROL.sub(lambda found: found[0].encode("unicode_escape").decode(), text)


def _tell(text: str) -> None:
    if sys.stderr is None:
        return
    try:
        sys.stderr.write(text)
        sys.stderr.flush()
    except OSError:
        forget(sys.stderr)


def redraw(text: str, is_last: bool) -> None:
    """Write over the present line of standard error; the last time, end it."""
    _tell(f"\r{text}" + "\n" * is_last)


def fitting(text: str) -> str:
    """Return the end of a text that fits into a row of standard error: a wrapped line cannot be redrawn."""
    try:
        columns = os.get_terminal_size(sys.stderr.fileno()).columns
    except (OSError, ValueError, AttributeError):  # no terminal, or absent
        columns = 0
    most = (columns or _USUAL_COLUMNS) - 1
    text = without_orders(text)
    return text if len(text) <= most else f"…{text[len(text) - most + 1 :]}"


def size_text(count: int) -> str:
    """Return a number of bytes as people read it: "70.7 MB", and "812 bytes" where that would be "0.0 MB"."""
    return f"{count / 1e6:.1f} MB" if count >= _SMALLEST_IN_MB else f"{count:,} bytes"


def counted(count: int, noun: str) -> str:
    """Return "1 token", "2 tokens"."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def is_interactive() -> bool:
    """Whether a person types the input."""
    return is_terminal(sys.stdin)


def is_terminal(stream: TextIO | None) -> bool:
    """Whether a person is at the other end of a standard stream."""
    return stream is not None and stream.isatty()


def read_input() -> str:
    """Read all of standard input; a byte order mark is not part of the text."""
    return sys.stdin.read().removeprefix("\ufeff") if sys.stdin is not None else ""


class Progress:
    """Shows how a long step goes on: a line that is redrawn on a terminal, one line at its start elsewhere."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._title = ""
        self._drawn = 0.0
        self._is_open = False
        """Whether the cursor is behind what was drawn."""
        self._is_terminal = is_terminal(sys.stderr)

    def __call__(self, stage: str, done: int, total: int) -> None:
        """Take a report: what is going on, the bytes done, the bytes in all (0 = unknown).

        What is going on may name another model than this one, as `genai.load` says.
        """
        size = size_text(total) if total else "unknown size"
        title = stage if " " in stage else f"{stage} {self._name}"
        if title != self._title:
            self.finish()
            self._title = title
            if not self._is_terminal:
                note(f"{title}: {size}")
        if not self._is_terminal:
            return
        now = time.monotonic()
        if done != total and now - self._drawn < _REDRAW_SECONDS:
            return
        self._drawn = now
        share = f"{100 * done // total:3}% of {size}" if total else f"{done / 1e6:.1f} MB"
        _tell(f"\r{title}: {share}")
        self._is_open = True
        if total and done == total:  # what comes next may be the answer
            self._end_line()

    def finish(self) -> None:
        """End the redrawn line."""
        self._end_line()
        self._title = ""

    def _end_line(self) -> None:
        if self._is_open:
            _tell("\n")
        self._is_open = False
