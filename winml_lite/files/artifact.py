"""What a model file declares (runtime §2.1, 3, 4): the result of the header walkers, the input of the engines."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ..values import ANY_SHAPE, FOREIGN_ONNX_TYPES, FREE_DIMENSION, Descriptor, TensorDataType
from .mapped import Identity

if TYPE_CHECKING:
    from .gguf import GgufFile

Dimension = int | str | None
"""A fixed extent, a symbol, or None for a free extent without a name."""


@dataclass(frozen=True, slots=True)
class Port:
    """One graph input or output of an ONNX model."""

    name: str
    data_type: TensorDataType
    """UNDEFINED for what is not a tensor or has no counterpart."""
    dimensions: tuple[Dimension, ...]
    rank_known: bool = True
    foreign: str = field(default="", compare=False)
    """Where the type is UNDEFINED: what the port holds instead, in words; "" = the file does not say."""
    is_misjudged: bool = field(default=False, compare=False)
    """Whether the engine expects another shape than its operators make: it then refuses memory of the right shape."""
    descriptor: Descriptor = field(init=False, repr=False, compare=False)
    """What is declared; every free dimension is `FREE_DIMENSION`."""

    def __post_init__(self) -> None:
        extents = tuple(d if isinstance(d, int) else FREE_DIMENSION for d in self.dimensions)
        object.__setattr__(self, "descriptor", (self.data_type, extents if self.rank_known else ANY_SHAPE))


def foreign_port(name: str, foreign: str) -> Port:
    """Return a port that no tensor can be bound to, with what it holds."""
    return Port(name, TensorDataType.UNDEFINED, (), rank_known=False, foreign=foreign)


def foreign_tensor(element_type: int) -> str:
    """Say what a tensor of an ONNX element type without counterpart is."""
    name = FOREIGN_ONNX_TYPES.get(element_type)
    return f"a tensor of {name}" if name is not None else f"a tensor of element type {element_type}"


@dataclass(frozen=True, slots=True)
class LargeTensor:
    """An initializer of 2 GiB or more in external data: no protobuf message holds it, an engine gets it by its name."""

    name: str
    data_type: TensorDataType
    shape: tuple[int, ...]
    location: str
    offset: int


@dataclass(frozen=True, slots=True)
class OnnxArtifact:
    """An `.onnx` or `.ort` model: its graph ports, and what a session needs beside the file."""

    inputs: tuple[Port, ...]
    outputs: tuple[Port, ...]
    format: str
    """`"onnx"` or `"ort"`."""
    path: str | None = None
    """Absolute path; None for a model from a buffer."""
    data: bytes | None = field(default=None, repr=False)
    """The model itself when it came from a buffer."""
    identity: Identity | None = None
    """The file as it was read; None for a model from a buffer."""
    resources: Mapping[str, memoryview] = field(default_factory=dict)
    """External data by location, for what has no file beside the model."""
    external_locations: tuple[str, ...] = ()
    """Location strings of external initializers, as the model spells them."""
    external_sizes: Mapping[str, int] = field(default_factory=dict)
    """Bytes that the data at each external location must have at least."""
    nested_locations: frozenset[str] = frozenset()
    """External locations that are more than initializers of the main graph: those of subgraphs, functions, ..."""
    large_tensors: tuple[LargeTensor, ...] = ()
    """Those of the main graph."""
    compiled_for: str | None = None
    """The execution provider whose compiled nodes the graph has (`ep_context.py`)."""
    has_listed_constants: bool = False
    """Whether the graph lists initializers as inputs that cannot get other values (`listed_constants.py`)."""
    shareable_pairs: frozenset[tuple[int, int]] = frozenset()
    """(input, output) pairs whose past and present may live in one buffer (`sharing.py`)."""
    metadata: Mapping[str, str] = field(default_factory=dict)
    """Metadata properties, producer name (`"producer"`) and opset versions (`"opset.<domain>"`)."""


@dataclass(frozen=True, slots=True)
class GgufArtifact:
    """A `.gguf` model: its header (of the first shard) and the files it consists of."""

    file: GgufFile
    path: str
    """Absolute path of the first shard; a private temporary file for a model from a buffer."""
    shards: tuple[Identity, ...]
    """All files as they were read, in order; one for an unsharded model."""
    keep_alive: object = None
    """Owner of the temporary file, if there is one."""


def model_metadata(properties: Mapping[str, str], producer: str, opsets: Mapping[str, int]) -> dict[str, str]:
    """Join what `OnnxArtifact.metadata` holds; the default operator domain is spelled `ai.onnx`."""
    return {
        **properties,
        "producer": producer,
        **{f"opset.{domain}": str(version) for domain, version in opsets.items()},
    }


Artifact = OnnxArtifact | GgufArtifact
