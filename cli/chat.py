"""`winml-lite chat`: turns from a person or from a pipe.

A person gets line editing and commands, and Ctrl-C stops an answer without ending the chat. In a pipe each line is a
turn and each answer goes to standard output, with nothing around it.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator

import click

import genai

from . import terminal
from .conversation import Conversation
from .options import ModelChoice, generation_options, model_options

_BLOCK = '"""'


@click.command("chat")
@model_options
@generation_options(max_new_tokens=512)
@click.option("--system", help="System message.")
def command(choice: ModelChoice, options: genai.TextGenerationOptions, system: str | None) -> None:
    """Talk with a model.

    \b
    Lines that begin with / are commands, /help lists them.
    Lines between two lines of three quotation marks are one message.
    Ctrl-C stops an answer and keeps the chat. Ctrl-D leaves.

    From a pipe each line is a turn; each answer goes to standard output.
    """
    with choice.load() as model:
        if not model.can_chat:
            raise click.UsageError(
                f"{model.name} has no chat template; `winml-lite generate -m {choice.source}` continues text with it"
            )
        conversation = Conversation(model.chat(system), options, choice.quiet)
        if terminal.is_interactive():
            _talk(conversation)
        else:
            for line in sys.stdin:
                conversation.take(line.removeprefix("\ufeff").rstrip("\r\n"))


def _talk(conversation: Conversation) -> None:
    """Serve a person until the end of the input, or Ctrl-C twice in a row at the prompt."""
    with contextlib.suppress(ImportError):
        import readline  # noqa: F401  (line editing and history for input(); Windows consoles have their own)
    terminal.note("/help lists the commands, Ctrl-D leaves")
    was_interrupted = False
    messages = _messages()
    while True:
        try:
            message = next(messages, None)
        except KeyboardInterrupt:
            if was_interrupted:
                raise
            was_interrupted = True
            terminal.note("\n(Ctrl-C again or Ctrl-D leaves)")
            messages = _messages()
            continue
        if message is None:
            return terminal.note("")
        was_interrupted = False
        try:
            if not conversation.take(message):
                return
        except KeyboardInterrupt:
            terminal.note("(stopped)")
        except genai.WinMLError as error:
            terminal.note(f"{error}\n(the chat goes on; /reset forgets its history)")


def _messages() -> Iterator[str]:
    """Read messages: lines, or what stands between two lines of three quotation marks."""
    while (line := _read_line("> ")) is not None:
        if not line.startswith(_BLOCK):
            yield line
            continue
        block = [line.removeprefix(_BLOCK)]
        while not block[-1].endswith(_BLOCK) and (line := _read_line("... ")) is not None:
            block.append(line)
        yield "\n".join(block).removesuffix(_BLOCK).strip("\n")


def _read_line(prompt: str) -> str | None:
    """Read one line with editing; None at the end of the input. The prompt never mixes with redirected answers."""
    try:
        if sys.stdout.isatty():
            return input(prompt)
        print(prompt, end="", file=sys.stderr, flush=True)
        return input()
    except EOFError:
        return None
