"""Models and their declared schemas (runtime §2.1, 2.2, 3 and 4).

Loading reads structure only: no engine, no weights.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

from .checks import index_value, text_value
from .connections import is_compatible, is_token_row
from .errors import (
    E_BOUNDS,
    E_INVALIDARG,
    E_NOINTERFACE,
    NOT_FOUND,
    NOT_SUPPORTED,
    PATH_NOT_FOUND,
    NotSupportedError,
    WinMLError,
)
from .files.artifact import Artifact, GgufArtifact, OnnxArtifact, Port
from .files.mapped import reading_failure
from .handles import Closeable, finalizer
from .native.backend import EngineKey, Placement, StageExecutor, StageOptions, backend
from .storage import Storage
from .target import RuntimeCore
from .values import Descriptor

_FROM_FILE = "IWinMLRuntime.LoadModelFromFile"
_FROM_BUFFER = "IWinMLRuntime.LoadModelFromBuffer"


@dataclass(frozen=True, slots=True, eq=False)
class ModelCore:
    """A loaded artifact and the Runtime it belongs to."""

    runtime: RuntimeCore = field(repr=False)
    artifact: Artifact
    is_from_file: bool
    kept: ClassVar[tuple[Storage, ...]] = ()

    @property
    def engine(self) -> EngineKey:
        """Key of the engine that runs the artifact."""
        return "llama" if isinstance(self.artifact, GgufArtifact) else "ort"

    @property
    def runner(self) -> str:
        """Name of the engine, as a stage shows it."""
        return "llama.cpp" if self.engine == "llama" else "ONNX Runtime"

    def ports(self, side: str) -> tuple[Descriptor, ...] | None:
        """Return the declared `"inputs"` or `"outputs"`; None for a `.gguf` model, which declares none."""
        return _declared(self.artifact, side)

    def accepts(self, index: int, given: Descriptor, wanted: Descriptor) -> bool:
        """Return whether an output `given` may feed input `index`, which is `wanted` once it is built."""
        return is_token_row(given) if self.engine == "llama" and index == 0 else is_compatible(given, wanted)

    def make_executor(self, placement: Placement, options: StageOptions) -> StageExecutor:
        """Make the session or the context of one stage."""
        return backend(self.engine).build_stage(self.artifact, placement, options)


def _declared(artifact: Artifact, side: str) -> tuple[Descriptor, ...] | None:
    if not isinstance(artifact, OnnxArtifact):
        return None
    return tuple(port.descriptor for port in (artifact.inputs if side == "inputs" else artifact.outputs))


class ModelSchema(Closeable[Any]):
    """Declared inputs and outputs by position. A free extent is 2**64-1; `()` is a scalar (or an unknown rank)."""

    __slots__ = ()

    @property
    def input_count(self) -> int:
        """Number of inputs; 0x80070490 for a `.gguf` model, whose schema is made by `build`."""
        return len(self._ports("InputCount", "inputs"))

    @property
    def output_count(self) -> int:
        """Number of outputs; see `input_count`."""
        return len(self._ports("OutputCount", "outputs"))

    def input_desc(self, index: int) -> Descriptor:
        """Return `(element type, shape)` of an input; past the end is 0x8000000B."""
        return self._descriptor("GetInputDesc", "inputs", index_value(index, "index"))

    def output_desc(self, index: int) -> Descriptor:
        """Return `(element type, shape)` of an output; past the end is 0x8000000B."""
        return self._descriptor("GetOutputDesc", "outputs", index_value(index, "index"))

    def inputs(self) -> list[Descriptor]:
        """Return the descriptors of all inputs."""
        return [self.input_desc(index) for index in range(self.input_count)]

    def outputs(self) -> list[Descriptor]:
        """Return the descriptors of all outputs."""
        return [self.output_desc(index) for index in range(self.output_count)]

    def _ports(self, member: str, side: str) -> tuple[Descriptor, ...]:
        ports = _declared(self._core, side)
        if ports is None:
            raise WinMLError(
                NOT_FOUND, f"IWinMLModelSchema.{member}", "a .gguf model gets its schema by build: use Stage.schema()"
            )
        return ports

    def _descriptor(self, member: str, side: str, index: int) -> Descriptor:
        ports = self._ports(member, side)
        if index >= len(ports):
            raise WinMLError(E_BOUNDS, f"IWinMLModelSchema.{member}", f"{side}: index {index} of {len(ports)}")
        return ports[index]


class OrtModelSchema(Closeable[OnnxArtifact]):
    """Names of the inputs and outputs of an ONNX model, by the positions of `ModelSchema`."""

    __slots__ = ()

    def input_name(self, index: int) -> str:
        """Return the name of an input; past the end is 0x8000000B."""
        return _name_at(self._core.inputs, index, "GetInputName")

    def output_name(self, index: int) -> str:
        """Return the name of an output; past the end is 0x8000000B."""
        return _name_at(self._core.outputs, index, "GetOutputName")

    def find_input(self, name: str) -> int:
        """Return the position of an input; an unknown name is 0x80070490."""
        return _position_of(self._core.inputs, name, "FindInput")

    def find_output(self, name: str) -> int:
        """Return the position of an output; an unknown name is 0x80070490."""
        return _position_of(self._core.outputs, name, "FindOutput")


def _name_at(ports: tuple[Port, ...], index: int, member: str) -> str:
    position = index_value(index, "index")
    if position >= len(ports):
        raise WinMLError(E_BOUNDS, f"IWinMLOrtModelSchema.{member}", f"index {position} of {len(ports)}")
    return ports[position].name


def _position_of(ports: tuple[Port, ...], name: str, member: str) -> int:
    position = find_port(ports, name)
    if position is None:
        raise WinMLError(NOT_FOUND, f"IWinMLOrtModelSchema.{member}", unknown_port(ports, name))
    return position


def find_port(ports: tuple[Port, ...], name: str) -> int | None:
    """Return the position of the port with exactly this name, or None."""
    text_value(name, "name")
    for position, port in enumerate(ports):
        if port.name == name:
            return position
    return None


def unknown_port(ports: tuple[Port, ...], name: str) -> str:
    """Say that a name is not there, and which are."""
    return f"there is no {name!r}; the names are {', '.join(repr(port.name) for port in ports)}"


class Model(Closeable[ModelCore]):
    """An immutable model file, loaded by `Runtime.load_model`. It may be added to any number of builders."""

    __slots__ = ()

    def __repr__(self) -> str:
        core = self._open
        if core is None:
            return "<Model (closed)>"
        origin = core.artifact.path if core.is_from_file else "a buffer"
        return f"<Model for {core.runner} from {origin}>"

    def schema(self) -> ModelSchema:
        """Return the declared inputs and outputs."""
        return ModelSchema(self._core.artifact)

    def ort_schema(self) -> OrtModelSchema:
        """Return the names of inputs and outputs; ONNX models only (else NotSupportedError 0x80004002)."""
        artifact = self._core.artifact
        if not isinstance(artifact, OnnxArtifact):
            raise NotSupportedError(E_NOINTERFACE, "IWinMLModel.OrtSchema", "only ONNX models have names")
        return OrtModelSchema(artifact)


def probe_file(path: str) -> os.stat_result:
    """Look at a file before anything else is checked; a failure becomes the code of its cause."""
    try:
        if not path:
            raise WinMLError(PATH_NOT_FOUND, _FROM_FILE, "the path is empty")
        return os.stat(path)
    except OSError as error:
        raise reading_failure(path, error) from None


def load_file(runtime: RuntimeCore, path: str, status: os.stat_result, resources: Mapping[str, memoryview]) -> Model:
    """Read the structure of a model file; the extension alone chooses the format."""
    if stat.S_ISDIR(status.st_mode):
        raise WinMLError(E_INVALIDARG, _FROM_FILE, f"{path} is a folder; pass the model file in it")
    extension = os.path.splitext(path)[1].lower()
    absolute = os.path.abspath(path)
    try:
        artifact = _read_file(absolute, extension, resources)
    except OSError as error:
        raise reading_failure(path, error) from error.__cause__
    return Model(ModelCore(runtime, artifact, is_from_file=True))


def _read_file(path: str, extension: str, resources: Mapping[str, memoryview]) -> Artifact:
    # Each reader is imported with the first file of its format.
    if extension == ".onnx":
        from .files.onnx import read_onnx

        return read_onnx(path, resources)
    if extension == ".ort":
        from .files.ort import read_ort

        return read_ort(path, resources)
    if extension == ".gguf":
        from .files.gguf import read_gguf

        return read_gguf(path)
    raise WinMLError(NOT_SUPPORTED, _FROM_FILE, f"{path}: the extension {extension!r} is none of .onnx, .ort and .gguf")


def load_buffer(runtime: RuntimeCore, data: Any, resources: Mapping[str, memoryview]) -> Model:
    """Read a model from memory, which is copied if it can change; its format is recognised by its first bytes."""
    model = data if type(data) is bytes else bytes(memoryview(data))  # `bytes(number)` would be that many zeros
    if not model:
        raise WinMLError(E_INVALIDARG, _FROM_BUFFER, "the buffer is empty")
    artifact: Artifact
    if model[4:8] == b"ORTM":
        from .files.ort import read_ort_bytes

        artifact = read_ort_bytes(model, resources)
    elif model[:4] == b"GGUF":
        artifact = _spooled(model)
    else:
        from .files.onnx import read_onnx_bytes

        artifact = read_onnx_bytes(model, resources)
    return Model(ModelCore(runtime, artifact, is_from_file=False))


class _SpooledFile:
    """A private temporary file, deleted when nothing uses it any more."""

    __slots__ = ("__weakref__", "path")

    def __init__(self, content: bytes) -> None:
        import tempfile  # only models from buffers need it

        descriptor, self.path = tempfile.mkstemp(suffix=".gguf", prefix="winml-lite-")
        finalizer(self, _remove, self.path)
        with open(descriptor, "wb") as file:
            file.write(content)


def _remove(path: str) -> None:
    # Windows refuses while a mapping is open; the file then stays in the folder for temporary files.
    with contextlib.suppress(OSError):
        os.unlink(path)


def _spooled(content: bytes) -> GgufArtifact:
    from .files.gguf import read_gguf

    spooled = _SpooledFile(content)
    return replace(read_gguf(spooled.path), keep_alive=spooled)
