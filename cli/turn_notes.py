"""What a turn of a chat says beside its answer: reasoning, calls of tools and their results, on standard error."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

import genai

from . import terminal

if TYPE_CHECKING:
    from .tool_file import Approval

_SHOWN_CHARACTERS = 300


class TurnNotes:
    """What a turn says beside its answer, on lines of their own."""

    def __init__(self, approval: Approval | None = None) -> None:
        self._approval = approval
        self._is_open = ""
        """What is written in the present line: `"answer"`, `"reasoning"`, or `""` for nothing."""

    def watched(self, pieces: Iterable[str]) -> Iterator[str]:
        """Pass the answer on."""
        for piece in pieces:
            if self._is_open == "reasoning":
                self._end_line()
            self._is_open = "" if piece.endswith("\n") else "answer"
            yield piece
        if self._is_open == "reasoning":
            self._end_line()

    def reasoning(self, piece: str) -> None:
        """Show a piece of reasoning."""
        if sys.stderr is not None:
            print(piece, end="", file=sys.stderr, flush=True)
            self._is_open = "reasoning"

    def approve(self, call: genai.ToolCall) -> bool | str:
        """Ask about a call."""
        assert self._approval is not None
        self._end_line()
        return self._approval(call)

    def call(self, call: genai.ToolCall) -> None:
        """Show a call and its result."""
        self._end_line()
        terminal.note(f"{shortened(str(call))} -> {shortened(call.result)}")

    def _end_line(self) -> None:
        """End the line on the screen, where notes go, too."""
        if self._is_open == "reasoning" or (self._is_open and sys.stdout.isatty()):
            terminal.note("")
        self._is_open = ""


def shortened(text: str) -> str:
    """Return a text as one line of bounded length."""
    line = " ".join(text.split())
    return line if len(line) <= _SHOWN_CHARACTERS else f"{line[: _SHOWN_CHARACTERS - 3]}..."
