"""`winml-lite perplexity`: how well a model predicts a text."""

from __future__ import annotations

import sys
from dataclasses import asdict
from pathlib import Path

import click

from . import terminal
from .options import ModelChoice, json_option, model_argument


@click.command("perplexity")
@model_argument
@click.argument("file", type=click.Path(exists=True, dir_okay=False, allow_dash=True, path_type=Path))
@click.option("--window", type=click.IntRange(2), help="Most tokens seen at once.  [default: 512, or the context]")
@click.option("--stride", type=click.IntRange(1), help="Tokens from one window to the next.  [default: half a window]")
@click.option("--llama-cpp", is_flag=True, help="Compute what llama.cpp's perplexity tool computes.")
@json_option
def command(
    choice: ModelChoice, file: Path, window: int | None, stride: int | None, llama_cpp: bool, as_json: bool
) -> None:
    """Measure how well a model predicts a text.

    Lower is better, 1 is certainty.

    FILE is UTF-8 text; "-" reads standard input. Every token but the first is predicted from those before it in a
    window that slides over the text. The number compares models with the same vocabulary, or files of one model.
    """
    text = _read(file)
    with choice.load() as model:
        try:
            result = model.perplexity(
                text,
                window=window,
                stride=stride,
                definition="llama.cpp" if llama_cpp else "sliding",
                progress=None if choice.quiet else _show,
            )
        except ValueError as error:
            raise click.UsageError(str(error)) from None
        record = {"model": model.name, "engine": model.engine, "file": model.file, **asdict(result)}
    if as_json:  # which has no NaN: the error of a single token
        known = {name: None if value != value else value for name, value in record.items()}
        return terminal.answer_json(known)
    terminal.answer(
        f"{result.perplexity:.4f} ± {result.standard_error:.4f} "
        f"({result.scored_token_count} of {result.token_count} tokens, "
        f"windows of {result.window}, stride {result.stride})\n"
    )


def _read(file: Path) -> str:
    if str(file) == "-":
        return terminal.read_input()
    try:
        return file.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise click.UsageError(f"{file}: {error}") from None


def _show(done: int, total: int) -> None:
    """Redraw a line on a terminal; elsewhere say nothing."""
    if terminal.is_terminal(sys.stderr):
        terminal.redraw(f"{done} of {terminal.counted(total, 'window')}", is_last=done == total)
