"""The options of text generation, the same for all commands that generate."""

from __future__ import annotations

import functools
from typing import Any

import click
from click.core import ParameterSource

import genai

from . import terminal
from .options import Command, Decorator, gather

_UNUSED_WHEN_GREEDY = (
    *("top_k", "top_p", "min_p", "seed"),
    *("typical_p", "top_n_sigma", "xtc_probability", "xtc_threshold"),
)
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
    ("typical-p", float, "Draw from the tokens of most usual surprise that together have probability P; 1 is off."),
    ("top-n-sigma", float, "Leave out scores more than N standard deviations below the highest; 0 is off."),
    ("xtc-probability", float, "How often to leave out all but the last token above --xtc-threshold; 0 is off."),
    ("xtc-threshold", float, "Probability from which on --xtc-probability counts a token."),
    ("dry-multiplier", float, "Lower the scores of tokens that prolong a repetition; 0 is off."),
    ("dry-base", float, "What each further repeated token multiplies that by."),
    ("dry-allowed-length", int, "Longest repetition that costs nothing."),
    ("no-repeat-ngram-size", int, "Let no N tokens in a row come twice; 0 is off."),
    ("min-new-tokens", int, "Shortest answer."),
)
_FLAGS: tuple[tuple[str, str], ...] = (
    ("ignore-eos", "Go on to --max-new-tokens, whatever the model."),
    ("include-stop", "Keep the text of --stop at the end of the answer."),
)


def generation_options(**defaults: Any) -> Decorator:
    """Add the fields of `TextGenerationOptions`, `defaults` instead of its own; the command gets `options`.

    Goes below `model_options`, whose `--quiet` silences the note on options that do nothing.
    """
    own = genai.TextGenerationOptions(**defaults)

    def decorate(command: Command) -> Command:
        names = (*(name for name, _, _ in _SAMPLING), *(name for name, _ in _FLAGS))
        fields = tuple(name.replace("-", "_") for name in names)
        command = _noting_unused(command)
        command = gather(
            ("max_new_tokens", "stop", "stop_token_ids", "logit_bias", "dry_sequence_breakers", *fields),
            _options,
            "options",
        )(command)
        for name, text in reversed(_FLAGS):
            command = click.option(f"--{name}", is_flag=True, help=text)(command)
        for name, kind, text in reversed(_SAMPLING):
            default = getattr(own, name.replace("-", "_"))
            command = click.option(f"--{name}", type=kind, default=default, show_default=True, help=text)(command)
        for option in (
            click.option(
                "--dry-sequence-breaker",
                "dry_sequence_breakers",
                multiple=True,
                metavar="TEXT",
                help='Count no repetition over this text; give several.  [default: line end, ":", quote, "*"]',
            ),
            click.option(
                "--logit-bias",
                multiple=True,
                metavar="ID=VALUE",
                help="Add VALUE to the score of a token, -inf bans it; give several.",
            ),
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
    if not values["dry_sequence_breakers"]:
        del values["dry_sequence_breakers"]
    values["logit_bias"] = dict(map(_bias, values["logit_bias"]))
    try:
        return genai.TextGenerationOptions(**values)
    except (TypeError, ValueError) as error:
        raise click.UsageError(str(error)) from None


def check_bias(model: genai.LanguageModel, options: genai.TextGenerationOptions) -> None:
    """Refuse a bias on a token that the model does not have."""
    largest = max((int(token_id) for token_id in options.logit_bias or ()), default=0)
    if largest and largest >= model.tokenizer.token_count:
        raise click.UsageError(f"--logit-bias: the vocabulary has no token {largest}")


def _bias(text: str) -> tuple[int, float]:
    """Split ID=VALUE."""
    token_id, _, value = text.partition("=")
    try:
        return int(token_id), float(value)
    except ValueError:
        raise click.UsageError(f"--logit-bias: {text!r} is no ID=VALUE, such as 42=-1.5 or 42=-inf") from None
