"""Compile a model ahead of time, or save it as a session has optimised it (tensors §9).

The engine hands over what it makes through two callbacks: each initializer, whose place it asks for, and the artifact
in pieces. It optimises nothing unless it is told to, "succeeds" on an ORT format model with nothing made, and writes
over its own source; the callers of this module see to the last two.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from ...errors import ARITHMETIC_OVERFLOW, E_FAIL, E_INVALIDARG, NOT_SUPPORTED, WinMLError
from ...files.artifact import OnnxArtifact
from ...files.listed_constants import without_listed_constants
from ...files.mapped import check_unchanged, open_mapped
from ...handles import Resource
from .. import ffi
from ..activity import Activity, apart
from ..backend import SMALLEST_EXTERNAL, CompileOptions, CompileOutput, OrtOptions, Placement, StageOptions
from ..errands import Errands
from ..hardware import Device
from . import api
from .devices import provider_listing
from .environment import ENGINE, environment, owned
from .external import attach_external_data
from .placement import choose_device
from .session import Load, create_session, session_options
from .values import size_in_bytes

_LOWEST_API_VERSION = 23  # 22 has the table, but only its first nine entries
_NONE, _BASIC, _ALL = 0, 1, 99  # levels of optimisation: standard operators only, and everything this CPU can do
_ERROR_IF_NO_NODES_COMPILED = 1
_STRING = 8
_NOTHING_COMPILED = ("Unable to compile any nodes", "EPContext node")
"""What the engine says of a provider that took no node, and of one that cannot write down what it made of them."""
_TOO_LARGE = "larger than 2GB"


def compile_model(artifact: OnnxArtifact, placement: Placement, options: CompileOptions, output: CompileOutput) -> None:
    """Compile a model for a placement; see `CompilingBackend.compile_model`."""
    ENGINE.check()
    if api.LIBRARY.api_version < _LOWEST_API_VERSION:
        text = f"compiling needs ONNX Runtime 1.{_LOWEST_API_VERSION} or later, this is {api.LIBRARY.version}"
        raise WinMLError(NOT_SUPPORTED, "", text)
    if artifact.identity is not None:
        check_unchanged(artifact.identity, "")
    artifact = _with_true_inputs(artifact)
    device = choose_device(placement, provider_listing)
    if device is not None:
        if output.path is None:
            raise WinMLError(NOT_SUPPORTED, "", f"{device.provider} writes files of its own: use compile_to_file")
        _refuse_free_extents(artifact, dict(options.dimension_overrides))
    try:
        try:
            _compile(_Task(artifact, options, device, output))
        except _HasStringsError:
            with _written_by_the_engine(output.restart()):
                _compile(_Task(artifact, options, device, output, writes_files=True))
    except WinMLError as error:
        if error.is_final:
            raise
        raise _explained(error, device) from None


def _refuse_free_extents(artifact: OnnxArtifact, fixed: dict[str, int]) -> None:
    for port in artifact.inputs:
        for symbol in port.dimensions:
            if not isinstance(symbol, int) and symbol not in fixed:
                mend = "fix it in the model"
                if symbol is not None:
                    mend = f"set options.symbolic_dimensions[{symbol!r}], --dim {f'{symbol}=N'!r} at the terminal"
                text = f"input {port.name!r} has a free extent, and a provider compiles fixed ones only; {mend}"
                raise WinMLError(E_INVALIDARG, "", text)


def _with_true_inputs(artifact: OnnxArtifact) -> OnnxArtifact:
    """Return a model whose inputs the engine keeps: of an old one, which lists its constants too, a copy in memory."""
    if not artifact.has_listed_constants:
        return artifact
    if artifact.external_locations:
        text = "a model before IR version 4 with weights in other files cannot be compiled; export it anew"
        raise WinMLError(NOT_SUPPORTED, "", text)
    data = artifact.data
    if artifact.path is not None:
        with open_mapped(artifact.path) as mapped:
            data = mapped[:]
    return replace(artifact, path=None, data=without_listed_constants(data or b""))


class _HasStringsError(Exception):
    """The engine asks for the place of a tensor of strings; whatever the answer, it then writes addresses, not text."""


@dataclass(frozen=True, slots=True)
class _Task:
    """One run of the compiler."""

    artifact: OnnxArtifact
    options: CompileOptions
    device: Device | None
    output: CompileOutput
    writes_files: bool = False
    """Whether the engine writes the files itself, which is right for every model, but says less of failures."""


def _explained(error: WinMLError, device: Device | None) -> WinMLError:
    text = (error.native_message or "").strip()
    if device is not None and error.hresult == E_FAIL and any(part in text for part in _NOTHING_COMPILED):
        return WinMLError(NOT_SUPPORTED, error.context, f"{device.provider} compiles nothing ahead of time: {text}")
    if _TOO_LARGE in text:
        return WinMLError(ARITHMETIC_OVERFLOW, error.context, text)
    if device is not None:
        return WinMLError(error.hresult, error.context, f"{device.provider} on the {device.kind.name}: {text}")
    return error


def _compile(task: _Task) -> None:
    settings = session_options(task.artifact, _stage_options(task.options), task.device)
    load = Load(settings)
    errands = Errands()
    try:
        errands.run(lambda: _run(task, settings.pointer, _Relay(task.output, errands), load), load.stop)
    finally:
        load.end()
    settings.close()  # here, where Ctrl-C is raised: Python only prints what strikes while an object goes by itself
    if errands.errors:
        raise errands.errors.pop(0)


def _run(task: _Task, settings: int, relay: _Relay, load: Load) -> None:
    from . import compile_api  # the library has all of these entries from API 23 on only

    env, artifact = environment().pointer, task.artifact
    keep = attach_external_data(settings, artifact)
    pointer = ctypes.c_void_p()
    compile_api.CreateModelCompilationOptionsFromSessionOptions(env, settings, ctypes.byref(pointer))
    compilation = owned(pointer, compile_api.ReleaseModelCompilationOptions, keep)
    job = compilation.pointer
    if artifact.path is not None:
        compile_api.ModelCompilationOptions_SetInputModelPath(job, api.native_path(artifact.path))
    else:
        data = artifact.data or b""
        compile_api.ModelCompilationOptions_SetInputModelFromBuffer(job, data, len(data))
    compile_api.ModelCompilationOptions_SetGraphOptimizationLevel(job, _BASIC if task.options.is_durable else _ALL)
    callbacks = _set_output(task, job, relay)
    try:
        with Activity(ENGINE, load.stop):
            compile_api.CompileModel(env, job)
    finally:
        compilation.close()
        del callbacks


def _set_output(task: _Task, job: int, relay: _Relay) -> object:
    """Say where the result goes; what this returns must live until the compilation has ended."""
    from . import compile_api

    output = task.output
    write, place = compile_api.WriteFunction(relay.write), compile_api.LocationFunction(relay.place)
    if output.path is not None and (task.device is not None or task.writes_files):
        compile_api.ModelCompilationOptions_SetOutputModelPath(job, api.native_path(output.path))
    else:
        compile_api.ModelCompilationOptions_SetOutputModelWriteFunc(job, write, None)
    if output.weights is not None and task.writes_files:
        weights = api.native_path(output.weights)
        compile_api.ModelCompilationOptions_SetOutputModelExternalInitializersFile(job, weights, SMALLEST_EXTERNAL)
    elif output.weights is not None or output.path is None:
        compile_api.ModelCompilationOptions_SetOutputModelGetInitializerLocationFunc(job, place, None)
    if task.device is not None:
        compile_api.ModelCompilationOptions_SetFlags(job, _ERROR_IF_NO_NODES_COMPILED)
    return write, place


class _Relay:
    """What the engine calls, on the way to the output. After a failure, kept by the errands, nothing is passed on."""

    def __init__(self, output: CompileOutput, errands: Errands) -> None:
        self.output = output
        self.errands = errands

    def write(self, _: int, address: int | None, size: int) -> int | None:
        """`OrtWriteBufferFunc`."""
        return self._status(self.errands.ask(lambda: self._write(address, size)))

    def place(self, _: int, name: bytes, value: int, known: int | None, out: Any) -> int | None:
        """`OrtGetInitializerLocationFunc`; without an answer the initializer goes into the artifact."""
        out[0] = None
        return self._status(self.errands.ask(lambda: self._place(value, out)))

    def _write(self, address: int | None, size: int) -> None:
        with _lent(address, size) as data:
            self.output.write(data)

    def _place(self, value: int, out: Any) -> None:
        if _element_type(value) == _STRING:
            raise _HasStringsError
        size = size_in_bytes(value)
        pointer = ctypes.c_void_p()
        api.GetTensorMutableData(value, ctypes.byref(pointer))
        with _lent(pointer.value, size) as data:
            placed = self.output.place(data)
        if placed is not None:
            out[0] = _external(*placed, size)

    def _status(self, is_well: bool) -> int | None:
        return None if is_well else api.CreateStatus(1, b"the output failed")


def _external(location: str, offset: int, size: int) -> int:
    """Make the engine's description of a place, which the engine then owns."""
    from . import compile_api

    pointer = ctypes.c_void_p()
    compile_api.CreateExternalInitializerInfo(api.native_path(location), offset, size, ctypes.byref(pointer))
    return pointer.value or 0


