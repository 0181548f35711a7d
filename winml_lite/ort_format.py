"""`save_as_ort`: an ORT format model from an `.onnx` model; an extension, not a part of `ModelCompiler`."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import cast

from .checks import path_value
from .compiled_files import destination, writing
from .compiler import form_value, onnx_source, source_artifact
from .dimensions import SymbolicDimensionOverrides
from .errors import E_INVALIDARG, WinMLError, recast
from .model import Model
from .native.backend import CompileOptions, CompilingBackend, backend
from .native_libraries import library_file
from .values import CompiledModelForm

_CONTEXT = "winml_lite.save_as_ort"


def save_as_ort(
    model: Model,
    path: str | os.PathLike[str],
    *,
    form: CompiledModelForm | int = CompiledModelForm.DEVICE_TARGETED,
    symbolic_dimensions: Mapping[str, int] | None = None,
    custom_operators: Iterable[str | os.PathLike[str]] = (),
) -> None:
    """Save an ONNX model in the ORT format, as a session on this machine's CPU has optimised it.

    The file holds all weights, appears whole or not at all, and wants the extension `.ort` to be loaded. It is read by
    this version of ONNX Runtime and later ones, also by builds that read no `.onnx`. DURABLE keeps to standard
    operators; DEVICE_TARGETED uses what this CPU can do. `symbolic_dimensions` fixes free extents.
    `custom_operators` are libraries of operators that the model needs; they are code that will be run.

    0x80070032 for a source that is no `.onnx` model, 0x80070057 for a path of the source itself or with the extension
    of another format, 0x80070003 without the folder, 0x80070070 when the disk is full.
    """
    source = source_artifact(model, None, _CONTEXT)
    target = path_value(path)
    if not target:
        raise ValueError("path must not be empty")
    is_durable = form_value(form, _CONTEXT) is CompiledModelForm.DURABLE
    extents: dict[str, int] = {}
    SymbolicDimensionOverrides(extents, lambda: None).update(symbolic_dimensions or {})
    artifact = onnx_source(source, _CONTEXT)
    if target.lower().endswith((".onnx", ".gguf")):
        text = f"{target}: the result is an ORT format model; name it .ort, or use compile_to_file"
        raise WinMLError(E_INVALIDARG, _CONTEXT, text)
    libraries = tuple(library_file(path_value(library), _CONTEXT) for library in custom_operators)
    try:
        place = destination(target, None, artifact, _CONTEXT)
        with writing(place, _CONTEXT, artifact) as files:
            engine = cast(CompilingBackend, backend("ort"))
            options = CompileOptions(is_durable, tuple(extents.items()), libraries)
            engine.save_optimized(artifact, options, os.path.join(files.path, place.name))
    except WinMLError as error:
        raise recast(error, _CONTEXT) from error.__cause__
