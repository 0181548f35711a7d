"""Placement of llama.cpp stages, decided before the library is asked (runtime 18.1)."""

from __future__ import annotations

import pytest

from winml_lite.errors import E_INVALIDARG, NOT_SUPPORTED, WinMLError
from winml_lite.native.backend import Placement
from winml_lite.native.llama.backend import Resolved, resolve
from winml_lite.values import ExecutionTargetKind

CPU, GPU, NPU = ExecutionTargetKind.CPU, ExecutionTargetKind.GPU, ExecutionTargetKind.NPU


@pytest.mark.parametrize(
    ("kind", "layers", "has_gpu", "resolved"),
    [
        (CPU, -1, False, Resolved(CPU, 0)),
        (CPU, -1, True, Resolved(CPU, 0)),
        (CPU, 0, True, Resolved(CPU, 0)),
        (GPU, -1, True, Resolved(GPU, -1)),
        (GPU, 12, True, Resolved(GPU, 12)),
        (None, -1, True, Resolved(GPU, -1)),
        (None, -1, False, Resolved(CPU, 0)),
        (None, 0, True, Resolved(CPU, 0)),
        (None, 7, True, Resolved(GPU, 7)),
    ],
)
def test_r129_placement(kind: ExecutionTargetKind | None, layers: int, has_gpu: bool, resolved: Resolved) -> None:
    assert resolve(Placement(kind), layers, has_gpu) == resolved


@pytest.mark.parametrize(
    ("placement", "layers", "has_gpu", "code", "hint"),
    [
        (Placement(GPU), -1, False, NOT_SUPPORTED, "no GPU module"),
        (Placement(None), 5, False, NOT_SUPPORTED, "no GPU module"),
        (Placement(NPU), -1, True, NOT_SUPPORTED, "no NPU backend"),
        (Placement(CPU, provider="CPUExecutionProvider"), -1, True, NOT_SUPPORTED, "CPUExecutionProvider"),
        (Placement(CPU), 5, True, E_INVALIDARG, "gpu_layers is 5"),
        (Placement(GPU), 0, True, E_INVALIDARG, "gpu_layers is 0"),
    ],
)
def test_r128_r130_refused_placement(placement: Placement, layers: int, has_gpu: bool, code: int, hint: str) -> None:
    with pytest.raises(WinMLError, match=hint) as caught:
        resolve(placement, layers, has_gpu)
    assert caught.value.hresult == code
