"""The ONNX Runtime backend: from an artifact to a stage executor (runtime §6.2, 15.2, 18).

The library is loaded by the first build, so importing this module costs nothing; hence the imports inside the methods.
"""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import TYPE_CHECKING

from ...errors import CANCELLED, E_INVALIDARG, INTERNAL_ERROR, NOT_SUPPORTED, WinMLError
from ...files.artifact import Artifact, OnnxArtifact
from ...values import EngineInfo, ExecutionTargetKind
from ..backend import CompileOptions, CompileOutput, OrtOptions, Placement, StageExecutor, StageOptions
from ..hardware import Device
from .placement import CPU_PROVIDER, ENGINE_NAME, choose_device

if TYPE_CHECKING:
    from .executor import OrtExecutor
    from .session import Session

logger = logging.getLogger("winml_lite.native")

_BUILD = "IWinMLPipelineBuilder.Build"
_NO_FALLBACK = "session.disable_cpu_ep_fallback"
_EXTENSIONS = (".onnx", ".ort")


class OrtBackend:
    """Builds stages from `.onnx` and `.ort` models."""

    def build_stage(self, artifact: Artifact, placement: Placement, options: StageOptions) -> StageExecutor:
        """Make a session and its executor. Failures are `WinMLError` with the model and the engine's text in it.

        An execution provider or device that is not there is 0x80070490. Automatic placement takes a GPU if a provider
        offers one and goes to the CPU when that fails; nothing else ever falls back.
        """
        if not isinstance(artifact, OnnxArtifact):
            raise TypeError(f"an OnnxArtifact is needed, not {type(artifact).__name__}")
        try:
            return _build(artifact, placement, options)
        except WinMLError as error:
            raise _located(error, artifact, _BUILD) from None

    def compile_model(
        self, artifact: OnnxArtifact, placement: Placement, options: CompileOptions, output: CompileOutput
    ) -> None:
        """Compile a model ahead of time for a placement. What `output` raises is raised as it is."""
        from .compile import compile_model

        try:
            compile_model(artifact, placement, options, output)
        except WinMLError as error:
            if error.is_final:
                raise
            raise _located(error, artifact) from None

    def save_optimized(self, artifact: OnnxArtifact, options: CompileOptions, path: str) -> None:
        """Write the model as a CPU session has optimised it into the file `path`, in the ORT format."""
        from .compile import save_optimized

        try:
            save_optimized(artifact, options, path)
        except WinMLError as error:
            raise _located(error, artifact) from None

    def describe(self) -> EngineInfo:
        """Version and path of the library, or why it cannot be used. Loads the library; never raises."""
        from .library import load

        try:
            library = load()
        except WinMLError as error:
            return EngineInfo(ENGINE_NAME, _EXTENSIONS, None, None, error.native_message or str(error))
        return EngineInfo(ENGINE_NAME, _EXTENSIONS, library.version, library.path, None)

    def devices(self) -> tuple[Device, ...]:
        """Devices of all execution providers, registered ones included."""
        from .devices import provider_listing

        return provider_listing().devices

    def provider_problems(self) -> tuple[str, ...]:
        """Say why built-in, installed and registered providers have no device."""
        from .devices import provider_listing

        return provider_listing().problems

    def register_provider(self, name: str, path: str) -> tuple[str, ...]:
        """Register a library of execution providers for later builds. It is code that will be run."""
        from .provider_libraries import register_library

        return register_library(name, path)


def create_backend() -> OrtBackend:
    """Make the backend; `native.backend.backend("ort")` calls it once."""
    return OrtBackend()


def _located(error: WinMLError, artifact: OnnxArtifact, context: str = "") -> WinMLError:
    """Say which model failed, and how to mend it where ONNX Runtime does not."""
    place = artifact.path or "the model buffer"
    message = (error.native_message or "").strip()
    if "is not a registered function/op" in message:
        message += (
            "; the library of a custom operator goes to Stage.ort_options().register_custom_ops_library, "
            "to custom_operators= of what loads the model, or at the terminal to --custom-operators"
        )
    if artifact.compiled_for is not None and artifact.path is None and error.hresult == INTERNAL_ERROR:
        message += (
            "; if the compiled model has a file beside it, load it by its path, "
            "or say where it is by the session entry ep.context_file_path"
        )
    if "limit for embedded initializer data" in message:
        message += " Such a tensor in a subgraph or a function has to lie in a file beside the model."
    return type(error)(error.hresult, error.context or context, f"{place}: {message}")


