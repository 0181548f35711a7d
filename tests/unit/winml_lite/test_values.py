"""The numbers of the enumerations are part of the contract."""

from __future__ import annotations

import numpy as np
import pytest

from winml_lite.values import (
    BITS,
    FROM_ONNX_TYPE,
    NUMPY_NAMES,
    TO_ONNX_TYPE,
    ExecutionTargetKind,
    ExecutionTargetPreference,
    TensorAccessMode,
    TensorDataType,
    TensorLockFlags,
    TensorLockMode,
    TokenTensorOptions,
)


def test_element_types() -> None:
    assert {member.name: member.value for member in TensorDataType} == {
        "UNDEFINED": 0, "FLOAT32": 1, "FLOAT16": 2, "BFLOAT16": 3, "INT8": 4, "UINT8": 5, "INT16": 6, "UINT16": 7,
        "INT32": 8, "UINT32": 9, "INT64": 10, "UINT64": 11, "FLOAT64": 12, "BOOL": 13, "INT4": 14, "UINT4": 15,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("kind", "numbers"),
    [
        (ExecutionTargetKind, {"CPU": 1, "GPU": 2, "NPU": 3}),
        (ExecutionTargetPreference, {"DEFAULT": 0, "PERFORMANCE": 1, "EFFICIENCY": 2}),
        (TensorAccessMode, {"COPY": 0, "READ": 1, "READWRITE": 2}),
        (TensorLockMode, {"READ": 1, "WRITE": 2, "READ_WRITE": 3}),
    ],
)
def test_small_enumerations(kind: type[TensorLockMode], numbers: dict[str, int]) -> None:
    assert {member.name: member.value for member in kind} == numbers


def test_lock_flags() -> None:
    assert (TensorLockFlags.NONE, TensorLockFlags.ALLOW_SYNCHRONIZED_CPU_ACCESS) == (0, 1)


def test_numpy_has_twelve_of_them_with_the_same_size() -> None:
    assert len(NUMPY_NAMES) == 12
    assert {t: np.dtype(name).itemsize * 8 for t, name in NUMPY_NAMES.items()} == {t: BITS[t] for t in NUMPY_NAMES}


def test_every_concrete_type_has_a_size_and_an_onnx_number() -> None:
    concrete = set(TensorDataType) - {TensorDataType.UNDEFINED}
    assert BITS.keys() == concrete
    assert TO_ONNX_TYPE.keys() == concrete
    assert {code: FROM_ONNX_TYPE[code] for code in TO_ONNX_TYPE.values()} == FROM_ONNX_TYPE


def test_token_options_are_64_bits_unless_said_otherwise() -> None:
    assert TokenTensorOptions().data_type is TensorDataType.INT64
