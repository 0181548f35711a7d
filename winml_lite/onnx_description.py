"""`describe_onnx`: what an ONNX model file declares and holds, an extension of the object model."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass

from .errors import FILE_CORRUPT, NOT_SUPPORTED, WinMLError
from .files.artifact import OnnxArtifact, Port
from .files.mapped import open_mapped, reading_failure
from .files.onnx import read_onnx
from .files.operators import onnx_operators, ort_operators
from .files.ort import read_ort
from .model import probe_file
from .values import TensorDataType

_CONTEXT = "winml_lite.describe_onnx"
_OPSET = "opset."


@dataclass(frozen=True, slots=True)
class ExternalData:
    """A file of weights that a model refers to."""

    location: str
    """Its path from the folder of the model, as the model spells it."""
    needed_bytes: int
    """How many bytes it must have at least."""
    file_bytes: int | None
    """How many it has; None when it is missing."""


@dataclass(frozen=True, slots=True)
class OnnxPort:
    """An input or output of a graph, as the file declares it."""

    name: str
    data_type: TensorDataType
    """UNDEFINED for what no Tensor can hold."""
    dimensions: tuple[int | str | None, ...] | None
    """Each a number, the symbol of a free extent (a key of `symbolic_dimensions`), or None for one without a symbol.

    None for a shape of unknown rank, and for what is no tensor.
    """
    holds: str
    """What is there where the type is UNDEFINED, in words such as "a sequence"; else empty."""


@dataclass(frozen=True, slots=True)
class OnnxDescription:
    """What an `.onnx` or `.ort` file says about itself."""

    format: str
    """`"ONNX"` or `"ORT"`."""
    producer: str
    """The program that wrote it; empty when it does not say."""
    inputs: tuple[OnnxPort, ...]
    """In the order of `Model.schema`; initializers are none."""
    outputs: tuple[OnnxPort, ...]
    opsets: Mapping[str, int]
    """Versions of the operator sets by domain; `ai.onnx` is the default one."""
    operators: Mapping[str, int]
    """How many nodes use each operator, subgraphs and functions included, the most frequent first.

    Those of other domains than `ai.onnx` have the domain before their name.
    """
    external_data: tuple[ExternalData, ...]
    metadata: Mapping[str, str]
    """Properties that its author has set."""


def describe_onnx(path: str | os.PathLike[str]) -> OnnxDescription:
    """Describe an `.onnx` or `.ort` file. Structure only: no engine is loaded and no weights are read.

    0x80070032 for another extension; for files that cannot be read the codes of `Runtime.load_model`.
    """
    name = os.path.abspath(os.fspath(path))
    probe_file(name)
    extension = os.path.splitext(name)[1].lower()
    if extension not in (".onnx", ".ort"):
        raise WinMLError(NOT_SUPPORTED, _CONTEXT, f"{name}: the extension {extension!r} is none of .onnx and .ort")
    is_onnx = extension == ".onnx"
    try:
        artifact = read_onnx(name) if is_onnx else read_ort(name)
        with open_mapped(name) as data:
            operators = onnx_operators(data) if is_onnx else ort_operators(data)
    except OSError as error:
        raise reading_failure(name, error) from error.__cause__
    except ValueError as error:
        raise WinMLError(FILE_CORRUPT, _CONTEXT, f"{name}: {error}") from None
    metadata = {key: value for key, value in artifact.metadata.items() if key != "producer"}
    return OnnxDescription(
        format="ONNX" if is_onnx else "ORT",
        producer=artifact.metadata.get("producer", ""),
        inputs=tuple(_described(port) for port in artifact.inputs),
        outputs=tuple(_described(port) for port in artifact.outputs),
        opsets={
            key.removeprefix(_OPSET): int(value)
            for key, value in metadata.items()
            if key.startswith(_OPSET) and value.isdigit()
        },
        operators=dict(operators.most_common()),
        external_data=_external_data(artifact, os.path.dirname(name)),
        metadata={key: value for key, value in metadata.items() if not key.startswith(_OPSET)},
    )


def _described(port: Port) -> OnnxPort:
    holds = (port.foreign or "no tensor") if port.data_type is TensorDataType.UNDEFINED else ""
    return OnnxPort(port.name, port.data_type, port.dimensions if port.rank_known else None, holds)


def _external_data(artifact: OnnxArtifact, folder: str) -> tuple[ExternalData, ...]:
    found = []
    for location in artifact.external_locations:
        try:
            size: int | None = os.path.getsize(os.path.join(folder, location))
        except (OSError, ValueError):
            size = None
        found.append(ExternalData(location, artifact.external_sizes.get(location, 0), size))
    return tuple(found)