def _build(artifact: OnnxArtifact, placement: Placement, options: StageOptions) -> OrtExecutor:
    from .devices import check_device_option

    placement = _as_compiled(artifact, placement)
    _check_fallback(placement, options.ort)
    device = _device(artifact, placement)
    if device is not None and placement.devices and options.ort is not None:
        check_device_option(device, options.ort.provider_options)
    if device is None or placement.kind is not None or placement.provider is not None:
        return _open(artifact, options, device)
    try:
        return _open(artifact, options, device)
    except WinMLError as error:
        if error.hresult == CANCELLED:
            raise
        logger.info("automatic placement: %s refused the model, using the CPU: %s", device.provider, error)
        return _open(artifact, options, None)


def _as_compiled(artifact: OnnxArtifact, placement: Placement) -> Placement:
    """Pin a model that a provider has compiled to that one, unless the target pins it already."""
    source = artifact.compiled_for
    if source is None or placement.provider is not None:
        return placement
    from .devices import provider_listing

    names = (source.casefold(), f"{source}ExecutionProvider".casefold())  # some write QNN into their nodes
    listed = (device.provider for device in provider_listing().devices)
    return replace(placement, provider=next((name for name in listed if name.casefold() in names), source))


def _device(artifact: OnnxArtifact, placement: Placement) -> Device | None:
    from .devices import provider_listing

    try:
        return choose_device(placement, provider_listing)
    except WinMLError as error:
        if artifact.compiled_for is None:
            raise
        text = f"{error.native_message}; {artifact.compiled_for} has compiled this model, and nothing else runs it"
        if placement.kind is None:  # built-in providers do not list their devices, and want a class of hardware
            text += "; create_ort_execution_target also says on what hardware"
        raise WinMLError(error.hresult, error.context, text) from None


def _open(artifact: OnnxArtifact, options: StageOptions, device: Device | None) -> OrtExecutor:
    from .executor import OrtExecutor
    from .session import open_session

    if device is None:
        session = open_session(artifact, options, None)
        return OrtExecutor(session, artifact, options, ExecutionTargetKind.CPU, CPU_PROVIDER)
    try:
        session = open_session(artifact, options, device)
        _check_taken(session, device)
    except WinMLError as error:
        text = f"{device.provider} on the {device.kind.name}: {(error.native_message or '').strip()}"
        raise WinMLError(error.hresult, error.context, text) from None
    return OrtExecutor(session, artifact, options, device.kind, device.provider)


def _check_taken(session: Session, device: Device) -> None:
    """Refuse a GPU or NPU whose provider declined every operator: the CPU would do all the work (0x80070032).

    A provider that computes on the CPU may decline them all; the log says so, and `node_counts`.
    """
    counts = session.node_counts()
    if not counts or counts.keys() != {CPU_PROVIDER}:
        return
    text = f"it took none of the {counts[CPU_PROVIDER]} operators of the graph"
    if device.kind is not ExecutionTargetKind.CPU:
        raise WinMLError(NOT_SUPPORTED, "", f"{text}; use create_cpu_target(), or another form of the model")
    logger.warning("%s is pinned, but %s: %s runs them", device.provider, text, CPU_PROVIDER)


def _check_fallback(placement: Placement, options: OrtOptions | None) -> None:
    """Refuse a target pinned to the provider that a session config entry forbids."""
    is_cpu = placement.provider is not None and placement.provider.casefold() == CPU_PROVIDER.casefold()
    if is_cpu and options is not None and dict(options.session_config).get(_NO_FALLBACK) == "1":
        text = f"{_NO_FALLBACK} forbids {CPU_PROVIDER}, to which the target is pinned"
        raise WinMLError(E_INVALIDARG, _BUILD, text)
