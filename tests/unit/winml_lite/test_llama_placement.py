"""Options and placement of llama.cpp stages, decided before the library is asked (runtime 9.1, 15.3, 18.1)."""

from __future__ import annotations

import pytest

from winml_lite.errors import E_INVALIDARG, NOT_SUPPORTED, WinMLError
from winml_lite.native.backend import LlamaOptions, OrtOptions, Placement, StageOptions
from winml_lite.native.llama.backend import Resolved, check_options, resolve
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


@pytest.mark.parametrize(
    ("options", "code"),
    [
        (StageOptions(state_pairs=((1, 1),)), NOT_SUPPORTED),
        (StageOptions(caller_owns_state=True), NOT_SUPPORTED),
        (StageOptions(ort=OrtOptions()), NOT_SUPPORTED),
        (StageOptions(llama=LlamaOptions(embeddings=True), draft_token_limit=3), NOT_SUPPORTED),
        (StageOptions(llama=LlamaOptions(key_type="q3")), E_INVALIDARG),
        (StageOptions(llama=LlamaOptions(value_type="")), E_INVALIDARG),
        (StageOptions(draft_predictor_enabled=True), E_INVALIDARG),
        (StageOptions(draft_predictor_path="x.gguf"), E_INVALIDARG),
        (StageOptions(draft_predictor_path="x.gguf", draft_predictor_enabled=True, draft_token_limit=3), NOT_SUPPORTED),
    ],
)
def test_r93_r94_r95_refused_options(options: StageOptions, code: int) -> None:
    with pytest.raises(WinMLError) as caught:
        check_options(options)
    assert caught.value.hresult == code


def test_r94_a_limit_without_a_predictor_is_harmless() -> None:
    check_options(StageOptions(draft_predictor_enabled=True, draft_token_limit=3))
