"""`winml-lite show`: what a model is, and which engines are installed."""

from __future__ import annotations

from collections import Counter
from importlib.metadata import packages_distributions
from pathlib import Path
from typing import Any

import click

import genai
import winml_lite

from . import terminal
from .model_files import find_model
from .options import json_option

_FREE = 0xFFFFFFFFFFFFFFFF
_FILE_NOT_FOUND = 0x80070002
_LONGEST_VALUE = 100


@click.command("show")
@click.argument("model", required=False)
@click.option("--template", is_flag=True, help="Print the chat template and nothing else.")
@json_option
def command(model: str | None, template: bool, as_json: bool) -> None:
    """Describe a model, and the engines that are installed.

    MODEL is a file, a folder or a name that is in the cache; nothing is downloaded and no weights are read. Without
    MODEL only the engines are shown.
    """
    if template and model is None:
        raise click.UsageError("--template needs a MODEL")
    record: dict[str, Any] = {}
    if model is not None:
        name, path = find_model(model, offline=True)
        record = {"name": name, "path": str(path), **_describe(path)}
        if template:
            text = record.get("tokenizer", {}).get("chat_template")
            if text is None:
                raise click.UsageError(f"{name} has no chat template")
            return terminal.answer(f"{text}\n")
    record["engines"] = [_engine(engine) for engine in winml_lite.engines()]
    record["warnings"] = _warnings()
    terminal.answer_json(record) if as_json else terminal.answer("\n".join(_lines(record)) + "\n")


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


def _describe(path: Path) -> dict[str, Any]:
    if path.is_dir():
        files = sorted(file for file in path.iterdir() if file.suffix in (".onnx", ".ort", ".gguf"))
        described = [{"path": str(file), **_file(file)} for file in files]
        return {"files": described, **_tokenizer(path)}
    return {**_file(path), **_tokenizer(path if path.suffix.lower() == ".gguf" else path.parent)}


def _file(path: Path) -> dict[str, Any]:
    return _gguf(path) if path.suffix.lower() == ".gguf" else _onnx(path)


def _gguf(path: Path) -> dict[str, Any]:
    with winml_lite.GgufFile(path) as file:
        tensors = list(file.tensors.values())
        return {
            "format": f"GGUF {file.version}",
            "architecture": file.architecture,
            "parameters": sum(_product(tensor.shape) for tensor in tensors),
            "tensor_types": dict(Counter(tensor.type_name for tensor in tensors).most_common()),
            "metadata": {key: _short(value) for key, value in file.metadata.items()},
        }


def _product(extents: tuple[int, ...]) -> int:
    product = 1
    for extent in extents:
        product *= extent
    return product


def _short(value: Any) -> Any:
    """Return a metadata value as JSON; long lists only by their length."""
    if isinstance(value, bool | int | float):
        return value
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode("utf-8")
    return f"{len(value)} values"


def _onnx(path: Path) -> dict[str, Any]:
    with winml_lite.Runtime() as runtime, runtime.load_model(path) as model:
        schema, names = model.schema(), model.ort_schema()
        inputs = [(names.input_name(index), *schema.input_desc(index)) for index in range(schema.input_count)]
        outputs = [(names.output_name(index), *schema.output_desc(index)) for index in range(schema.output_count)]
    return {
        "format": "ONNX" if path.suffix.lower() == ".onnx" else "ORT",
        "inputs": [_port(*port) for port in inputs],
        "outputs": [_port(*port) for port in outputs],
    }


def _port(name: str, data_type: winml_lite.TensorDataType, shape: tuple[int, ...]) -> dict[str, Any]:
    return {"name": name, "type": data_type.name, "shape": [None if extent == _FREE else extent for extent in shape]}


def _tokenizer(path: Path) -> dict[str, Any]:
    """Describe the tokenizer: nothing for a model without one, the reason for one that cannot be read."""
    try:
        with genai.Tokenizer.from_file(path) as tokenizer:
            return {
                "tokenizer": {
                    "token_count": tokenizer.token_count,
                    "bos_token_id": tokenizer.bos_token_id,
                    "eos_token_ids": tokenizer.eos_token_ids,
                    "chat_template": tokenizer.chat_template,
                }
            }
    except genai.WinMLError as error:
        return {} if error.hresult == _FILE_NOT_FOUND else {"tokenizer_problem": str(error)}


def _lines(record: dict[str, Any]) -> list[str]:
    lines: list[str] = []
    for key in ("name", "path", "format", "architecture", "parameters"):
        if key in record:
            value = record[key]
            lines.append(f"{key:14} {value:,}" if isinstance(value, int) else f"{key:14} {value}")
    for file in record.get("files", ()):
        lines += [f"file           {Path(file['path']).name}, {file['format']}", *_file_lines(file)]
    lines += _file_lines(record)
    tokenizer = record.get("tokenizer")
    if tokenizer is not None:
        template = tokenizer["chat_template"]
        lines.append(
            f"tokenizer      {tokenizer['token_count']:,} tokens, begin {tokenizer['bos_token_id']}, "
            f"end {tokenizer['eos_token_ids']}"
        )
        lines.append(f"chat template  {f'{len(template):,} characters (--template prints it)' if template else 'none'}")
    elif "tokenizer_problem" in record:
        lines.append(f"tokenizer      {record['tokenizer_problem']}")
    for engine in record["engines"]:
        state = engine["problem"] or f"{engine['version']}, {engine['path']}"
        lines.append(f"engine         {engine['name']} ({' '.join(engine['extensions'])}): {state}")
    return lines + [f"warning        {warning}" for warning in record["warnings"]]


def _file_lines(file: dict[str, Any]) -> list[str]:
    lines = []
    if "tensor_types" in file:
        lines.append("tensors        " + ", ".join(f"{count} {name}" for name, count in file["tensor_types"].items()))
        for key, value in file["metadata"].items():
            text = str(value).replace("\n", "\\n")
            lines.append(f"  {key} = {text if len(text) <= _LONGEST_VALUE else text[:_LONGEST_VALUE] + '...'}")
    for side in ("inputs", "outputs"):
        for port in file.get(side, []):
            shape = ", ".join("?" if extent is None else str(extent) for extent in port["shape"])
            lines.append(f"{side[:-1]:14} {port['name']} {port['type']} [{shape}]")
    return lines
