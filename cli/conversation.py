"""One chat at the terminal: its turns and its commands.

Answers go to standard output; calls of tools with their results, and reasoning, go to standard error.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import genai
from genai.chat_message import as_message

from . import terminal
from .failure import describe
from .generate import note_cut, note_drafts
from .media import read_media, refusal, takes
from .tool_file import Approval
from .turn_notes import TurnNotes

_SHOWN_CHARACTERS = 60
_SHOWN = {"image": "images", "audio": "audio"}
_WITH_FILE = ("save", "load", *_SHOWN)
HELP = """\
/help         show this
/undo         drop the last message and its answer
/reset        forget the history; the system message stays
/system TEXT  set the system message; without TEXT show it, with "-" drop it
/image FILE   show a picture with the next message; "-" takes everything back
/audio FILE   play a sound with the next message; "-" takes everything back
/save FILE    write the chat to a file
/load FILE    go on with a saved chat
/exit, /quit  leave, as Ctrl-D does
//...         send a message that begins with /
\"\"\"           alone on a line: begin or end a message of several lines;
              several lines that are pasted together are one message, too
Ctrl-C        stop the answer, keep the chat"""


class Conversation:
    """Takes lines: messages for the model, and commands."""

    def __init__(
        self, chat: genai.Chat, options: genai.TextGenerationOptions, quiet: bool, approval: Approval | None = None
    ) -> None:
        """`approval` is asked before each call of a tool."""
        self._chat = chat
        self._options = options
        self._quiet = quiet
        self._approval = approval
        self._shown: dict[str, list[genai.ChatMedia]] = {}
        """Pictures ("images") and sound ("audio") for the next message."""

    @property
    def has_media(self) -> bool:
        """Whether pictures or sound wait for the next message."""
        return bool(self._shown)

    def show(self, media: Mapping[str, Iterable[genai.ChatMedia]]) -> None:
        """Let pictures ("images") and sound ("audio") go with the next message."""
        for name, more in media.items():
            self._shown.setdefault(name, []).extend(more)

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
        notes = TurnNotes(self._approval)
        hooks: Any = {} if self._quiet else {"on_call": notes.call, "on_reasoning": notes.reasoning}
        if self._approval is not None:
            hooks["approve"] = notes.approve
        hooks |= self._shown
        with self._chat.stream(message, options=self._options, **hooks) as stream:
            self._shown = {}
            terminal.answer_stream(notes.watched(stream))
        if not self._quiet:
            note_cut(stream.result, "; /undo or /reset makes room")
            note_drafts(stream.result)

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
        elif name in _WITH_FILE and text:
            self._use_file(name, text)
        elif name in _WITH_FILE:
            terminal.note(f"no command /{name} without FILE")
        else:
            terminal.note(f"no command /{name}; /help lists them")
        return True

    def _use_file(self, name: str, text: str) -> None:
        path = Path(text).expanduser()
        try:
            if name in _SHOWN:
                self._take_media(name, text, path)
            else:
                (self._save if name == "save" else self._load)(path)
        except genai.WinMLError as error:
            terminal.note(f"/{name} {text}: {describe(error)}")
        except OSError as error:
            terminal.note(f"/{name} {text}: {error.strerror or error}")
        except ValueError as error:
            terminal.note(f"/{name} {text}: {error}")

    def _take_media(self, name: str, text: str, path: Path) -> None:
        if text == "-":
            self._shown = {}
            return terminal.note("(the next message goes alone)")
        if not takes(self._chat.model, name):
            return terminal.note(refusal(self._chat.model, name))
        self.show({_SHOWN[name]: [read_media(name, path)]})
        terminal.note(f"({path.name} goes with the next message)")

    def _undo(self) -> None:
        messages = self._chat.messages
        last = max((index for index, (role, _) in enumerate(messages) if role == "user"), default=None)
        if last is None:
            return terminal.note("(there is nothing to undo)")
        self._chat.messages = messages[:last]
        terminal.note(f"(dropped: {_first_line(messages[last][1])})")

    def _system(self, text: str) -> None:
        if text:
            self._chat.system = None if text == "-" else text
        terminal.note(f"system message: {self._chat.system or '(none)'}")

    def _save(self, path: Path) -> None:
        messages = [as_message(message).as_dict() for message in self._chat.messages]
        record = {"system": self._chat.system, "messages": messages}
        try:
            data = json.dumps(record, ensure_ascii=False, indent=2).encode()
        except UnicodeEncodeError:  # half a character, which no UTF-8 has
            data = json.dumps(record, indent=2).encode()
        existed = path.exists()
        path.write_bytes(data + b"\n")
        overwritten = ", which was overwritten" if existed else ""
        terminal.note(f"(saved {terminal.counted(len(messages), 'message')} to {path.absolute()}{overwritten})")

    def _load(self, path: Path) -> None:
        try:
            record = json.loads(path.read_text(encoding="utf-8"))
        except (ValueError, RecursionError) as error:
            raise ValueError(f"not a file that /save wrote: {error}") from None
        system, messages = _read_chat(record)
        self._chat.system = system
        self._chat.messages = messages
        terminal.note(f"(loaded {terminal.counted(len(messages), 'message')} from {path.absolute()})")


def _first_line(text: str) -> str:
    first, _, rest = text.partition("\n")
    return f"{first[:_SHOWN_CHARACTERS]}..." if rest or len(first) > _SHOWN_CHARACTERS else first


def _read_chat(record: Any) -> tuple[str | None, tuple[genai.ChatMessage, ...]]:
    """Check a saved chat wholly before any of it is used."""
    try:
        system = record["system"]
        messages = tuple(as_message(message) for message in record["messages"])
    except (TypeError, KeyError) as error:
        raise ValueError("not a file that /save wrote: it holds no system message and messages") from error
    if not isinstance(system, str | None) or {message.role for message in messages} - {"user", "assistant", "tool"}:
        raise ValueError("not a file that /save wrote: its messages are not those of user, assistant and tools")
    return system, messages
