"""Stages of the real llama.cpp, one thread each, for tests below the object model."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from winml_lite.files.gguf import read_gguf
from winml_lite.native.backend import LlamaOptions, Placement, StageOptions
from winml_lite.native.llama.backend import create_backend
from winml_lite.native.llama.executor import LlamaExecutor
from winml_lite.storage import Storage
from winml_lite.values import TensorDataType

INT32, INT64, FLOAT32 = TensorDataType.INT32, TensorDataType.INT64, TensorDataType.FLOAT32
PROMPT = [(7 * index * index + 3 * index) % 300 for index in range(200)]
"""200 ids that the random model knows."""


def build(path: str | Path, hint: int = 0, **options: Any) -> LlamaExecutor:
    """Build a stage whose output is requested; keys and values are exact unless the options say otherwise."""
    settings = {"thread_count": 1, "key_type": "f32", "value_type": "f32", **options}
    stage = create_backend().build_stage(
        read_gguf(str(path)), Placement(), StageOptions(capacity_hint=hint, llama=LlamaOptions(**settings))
    )
    stage.bind_output(0, None, True)
    return cast(LlamaExecutor, stage)


def ids(values: list[int], data_type: TensorDataType = INT32, rank: int = 2) -> Storage:
    """Token ids as a storage."""
    array = np.array(values, np.int32 if data_type is INT32 else np.int64)
    return Storage(array.view(np.uint8), data_type, (1, len(values)) if rank == 2 else (len(values),))


def feed(stage: LlamaExecutor, tokens: list[int]) -> npt.NDArray[np.float32]:
    """Run the tokens and return a copy of the logits, float32 (vocabulary size,)."""
    stage.bind_input(0, ids(tokens))
    stage.run()
    stage.commit()
    return cast("npt.NDArray[np.float32]", stage.output(0).array()[0].copy())


def position(stage: LlamaExecutor) -> int:
    assert stage.sequence is not None
    return stage.sequence.position
