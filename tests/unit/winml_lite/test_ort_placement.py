"""The choice among devices of execution providers, without the library."""

from __future__ import annotations

from typing import NoReturn

import pytest

from winml_lite import ExecutionTargetKind, WinMLError
from winml_lite.native.backend import Placement
from winml_lite.native.hardware import Device
from winml_lite.native.ort.built_in import NamedProvider
from winml_lite.native.ort.placement import Listing, choose_device

CPU, GPU, NPU = ExecutionTargetKind.CPU, ExecutionTargetKind.GPU, ExecutionTargetKind.NPU


def device(kind: ExecutionTargetKind, provider: str, hardware: int = 0, **facts: bool | int) -> Device:
    return Device(kind, engine="ONNX Runtime", provider=provider, hardware=hardware, **facts)  # type: ignore[arg-type]


BUILT_IN = device(CPU, "CPUExecutionProvider")
OPEN_CPU = device(CPU, "OpenProvider")
INTEGRATED = device(GPU, "OpenProvider", 1, is_integrated=True, memory_size=64 << 30)
SMALL, LARGE = device(GPU, "CardProvider", 2, memory_size=4 << 30), device(GPU, "CardProvider", 3, memory_size=8 << 30)
OPEN_NPU = device(NPU, "OpenProvider", 4)
ALL = Listing((BUILT_IN, OPEN_CPU, INTEGRATED, SMALL, LARGE, OPEN_NPU))


def never_asked() -> NoReturn:
    raise AssertionError("the library was asked for its devices")


@pytest.mark.parametrize(
    "placement",
    [Placement(CPU), Placement(CPU, "CPUExecutionProvider"), Placement(CPU, "cpuexecutionprovider")],
)
def test_the_cpu_needs_no_listing(placement: Placement) -> None:
    assert choose_device(placement, never_asked) is None


@pytest.mark.parametrize(
    ("placement", "chosen"),
    [
        (Placement(), LARGE),
        (Placement(GPU), LARGE),
        (Placement(NPU), OPEN_NPU),
        (Placement(GPU, "OpenProvider"), INTEGRATED),
        (Placement(CPU, "OpenProvider"), OPEN_CPU),
        (Placement(NPU, "openprovider"), OPEN_NPU),
        (Placement(GPU, None, (SMALL,)), SMALL),
        (Placement(GPU, "CardProvider", (SMALL,), is_exact=True), SMALL),
    ],
)
def test_the_device_of_a_placement(placement: Placement, chosen: Device) -> None:
    assert choose_device(placement, lambda: ALL) is chosen


def test_automatic_placement_without_a_gpu() -> None:
    assert choose_device(Placement(), lambda: Listing((BUILT_IN, OPEN_NPU))) is None


@pytest.mark.parametrize(
    ("placement", "problem"),
    [
        (
            Placement(GPU),
            "an execution provider with a GPU device was not found; available: CPUExecutionProvider (CPU)",
        ),
        (Placement(NPU, "CardProvider"), "execution provider 'CardProvider' with an NPU device was not found"),
        (Placement(CPU, "ggml"), "available: CPUExecutionProvider (CPU); Runtime.register_execution_provider, or"),
        (Placement(GPU, None, (Device(GPU, "My card"),), is_exact=True), "an execution provider for My card was not"),
        (Placement(GPU, "CPUExecutionProvider"), "CPUExecutionProvider has no GPU device; pin it with the kind CPU"),
    ],
)
def test_what_is_not_there(placement: Placement, problem: str) -> None:
    with pytest.raises(WinMLError) as caught:
        choose_device(placement, lambda: Listing((BUILT_IN,)))
    assert caught.value.hresult == 0x80070490
    assert problem in str(caught.value)


BUILT_INS = Listing((BUILT_IN,), built_in=("CoreMLExecutionProvider", "CPUExecutionProvider"))


@pytest.mark.parametrize(("kind", "units"), [(CPU, "CPUOnly"), (GPU, "CPUAndGPU"), (NPU, "CPUAndNeuralEngine")])
def test_a_provider_that_lists_no_devices_is_reached_by_a_pin(kind: ExecutionTargetKind, units: str) -> None:
    found = choose_device(Placement(kind, "coremlexecutionprovider"), lambda: BUILT_INS)
    assert found is not None
    assert (found.kind, found.provider) == (kind, "CoreMLExecutionProvider")
    assert found.handle == NamedProvider("CoreML", (("MLComputeUnits", units),))


def test_automatic_placement_leaves_it_alone() -> None:
    assert choose_device(Placement(), lambda: BUILT_INS) is None


@pytest.mark.parametrize(
    "placement",
    [
        Placement(GPU),
        Placement(GPU, "OpenVINOExecutionProvider"),
        Placement(GPU, "CoreMLExecutionProvider", (LARGE,), is_exact=True),
    ],
)
def test_where_such_a_provider_is_no_help(placement: Placement) -> None:
    with pytest.raises(WinMLError, match=r"available: CPUExecutionProvider \(CPU\), CoreMLExecutionProvider") as caught:
        choose_device(placement, lambda: BUILT_INS)
    assert caught.value.hresult == 0x80070490


def test_why_a_built_in_provider_has_no_device() -> None:
    listing = Listing((BUILT_IN,), ("CUDAExecutionProvider is built in, but finds no GPU: the driver is missing",))
    with pytest.raises(WinMLError) as caught:
        choose_device(Placement(GPU), lambda: listing)
    assert "finds no GPU: the driver is missing; mend that, or use create_cpu_target()" in str(caught.value)
    assert "pip install" not in str(caught.value)