def _element_type(value: int) -> int:
    pointer, code = ctypes.c_void_p(), ctypes.c_int()
    api.GetTensorTypeAndShape(value, ctypes.byref(pointer))
    try:
        api.GetTensorElementType(pointer.value or 0, ctypes.byref(code))
    finally:
        api.ReleaseTensorTypeAndShapeInfo(pointer.value or 0)
    return code.value


@contextmanager
def _lent(address: int | None, size: int) -> Iterator[memoryview]:
    """Show the engine's memory read-only, as long as the block lasts."""
    view = ffi.view_memory(address or 0, size, None)
    view.flags.writeable = False
    data = view.data
    try:
        yield data
    finally:
        data.release()


def save_optimized(artifact: OnnxArtifact, options: CompileOptions, path: str) -> None:
    """Write an ORT format model; see `CompilingBackend.save_optimized`."""
    ENGINE.check()
    if artifact.identity is not None:
        check_unchanged(artifact.identity, "")
    artifact = _with_true_inputs(artifact)
    settings = session_options(artifact, _stage_options(options), None)
    api.AddSessionConfigEntry(settings.pointer, b"session.save_model_format", b"ORT")
    api.SetOptimizedModelFilePath(settings.pointer, api.native_path(path))
    api.SetSessionGraphOptimizationLevel(settings.pointer, _BASIC if options.is_durable else _ALL)
    with _written_by_the_engine(path):
        _make_session(artifact, settings)
    _check_saved(OnnxArtifact((), (), "ort", path=path), _stage_options(replace(options, dimension_overrides=())))


