"""The Windows ML Runtime object model on every operating system: ONNX Runtime and llama.cpp behind one API.

Names are loaded when they are first used; importing the package loads neither NumPy nor an engine.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .builder import PipelineBuilder
    from .compiled_sink import CompileOutputSink, ResourceDescriptor
    from .compiler import ModelCompileOptions, ModelCompiler
    from .data_lock import TensorDataLock
    from .devices import DeviceInfo
    from .dimensions import SymbolicDimensionOverrides
    from .engine_info import engines
    from .errors import NotSupportedError, WinMLError
    from .execution import PipelineExecution, PipelineIterationExecution
    from .fence import Fence
    from .files.gguf import GgufFile
    from .llama_extensions import LlamaStageOptions
    from .media.options import (
        AudioTensorOptions,
        ImageFormat,
        ImageResizeMode,
        ImageTensorOptions,
        TensorChannelOrder,
        TensorLayout,
        TensorNormalization,
        TensorQuantization,
        TensorQuantizationMode,
        VideoFrameMetadata,
    )
    from .media_encoder import MediaEncoder, SequenceSegmentLayout
    from .model import Model, ModelSchema, OrtModelSchema
    from .onnx_description import ExternalData, OnnxDescription, OnnxPort, describe_onnx
    from .ort_extensions import OrtNamedBindings, OrtStageDiagnostics, OrtStageOptions
    from .ort_format import save_as_ort
    from .pipeline import Pipeline
    from .processor import Processor, RecordedProcessorOutputs
    from .runtime import Runtime
    from .stage import Stage, StageSchema
    from .target import ExecutionTarget
    from .tensor import Tensor
    from .values import (
        CompiledModelForm,
        D3D12BufferBinding,
        EngineInfo,
        ExecutionTargetKind,
        ExecutionTargetPreference,
        PipelineExecutionCapabilities,
        SegmentedSequenceCapabilities,
        SequenceCapacityDisclosure,
        SpeculativeCapabilities,
        SpeculativeResidency,
        SpeculativeRollbackBound,
        TensorAccessMode,
        TensorDataType,
        TensorLockFlags,
        TensorLockMode,
        TokenTensorOptions,
    )
    from .vocabulary import Vocabulary

__all__ = [
    "AudioTensorOptions",
    "CompileOutputSink",
    "CompiledModelForm",
    "D3D12BufferBinding",
    "DeviceInfo",
    "EngineInfo",
    "ExecutionTarget",
    "ExecutionTargetKind",
    "ExecutionTargetPreference",
    "ExternalData",
    "Fence",
    "GgufFile",
    "ImageFormat",
    "ImageResizeMode",
    "ImageTensorOptions",
    "LlamaStageOptions",
    "MediaEncoder",
    "Model",
    "ModelCompileOptions",
    "ModelCompiler",
    "ModelSchema",
    "NotSupportedError",
    "OnnxDescription",
    "OnnxPort",
    "OrtModelSchema",
    "OrtNamedBindings",
    "OrtStageDiagnostics",
    "OrtStageOptions",
    "Pipeline",
    "PipelineBuilder",
    "PipelineExecution",
    "PipelineExecutionCapabilities",
    "PipelineIterationExecution",
    "Processor",
    "RecordedProcessorOutputs",
    "ResourceDescriptor",
    "Runtime",
    "SegmentedSequenceCapabilities",
    "SequenceCapacityDisclosure",
    "SequenceSegmentLayout",
    "SpeculativeCapabilities",
    "SpeculativeResidency",
    "SpeculativeRollbackBound",
    "Stage",
    "StageSchema",
    "SymbolicDimensionOverrides",
    "Tensor",
    "TensorAccessMode",
    "TensorChannelOrder",
    "TensorDataLock",
    "TensorDataType",
    "TensorLayout",
    "TensorLockFlags",
    "TensorLockMode",
    "TensorNormalization",
    "TensorQuantization",
    "TensorQuantizationMode",
    "TokenTensorOptions",
    "VideoFrameMetadata",
    "Vocabulary",
    "WinMLError",
    "describe_onnx",
    "engines",
    "save_as_ort",
]

_MODULES = {
    "AudioTensorOptions": ".media.options",
    "CompileOutputSink": ".compiled_sink",
    "CompiledModelForm": ".values",
    "D3D12BufferBinding": ".values",
    "DeviceInfo": ".devices",
    "EngineInfo": ".values",
    "ExecutionTarget": ".target",
    "ExecutionTargetKind": ".values",
    "ExecutionTargetPreference": ".values",
    "ExternalData": ".onnx_description",
    "Fence": ".fence",
    "GgufFile": ".files.gguf",
    "ImageFormat": ".media.options",
    "ImageResizeMode": ".media.options",
    "ImageTensorOptions": ".media.options",
    "LlamaStageOptions": ".llama_extensions",
    "MediaEncoder": ".media_encoder",
    "Model": ".model",
    "ModelCompileOptions": ".compiler",
    "ModelCompiler": ".compiler",
    "ModelSchema": ".model",
    "NotSupportedError": ".errors",
    "OnnxDescription": ".onnx_description",
    "OnnxPort": ".onnx_description",
    "OrtModelSchema": ".model",
    "OrtNamedBindings": ".ort_extensions",
    "OrtStageDiagnostics": ".ort_extensions",
    "OrtStageOptions": ".ort_extensions",
    "Pipeline": ".pipeline",
    "PipelineBuilder": ".builder",
    "PipelineExecution": ".execution",
    "PipelineExecutionCapabilities": ".values",
    "PipelineIterationExecution": ".execution",
    "Processor": ".processor",
    "RecordedProcessorOutputs": ".processor",
    "ResourceDescriptor": ".compiled_sink",
    "Runtime": ".runtime",
    "SegmentedSequenceCapabilities": ".values",
    "SequenceCapacityDisclosure": ".values",
    "SequenceSegmentLayout": ".media_encoder",
    "SpeculativeCapabilities": ".values",
    "SpeculativeResidency": ".values",
    "SpeculativeRollbackBound": ".values",
    "Stage": ".stage",
    "StageSchema": ".stage",
    "SymbolicDimensionOverrides": ".dimensions",
    "Tensor": ".tensor",
    "TensorAccessMode": ".values",
    "TensorChannelOrder": ".media.options",
    "TensorDataLock": ".data_lock",
    "TensorDataType": ".values",
    "TensorLayout": ".media.options",
    "TensorLockFlags": ".values",
    "TensorLockMode": ".values",
    "TensorNormalization": ".media.options",
    "TensorQuantization": ".media.options",
    "TensorQuantizationMode": ".media.options",
    "TokenTensorOptions": ".values",
    "VideoFrameMetadata": ".media.options",
    "Vocabulary": ".vocabulary",
    "WinMLError": ".errors",
    "describe_onnx": ".onnx_description",
    "engines": ".engine_info",
    "save_as_ort": ".ort_format",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(_MODULES[name], __name__), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return list(__all__)
