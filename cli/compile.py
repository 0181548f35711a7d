"""`winml-lite compile`: an ONNX model, optimised ahead of time."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import click

import genai
import winml_lite
from genai import codes

from . import terminal
from .failure import ModelFailure, UsageFailure, describe
from .options import custom_operators_option, json_option

_FORMS = {"device": winml_lite.CompiledModelForm.DEVICE_TARGETED, "durable": winml_lite.CompiledModelForm.DURABLE}


@click.command("compile")
@click.argument("model", type=click.Path(path_type=Path))
@click.argument("out", type=click.Path(path_type=Path))
@click.option("--form", type=click.Choice(list(_FORMS)), default="device", show_default=True, help="See above.")
@click.option(
    "--weights",
    metavar="FILE",
    help="Put large weights here, beside OUT.  [default: OUT.data if MODEL has such a file]",
)
@click.option("--dim", "extents", multiple=True, metavar="NAME=VALUE", help="Fix a free dimension, as `show` names it.")
@click.option(
    "--format", "format_name", type=click.Choice(["onnx", "ort"]), default="onnx", show_default=True, help="See above."
)
@custom_operators_option
@json_option
def command(
    model: Path,
    out: Path,
    form: str,
    weights: str | None,
    extents: tuple[str, ...],
    format_name: str,
    custom_operators: tuple[Path, ...],
    as_json: bool,
) -> None:
    """Optimise an ONNX model once, so that it loads faster ever after.

    MODEL is an .onnx file, or a folder with one (of several, the one in genai_config.json). OUT appears whole, in place
    of an older file, and is loaded like any model; its extension is that of the format.

    \b
    --form    device   for this machine's CPU, the fastest to load
              durable  standard operators only, for any machine
    --format  onnx     loaded fastest with its weights in a file of their own
              ort      ONNX Runtime's own format, one file
    """
    source, dimensions = _source(model), _dimensions(extents)
    _check_names(source, dimensions)
    if out.suffix.lower() != f".{format_name}":
        raise click.UsageError(f"{out}: the extension of the format {format_name} is .{format_name}")
    if not out.absolute().parent.is_dir():
        raise click.UsageError(f"{out}: there is no such folder")
    if format_name == "ort" and weights is not None:
        raise click.UsageError("--weights goes with --format onnx; an .ort file holds all weights")
    start = time.perf_counter()
    if weights is None and format_name == "onnx" and winml_lite.describe_onnx(source).external_data:
        weights = f"{out.name}.data"
    try:
        _compile(source, out, weights, (_FORMS[form], dimensions, custom_operators))
    except genai.WinMLError as error:
        if error.hresult == codes.E_INVALIDARG and not error.context.startswith("IWinMLRuntime"):
            raise UsageFailure(describe(error)) from error
        raise
    seconds = time.perf_counter() - start
    files = _files(out)
    if as_json:
        record: dict[str, Any] = {"source": str(source), "file": str(out), "form": form, "format": format_name}
        return terminal.answer_json({**record, "files": files, "seconds": round(seconds, 3)})
    sizes = ", ".join(f"{name} {size / 1e6:.1f} MB" for name, size in files.items())
    terminal.note(f"{form}, {sizes}, {seconds:.1f} s")
    terminal.answer(f"{out}\n")


def _compile(
    source: Path,
    out: Path,
    weights: str | None,
    chosen: tuple[winml_lite.CompiledModelForm, dict[str, int], tuple[Path, ...]],
) -> None:
    form, dimensions, libraries = chosen
    with winml_lite.Runtime() as runtime, runtime.load_model(source) as model:
        if out.suffix.lower() == ".ort":
            return winml_lite.save_as_ort(
                model, out, form=form, symbolic_dimensions=dimensions, custom_operators=libraries
            )
        compiler = runtime.create_cpu_target().model_compiler()
        options = compiler.create_options()
        options.form = form
        options.symbolic_dimensions.update(dimensions)
        for library in libraries:
            options.register_custom_ops_library(library)
        return compiler.compile_to_file(model, out, weights, options=options)


def _source(path: Path) -> Path:
    """Return the file to compile."""
    if not path.is_dir():
        if path.suffix.lower() != ".onnx" and path.exists():
            raise ModelFailure(f"{path}: only .onnx models are compiled")
        return path
    files = sorted(path.glob("*.onnx"))
    if len(files) == 1:
        return files[0]
    configured = _configured(path)
    if configured not in files:
        raise ModelFailure(f"{path} holds {terminal.counted(len(files), '.onnx file')}; name the file to compile")
    return configured


def _configured(folder: Path) -> Path | None:
    """Return the graph that the configuration of a decoder names, if there is such a configuration."""
    try:
        config = json.loads((folder / "genai_config.json").read_text(encoding="utf-8"))
        return folder / str(config["model"]["decoder"]["filename"])
    except (OSError, ValueError, LookupError, TypeError):
        return None


def _dimensions(texts: tuple[str, ...]) -> dict[str, int]:
    found: dict[str, int] = {}
    for text in texts:
        name, equals, extent = text.rpartition("=")
        if not equals or not name or not extent.isdecimal() or not 1 <= int(extent) < 1 << 63:
            raise click.UsageError(f"--dim {text}: give NAME=VALUE with a positive number")
        found[name] = int(extent)
    return found


def _check_names(source: Path, dimensions: dict[str, int]) -> None:
    """Refuse the name of a dimension that the model does not have: the compiler passes over it."""
    if not dimensions:
        return
    ports = winml_lite.describe_onnx(source).inputs
    symbols = dict.fromkeys(extent for port in ports for extent in port.dimensions or () if isinstance(extent, str))
    for name in dimensions:
        if name not in symbols:
            known = f"the names are {', '.join(symbols)}" if symbols else "there is none with a name"
            raise click.UsageError(f"--dim {name}: no input of {source} has a free dimension of that name; {known}")


def _files(out: Path) -> dict[str, int]:
    """Return the sizes of what was made, by name."""
    weights = winml_lite.describe_onnx(out).external_data
    return {out.name: out.stat().st_size, **{data.location: data.file_bytes or 0 for data in weights}}
