"""`winml-lite convert`: an ONNX decoder from a GGUF file, an ONNX encoder and decoder from a Whisper folder."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any, Literal

import click

from genai import catalog, convert, download
from genai.named_models import unknown_model

from . import completion, terminal
from .failure import ModelFailure
from .options import POSITIVE, json_option


@click.command("convert")
@click.argument("source", shell_complete=completion.models("text"))
@click.argument("folder", type=click.Path(path_type=Path, file_okay=False))
@click.option("--operators", type=click.Choice(["gqa", "std", "plain"]), help="See above; GGUF only.  [default: gqa]")
@click.option(
    "--weights", type=click.Choice(["q8", "f16", "f32"]), help="See above.  [default: q8 for GGUF, f16 for Whisper]"
)
@click.option("--context-length", type=POSITIVE, help="Most tokens of a sequence; GGUF only.  [default: the model's]")
@click.option("--offline", is_flag=True, help="Download nothing.")
@json_option
def command(
    source: str,
    folder: Path,
    operators: Literal["plain", "std", "gqa"] | None,
    weights: Literal["f32", "f16", "q8"] | None,
    context_length: int | None,
    offline: bool,
    as_json: bool,
) -> None:
    """Make an ONNX model from a GGUF file or a Whisper folder.

    SOURCE is a .gguf file, a folder with the model.bin of a CTranslate2 Whisper model (what faster-whisper takes), or a
    name that `winml-lite models list` shows. FOLDER must not exist yet or be empty. From a GGUF file it gets a decoder
    with tokenizer, chat template and configuration, and can be given to --model; from a Whisper model encoder, decoder
    and tokenizer, for `winml-lite transcribe` and genai.load_speech.

    \b
    --operators  gqa    fused operators of ONNX Runtime, the fastest
                 std    standard operators, opset 23
                 plain  basic operators, opset 18, for any runtime
    --weights    q8     8 bits, the smallest and fastest; of a Whisper model the decoder
                 f16    16 bits
                 f32    32 bits

    \b
    Example:  winml-lite convert model.gguf converted
              winml-lite convert faster-whisper-small.en whisper-small.en
    """
    progress = terminal.Progress(source)
    try:
        path = _path(source, offline, progress)
        if path.is_dir():
            if operators or context_length:
                raise click.UsageError(f"{path} is a folder: only --weights goes with a Whisper model")
            said, record = _whisper(path, folder, weights or "f16", progress)
        else:
            options = {"operators": operators or "gqa", "weights": weights or "q8", "context_length": context_length}
            said, record = _decoder(path, folder, options, progress)
    except FileExistsError as error:
        raise click.UsageError(str(error)) from None
    finally:
        progress.finish()
    if as_json:
        return terminal.answer_json(record)
    terminal.note(f"{said}, {terminal.size_text(record['bytes'])}")
    terminal.answer(f"{record['folder']}\n")


def _decoder(
    path: Path, folder: Path, options: dict[str, Any], progress: terminal.Progress
) -> tuple[str, dict[str, Any]]:
    """Convert a GGUF file; return what to say of it, and the record."""
    made = convert.convert_gguf(path, folder, **options, progress=partial(progress, "convert"))
    return f"{made.architecture}, {made.operators}, {made.weights}", {
        "folder": str(made.folder),
        "file": str(made.model_path),
        "architecture": made.architecture,
        "operators": made.operators,
        "weights": made.weights,
        "context_length": made.context_length,
        "bytes": made.size_in_bytes,
    }


def _whisper(
    path: Path, folder: Path, weights: Literal["f32", "f16", "q8"], progress: terminal.Progress
) -> tuple[str, dict[str, Any]]:
    made = convert.convert_whisper(path, folder, weights=weights, progress=partial(progress, "convert"))
    languages = "multilingual" if made.is_multilingual else "English only"
    layers = f"{made.encoder_layers} and {made.decoder_layers} layers"
    return f"Whisper, {languages}, {layers}, {made.mel_count} mel bands, {made.weights}", {
        "folder": str(made.folder),
        "architecture": "whisper",
        "weights": made.weights,
        "mel_count": made.mel_count,
        "encoder_layers": made.encoder_layers,
        "decoder_layers": made.decoder_layers,
        "is_multilingual": made.is_multilingual,
        "bytes": made.size_in_bytes,
    }


def _path(source: str, offline: bool, progress: terminal.Progress) -> Path:
    """Return the file or folder; unlike for loading, a name always means its files, never what was made of them."""
    entry = catalog.find(source) if not Path(source).exists() else None
    if entry is None:
        if not Path(source).exists():
            raise ModelFailure(unknown_model(source))
        if Path(source).suffix.lower() in (".pth", ".pt"):
            made = "genai.convert.convert_efficientnet converts those of EfficientNet-Lite"
            raise ModelFailure(f"{source}: weights of torch are not converted here; {made}")
        return Path(source)
    if not entry.is_gguf and not entry.variant.startswith("whisper"):
        raise ModelFailure(f"{entry.name}, of kind {entry.kind}, is ready as it is: there is nothing to convert to")
    return download.pull(entry, offline=offline, progress=partial(progress, "download"))
