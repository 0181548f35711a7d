"""One chat at the terminal: its turns and its commands."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import genai

from . import terminal
from .generate import note_cut

_SHOWN_CHARACTERS = 60
HELP = """\
/help         show this
/undo         drop the last message and its answer
/reset        forget the history; the system message stays
/system TEXT  set the system message; without TEXT show it, with "-" drop it
/save FILE    write the chat to a file
/load FILE    go on with a saved chat
/exit, /quit  leave, as Ctrl-D does
//...         send a message that begins with /
\"\"\"           alone on a line: begin or end a message of several lines;
              several lines that are pasted together are one message, too
Ctrl-C        stop the answer, keep the chat"""


class Conversation:
    """Takes lines: messages for the model, and commands."""

    def __init__(self, chat: genai.Chat, options: genai.TextGenerationOptions, quiet: bool) -> None:
        self._chat = chat
        self._options = options
        self._quiet = quiet

    def take(self, line: str) -> bool:
        """Answer a message or obey a command; return False when the line asks to leave. Blank lines do nothing.

        Only a single line is a command: text of several lines may begin with a path.
        """
        if line.startswith("//"):
            self.answer(line[1:])
        elif line.startswith("/") and "\n" not in line:
            return self._obey(*line[1:].split(maxsplit=1))
        elif line.strip():
            self.answer(line)
        return True

    def answer(self, message: str) -> None:
        """Send a message, whatever it begins with, and write the answer."""
        with self._chat.stream(message, options=self._options) as stream:
            terminal.answer_stream(stream)
        if not self._quiet:
            note_cut(stream.result, "; /undo or /reset makes room")

    def _obey(self, name: str = "", text: str = "") -> bool:
        text = text.strip()
        if name in ("exit", "quit", "bye"):
            return False
        if name == "help":
            terminal.note(HELP)
        elif name == "reset":
            self._chat.reset()
            terminal.note("(the history is forgotten)")
        elif name == "undo":
            self._undo()
        elif name == "system":
            self._system(text)
        elif name in ("save", "load") and text:
            try:
                (self._save if name == "save" else self._load)(Path(text).expanduser())
            except (OSError, ValueError) as error:
                terminal.note(f"/{name} {text}: {error}")
        else:
            terminal.note(f"no command /{name}{'' if name not in ('save', 'load') else ' without FILE'}\n{HELP}")
        return True

    def _undo(self) -> None:
        messages = self._chat.messages
        last = max((index for index, (role, _) in enumerate(messages) if role == "user"), default=None)
        if last is None:
            return terminal.note("(there is nothing to undo)")
        self._chat.messages = messages[:last]
        terminal.note(f"(dropped: {_shortened(messages[last][1])})")

    def _system(self, text: str) -> None:
        if text:
            self._chat.system = None if text == "-" else text
        terminal.note(f"system message: {self._chat.system or '(none)'}")

    def _save(self, path: Path) -> None:
        messages = [{"role": role, "content": content} for role, content in self._chat.messages]
        record = {"system": self._chat.system, "messages": messages}
        existed = path.exists()
        path.write_text(json.dumps(record, ensure_ascii=False, indent=2) + "\n", encoding="utf-8")
        overwritten = ", which was overwritten" if existed else ""
        terminal.note(f"(saved {terminal.counted(len(messages), 'message')} to {path.absolute()}{overwritten})")

    def _load(self, path: Path) -> None:
        try:
            record = json.loads(path.read_text(encoding="utf-8"))
        except ValueError as error:
            raise ValueError(f"not a file that /save wrote: {error}") from None
        system, messages = _read_chat(record)
        self._chat.system = system
        self._chat.messages = messages
        terminal.note(f"(loaded {terminal.counted(len(messages), 'message')} from {path.absolute()})")


def _shortened(text: str) -> str:
    first, _, rest = text.partition("\n")
    return f"{first[:_SHOWN_CHARACTERS]}..." if rest or len(first) > _SHOWN_CHARACTERS else first


def _read_chat(record: Any) -> tuple[str | None, tuple[tuple[str, str], ...]]:
    """Check a saved chat wholly before any of it is used."""
    try:
        system = record["system"]
        messages = tuple((message["role"], message["content"]) for message in record["messages"])
    except (TypeError, KeyError) as error:
        raise ValueError("not a file that /save wrote: it holds no system message and messages") from error
    is_text = all(isinstance(text, str) for message in messages for text in message)
    if not is_text or not isinstance(system, str | None) or {role for role, _ in messages} - {"user", "assistant"}:
        raise ValueError("not a file that /save wrote: its messages are not those of user and assistant")
    return system, messages
