"""ONNX Runtime sessions: make one from an artifact, ask it for its ports.

Stages of one file that are built alike for the CPU share a session, and with it the weights: `Run` may be called by
many threads at once, and what a stage keeps between runs is its own. Other providers have no such rule for all.
"""

from __future__ import annotations

import ctypes
import os
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from weakref import WeakValueDictionary

from ...errors import E_FAIL, E_INVALIDARG, MODULE_NOT_FOUND, WinMLError
from ...files.artifact import Dimension, OnnxArtifact, Port, foreign_port
from ...files.mapped import Identity, check_unchanged, identify
from ...handles import Resource
from ...values import FROM_ONNX_TYPE
from ..activity import Activity, apart
from ..backend import OrtOptions, StageOptions
from ..cpus import usable_cpu_count
from ..hardware import Device
from . import api, devices
from .environment import ENGINE, allocator, environment, owned, owned_session
from .external import attach_external_data
from .placement import CPU_PROVIDER
from .ports import refuse_foreign_inputs
from .values import tensor_info


@dataclass(frozen=True, slots=True)
class Session:
    """A made session with its ports; names are as the engine wants them."""

    resource: Resource
    activity: Activity
    inputs: tuple[Port, ...]
    outputs: tuple[Port, ...]
    input_names: tuple[bytes, ...] = field(init=False)
    output_names: tuple[bytes, ...] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "input_names", tuple(port.name.encode() for port in self.inputs))
        object.__setattr__(self, "output_names", tuple(port.name.encode() for port in self.outputs))

    def node_counts(self) -> dict[str, int] | None:
        """Return how many operators each provider took; None from a library that does not tell."""
        if not _RECORDS_NODES:
            return None
        from .assignment import count_nodes  # older libraries lack the functions

        return count_nodes(self.resource.pointer)


_RECORDS_NODES = api.LIBRARY.api_version >= 24
"""Whether the library can tell where it put the operators."""

Key = tuple[tuple[Identity, ...], str, OrtOptions | None, tuple[tuple[str, int], ...], int]
"""The model file and those of its weights, its format, what was set on the stage, and the default of threads."""

_shared: WeakValueDictionary[Key, Resource] = WeakValueDictionary()
"""Sessions that are in use."""
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_shared.clear)  # their threads are missing there


def open_session(artifact: OnnxArtifact, options: StageOptions, device: Device | None) -> Session:
    """Make a session, or take one that is there; making it the engine checks operators, shapes and weights.

    Ctrl-C in the main thread ends it early.
    """
    ENGINE.check()
    if artifact.identity is not None:
        check_unchanged(artifact.identity, "IWinMLPipelineBuilder.Build")
    key = _key(artifact, options, device)
    resource = _shared.get(key) if key is not None else None
    if resource is None:
        resource = _make(artifact, options, device)
        if key is not None:
            _shared[key] = resource
    overrides = dict(options.dimension_overrides)
    inputs, outputs = _ports(resource.pointer, artifact, overrides)
    refuse_foreign_inputs(inputs)
    return Session(resource, Activity(ENGINE), inputs, outputs)


def _key(artifact: OnnxArtifact, options: StageOptions, device: Device | None) -> Key | None:
    """What two stages must have in common to share a session; None for one that is not to be shared."""
    is_on_cpu = device is None or device.provider == CPU_PROVIDER
    if artifact.path is None or artifact.identity is None or artifact.resources or not is_on_cpu:
        return None
    if options.ort is not None and options.ort.session_config:  # profiles, optimised files: one of each session
        return None
    folder = os.path.dirname(artifact.path)
    try:
        weights = [identify(os.path.join(folder, location)) for location in artifact.external_locations]
    except (OSError, ValueError):  # the making of a session says it better
        return None
    files = (artifact.identity, *weights)
    return files, artifact.format, options.ort, options.dimension_overrides, usable_cpu_count()


def _make(artifact: OnnxArtifact, options: StageOptions, device: Device | None) -> Resource:
    settings = session_options(artifact, options, device)
    if _RECORDS_NODES:
        api.AddSessionConfigEntry(settings.pointer, b"session.record_ep_graph_assignment_info", b"1")
    load = Load(settings)
    try:
        return apart(lambda: create_session(artifact, settings.pointer, load), load.stop)
    finally:
        load.end()


class Load:
    """The making of a session or a compilation, which any thread may stop until it has ended."""

    def __init__(self, settings: Resource) -> None:
        self._settings: Resource | None = settings
        self._lock = threading.Lock()

    def stop(self) -> None:
        """Have it end early."""
        with self._lock:
            if self._settings is not None:
                api.SessionOptionsSetLoadCancellationFlag(self._settings.pointer, True)

    def end(self) -> None:
        """The options are not used any more, and go."""
        with self._lock:
            self._settings = None


def create_session(artifact: OnnxArtifact, settings: int, load: Load) -> Resource:
    """Make a session with these options; `load` can end it early."""
    pointer = ctypes.c_void_p()
    env = environment().pointer
    weights = attach_external_data(settings, artifact)
    with Activity(ENGINE, load.stop):
        if artifact.path is not None:
            api.CreateSession(env, api.native_path(artifact.path), settings, ctypes.byref(pointer))
        else:
            data = artifact.data or b""
            api.CreateSessionFromArray(env, data, len(data), settings, ctypes.byref(pointer))
        resource = owned_session(pointer, weights.lasting)
    return resource


