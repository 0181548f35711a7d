"""The command `winml-lite`: a group whose commands are imported when they are run, and its exit codes.

`--help` and `--version` import neither NumPy nor an engine.
"""

from __future__ import annotations

import gc
import os
import sys
from importlib import import_module
from typing import Any

import click

import genai

from . import terminal
from .failure import EXIT_INTERRUPTED, EXIT_NO_READER, ModelFailure, as_failure

COMMANDS = {
    "generate": "Continue a prompt, or answer it.",
    "chat": "Talk with a model.",
    "tokens": "Show the tokens of a text, or the text of tokens.",
    "show": "Describe a model, and the engines that are installed.",
    "targets": "List the hardware that models can be placed on.",
    "models": "List, fetch and remove the models that have names.",
    "convert": "Make an ONNX decoder from a GGUF file.",
    "bench": "Measure the speed of a model on this machine.",
}


class LazyGroup(click.Group):
    """Imports a command when it is run; turns exceptions into messages and exit codes."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names in the order of the table."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import one command."""
        if cmd_name not in COMMANDS:
            return None
        command = import_module(f".{cmd_name}", __package__).command
        assert isinstance(command, click.Command)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the table of commands without importing them."""
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command."""
        gc.set_threshold(50_000)  # imports make many objects that stay; looking through them again delays the answer
        try:
            terminal.prepare_streams()
            result = super().invoke(ctx)
            sys.stdout.flush()  # a reader that has gone shows up here at the latest
            return result
        except genai.WinMLError as error:
            raise as_failure(error) from error
        except KeyboardInterrupt:
            terminal.note("\ninterrupted")
            raise click.exceptions.Exit(EXIT_INTERRUPTED) from None
        except BrokenPipeError:
            _forget_stdout()
            raise click.exceptions.Exit(EXIT_NO_READER) from None
        except OSError as error:
            raise ModelFailure(str(error)) from error


def _forget_stdout() -> None:
    """Let the interpreter's last flush go nowhere instead of failing once more."""
    with open(os.devnull, "w") as nothing:
        os.dup2(nothing.fileno(), sys.stdout.fileno())


@click.command(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(genai.__version__, prog_name="winml-lite")
def main() -> None:
    """Run language models on this machine: .gguf files on llama.cpp, .onnx models on ONNX Runtime.

    \b
    winml-lite generate "Why is the sky blue?"
    winml-lite chat -m model.gguf

    A MODEL is a file (.gguf, .onnx, .ort), a model folder, or a name that `winml-lite models list` shows; names are
    downloaded once. Answers go to standard output, everything else to standard error.

    \b
    Exit codes
      0    done
      2    wrong usage, or a prompt that is too long
      3    the model is missing, unknown, unreadable or of no usable kind
      4    the engine failed or is not installed
      130  interrupted
      141  the reader of the output has gone
    """
