"""`winml-lite convert`: an ONNX decoder from a GGUF file."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Literal

import click

from genai import catalog, convert, download
from genai.named_models import unknown_model

from . import terminal
from .failure import ModelFailure
from .options import POSITIVE, json_option


@click.command("convert")
@click.argument("source")
@click.argument("folder", type=click.Path(path_type=Path, file_okay=False))
@click.option(
    "--operators", type=click.Choice(["gqa", "std", "plain"]), default="gqa", show_default=True, help="See above."
)
@click.option("--weights", type=click.Choice(["q8", "f16", "f32"]), default="q8", show_default=True, help="See above.")
@click.option("--context-length", type=POSITIVE, help="Most tokens of a sequence.  [default: the model's]")
@click.option("--offline", is_flag=True, help="Download nothing.")
@json_option
def command(
    source: str,
    folder: Path,
    operators: Literal["plain", "std", "gqa"],
    weights: Literal["f32", "f16", "q8"],
    context_length: int | None,
    offline: bool,
    as_json: bool,
) -> None:
    """Make an ONNX decoder from a GGUF file.

    SOURCE is a .gguf file or a name that `winml-lite models list` shows. FOLDER must not exist yet or be empty; it
    gets the model with tokenizer, chat template and configuration, and can be given to --model.

    \b
    --operators  gqa    fused operators of ONNX Runtime, the fastest
                 std    standard operators, opset 23
                 plain  basic operators, opset 18, for any runtime
    --weights    q8     8 bits, the smallest
                 f16    16 bits
                 f32    32 bits
    """
    progress = terminal.Progress(source)
    try:
        made = convert.convert_gguf(
            _gguf(source, offline, progress),
            folder,
            operators=operators,
            weights=weights,
            context_length=context_length,
            progress=partial(progress, "convert"),
        )
    except FileExistsError as error:
        raise click.UsageError(str(error)) from None
    finally:
        progress.finish()
    if as_json:
        return terminal.answer_json(
            {
                "folder": str(made.folder),
                "file": str(made.model_path),
                "architecture": made.architecture,
                "operators": made.operators,
                "weights": made.weights,
                "context_length": made.context_length,
                "bytes": made.size_in_bytes,
            }
        )
    terminal.note(f"{made.architecture}, {made.operators}, {made.weights}, {made.size_in_bytes / 1e6:.0f} MB")
    terminal.answer(f"{made.folder}\n")


def _gguf(source: str, offline: bool, progress: terminal.Progress) -> Path:
    """Return the GGUF file; unlike for loading, a name always means its file, never what was converted from it."""
    entry = catalog.find(source) if not Path(source).exists() else None
    if entry is None:
        if not Path(source).exists():
            raise ModelFailure(unknown_model(source))
        return Path(source)
    return download.pull(entry, offline=offline, progress=partial(progress, "download"))