def session_options(artifact: OnnxArtifact, options: StageOptions, device: Device | None) -> Resource:
    """Make session options for a model on a device (None is the CPU), with what was set on the stage."""
    pointer = ctypes.c_void_p()
    api.CreateSessionOptions(ctypes.byref(pointer))
    settings = owned(pointer, api.ReleaseSessionOptions)
    ort = options.ort
    threads = (ort.thread_count if ort is not None else 0) or usable_cpu_count()
    api.SetIntraOpNumThreads(settings.pointer, threads)
    entries = {"session.load_model_format": artifact.format.upper()}
    if ort is not None:
        entries.update(ort.session_config)
    for key, value in entries.items():
        _set_entry(settings.pointer, key, value)
    for symbol, extent in options.dimension_overrides:
        api.AddFreeDimensionOverrideByName(settings.pointer, symbol.encode(), extent)
    for path in ort.operator_libraries if ort is not None else ():
        _add_operators(settings.pointer, path)
    if device is not None:
        devices.append_provider(settings.pointer, device, ort.provider_options if ort is not None else ())
    return settings


def _add_operators(settings: int, path: str) -> None:
    try:
        api.RegisterCustomOpsLibrary_V2(settings, api.native_path(path))
    except WinMLError as error:
        code = MODULE_NOT_FOUND if error.hresult == E_FAIL else error.hresult
        text = f"{path} cannot be used as a library of custom operators: {error.native_message}"
        raise WinMLError(code, error.context, text) from None


_LEVELS = {
    "ORT_DISABLE_ALL": 0,
    "ORT_ENABLE_BASIC": 1,
    "ORT_ENABLE_EXTENDED": 2,
    "ORT_ENABLE_LAYOUT": 3,
    "ORT_ENABLE_ALL": 99,
}
"""How far the engine optimises a graph; it does all if nothing is set."""


def _set_entry(settings: int, key: str, value: str) -> None:
    """Set a session config entry; three keys in use are functions of the C API and not entries of it."""
    if key == "session.log_severity_level":
        if value not in ("0", "1", "2", "3", "4"):
            raise WinMLError(E_INVALIDARG, "", f"{key} must be 0..4, not {value!r}")
        api.SetSessionLogSeverityLevel(settings, int(value))
    elif key == "session.graph_optimization_level":
        if value not in _LEVELS:
            raise WinMLError(E_INVALIDARG, "", f"{key} must be one of {', '.join(_LEVELS)}, not {value!r}")
        api.SetSessionGraphOptimizationLevel(settings, _LEVELS[value])
    elif key == "session.enable_profiling":
        api.EnableProfiling(settings, api.native_path(value))
    else:
        api.AddSessionConfigEntry(settings, key.encode(), value.encode())


def _ports(
    session: int, artifact: OnnxArtifact, overrides: Mapping[str, int]
) -> tuple[tuple[Port, ...], tuple[Port, ...]]:
    count = ctypes.c_size_t()
    api.SessionGetInputCount(session, ctypes.byref(count))
    inputs = tuple(
        _port(session, index, api.SessionGetInputName, api.SessionGetInputTypeInfo, artifact.inputs, overrides)
        for index in range(count.value)
    )
    api.SessionGetOutputCount(session, ctypes.byref(count))
    outputs = tuple(
        _port(session, index, api.SessionGetOutputName, api.SessionGetOutputTypeInfo, artifact.outputs, overrides)
        for index in range(count.value)
    )
    return inputs, outputs


def _port(
    session: int,
    index: int,
    get_name: Callable[[int, int, int, api.Out], None],
    get_type: Callable[[int, int, api.Out], None],
    declared: tuple[Port, ...],
    overrides: Mapping[str, int],
) -> Port:
    """A port as the session sees it; symbols of free extents come from the artifact."""
    name = _name(session, index, get_name)
    pointer = ctypes.c_void_p()
    get_type(session, index, ctypes.byref(pointer))
    type_info = owned(pointer, api.ReleaseTypeInfo)
    tensor = ctypes.c_void_p()
    api.CastTypeInfoToTensorInfo(type_info.pointer, ctypes.byref(tensor))
    code, extents = tensor_info(tensor.value) if tensor.value else (0, ())
    type_info.close()
    data_type = FROM_ONNX_TYPE.get(code)
    known = next((port for port in declared if port.name == name), None)
    if data_type is None or (known is not None and known.foreign):  # a sparse tensor looks like a tensor here
        return foreign_port(name, known.foreign if known is not None else "")
    known = known or Port(name, data_type, ())
    symbols = known.dimensions if len(known.dimensions) == len(extents) else (None,) * len(extents)
    dimensions = tuple(_dimension(*pair, overrides) for pair in zip(extents, symbols, strict=True))
    is_misjudged = any(extent == 0 != dimension for extent, dimension in zip(extents, dimensions, strict=True))
    return Port(name, data_type, dimensions, bool(extents) or known.rank_known, is_misjudged=is_misjudged)


def _dimension(extent: int, declared: Dimension, overrides: Mapping[str, int]) -> Dimension:
    """An extent as the session has it; a free one with its symbol, if the file has one.

    The engine infers 0 where it lacks what it would compute with, as for Attention: only what is declared 0 is 0.
    """
    if extent > 0 or (extent == 0 and declared == 0):
        return extent
    return overrides.get(declared, declared) if isinstance(declared, str) else None


def _name(session: int, index: int, get_name: Callable[[int, int, int, api.Out], None]) -> str:
    pointer = ctypes.c_void_p()
    get_name(session, index, allocator(), ctypes.byref(pointer))
    text = ctypes.string_at(pointer.value or 0).decode("utf-8")
    api.AllocatorFree(allocator(), pointer.value or 0)
    return text
