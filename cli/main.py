"""The command `winml-lite`: a group whose commands are imported when they are run, and its exit codes.

`--help` and `--version` import neither NumPy nor an engine.
"""

from __future__ import annotations

import contextlib
import gc
import sys
import traceback
from collections.abc import Iterator
from importlib import import_module
from typing import Any

import click

import genai

from . import terminal
from .failure import EXIT_INTERRUPTED, EXIT_NO_READER, ModelFailure, OutputFailure, as_failure

COMMANDS = {
    "generate": "Continue a prompt, or answer it.",
    "chat": "Talk with a model.",
    "classify": "Say what is in pictures.",
    "transcribe": "Write down what is said in recordings.",
    "tokens": "Show the tokens of a text, or the text of tokens.",
    "show": "Describe a model, and the engines that are installed.",
    "targets": "List the hardware that models can be placed on.",
    "models": "List, fetch and remove the models that have names.",
    "convert": "Make an ONNX model from a GGUF file or a Whisper folder.",
    "compile": "Optimise an ONNX model once, so that it loads faster ever after.",
    "bench": "Measure the speed of a model on this machine.",
    "perplexity": "Measure how well a model predicts a text.",
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

    def main(self, *args: Any, **options: Any) -> Any:
        """Run the command, on whatever standard streams there are."""
        terminal.open_missing_streams()
        return super().main(*args, **options)

    def make_context(self, *args: Any, **options: Any) -> click.Context:
        """Read the arguments, which writes `--help`."""
        with _told_failures():
            return super().make_context(*args, **options)

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command."""
        gc.set_threshold(50_000)  # imports make many objects that stay; looking through them again delays the answer
        with _told_failures():
            terminal.prepare_streams()
            return super().invoke(ctx)


@contextlib.contextmanager
def _told_failures() -> Iterator[None]:
    """Show failures, and turn them into exit codes."""
    try:
        with _failures():
            yield
    except click.ClickException as failure:
        try:
            failure.show()
        except OSError:  # nobody can read it: the exit code still says it
            terminal.forget(sys.stderr)
        raise click.exceptions.Exit(failure.exit_code) from failure


@contextlib.contextmanager
def _failures() -> Iterator[None]:
    """Turn exceptions into failures."""
    try:
        yield
        terminal.finish_answer()
    except genai.WinMLError as error:
        raise as_failure(error) from error
    except KeyboardInterrupt:
        terminal.note("\ninterrupted")
        raise click.exceptions.Exit(EXIT_INTERRUPTED) from None
    except BrokenPipeError:
        terminal.forget(sys.stdout)
        raise click.exceptions.Exit(EXIT_NO_READER) from None
    except terminal.AnswerError as error:
        raise OutputFailure(str(error)) from error
    except OSError as error:
        if _is_of_help(error):
            terminal.forget(sys.stdout)
            raise OutputFailure(str(terminal.AnswerError.of(error))) from error
        text = f"{error.filename}: {error.strerror}" if error.filename else str(error)
        raise ModelFailure(terminal.without_orders(text)) from error


def _is_of_help(error: OSError) -> bool:
    """Whether writing `--help` or `--version` failed."""
    return any(frame.f_code is click.echo.__code__ for frame, _ in traceback.walk_tb(error.__traceback__))


@click.command(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(genai.__version__, prog_name="winml-lite")
def main() -> None:
    """Run models on this machine, of text, speech and pictures: .gguf files on llama.cpp, .onnx models on ONNX Runtime.

    \b
    winml-lite generate "Why is the sky blue?"
    winml-lite chat -m model.gguf
    winml-lite transcribe talk.mp3
    winml-lite classify cat.jpg

    A MODEL is a file (.gguf, .onnx, .ort), a model folder, or a name that `winml-lite models list` shows; names are
    downloaded once. Answers go to standard output, everything else to standard error.

    \b
    Exit codes
      0    done
      1    the answer could not be written: a closed output, a full disk
      2    wrong usage, or a prompt that is too long
      3    the model is missing, unknown, unreadable or of no usable kind
      4    the engine failed or is not installed
      130  interrupted
      141  the reader of the output has gone
    """
