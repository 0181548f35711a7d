"""The Windows ML Runtime object model on every operating system: ONNX Runtime and llama.cpp behind one API.

Names are loaded when they are first used; importing the package loads neither NumPy nor an engine.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .builder import PipelineBuilder
    from .dimensions import SymbolicDimensionOverrides
    from .engine_info import engines
    from .errors import NotSupportedError, WinMLError
    from .files.gguf import GgufFile
    from .llama_extensions import LlamaStageOptions
    from .model import Model, ModelSchema, OrtModelSchema
    from .ort_extensions import OrtNamedBindings, OrtStageDiagnostics, OrtStageOptions
    from .pipeline import Pipeline
    from .runtime import Runtime
    from .stage import Stage, StageSchema
    from .target import ExecutionTarget
    from .tensor import Tensor, TensorDataLock
    from .values import (
        EngineInfo,
        ExecutionTargetKind,
        ExecutionTargetPreference,
        TensorAccessMode,
        TensorDataType,
        TensorLockFlags,
        TensorLockMode,
        TokenTensorOptions,
    )
    from .vocabulary import Vocabulary

__all__ = [
    "EngineInfo",
    "ExecutionTarget",
    "ExecutionTargetKind",
    "ExecutionTargetPreference",
    "GgufFile",
    "LlamaStageOptions",
    "Model",
    "ModelSchema",
    "NotSupportedError",
    "OrtModelSchema",
    "OrtNamedBindings",
    "OrtStageDiagnostics",
    "OrtStageOptions",
    "Pipeline",
    "PipelineBuilder",
    "Runtime",
    "Stage",
    "StageSchema",
    "SymbolicDimensionOverrides",
    "Tensor",
    "TensorAccessMode",
    "TensorDataLock",
    "TensorDataType",
    "TensorLockFlags",
    "TensorLockMode",
    "TokenTensorOptions",
    "Vocabulary",
    "WinMLError",
    "engines",
]

_MODULES = {
    "EngineInfo": ".values",
    "ExecutionTarget": ".target",
    "ExecutionTargetKind": ".values",
    "ExecutionTargetPreference": ".values",
    "GgufFile": ".files.gguf",
    "LlamaStageOptions": ".llama_extensions",
    "Model": ".model",
    "ModelSchema": ".model",
    "NotSupportedError": ".errors",
    "OrtModelSchema": ".model",
    "OrtNamedBindings": ".ort_extensions",
    "OrtStageDiagnostics": ".ort_extensions",
    "OrtStageOptions": ".ort_extensions",
    "Pipeline": ".pipeline",
    "PipelineBuilder": ".builder",
    "Runtime": ".runtime",
    "Stage": ".stage",
    "StageSchema": ".stage",
    "SymbolicDimensionOverrides": ".dimensions",
    "Tensor": ".tensor",
    "TensorAccessMode": ".values",
    "TensorDataLock": ".tensor",
    "TensorDataType": ".values",
    "TensorLockFlags": ".values",
    "TensorLockMode": ".values",
    "TokenTensorOptions": ".values",
    "Vocabulary": ".vocabulary",
    "WinMLError": ".errors",
    "engines": ".engine_info",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(_MODULES[name], __name__), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return list(__all__)