def _stage_options(options: CompileOptions) -> StageOptions:
    ort = OrtOptions(provider_options=options.provider_options, operator_libraries=options.operator_libraries)
    return StageOptions(ort=ort, dimension_overrides=options.dimension_overrides)


@contextmanager
def _written_by_the_engine(path: str) -> Iterator[None]:
    """After a failure run into what kept the engine from writing, since it does not say: `OSError` for a full disk."""
    try:
        yield
    except WinMLError:
        with open(path, "ab") as file:
            file.write(bytes(1 << 20))
        raise


def _check_saved(artifact: OnnxArtifact, options: StageOptions) -> None:
    """Load what was saved: the engine also writes constants of types that it then cannot read, as those of 4 bits."""
    settings = session_options(artifact, options, None)
    api.SetSessionGraphOptimizationLevel(settings.pointer, _NONE)
    try:
        _make_session(artifact, settings)
    except WinMLError as error:
        text = f"the ORT format cannot hold this model: {error.native_message}"
        raise WinMLError(NOT_SUPPORTED, error.context, text) from None


def _make_session(artifact: OnnxArtifact, settings: Resource) -> None:
    load = Load(settings)
    try:
        apart(lambda: create_session(artifact, settings.pointer, load), load.stop, may_leave=False).close()
    finally:
        load.end()
