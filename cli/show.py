"""`winml-lite show`: what a model is, and which engines are installed."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from importlib.metadata import packages_distributions
from pathlib import Path
from typing import Any, TypeAlias

import click

import genai
import winml_lite
from genai import codes
from genai.catalog import LOADERS

from . import completion, terminal
from .failure import ModelFailure, as_failure, describe
from .graph_report import ProviderTrial, graph_lines, graph_record
from .model_files import find_model
from .options import MODEL_SUFFIXES, custom_operators_option, json_option
from .several_files import check_all_read

_Report: TypeAlias = Callable[[Path], dict[str, Any]]

_LONGEST_VALUE = 100
_DECODER_NAMES = {
    "context_length": "context",
    "key_value_heads": "KV heads",
    "head_size": "head size",
    "hidden_size": "width",
}


@click.command("show")
@click.argument("model", required=False, shell_complete=completion.models())
@click.option("--template", is_flag=True, help="Print the chat template and nothing else.")
@click.option("--providers", is_flag=True, help="Try which execution providers take an ONNX model.")
@click.option(
    "--provider-library",
    metavar="FILE",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="With --providers: a library of others; it is code that will be run.",
)
@custom_operators_option
@json_option
def command(
    model: str | None,
    template: bool,
    providers: bool,
    provider_library: Path | None,
    custom_operators: tuple[Path, ...],
    as_json: bool,
) -> None:
    """Describe a model, and the engines that are installed.

    MODEL is a file, a folder or a name that is in the cache; nothing is downloaded and no weights are read. Without
    MODEL only the engines are shown.

    --providers builds an ONNX model for every execution provider of this machine, which reads the weights each time,
    and says which installed ones find no hardware here.
    """
    if model is None and (template or providers):
        raise click.UsageError(f"--{'template' if template else 'providers'} needs a MODEL")
    for option, given in (("provider-library", provider_library), ("custom-operators", custom_operators)):
        if given and not providers:
            raise click.UsageError(f"--{option} goes with --providers")
    record: dict[str, Any] = {}
    if model is not None:
        name, path = find_model(model, offline=True, kinds=tuple(LOADERS))
        trial = ProviderTrial(provider_library, custom_operators) if providers else None
        graph = partial(graph_record, trial=trial)
        record = {"name": name, "path": str(path), **_describe(path, graph)}
        if providers and "tensor_types" in record:
            text = "execution providers are ONNX Runtime's, and run .onnx and .ort models only; this is a .gguf model"
            raise click.UsageError(f"--providers: {text} (`winml-lite targets` lists the hardware for it)")
        if template:
            return terminal.answer(f"{_template(name, record)}\n")
    record["engines"] = [_engine(engine) for engine in winml_lite.engines()]
    record["warnings"] = _warnings()
    terminal.answer_json(record) if as_json else terminal.answer("\n".join(_lines(record)) + "\n")
    files = record.get("files", [])
    check_all_read(sum("error" not in file for file in files), len(files))


def _template(name: str, record: dict[str, Any]) -> str:
    text = record.get("tokenizer", record)["chat_template"]
    if text is not None:
        return str(text)
    if "tokenizer_problem" in record:
        raise ModelFailure(f"no chat template of {name} was found: {record['tokenizer_problem']}")
    raise click.UsageError(f"{name} has no chat template")


def _engine(engine: winml_lite.EngineInfo) -> dict[str, Any]:
    return {
        "name": engine.name,
        "version": engine.version,
        "path": engine.path,
        "extensions": list(engine.extensions),
        "problem": engine.problem,
    }


def _warnings() -> list[str]:
    """Name packages of two distributions: whichever was installed last has overwritten files of the other."""
    owners = packages_distributions()
    return [
        f"the package {name} belongs to several distributions: {', '.join(sorted(set(owners[name])))}"
        for name in ("genai", "winml_lite", "onnxruntime", "llama_cpp")
        if len(set(owners.get(name, []))) > 1
    ]


def _describe(path: Path, graph: _Report) -> dict[str, Any]:
    if path.is_dir():
        files = sorted(file for file in path.iterdir() if file.suffix in MODEL_SUFFIXES)
        if not files:
            raise ModelFailure(f"{path} holds no {', '.join(MODEL_SUFFIXES)} file")
        return {"files": _described(files, graph), **_decoder(path), **_tokenizer(path)}
    if path.suffix.lower() == ".gguf":
        return {**_file(path, graph), **_tokenizer(path)}
    return {**_file(path, graph), **_decoder(path.parent), **_tokenizer(path.parent, has_template=False)}


def _described(files: list[Path], graph: _Report) -> list[dict[str, Any]]:
    """Describe the files of a folder; the only one must be readable, of several those that are not have an "error"."""
    records = []
    for file in files:
        try:
            record = _file(file, graph)
        except genai.WinMLError as error:
            if len(files) == 1 or not isinstance(as_failure(error), ModelFailure):
                raise
            record = {"error": describe(error).removeprefix(f"{file.absolute()}: ")}
        records.append({"path": str(file), **record})
    return records


def _file(path: Path, graph: _Report) -> dict[str, Any]:
    return _gguf(path) if path.suffix.lower() == ".gguf" else graph(path)


def _gguf(path: Path) -> dict[str, Any]:
    with winml_lite.GgufFile(path) as file:
        tensors = list(file.tensors.values())
        return {
            "format": f"GGUF {file.version}",
            "architecture": file.architecture,
            "parameters": sum(math.prod(tensor.shape) for tensor in tensors),
            "tensor_types": dict(Counter(tensor.type_name for tensor in tensors).most_common()),
            "metadata": {key: _short(value) for key, value in file.metadata.items()},
        }


def _short(value: Any) -> Any:
    """Return a metadata value as JSON; long lists only by their length."""
    if isinstance(value, bool | int | float):
        return value
    return _plain(value) if isinstance(value, str) else f"{len(value)} values"


def _plain(text: str) -> str:
    """Replace what is no character in text that was not checked when it was read."""
    return text.encode("utf-8", "replace").decode("utf-8")


def _decoder(folder: Path) -> dict[str, Any]:
    """Return what the configuration of a decoder says about it; nothing for a folder without a readable one."""
    try:
        model = json.loads((folder / "genai_config.json").read_text(encoding="utf-8"))["model"]
        decoder = model["decoder"]
        return {
            "decoder": {
                "architecture": model.get("type"),
                "context_length": model.get("context_length"),
                "vocabulary": model.get("vocab_size"),
                "layers": decoder.get("num_hidden_layers"),
                "heads": decoder.get("num_attention_heads"),
                "key_value_heads": decoder.get("num_key_value_heads"),
                "head_size": decoder.get("head_size"),
                "hidden_size": decoder.get("hidden_size"),
            }
        }
    except (OSError, ValueError, LookupError, TypeError, AttributeError):
        return {}


def _tokenizer(path: Path, has_template: bool = True) -> dict[str, Any]:
    """Describe the tokenizer: nothing for a model without one, the reason for one that cannot be opened.

    The template of a GGUF file is found without its tokenizer, which llama.cpp reads; `has_template` is whether the
    model may be such a file. A graph has nothing to do with a GGUF file beside it.
    """
    try:
        with genai.Tokenizer.from_file(path) as tokenizer:
            return {
                "tokenizer": {
                    "token_count": tokenizer.token_count,
                    "bos_token_id": tokenizer.bos_token_id,
                    "eos_token_ids": tokenizer.eos_token_ids,
                    "chat_template": tokenizer.chat_template,
                    "warnings": list(tokenizer.warnings),
                }
            }
    except genai.WinMLError as error:
        problem = {} if error.hresult == codes.FILE_NOT_FOUND else {"tokenizer_problem": describe(error)}
        return {**problem, "chat_template": _stored_template(path) if has_template else None}


def _stored_template(path: Path) -> str | None:
    """Return the template of a GGUF file, or of the first readable one in a folder, from its metadata."""
    for file in sorted(path.glob("*.gguf")) if path.is_dir() else [path]:
        with suppress(genai.WinMLError), winml_lite.GgufFile(file) as opened:
            text = opened.metadata.get("tokenizer.chat_template")
            return _plain(text) if isinstance(text, str) else None
    return None


def _lines(record: dict[str, Any]) -> list[str]:
    lines: list[str] = []
    for key in ("name", "path", "format", "architecture", "parameters"):
        if key in record:
            value = record[key]
            lines.append(f"{key:14} {value:,}" if isinstance(value, int) else f"{key:14} {value}")
    for file in record.get("files", ()):
        state = file["format"] if "error" not in file else f"error: {file['error']}"
        lines += [f"file           {Path(file['path']).name}, {state}", *_file_lines(file)]
    lines += _file_lines(record)
    for key, value in record.get("decoder", {}).items():
        if value is not None:
            text = f"{value:,}" if isinstance(value, int) else value
            lines.append(f"{_DECODER_NAMES.get(key, key):14} {text}")
    lines += _tokenizer_lines(record)
    for engine in record["engines"]:
        state = engine["problem"] or f"{engine['version']}, {engine['path']}"
        lines.append(f"engine         {engine['name']} ({' '.join(engine['extensions'])}): {state}")
    return lines + [f"warning        {warning}" for warning in record["warnings"]]


def _tokenizer_lines(record: dict[str, Any]) -> list[str]:
    lines = []
    tokenizer = record.get("tokenizer")
    if tokenizer is not None:
        lines.append(
            f"tokenizer      {tokenizer['token_count']:,} tokens, begin {tokenizer['bos_token_id']}, "
            f"end {tokenizer['eos_token_ids']}"
        )
        lines += [f"warning        {warning}" for warning in tokenizer["warnings"]]
    elif "tokenizer_problem" in record:
        lines.append(f"tokenizer      {record['tokenizer_problem']}")
    template = (tokenizer or record).get("chat_template")
    if template:
        lines.append(f"chat template  {len(template):,} characters (--template prints it)")
    elif tokenizer is not None:
        lines.append("chat template  none")
    return lines


def _file_lines(file: dict[str, Any]) -> list[str]:
    lines = []
    if "tensor_types" in file:
        lines.append("tensors        " + ", ".join(f"{count} {name}" for name, count in file["tensor_types"].items()))
        for key, value in file["metadata"].items():
            text = str(value).replace("\n", "\\n")
            lines.append(f"  {key} = {text if len(text) <= _LONGEST_VALUE else text[:_LONGEST_VALUE] + '...'}")
    return lines + graph_lines(file)
