"""Build stages on the real ONNX Runtime from models in memory, and move NumPy arrays in and out of them."""

from __future__ import annotations

from typing import Any, cast

import numpy as np
import numpy.typing as npt
import onnx
import pytest

from winml_lite.files.onnx import read_onnx_bytes
from winml_lite.handles import Resource
from winml_lite.native.backend import Placement, StageOptions, backend
from winml_lite.native.ort import values
from winml_lite.native.ort.executor import OrtExecutor
from winml_lite.storage import Storage
from winml_lite.values import NUMPY_NAMES, ExecutionTargetKind

CPU = Placement(ExecutionTargetKind.CPU)
_TYPES = {name: data_type for data_type, name in NUMPY_NAMES.items()}


def count_values(monkeypatch: pytest.MonkeyPatch) -> list[Storage]:
    """A list that each storage joins when a value is made over it."""
    made: list[Storage] = []
    real = values.create_value

    def create_value(storage: Storage) -> Resource:
        made.append(storage)
        return real(storage)

    monkeypatch.setattr(values, "create_value", create_value)
    return made


def build(model: onnx.ModelProto | bytes, placement: Placement = CPU, **options: Any) -> OrtExecutor:
    """Build a stage on the CPU; keyword arguments are those of `StageOptions`, and `resources`."""
    data = model if isinstance(model, bytes) else model.SerializeToString()
    artifact = read_onnx_bytes(data, options.pop("resources", None))
    return cast(OrtExecutor, backend("ort").build_stage(artifact, placement, StageOptions(**options)))


def tensor(values: npt.ArrayLike, dtype: str = "float32") -> Storage:
    """A storage over a new array."""
    array = np.array(values, dtype, order="C")
    return Storage(array.reshape(-1).view(np.uint8), _TYPES[dtype], array.shape)


def ids(*tokens: int) -> Storage:
    """Token ids as int64 of shape (1, n)."""
    return tensor([tokens], "int64")


def step(stage: OrtExecutor) -> None:
    """Run and commit."""
    stage.run()
    stage.commit()


def feed(stage: OrtExecutor, *tokens: int) -> None:
    """Run a stage whose input 0 is token ids."""
    stage.bind_input(0, ids(*tokens))
    step(stage)


def flat(stage: OrtExecutor, index: int = 0) -> list[float]:
    """Values of an output as a flat list."""
    return cast("list[float]", stage.output(index).array().ravel().tolist())
