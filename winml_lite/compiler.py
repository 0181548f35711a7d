"""`ModelCompiler`: compile ONNX models ahead of time (tensors §9).

Here: who may compile what, forms, options. Not here: where files go (`compiled_files.py`), sinks (`compiled_sink.py`),
the engine's part (`native/ort/compile.py`).
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from functools import partial
from typing import cast

from .checks import index_value, path_value
from .compiled_files import compile_into, destination
from .compiled_sink import CompileOutputSink, SinkOutput, check_sink
from .dimensions import SymbolicDimensionOverrides
from .errors import E_INVALIDARG, E_NOINTERFACE, NOT_SUPPORTED, NotSupportedError, WinMLError, recast
from .files.artifact import Artifact, OnnxArtifact
from .handles import Closeable
from .model import Model
from .native.backend import CompileOptions, CompileOutput, CompilingBackend, backend
from .native_libraries import library_file
from .ort_extensions import option_entry, with_entry
from .target import RuntimeCore, TargetCore
from .values import CompiledModelForm, ExecutionTargetKind

_COMPILE = "IWinMLModelCompiler.Compile"
_CPU_PROVIDER = "CPUExecutionProvider"


@dataclass(slots=True, eq=False)
class OptionsCore:
    """The options of one compilation, and the target they are for."""

    target: TargetCore
    form: CompiledModelForm = CompiledModelForm.DEVICE_TARGETED
    dimensions: dict[str, int] = field(default_factory=dict)
    operator_libraries: tuple[str, ...] = ()
    provider_options: tuple[tuple[str, str], ...] = ()


class ModelCompileOptions(Closeable[OptionsCore]):
    """Options of a compilation, made by `ModelCompiler.create_options` for the target of that compiler."""

    __slots__ = ()

    @property
    def form(self) -> CompiledModelForm:
        """What the result is made for: DEVICE_TARGETED unless it is set; an unknown form is 0x80070057."""
        return self._core.form

    @form.setter
    def form(self, form: CompiledModelForm | int) -> None:
        self._core.form = form_value(form, "IWinMLModelCompileOptions.SetForm")

    @property
    def supports_symbolic_dimensions(self) -> bool:
        """Whether `symbolic_dimensions` can be used: always."""
        self._core  # noqa: B018  (raises on a closed object)
        return True

    @property
    def symbolic_dimensions(self) -> SymbolicDimensionOverrides:
        """Extents that the result is fixed to, by symbol; a live mapping. Symbols the model lacks do nothing."""
        return SymbolicDimensionOverrides(self._core.dimensions, lambda: None)

    def register_custom_ops_library(self, path: str | os.PathLike[str]) -> None:
        """Compile with the operators of a library, which is code that will be run; call it once for each library.

        An extension, as `Stage.ort_options().register_custom_ops_library`: stages of the result need the library, too.
        0x80070002 for no such file; one that does not load fails when it is compiled with (0x8007007E).
        """
        core = self._core
        file = library_file(path_value(path), "IWinMLModelCompileOptions.RegisterCustomOpsLibrary")
        core.operator_libraries = tuple(dict.fromkeys((*core.operator_libraries, file)))

    def set_provider_option(self, key: str, value: str) -> None:
        """Set an option of the execution provider that compiles, as `Stage.ort_options().set_provider_option` does.

        An extension. The compilation fails with 0x80070057 when the target pins no provider.
        """
        core = self._core
        entry = option_entry(key, value, "IWinMLModelCompileOptions.SetProviderOption")
        core.provider_options = with_entry(core.provider_options, entry)

    @property
    def supports_device_lowering_options(self) -> bool:
        """Whether there are options for single devices: there are none."""
        self._core  # noqa: B018  (raises on a closed object)
        return False


class ModelCompiler(Closeable[TargetCore]):
    """Compiles ONNX models for one target; from `ExecutionTarget.model_compiler`.

    The result is an ONNX model again and is loaded like any other. The source stays as it is, and may be closed.
    """

    __slots__ = ()

    def create_options(self) -> ModelCompileOptions:
        """Return options with their defaults; every compiler of the same target takes them."""
        return ModelCompileOptions(OptionsCore(self._core))

    def supports_form(self, form: CompiledModelForm | int) -> bool:
        """Return whether the target compiles to a form: DURABLE on the CPU only; an unknown form is 0x80070057."""
        return _supports(self._core, form_value(form, "IWinMLModelCompiler.SupportsForm"))

    def compile_to_file(
        self,
        model: Model,
        artifact_path: str | os.PathLike[str],
        external_weights_path: str | os.PathLike[str] | None = None,
        form: CompiledModelForm | int | None = None,
        options: ModelCompileOptions | None = None,
    ) -> None:
        """Compile a model into a file. It appears whole, in place of an older one, or not at all.

        Initializers lie in the file while they stay below 1.9 GB, else in one file beside it, named after its content.
        `external_weights_path` names that file and puts all initializers of 1024 bytes and more into it; it must lie in
        the folder of the artifact, relative to which it is read. Without such initializers it is not made.

        0x80070032 for a source that is no `.onnx` model, for a form that the target does not support, and for a model
        of which its provider compiles nothing; 0x80070057 for a path of the source itself or with the extension of
        another format, for weights in another folder, for options of another target, and when a provider finds a free
        extent; 0x80070003 without the folder; 0x80070070 when the disk is full; 0x80070490 without the provider or the
        device.
        """
        core = self._core
        context = f"{_COMPILE}ToFile"
        source = source_artifact(model, core.runtime, context)
        path = path_value(artifact_path, "artifact_path")
        if not path:
            raise ValueError("artifact_path must not be empty")
        if form is not None and options is not None:
            raise ValueError("give form or options, not both; options.form sets the form")
        weights = (
            path_value(external_weights_path, "external_weights_path") if external_weights_path is not None else None
        )
        chosen = _chosen(core, options, context)
        if form is not None:
            chosen.form = form_value(form, context)
        artifact = onnx_source(source, context)
        if path.lower().endswith((".ort", ".gguf")):
            text = f"{path}: the result is an ONNX model; name it .onnx, or use save_as_ort"
            raise WinMLError(E_INVALIDARG, context, text)
        try:
            place = destination(path, weights, artifact, context)
            job = _job(core, chosen, artifact, context)
            compile_into(place, artifact, job, context)
        except WinMLError as error:
            raise recast(error, context) from error.__cause__

    def compile_to_sink(
        self, model: Model, sink: CompileOutputSink, options: ModelCompileOptions | None = None
    ) -> None:
        """Compile a model and hand the result to a sink while it is made.

        Each initializer of 1024 bytes and more is a resource, equal ones the same. What the sink has got is loaded
        again by `load_model_from_buffer(artifact, resources=...)` with the resources by their keys. Errors as those
        of `compile_to_file`; 0x80070032 for a provider that is not the CPU's, and for constants that are strings.
        """
        core = self._core
        context = f"{_COMPILE}ToSink"
        source = source_artifact(model, core.runtime, context)
        check_sink(sink)
        chosen = _chosen(core, options, context)
        artifact = onnx_source(source, context)
        try:
            _job(core, chosen, artifact, context)(SinkOutput(sink, context))
        except WinMLError as error:
            if error.is_final:
                raise
            raise recast(error, context) from error.__cause__


def compiler_of(target: TargetCore) -> ModelCompiler:
    """Return a compiler for a target; a GPU without a chosen provider has none."""
    if target.kind is ExecutionTargetKind.GPU and target.provider is None:
        raise NotSupportedError(
            E_NOINTERFACE,
            "IWinMLExecutionTarget.ModelCompiler",
            "a GPU target compiles only through a provider: use create_ort_execution_target(provider, GPU)",
        )
    return ModelCompiler(target)


def form_value(form: CompiledModelForm | int, context: str) -> CompiledModelForm:
    """Return a form; an unknown number is 0x80070057, what is no integer TypeError."""
    try:
        if isinstance(form, Enum) and not isinstance(form, CompiledModelForm):
            raise TypeError("a member of another enumeration")
        return CompiledModelForm(index_value(form, "form"))
    except TypeError:
        raise TypeError(f"form must be a CompiledModelForm, not {type(form).__name__}") from None
    except ValueError as error:
        raise WinMLError(E_INVALIDARG, context, str(error)) from None


def source_artifact(model: Model, runtime: RuntimeCore | None, context: str) -> Artifact:
    """Return what a model argument was loaded from; another class is TypeError, a closed one RuntimeError.

    A model of another Runtime than `runtime`, if one is given, is 0x80070057.
    """
    if not isinstance(model, Model):
        raise TypeError(f"model must be a Model, not {type(model).__name__}")
    core = model._core
    if runtime is not None and core.runtime is not runtime:
        raise WinMLError(E_INVALIDARG, context, "the model belongs to another Runtime than the target")
    return core.artifact


def onnx_source(source: Artifact, context: str) -> OnnxArtifact:
    """Return the artifact of an `.onnx` model; any other source is 0x80070032."""
    if not isinstance(source, OnnxArtifact):
        raise WinMLError(NOT_SUPPORTED, context, "a .gguf model cannot be compiled; llama.cpp loads it as it is")
    if source.format != "onnx":
        text = "an ORT format model is optimised already and cannot be compiled; compile the .onnx it was made from"
        raise WinMLError(NOT_SUPPORTED, context, text)
    if source.compiled_for is not None:
        text = f"the model is compiled for {source.compiled_for} already; compile the one it was made from"
        raise WinMLError(NOT_SUPPORTED, context, text)
    return source


def _is_cpu(target: TargetCore) -> bool:
    """Whether a target means the CPU of the engine itself, and not that of another provider."""
    provider = target.provider
    return target.kind is ExecutionTargetKind.CPU and (
        provider is None or provider.casefold() == _CPU_PROVIDER.casefold()
    )


def _supports(target: TargetCore, form: CompiledModelForm) -> bool:
    return form is CompiledModelForm.DEVICE_TARGETED or _is_cpu(target)


def _chosen(target: TargetCore, options: ModelCompileOptions | None, context: str) -> OptionsCore:
    """Return a copy of the options, which the compilation uses whatever the caller does with his."""
    if options is None:
        return OptionsCore(target)
    if not isinstance(options, ModelCompileOptions):
        raise TypeError(f"options must be ModelCompileOptions, not {type(options).__name__}")
    core = options._core
    if core.target is not target:
        raise WinMLError(E_INVALIDARG, context, "the options were made by a compiler of another target")
    return OptionsCore(target, core.form, dict(core.dimensions), core.operator_libraries, core.provider_options)


def _job(
    target: TargetCore, chosen: OptionsCore, artifact: OnnxArtifact, context: str
) -> Callable[[CompileOutput], None]:
    """Return the compilation, to be given an output."""
    if not _supports(target, chosen.form):
        text = f"a target of {target.provider or target.kind.name} compiles to DEVICE_TARGETED only"
        raise WinMLError(NOT_SUPPORTED, context, text)
    if chosen.provider_options and target.provider is None:
        text = f"provider option {chosen.provider_options[0][0]!r} needs a target pinned to a provider"
        raise WinMLError(E_INVALIDARG, context, text)
    is_durable = chosen.form is CompiledModelForm.DURABLE
    engine = cast(CompilingBackend, backend("ort"))
    dimensions = tuple(chosen.dimensions.items())
    settings = CompileOptions(is_durable, dimensions, chosen.operator_libraries, chosen.provider_options)
    return partial(engine.compile_model, artifact, target.placement(), settings)
