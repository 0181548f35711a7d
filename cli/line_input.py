"""Lines that a person types: editing, history between sessions, and pasted text that stays together.

Editing and history are those of `readline`; Windows consoles have their own. A paste of several lines is one line here:
terminals mark it ("bracketed paste") where readline listens for that; elsewhere a line belongs to the line before when
it is there at once, faster than anybody types.
"""

from __future__ import annotations

import contextlib
import os
import select
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

_PASTE_SECONDS = 0.02
_HISTORY_LINES = 1000


@contextlib.contextmanager
def editing(history: Path) -> Iterator[None]:
    """Edit lines with readline where Python has it; lines of earlier sessions come from `history` and go there."""
    try:
        import readline
    except ImportError:
        yield
        return
    # Python turns it off, because its own prompt could not take several lines.
    readline.parse_and_bind("set enable-bracketed-paste on")
    readline.set_history_length(_HISTORY_LINES)
    with contextlib.suppress(OSError):
        readline.read_history_file(history)
    try:
        yield
    finally:
        with contextlib.suppress(OSError):
            history.parent.mkdir(parents=True, exist_ok=True)
            os.close(os.open(history, os.O_CREAT | os.O_WRONLY, 0o600))  # what was typed is nobody else's business
            readline.write_history_file(history)


class LineReader:
    """Reads what a person types."""

    def __init__(self) -> None:
        self._has_ended = False

    def read(self, prompt: str) -> str | None:
        """Read one line, or all lines of one paste; None at the end of the input, which a person can go on behind."""
        was_ahead = _is_waiting(0)  # lines typed before the prompt was there are lines of their own
        line = self._read_line(prompt)
        if line is None:
            self._has_ended = False  # told once: Ctrl-D that ends a block leaves the chat open
            _stop_marking_pastes()
            return None
        lines = [line]
        while not was_ahead and _is_waiting(_PASTE_SECONDS):
            line = self._read_line("")
            if line is None:
                break
            lines.append(line)
        return "\n".join(lines).replace("\r\n", "\n").replace("\r", "\n").rstrip("\n")

    def _read_line(self, prompt: str) -> str | None:
        """Read one line. The prompt never mixes with redirected answers."""
        if self._has_ended:
            return None
        try:
            if sys.stdout.isatty():
                return input(prompt)
            print(prompt, end="", file=sys.stderr, flush=True)
            return input()
        except EOFError:
            self._has_ended = True
            return None


def _stop_marking_pastes() -> None:
    """Have pastes told by their pace from now on.

    Readline ends the line of a Ctrl-D itself where pastes are marked, and then writes an empty line behind every line.
    """
    readline: Any = sys.modules.get("readline")
    if readline is not None:
        readline.parse_and_bind("set enable-bracketed-paste off")


def _is_waiting(seconds: float) -> bool:
    """Whether the terminal holds input, or gets some in time; never on Windows, where consoles cannot be asked so."""
    if os.name == "nt":
        return False
    return bool(select.select([sys.stdin], [], [], seconds)[0])
