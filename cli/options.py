"""Options that several commands share; each decorator hands the command one record of them."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeAlias

import click
from click.core import ParameterSource

import genai

from . import terminal
from .failure import ModelFailure

Command: TypeAlias = Callable[..., Any]
Decorator: TypeAlias = Callable[[Command], Command]

_MODEL = click.option("-m", "--model", "source", default="smollm2", show_default=True, help="File, folder or name.")
_OFFLINE = click.option("--offline", is_flag=True, help="Download nothing.")
_QUIET = click.option("-q", "--quiet", is_flag=True, help="Say nothing but the answer.")
_ENGINE = click.option(
    "--engine",
    type=click.Choice(["llama", "ort"]),
    help="Engine for a name; a file has its own.  [default: what is there]",
)
_THREADS = click.option(
    "--threads", type=click.IntRange(1, 512), help="Threads.  [default: the CPUs that this process may use]"
)
_CONTEXT = click.option(
    "--context-length",
    type=click.IntRange(1),
    help="Most tokens of prompt and answer.  [default: the model's, to 4096]",
)
_LORA = click.option(
    "--lora", "adapters", multiple=True, metavar="FILE[=SCALE]", help="Apply a LoRA adapter (.gguf) to a GGUF model."
)
_TEXT_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)
json_option = click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")

MODEL_SUFFIXES = (".gguf", ".onnx", ".ort")
_UNUSED_WHEN_GREEDY = ("top_k", "top_p", "min_p", "seed")
_SAMPLING: tuple[tuple[str, type, str], ...] = (
    ("temperature", float, "Randomness; 0 takes the likeliest token."),
    ("top-k", int, "Draw from the K likeliest tokens; 0 is off."),
    ("top-p", float, "Draw from the likeliest tokens that together have probability P; 1 is off."),
    ("min-p", float, "Leave out tokens below P times the highest probability; 0 is off."),
    ("repetition-penalty", float, "Divide the scores of earlier tokens; 1 is off."),
    ("repetition-penalty-window", int, "How many tokens back the repetition penalty reaches; 0 is all."),
    ("presence-penalty", float, "Lower the scores of tokens that the answer has used."),
    ("frequency-penalty", float, "Lower them once for each use."),
    ("seed", int, "Start of the random numbers; 0 takes a fresh one."),
)


@dataclass(frozen=True, slots=True)
class ModelChoice:
    """Which model to load, and how."""

    source: str
    engine: Literal["llama", "ort"] | None
    threads: int | None
    context_length: int | None
    adapters: tuple[str, ...]
    offline: bool
    quiet: bool

    def load(self) -> genai.LanguageModel:
        """Load the model; say on standard error which engine and which file it became."""
        path = Path(self.source)
        if path.is_file() and path.suffix.lower() not in MODEL_SUFFIXES:
            raise ModelFailure(f"{path}: the extension {path.suffix!r} is none of {', '.join(MODEL_SUFFIXES)}")
        progress = terminal.Progress(self.source)
        try:
            model = genai.load(
                self.source,
                engine=self.engine,
                threads=self.threads,
                context_length=self.context_length,
                adapters=[_adapter(text) for text in self.adapters],
                offline=self.offline,
                progress=None if self.quiet else progress,
            )
        finally:
            progress.finish()
        if not self.quiet:
            terminal.note(f"{model.name} on {model.engine}: {model.file}")
        return model


def _adapter(text: str) -> tuple[str, float]:
    """Split FILE or FILE=SCALE; a file whose name has a "=" and no number behind it is a file."""
    path, _, number = text.rpartition("=")
    try:
        return (path, float(number)) if path else (text, 1.0)
    except ValueError:
        return text, 1.0


def _gather(names: tuple[str, ...], record: Callable[[dict[str, Any]], Any], target: str) -> Decorator:
    """Make a decorator that hands the command one record instead of the values of some options."""

    def decorate(command: Command) -> Command:
        @functools.wraps(command)
        def wrapper(*arguments: Any, **values: Any) -> Any:
            values[target] = record({name: values.pop(name) for name in names})
            return command(*arguments, **values)

        return wrapper

    return decorate


def model_options(command: Command) -> Command:
    """Add the options that load a model; the command gets `choice`, a `ModelChoice`."""
    names = ("source", "engine", "threads", "context_length", "adapters", "offline", "quiet")
    command = _gather(names, lambda values: ModelChoice(**values), "choice")(command)
    for option in (_QUIET, _OFFLINE, _LORA, _CONTEXT, _THREADS, _ENGINE, _MODEL):
        command = option(command)
    return command


def source_options(command: Command) -> Command:
    """Add `--model` and `--offline` alone; the command gets `source` and `offline`."""
    return _MODEL(_OFFLINE(command))


def generation_options(**defaults: Any) -> Decorator:
    """Add the fields of `TextGenerationOptions`, `defaults` instead of its own; the command gets `options`.

    Goes below `model_options`, whose `--quiet` silences the note on options that do nothing.
    """
    own = genai.TextGenerationOptions(**defaults)

    def decorate(command: Command) -> Command:
        fields = tuple(name.replace("-", "_") for name, _, _ in _SAMPLING)
        command = _noting_unused(command)
        command = _gather(("max_new_tokens", "stop", "stop_token_ids", *fields), _options, "options")(command)
        for name, kind, text in reversed(_SAMPLING):
            default = getattr(own, name.replace("-", "_"))
            command = click.option(f"--{name}", type=kind, default=default, show_default=True, help=text)(command)
        for option in (
            click.option("--stop-token-id", "stop_token_ids", type=int, multiple=True, help="Stop at this token too."),
            click.option("--stop", multiple=True, help="Stop at this text; may be given several times."),
            click.option(
                "-n",
                "--max-new-tokens",
                type=int,
                default=own.max_new_tokens,
                show_default=True,
                help="Longest answer.",
            ),
        ):
            command = option(command)
        return command

    return decorate


def form_options(command: Command) -> Command:
    """Add what an answer must look like; the command gets `fields`, keyword arguments for the model.

    Goes below `generation_options`, whose `options` become one of the fields.
    """
    command = _gather(("options", "json_schema", "regex", "choices", "grammar"), _fields, "fields")(command)
    for option in (
        click.option("--grammar", type=_TEXT_FILE, help="The answer follows the grammar in this file (Lark or GBNF)."),
        click.option("--choice", "choices", multiple=True, help="The answer is one of these texts; give several."),
        click.option("--regex", help="The answer matches this regular expression."),
        click.option("--json-schema", type=_TEXT_FILE, help="The answer is JSON that fits the schema in this file."),
    ):
        command = option(command)
    return command


def _fields(values: dict[str, Any]) -> dict[str, Any]:
    options = values.pop("options")
    given = {name: value for name, value in values.items() if value not in (None, ())}
    if len(given) > 1:
        raise click.UsageError("give one of --json-schema, --regex, --choice and --grammar")
    form = {name: _file_text(value) if isinstance(value, Path) else value for name, value in given.items()}
    return {"options": options, **form}


def _file_text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise click.UsageError(f"{path}: {error}") from None


def _noting_unused(command: Command) -> Command:
    """Say on standard error which options of sampling were given in vain."""

    @functools.wraps(command)
    def wrapper(*arguments: Any, **values: Any) -> Any:
        context = click.get_current_context()
        given = [
            f"--{name.replace('_', '-')}"
            for name in _UNUSED_WHEN_GREEDY
            if context.get_parameter_source(name) is ParameterSource.COMMANDLINE
        ]
        if given and values["options"].temperature == 0 and not values["choice"].quiet:
            terminal.note(f"({', '.join(given)}: without effect, because --temperature is 0)")
        return command(*arguments, **values)

    return wrapper


def _options(values: dict[str, Any]) -> genai.TextGenerationOptions:
    try:
        return genai.TextGenerationOptions(**values)
    except (TypeError, ValueError) as error:
        raise click.UsageError(str(error)) from None


def prompt_options(command: Command) -> Command:
    """Add the argument PROMPT and `--stdin`; the command gets `text`, which may be empty."""
    command = _gather(("prompt", "with_stdin"), lambda values: read_prompt(**values), "text")(command)
    text = "Add standard input to PROMPT, after a blank line."
    command = click.option("--stdin", "with_stdin", is_flag=True, help=text)(command)
    return click.argument("prompt", required=False)(command)


def read_prompt(prompt: str | None, with_stdin: bool = False) -> str:
    """Return the prompt of an argument, or standard input for "-" or none; the line end of the input is not part of it.

    `with_stdin` adds standard input to an argument. Without it an argument is all: who inherits a standard input that
    nobody closes would wait forever. UsageError when a person is to type and nothing was given.
    """
    if prompt is None and terminal.is_interactive():
        raise click.UsageError("give a prompt, as an argument or on standard input")
    if prompt is not None and prompt != "-" and not with_stdin:
        return prompt
    given = terminal.read_input().removesuffix("\n").removesuffix("\r")
    return given if prompt in (None, "-", "") else f"{prompt}\n\n{given}" if given else prompt
