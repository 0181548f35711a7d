"""Enumerations and frozen records of the object model (runtime §17, tensors §1.1).

The numbers are part of the contract.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum, IntFlag

FREE_DIMENSION = 0xFFFFFFFFFFFFFFFF
"""The extent that a schema reports for a free dimension (UINT64_MAX). A concrete tensor never has it."""


class ExecutionTargetKind(IntEnum):
    """Hardware class of an execution target."""

    CPU = 1
    GPU = 2
    NPU = 3


class ExecutionTargetPreference(IntEnum):
    """How to order several devices of one hardware class."""

    DEFAULT = 0
    PERFORMANCE = 1
    EFFICIENCY = 2


class TensorDataType(IntEnum):
    """Element type of a tensor."""

    UNDEFINED = 0
    FLOAT32 = 1
    FLOAT16 = 2
    BFLOAT16 = 3
    INT8 = 4
    UINT8 = 5
    INT16 = 6
    UINT16 = 7
    INT32 = 8
    UINT32 = 9
    INT64 = 10
    UINT64 = 11
    FLOAT64 = 12
    BOOL = 13
    INT4 = 14
    UINT4 = 15


class TensorAccessMode(IntEnum):
    """What a tensor does with the buffer it is made from: copy it, or alias it read-only or writable."""

    COPY = 0
    READ = 1
    READWRITE = 2


class TensorLockMode(IntEnum):
    """Access that a tensor lock gives."""

    READ = 1
    WRITE = 2
    READ_WRITE = 3


class TensorLockFlags(IntFlag):
    """How a tensor lock may reach its memory."""

    NONE = 0
    ALLOW_SYNCHRONIZED_CPU_ACCESS = 1


class PipelineExecutionCapabilities(IntFlag):
    """How a pipeline can run besides `run`; decided at `build`."""

    NONE = 0
    REPLAYABLE = 1
    """Submitted work goes to a device without the host ever waiting for a stage."""
    ITERATIVE_REPLAY = 2
    """The same for a number of iterations."""
    HOST_ASYNC = 0x100
    """Submitted work runs on a thread of the host."""


class CompiledModelForm(IntEnum):
    """What a compiled model is made for."""

    DEVICE_TARGETED = 0
    """The bound target and the software that is installed now."""
    DURABLE = 1
    """Any hardware; the target finishes the work when it loads the model."""


class SequenceCapacityDisclosure(IntEnum):
    """Whether a model file declares a sequence capacity."""

    UNKNOWN = 0
    ARTIFACT_DECLARED = 1


class SpeculativeRollbackBound(IntEnum):
    """How far `commit_accepted_prefix` and `rewind` can take back what a stage has consumed."""

    UNKNOWN = 0
    UNSUPPORTED = 1
    """Only everything can be kept, or nothing from position 0 on."""
    UNBOUNDED = 2
    """To any position."""
    BOUNDED = 3
    """By a number of positions; see `max_rollback_depth`."""


class SpeculativeResidency(IntEnum):
    """Where the logits of a step over several positions come to be."""

    UNKNOWN = 0
    HOST = 1
    DEVICE_WITH_HOST_READBACK = 2


Descriptor = tuple[TensorDataType, tuple[int, ...]]
"""Element type and extents; a free extent is `FREE_DIMENSION`, `()` is a scalar."""


class _AnyShape(tuple[int, ...]):
    __slots__ = ()


ANY_SHAPE = _AnyShape()
"""The extents of a port of unknown rank. It shows as `()` and equals it; only `is` tells the two apart."""


def is_fixed(extents: tuple[int, ...]) -> bool:
    """Whether the rank is known and no extent is free."""
    return extents is not ANY_SHAPE and FREE_DIMENSION not in extents


BITS: dict[TensorDataType, int] = {
    TensorDataType.FLOAT32: 32,
    TensorDataType.FLOAT16: 16,
    TensorDataType.BFLOAT16: 16,
    TensorDataType.INT8: 8,
    TensorDataType.UINT8: 8,
    TensorDataType.INT16: 16,
    TensorDataType.UINT16: 16,
    TensorDataType.INT32: 32,
    TensorDataType.UINT32: 32,
    TensorDataType.INT64: 64,
    TensorDataType.UINT64: 64,
    TensorDataType.FLOAT64: 64,
    TensorDataType.BOOL: 8,
    TensorDataType.INT4: 4,
    TensorDataType.UINT4: 4,
}

NUMPY_NAMES: dict[TensorDataType, str] = {
    TensorDataType.FLOAT32: "float32",
    TensorDataType.FLOAT16: "float16",
    TensorDataType.INT8: "int8",
    TensorDataType.UINT8: "uint8",
    TensorDataType.INT16: "int16",
    TensorDataType.UINT16: "uint16",
    TensorDataType.INT32: "int32",
    TensorDataType.UINT32: "uint32",
    TensorDataType.INT64: "int64",
    TensorDataType.UINT64: "uint64",
    TensorDataType.FLOAT64: "float64",
    TensorDataType.BOOL: "bool",
}

# ONNX TensorProto.DataType; the same numbers as ONNXTensorElementDataType of the ONNX Runtime C API for these types.
FROM_ONNX_TYPE: dict[int, TensorDataType] = {
    1: TensorDataType.FLOAT32,
    2: TensorDataType.UINT8,
    3: TensorDataType.INT8,
    4: TensorDataType.UINT16,
    5: TensorDataType.INT16,
    6: TensorDataType.INT32,
    7: TensorDataType.INT64,
    9: TensorDataType.BOOL,
    10: TensorDataType.FLOAT16,
    11: TensorDataType.FLOAT64,
    12: TensorDataType.UINT32,
    13: TensorDataType.UINT64,
    16: TensorDataType.BFLOAT16,
    21: TensorDataType.UINT4,
    22: TensorDataType.INT4,
}
FOREIGN_ONNX_TYPES: dict[int, str] = {
    8: "STRING",
    14: "COMPLEX64",
    15: "COMPLEX128",
    17: "FLOAT8E4M3FN",
    18: "FLOAT8E4M3FNUZ",
    19: "FLOAT8E5M2",
    20: "FLOAT8E5M2FNUZ",
    23: "FLOAT4E2M1",
    24: "FLOAT8E8M0",
    25: "UINT2",
    26: "INT2",
}
"""Element types of ONNX that a tensor of the object model cannot have, by their names there."""
TO_ONNX_TYPE: dict[TensorDataType, int] = {data_type: code for code, data_type in FROM_ONNX_TYPE.items()}

FLOATING_TYPES = frozenset(
    {TensorDataType.FLOAT32, TensorDataType.FLOAT16, TensorDataType.BFLOAT16, TensorDataType.FLOAT64}
)


@dataclass(frozen=True, slots=True)
class TokenTensorOptions:
    """How `Runtime.tensor_from_tokens` stores token ids."""

    data_type: TensorDataType = TensorDataType.INT64
    """INT64 or INT32."""


@dataclass(frozen=True, slots=True)
class SegmentedSequenceCapabilities:
    """What a built stage takes between runs of tokens; all False for a stage that takes nothing."""

    supports_encoder_from_file: bool
    """Whether `create_media_encoder_from_file` loads projector files."""
    supports_encoder_from_pipeline: bool
    """Whether `create_media_encoder_from_pipeline` takes pipelines."""
    supports_embedding_input: bool
    """Whether `bind_embedding_segment` works."""
    has_embedding_shape: bool
    """Whether the next two are known."""
    embedding_length: int
    """Numbers in one embedding row; 0 when unknown."""
    embedding_data_type: TensorDataType
    """Element type of the rows; UNDEFINED when unknown."""


@dataclass(frozen=True, slots=True)
class SpeculativeCapabilities:
    """What a stage can do for speculative decoding."""

    max_proposed_step_width: int
    """Most tokens of one step."""
    max_logit_rows_per_step: int
    """Most rows of logits that a step gives; 0 where the model gives the last row only."""
    rollback_bound: SpeculativeRollbackBound
    max_rollback_depth: int
    """Positions that can be taken back when the bound is BOUNDED, else 0."""
    residency: SpeculativeResidency
    max_draft_tokens: int = 0
    """Most tokens that `propose_draft_tokens` drafts; 0 without a predictor."""

    @property
    def can_verify(self) -> bool:
        """Whether a step can check at least one drafted token: both widths are 2 or more."""
        return self.max_proposed_step_width >= 2 and self.max_logit_rows_per_step >= 2


@dataclass(frozen=True, slots=True)
class D3D12BufferBinding:
    """A part of a Direct3D 12 buffer that holds a tensor, on Windows."""

    resource: object
    """The `ID3D12Resource`."""
    offset_in_bytes: int
    size_in_bytes: int


@dataclass(frozen=True, slots=True)
class EngineInfo:
    """One engine as it was found, or why it was not."""

    name: str
    """`"ONNX Runtime"` or `"llama.cpp"`."""
    extensions: tuple[str, ...]
    """File extensions that select the engine."""
    version: str | None
    """Version of the loaded library; None when the engine is missing."""
    path: str | None
    """The library file that was loaded."""
    problem: str | None
    """Why the engine cannot be used, with the mend; None when it can."""
