"""`winml-lite compile`: an ONNX model, optimised ahead of time."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

import genai
import winml_lite
from genai import codes

from . import terminal
from .failure import ModelFailure, UsageFailure, describe
from .options import custom_operators_option, json_option
from .provider_options import provider_options, provider_settings

_FORMS = {"device": winml_lite.CompiledModelForm.DEVICE_TARGETED, "durable": winml_lite.CompiledModelForm.DURABLE}

_DIGITS = len(str(1 << 63))


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
@provider_options
@json_option
def command(
    model: Path,
    out: Path,
    form: str,
    weights: str | None,
    extents: tuple[str, ...],
    format_name: str,
    custom_operators: tuple[Path, ...],
    provider: str | None,
    provider_library: Path | None,
    provider_options: tuple[str, ...],
    as_json: bool,
) -> None:
    """Optimise an ONNX model once, so that it loads faster ever after.

    MODEL is an .onnx file, or a folder with one (of several, the one in genai_config.json). OUT appears whole, in place
    of an older file, and is loaded like any model; its extension is that of the format.

    \b
    --form    device   for this CPU, or for --provider, the fastest to load
              durable  standard operators only, for any machine
    --format  onnx     loaded fastest with its weights in a file of their own
              ort      ONNX Runtime's own format, one file
    """
    source, dimensions = _source(model), _dimensions(extents)
    _check_names(source, dimensions)
    if out.suffix.lower() != f".{format_name}":
        mend = "; --format ort writes .ort" if out.suffix.lower() == ".ort" else ""
        raise click.UsageError(f"{out}: the extension of the format {format_name} is .{format_name}{mend}")
    if not out.absolute().parent.is_dir():
        raise click.UsageError(f"{out}: there is no such folder")
    if format_name == "ort" and weights is not None:
        raise click.UsageError("--weights goes with --format onnx; an .ort file holds all weights")
    if format_name == "ort" and provider is not None:
        raise click.UsageError("--provider goes with --format onnx; an .ort file is made for the CPU")
    settings = provider_settings(provider, provider_library, provider_options)
    start, before = time.perf_counter(), _stamps(out)
    is_wanted = weights is not None
    if not is_wanted and format_name == "onnx" and winml_lite.describe_onnx(source).external_data:
        weights = f"{out.name}.data"
    try:
        _compile(source, out, weights, _Choice(_FORMS[form], dimensions, custom_operators, provider, settings or {}))
    except genai.WinMLError as error:
        if error.hresult == codes.E_INVALIDARG and not error.context.startswith("IWinMLRuntime"):
            raise UsageFailure(describe(error)) from error
        raise
    seconds = time.perf_counter() - start
    files = _files(out, before)
    if is_wanted and Path(str(weights)).name not in files:
        terminal.note(f"--weights {weights} was not needed: {out.name} has all weights, small as they are")
    if as_json:
        record: dict[str, Any] = {"source": str(source), "file": str(out), "form": form, "format": format_name}
        return terminal.answer_json({**record, "files": files, "seconds": round(seconds, 3)})
    sizes = ", ".join(f"{name} {terminal.size_text(size)}" for name, size in files.items())
    terminal.note(f"{form}, {sizes}, {seconds:.1f} s")
    terminal.answer(f"{out}\n")


@dataclass(frozen=True, slots=True)
class _Choice:
    """What to make of a model."""

    form: winml_lite.CompiledModelForm
    dimensions: dict[str, int]
    libraries: tuple[Path, ...]
    provider: str | None
    provider_settings: dict[str, str]


def _compile(source: Path, out: Path, weights: str | None, choice: _Choice) -> None:
    with winml_lite.Runtime() as runtime, runtime.load_model(source) as model:
        if out.suffix.lower() == ".ort":
            return winml_lite.save_as_ort(
                model,
                out,
                form=choice.form,
                symbolic_dimensions=choice.dimensions,
                custom_operators=choice.libraries,
            )
        compiler = _target(runtime, choice.provider).model_compiler()
        options = compiler.create_options()
        options.form = choice.form
        options.symbolic_dimensions.update(choice.dimensions)
        for library in choice.libraries:
            options.register_custom_ops_library(library)
        for key, value in choice.provider_settings.items():
            options.set_provider_option(key, value)
        return compiler.compile_to_file(model, out, weights, options=options)


def _target(runtime: winml_lite.Runtime, provider: str | None) -> winml_lite.ExecutionTarget:
    """Return the CPU, or the provider on the fastest hardware that it has here."""
    if provider is None:
        return runtime.create_cpu_target()
    name, cpu = provider.casefold(), winml_lite.ExecutionTargetKind.CPU
    kinds = [device.kind for device in runtime.enumerate_devices() if name in map(str.casefold, device.providers)]
    return runtime.create_ort_execution_target(provider, next((kind for kind in kinds if kind is not cpu), cpu))


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
        if not equals or not name or not extent.isdecimal() or len(extent) > _DIGITS or not 1 <= int(extent) < 1 << 63:
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


def _stamps(out: Path) -> dict[str, tuple[int, int]]:
    """Return what tells new files from old ones, by name, of those that are named after the artifact."""
    files = [path for path in out.absolute().parent.iterdir() if path.name.startswith(out.stem) and path.is_file()]
    return {path.name: ((status := path.stat()).st_ino, status.st_mtime_ns) for path in files}


def _files(out: Path, before: dict[str, tuple[int, int]]) -> dict[str, int]:
    """Return the sizes of what was made, by name: the artifact, its weights, what a provider has put beside it."""
    weights = {data.location: data.file_bytes or 0 for data in winml_lite.describe_onnx(out).external_data}
    new = sorted(name for name, stamp in _stamps(out).items() if before.get(name) != stamp)
    more = {name: out.with_name(name).stat().st_size for name in new if name != out.name}
    return {out.name: out.stat().st_size, **weights, **more}
