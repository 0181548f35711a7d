"""Options that several commands share; each decorator hands the command one record of them."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeAlias, TypeVar

import click

import genai
import winml_lite

from . import completion, terminal
from .failure import ModelFailure
from .provider_options import PROVIDER, PROVIDER_LIBRARY, PROVIDER_OPTIONS, provider_settings

Command: TypeAlias = Callable[..., Any]
Decorator: TypeAlias = Callable[[Command], Command]
T = TypeVar("T")

POSITIVE = click.IntRange(1, 2**32 - 1)
"""Lengths and counts of tokens."""

_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)


def _model_option(default: str, kind: str) -> Decorator:
    return click.option(
        "-m",
        "--model",
        "source",
        default=default,
        show_default=True,
        help="File, folder or name.",
        shell_complete=completion.models(kind),
    )


_MODEL = _model_option("smollm2", "text")
_OFFLINE = click.option("--offline", is_flag=True, help="Download nothing.")
_QUIET = click.option("-q", "--quiet", is_flag=True, help="Say nothing but the answer.")
_ENGINE = click.option(
    "--engine",
    type=click.Choice(["llama", "ort"]),
    help="Engine for a name; a file has its own.  [default: what is there]",
)
_DEVICE = click.option(
    "--device",
    type=click.Choice(["auto", "cpu", "gpu", "npu"]),
    default="auto",
    show_default=True,
    help="What it runs on; auto takes a GPU that the engine can use, else the CPU.",
)
_THREADS = click.option(
    "--threads", type=click.IntRange(1, 512), help="Threads.  [default: the CPUs that this process may use]"
)
_PLACEMENT: dict[str, Decorator] = {
    "device": _DEVICE,
    "provider": PROVIDER,
    "provider_library": PROVIDER_LIBRARY,
    "provider_options": PROVIDER_OPTIONS,
    "threads": _THREADS,
}
_CONTEXT = click.option(
    "--context-length",
    type=POSITIVE,
    help="Most tokens of prompt and answer.  [default: the model's, to 4096]",
)
_BATCH = click.option("--batch-size", type=POSITIVE, help="Most tokens that a GGUF run takes.  [default: 512]")
_LORA = click.option(
    "--lora",
    "adapters",
    multiple=True,
    metavar="FILE[=SCALE]",
    help="Apply a LoRA adapter (.gguf) to a GGUF model.",
    shell_complete=completion.files,
)
_PROJECTOR = click.option(
    "--projector", metavar="FILE", type=_FILE, help="Projector (mmproj, .gguf) of a GGUF model that sees or hears."
)
_TEMPLATE = click.option("--chat-template", type=_FILE, help="Jinja template for chats, in place of the model's own.")
_SPECULATE = click.option(
    "--speculate",
    "speculation",
    type=click.Choice(["lookup", "predictor"]),
    help="Try tokens that followed earlier in the text, or what the model's predictor says.",
)
_DRAFT = click.option(
    "--draft",
    metavar="MODEL",
    help="Try tokens of a smaller model with the same vocabulary.",
    shell_complete=completion.models("text"),
)
_DRAFT_TOKENS = click.option(
    "--draft-tokens", type=click.IntRange(1, 16), help="Most tokens tried at a time.  [default: as many as pay]"
)
custom_operators_option = click.option(
    "--custom-operators",
    multiple=True,
    metavar="FILE",
    type=_FILE,
    help="Library of operators that an ONNX model needs; it is code that will be run.",
)
json_option = click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")

MODEL_SUFFIXES = (".gguf", ".onnx", ".ort")


@dataclass(frozen=True, slots=True)
class ModelChoice:
    """Which model to load, and how."""

    source: str
    offline: bool
    quiet: bool
    engine: Literal["llama", "ort"] | None = None
    threads: int | None = None
    context_length: int | None = None
    batch_size: int | None = None
    adapters: tuple[str, ...] = ()
    device: str = "auto"
    provider: str | None = None
    provider_library: Path | None = None
    provider_options: tuple[str, ...] = ()
    speculation: Literal["lookup", "predictor"] | None = None
    draft: str | None = None
    draft_tokens: int | None = None
    chat_template: Path | None = None
    projector: Path | None = None
    custom_operators: tuple[Path, ...] = ()

    def load(self) -> genai.LanguageModel:
        """Load the model; say on standard error which engine and which file it became."""
        path = Path(self.source)
        if path.is_file() and path.suffix.lower() not in MODEL_SUFFIXES:
            raise ModelFailure(f"{path}: the extension {path.suffix!r} is none of {', '.join(MODEL_SUFFIXES)}")
        if self.speculation is not None and self.draft is not None:
            raise click.UsageError("give either --speculate or --draft")
        if self.draft_tokens is not None and self.speculation is None and self.draft is None:
            raise click.UsageError("--draft-tokens goes with --speculate or --draft")
        model = self.load_with(
            genai.load,
            engine=self.engine,
            context_length=self.context_length,
            adapters=[_adapter(text) for text in self.adapters],
            custom_operators=self.custom_operators,
            projector=self.projector,
            batch_size=self.batch_size,
            chat_template=None if self.chat_template is None else _file_text(self.chat_template),
            speculation=self.speculation,
            draft=self.draft,
            draft_tokens=self.draft_tokens,
        )
        if not self.quiet:
            provider = f", {model.provider}" if self.provider is not None else ""
            terminal.note(f"{model.name} on {model.engine} ({model.target.name}{provider}): {model.file}")
        return model

    def load_with(self, loader: Callable[..., T], **more: Any) -> T:
        """Load the model with the function of its task; `more` are arguments of that function alone."""
        options = provider_settings(self.provider, self.provider_library, self.provider_options)
        progress = terminal.Progress(self.source)
        try:
            return loader(
                self.source,
                target=None if self.device == "auto" else winml_lite.ExecutionTargetKind[self.device.upper()],
                provider=self.provider,
                provider_options=options,
                threads=self.threads,
                offline=self.offline,
                progress=None if self.quiet else progress,
                **more,
            )
        finally:
            progress.finish()


def _adapter(text: str) -> tuple[str, float]:
    """Split FILE or FILE=SCALE; a file whose name has a "=" and no number behind it is a file."""
    path, _, number = text.rpartition("=")
    try:
        return (path, float(number)) if path else (text, 1.0)
    except ValueError:
        if os.path.exists(path) and not os.path.exists(text):
            raise click.BadParameter(f"{number!r} is no number", param_hint="--lora FILE=SCALE") from None
        return text, 1.0


def gather(names: tuple[str, ...], record: Callable[[dict[str, Any]], Any], target: str) -> Decorator:
    """Make a decorator that hands the command one record instead of the values of some options."""

    def decorate(command: Command) -> Command:
        @functools.wraps(command)
        def wrapper(*arguments: Any, **values: Any) -> Any:
            values[target] = record({name: values.pop(name) for name in names})
            return command(*arguments, **values)

        return wrapper

    return decorate


def model_options(command: Command) -> Command:
    """Add the options that load a model, also to chat and to draft; the command gets `choice`, a `ModelChoice`."""
    drafting = {"speculation": _SPECULATE, "draft": _DRAFT, "draft_tokens": _DRAFT_TOKENS}
    return _choosing(command, _MODEL, {"projector": _PROJECTOR, "chat_template": _TEMPLATE, **drafting})


def model_argument(command: Command) -> Command:
    """Add those that load a model, with MODEL as an argument in the place of `--model`."""
    model = click.argument("source", metavar="MODEL", shell_complete=completion.models("text"))
    return _choosing(command, model, {})


def onnx_model_options(default: str, kind: str) -> Decorator:
    """Add those that load a model of another task, which is one of ONNX Runtime.

    `default` is a name of the catalog, `kind` what the catalog calls models of the task.

    The command gets `choice`, whose `load_with` takes the function that loads such models.
    """
    return lambda command: _with_options(
        command, {"source": _model_option(default, kind), **_PLACEMENT, "offline": _OFFLINE, "quiet": _QUIET}
    )


def _choosing(command: Command, source: Decorator, more: dict[str, Decorator]) -> Command:
    place: dict[str, Decorator] = {"engine": _ENGINE, **_PLACEMENT, "custom_operators": custom_operators_option}
    more = {"context_length": _CONTEXT, "batch_size": _BATCH, "adapters": _LORA, **more}
    return _with_options(command, {"source": source, **place, **more, "offline": _OFFLINE, "quiet": _QUIET})


def _with_options(command: Command, options: dict[str, Decorator]) -> Command:
    command = gather(tuple(options), lambda values: ModelChoice(**values), "choice")(command)
    for option in reversed(options.values()):
        command = option(command)
    return command


def source_options(command: Command) -> Command:
    """Add `--model` and `--offline` alone; the command gets `source` and `offline`."""
    return _MODEL(_OFFLINE(command))


def form_options(command: Command) -> Command:
    """Add what an answer must look like; the command gets `fields`, keyword arguments for the model.

    Goes below `generation_options`, whose `options` become one of the fields.
    """
    command = gather(("options", "json_schema", "regex", "choices", "grammar"), _fields, "fields")(command)
    for option in (
        click.option("--grammar", type=_FILE, help="The answer follows the grammar in this file (Lark or GBNF)."),
        click.option("--choice", "choices", multiple=True, help="The answer is one of these texts; give several."),
        click.option("--regex", help="The answer matches this regular expression."),
        click.option("--json-schema", type=_FILE, help="The answer is JSON that fits the schema in this file."),
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


def prompt_options(command: Command) -> Command:
    """Add the argument PROMPT and `--stdin`; the command gets `text`, which may be empty."""
    command = gather(("prompt", "with_stdin"), lambda values: read_prompt(**values), "text")(command)
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
