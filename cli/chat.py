"""`winml-lite chat`: turns from a person or from a pipe.

A person gets line editing and commands, and Ctrl-C stops an answer without ending the chat. In a pipe each line is a
turn, whatever it begins with, and each answer goes to standard output, with nothing around it.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import click

import genai
from genai import codes
from genai.cache import cache_folder

from . import terminal
from .conversation import Conversation
from .failure import as_failure, describe
from .generation_options import check_bias, generation_options
from .line_input import LineReader, editing
from .media import MediaFiles, media_options
from .options import ModelChoice, model_options
from .tool_file import Approval, read_tools

_BLOCK = '"""'


@click.command("chat")
@model_options
@generation_options(max_new_tokens=512, temperature=0.7, top_k=40, top_p=0.95, min_p=0.05)
@media_options
@click.option("--system", help="System message.")
@click.option(
    "--tools",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Run this Python file, and let the model call its functions.",
)
@click.option("--yes", is_flag=True, help="Allow each call of --tools without asking.")
@click.option("--thinking/--no-thinking", default=None, help="The switch of models that reason.  [default: theirs]")
def command(
    choice: ModelChoice,
    options: genai.TextGenerationOptions,
    media: MediaFiles,
    system: str | None,
    tools: Path | None,
    yes: bool,
    thinking: bool | None,
) -> None:
    """Talk with a model.

    \b
    Lines that begin with / are commands, /help lists them.
    Several lines that are pasted together are one message, and so are
    those between two lines of three quotation marks.
    Ctrl-C stops an answer and keeps the chat. Ctrl-D leaves.

    A model that sees or hears needs its --projector. --image and --audio go with the first message, /image FILE and
    /audio FILE with the next one:

    \b
    winml-lite chat -m model.gguf --projector mmproj.gguf --image cat.jpg

    Answers vary; --temperature 0 always takes the likeliest token.

    --tools FILE.py runs that file, your own code, and offers the model the functions it defines, all but those that
    begin with an underscore: annotations and docstrings tell it how to call them. You are asked before each call; from
    a pipe calls are refused unless --yes allows them. Reasoning and calls go to standard error.

    From a pipe each line is a turn, also one that begins with /; blank lines are left out. Each answer goes to standard
    output. A turn that fails does not end the chat, but the exit code is that of the first failure.
    """
    fields: dict[str, Any] = {} if thinking is None else {"enable_thinking": thinking}
    if tools is not None:
        fields["tools"] = read_tools(tools)
    elif yes:
        raise click.UsageError("--yes goes with --tools")
    with choice.load() as model:
        if not model.can_chat:
            raise click.UsageError(
                f"{model.name} has no chat template; `winml-lite generate -m {choice.source}` continues text with it"
            )
        check_bias(model, options)
        try:
            chat = model.chat(system, **fields)
        except TypeError as error:  # a function that cannot be a tool
            raise click.UsageError(f"{tools}: {error}") from None
        conversation = Conversation(chat, options, choice.quiet, Approval(yes) if tools is not None else None)
        conversation.show(media.read(model))
        if terminal.is_interactive():
            with editing(cache_folder() / "chat_history"):
                _talk(conversation)
        else:
            _serve(conversation, sys.stdin)


def _serve(conversation: Conversation, lines: Iterable[str]) -> None:
    """Answer each line; failures are told at once, and the first one decides the exit code at the end."""
    exit_code = 0
    for line in lines:
        message = line.removeprefix("\ufeff").rstrip("\r\n")
        if not message.strip():
            continue
        try:
            conversation.answer(message)
        except genai.WinMLError as error:
            failure = as_failure(error)
            failure.show()
            exit_code = exit_code or failure.exit_code
    if exit_code:
        raise click.exceptions.Exit(exit_code)


def _talk(conversation: Conversation) -> None:
    """Serve a person until the end of the input, or Ctrl-C twice in a row at the prompt."""
    terminal.note("/help lists the commands, Ctrl-D leaves")
    was_interrupted = False
    reader = LineReader()
    messages = _messages(reader)
    while True:
        try:
            message = next(messages, None)
        except KeyboardInterrupt:
            if was_interrupted:
                raise
            was_interrupted = True
            terminal.note("\n(Ctrl-C again or Ctrl-D leaves)")
            messages = _messages(reader)
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
            terminal.note(f"Error: {describe(error)}\n{_mend(error)}")
            if conversation.has_media:
                terminal.note("(pictures and sound wait for the next message; /image - takes them back)")


def _mend(error: genai.WinMLError) -> str:
    """Say how to go on after a failed turn, which has left the history as it was."""
    if error.hresult == codes.INSUFFICIENT_BUFFER:
        return "(the chat goes on: /undo drops the last exchange, /reset the whole history)"
    return "(the chat goes on; /reset forgets its history)"


def _messages(reader: LineReader) -> Iterator[str]:
    """Read messages: lines, or what stands between two lines of three quotation marks."""
    while (line := reader.read("> ")) is not None:
        if not line.startswith(_BLOCK):
            yield line
            continue
        block = [line.removeprefix(_BLOCK)]
        while not block[-1].endswith(_BLOCK) and (line := reader.read("... ")) is not None:
            block.append(line)
        yield "\n".join(block).removesuffix(_BLOCK).strip("\n")
