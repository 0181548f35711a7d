"""Placement: the whole table of targets and engines, several adapters, and targets of one device.

Statements 25-31 and 128-134 of the object model; the engines are real, their hardware is made up (`fakes/placed.py`).
"""

from __future__ import annotations

import platform
import subprocess
import sys
from collections.abc import Callable
from functools import partial

import pytest

from fakes.backend import FakeBackend, Script
from fakes.model_files import ModelFiles
from fakes.placed import (
    CPU,
    GPU,
    GPU_ADDRESS,
    NPU,
    NPU_ADDRESS,
    PROBED,
    SECOND_GPU_ADDRESS,
    ggml_device,
    llama_with,
    ort_device,
    ort_with,
    outcome,
    placed_stage,
)
from fakes.rig import failing
from winml_lite import (
    DeviceInfo,
    ExecutionTarget,
    ExecutionTargetKind,
    ExecutionTargetPreference,
    NotSupportedError,
    PipelineBuilder,
    Runtime,
    Stage,
    TensorDataType,
    WinMLError,
)
from winml_lite.devices import replaced_enumerators
from winml_lite.native.backend import replaced_backend
from winml_lite.native.hardware import Device
from winml_lite.native.llama.library import library

PERFORMANCE, EFFICIENCY = ExecutionTargetPreference.PERFORMANCE, ExecutionTargetPreference.EFFICIENCY

ORT_CPU = ort_device(CPU, "CPUExecutionProvider")
ORT_GPU = ort_device(GPU, "GpuProvider", GPU_ADDRESS, memory_size=8 << 30)
ORT_SECOND_GPU = ort_device(GPU, "GpuProvider", SECOND_GPU_ADDRESS, memory_size=4 << 30)
ORT_NPU = ort_device(NPU, "NpuProvider", NPU_ADDRESS)
GGML_GPU = ggml_device("a GPU", GPU_ADDRESS, 1001)
GGML_SECOND_GPU = ggml_device("another GPU", SECOND_GPU_ADDRESS, 1002)


def adapter(runtime: Runtime, kind: ExecutionTargetKind, address: str | None = None) -> DeviceInfo:
    """The first device of a class, or the one at an address."""
    return next(
        info for info in runtime.enumerate_devices() if info.kind is kind and address in (None, info.pci_address)
    )


def on_adapter(runtime: Runtime, kind: ExecutionTargetKind, address: str | None = None) -> ExecutionTarget:
    return runtime.create_target_from_adapter(adapter(runtime, kind, address))


def pinned(runtime: Runtime, provider: str, kind: ExecutionTargetKind, hardware: str | None = None) -> ExecutionTarget:
    target = None if hardware is None else on_adapter(runtime, kind, hardware)
    return runtime.create_ort_execution_target(provider, kind, target)


MakeTarget = Callable[[Runtime], ExecutionTarget | None]
TARGETS: dict[str, MakeTarget] = {
    "None": lambda runtime: None,
    "create_cpu_target": lambda runtime: runtime.create_cpu_target(),
    "create_target(CPU)": lambda runtime: runtime.create_target(CPU),
    "CPU adapter": lambda runtime: on_adapter(runtime, CPU),
    "create_target(GPU)": lambda runtime: runtime.create_target(GPU),
    "GPU adapter": lambda runtime: on_adapter(runtime, GPU),
    "create_target(NPU)": lambda runtime: runtime.create_target(NPU),
    "NPU adapter": lambda runtime: on_adapter(runtime, NPU),
    "pinned to the CPU provider": partial(pinned, provider="CPUExecutionProvider", kind=CPU),
    "pinned to the CPU provider on a GPU": partial(pinned, provider="CPUExecutionProvider", kind=GPU),
    "pinned to a GPU provider": partial(pinned, provider="GpuProvider", kind=GPU),
    "pinned to a GPU provider and a GPU": partial(pinned, provider="GpuProvider", kind=GPU, hardware=GPU_ADDRESS),
    "pinned to a GPU provider as an NPU": partial(pinned, provider="GpuProvider", kind=NPU),
    "pinned to an unknown provider": partial(pinned, provider="NoSuchProvider", kind=CPU),
}

# On a machine with a GPU and an NPU. Columns: ONNX Runtime with the CPU provider only, and with providers for both;
# llama.cpp without a GPU module, with one, and with one whose GPU is too small for the model.
NOWHERE, UNSUPPORTED, TOO_LARGE = "build 0x80070490", "build 0x80070032", "build 0x80070008"
TABLE = {
    "None": ("CPU", "GPU", "CPU", "GPU", "CPU"),
    "create_cpu_target": ("CPU", "CPU", "CPU", "CPU", "CPU"),
    "create_target(CPU)": ("CPU", "CPU", "CPU", "CPU", "CPU"),
    "CPU adapter": ("CPU", "CPU", "CPU", "CPU", "CPU"),
    "create_target(GPU)": (NOWHERE, "GPU", UNSUPPORTED, "GPU", TOO_LARGE),
    "GPU adapter": (NOWHERE, "GPU", UNSUPPORTED, "GPU", TOO_LARGE),
    "create_target(NPU)": (NOWHERE, "NPU", UNSUPPORTED, UNSUPPORTED, UNSUPPORTED),
    "NPU adapter": (NOWHERE, "NPU", UNSUPPORTED, UNSUPPORTED, UNSUPPORTED),
    "pinned to the CPU provider": ("CPU", "CPU", UNSUPPORTED, UNSUPPORTED, UNSUPPORTED),
    "pinned to the CPU provider on a GPU": (NOWHERE, NOWHERE, UNSUPPORTED, UNSUPPORTED, UNSUPPORTED),
    "pinned to a GPU provider": (NOWHERE, "GPU", UNSUPPORTED, UNSUPPORTED, UNSUPPORTED),
    "pinned to a GPU provider and a GPU": (NOWHERE, "GPU", UNSUPPORTED, UNSUPPORTED, UNSUPPORTED),
    "pinned to a GPU provider as an NPU": (NOWHERE, NOWHERE, UNSUPPORTED, UNSUPPORTED, UNSUPPORTED),
    "pinned to an unknown provider": (NOWHERE, NOWHERE, UNSUPPORTED, UNSUPPORTED, UNSUPPORTED),
}
ROWS = [pytest.param(TARGETS[name], *row, id=name) for name, row in TABLE.items()]


@pytest.mark.usefixtures("ort")
@pytest.mark.parametrize(("make", "bare", "equipped", "_1", "_2", "_3"), ROWS)
def test_r131_r132_r133_where_an_onnx_stage_goes(
    runtime: Runtime, files: ModelFiles, make: MakeTarget, bare: str, equipped: str, _1: str, _2: str, _3: str
) -> None:
    model = runtime.load_model(files.onnx("add"))

    def add(builder: PipelineBuilder, target: ExecutionTarget | None) -> Stage:
        return builder.add_model_stage(model, target)

    with replaced_enumerators(lambda: PROBED):
        with ort_with([ORT_CPU]):
            assert outcome(runtime, make, add) == bare
        with ort_with([ORT_CPU, ORT_GPU, ORT_NPU]):
            assert outcome(runtime, make, add) == equipped


@pytest.mark.usefixtures("llama")
@pytest.mark.parametrize(("make", "_1", "_2", "bare", "equipped", "small"), ROWS)
def test_r128_r129_r130_where_a_gguf_stage_goes(
    runtime: Runtime, files: ModelFiles, make: MakeTarget, _1: str, _2: str, bare: str, equipped: str, small: str
) -> None:
    model = runtime.load_model(files.gguf)

    def add(builder: PipelineBuilder, target: ExecutionTarget | None) -> Stage:
        return builder.add_model_stage(model, target)

    with replaced_enumerators(lambda: PROBED):
        with llama_with([]):
            assert outcome(runtime, make, add) == bare
        with llama_with([GGML_GPU]):
            assert outcome(runtime, make, add) == equipped
        with llama_with([GGML_GPU], is_too_small=True):
            assert outcome(runtime, make, add) == small


HOST_ONLY = [
    pytest.param(TARGETS[name], expected, id=name)
    for name, expected in {
        "None": "CPU",
        "create_cpu_target": "CPU",
        "create_target(CPU)": "CPU",
        "CPU adapter": "CPU",
        "create_target(GPU)": UNSUPPORTED,
        "GPU adapter": UNSUPPORTED,
        "create_target(NPU)": UNSUPPORTED,
        "NPU adapter": UNSUPPORTED,
        "pinned to the CPU provider": UNSUPPORTED,
        "pinned to a GPU provider": UNSUPPORTED,
    }.items()
]


@pytest.mark.parametrize(("make", "expected"), HOST_ONLY)
def test_where_a_processor_stage_goes(runtime: Runtime, make: MakeTarget, expected: str) -> None:
    processor = runtime.create_processor(
        lambda row: row, [(TensorDataType.FLOAT32, (2,))], [(TensorDataType.FLOAT32, (2,))]
    )

    def add(builder: PipelineBuilder, target: ExecutionTarget | None) -> Stage:
        return builder.add_processor_stage(processor, target)

    with replaced_enumerators(lambda: PROBED):
        assert outcome(runtime, make, add) == expected


@pytest.mark.parametrize("kind", [GPU, NPU])
def test_r25_missing_hardware_fails_at_the_target(runtime: Runtime, kind: ExecutionTargetKind) -> None:
    with replaced_enumerators(lambda: [ORT_CPU]), failing(0x80070490) as caught:
        runtime.create_target(kind)
    assert f"no {kind.name} was found on this machine" in str(caught.value)
    assert "use create_cpu_target()" in str(caught.value)


def test_r25_missing_hardware_names_the_sources_that_did_not_answer(runtime: Runtime) -> None:
    def absent() -> list[Device]:
        raise WinMLError(0x8007007E, "loading llama.cpp", "llama-cpp-python is not installed")

    with replaced_enumerators(absent, lambda: [ORT_CPU]), failing(0x80070490) as caught:
        runtime.create_target(GPU)
    assert "(without an answer: llama-cpp-python is not installed)" in str(caught.value)


def test_r22_a_cpu_target_loads_no_engine() -> None:
    code = (
        "import sys, winml_lite\n"
        "with winml_lite.Runtime() as runtime:\n"
        "    runtime.create_cpu_target(), runtime.create_target(winml_lite.ExecutionTargetKind.CPU)\n"
        "engines = ('winml_lite.native.ort', 'winml_lite.native.llama', 'onnxruntime', 'llama_cpp')\n"
        "print([name for name in sys.modules if name.startswith(engines)])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


# Words


@pytest.mark.usefixtures("ort")
def test_r131_an_onnx_stage_says_what_a_gpu_needs(runtime: Runtime, files: ModelFiles) -> None:
    with replaced_enumerators(lambda: PROBED), ort_with([ORT_CPU]), failing(0x80070490) as caught:
        placed_stage(runtime, files.onnx("add"), on_adapter(runtime, GPU))
    message = str(caught.value)
    assert "an execution provider for a GPU was not found; available: CPUExecutionProvider (CPU)" in message
    assert "pip install onnxruntime-gpu" in message
    assert files.onnx("add") in message


@pytest.mark.usefixtures("ort")
def test_r131_an_onnx_stage_says_what_an_npu_needs(runtime: Runtime, files: ModelFiles) -> None:
    with replaced_enumerators(lambda: PROBED), ort_with([ORT_CPU]), failing(0x80070490) as caught:
        placed_stage(runtime, files.onnx("add"), runtime.create_target(NPU))
    assert "a provider for the NPU of this machine, or use create_cpu_target()" in str(caught.value)


@pytest.mark.usefixtures("llama")
def test_r128_a_gguf_stage_says_what_a_gpu_needs(runtime: Runtime, files: ModelFiles) -> None:
    with replaced_enumerators(lambda: PROBED), llama_with([]), failing(0x80070032) as caught:
        placed_stage(runtime, files.gguf, runtime.create_target(GPU))
    assert "no GPU module" in str(caught.value)
    assert "llama-cpp-python built for your GPU" in str(caught.value)


@pytest.mark.usefixtures("llama")
def test_r128_a_gguf_stage_says_that_an_npu_cannot_be(runtime: Runtime, files: ModelFiles) -> None:
    with replaced_enumerators(lambda: PROBED), llama_with([]), failing(0x80070032) as caught:
        placed_stage(runtime, files.gguf, runtime.create_target(NPU))
    assert "llama.cpp has no NPU backend; use a CPU or GPU target" in str(caught.value)


@pytest.mark.usefixtures("ort")
def test_r133_an_unknown_provider_names_those_there_are(runtime: Runtime, files: ModelFiles) -> None:
    with ort_with([ORT_CPU, ORT_GPU]), failing(0x80070490) as caught:
        placed_stage(runtime, files.onnx("add"), pinned(runtime, "NoSuchProvider", CPU))
    assert "'NoSuchProvider'" in str(caught.value)
    assert "available: CPUExecutionProvider (CPU), GpuProvider (GPU)" in str(caught.value)


# The chosen device reaches the engine


TWO_GPUS = (ORT_CPU, ORT_SECOND_GPU, ORT_GPU)


@pytest.mark.usefixtures("ort")
@pytest.mark.parametrize("address", [GPU_ADDRESS, SECOND_GPU_ADDRESS])
def test_r131_an_onnx_stage_gets_exactly_the_adapter(runtime: Runtime, files: ModelFiles, address: str) -> None:
    with replaced_enumerators(lambda: TWO_GPUS), ort_with(TWO_GPUS) as placed:
        stage = placed_stage(runtime, files.onnx("add"), on_adapter(runtime, GPU, address))
        assert [device.pci_address for device in placed.appended] == [address]
        assert stage.ort_diagnostics().selected_provider == "GpuProvider"
        assert stage.ort_diagnostics().is_provider_pinned is False


@pytest.mark.usefixtures("ort")
def test_r131_another_adapter_is_never_used(runtime: Runtime, files: ModelFiles) -> None:
    with replaced_enumerators(lambda: TWO_GPUS), ort_with([ORT_CPU, ORT_SECOND_GPU]) as placed:
        with failing(0x80070490):
            placed_stage(runtime, files.onnx("add"), on_adapter(runtime, GPU, GPU_ADDRESS))
        assert placed.appended == []


@pytest.mark.usefixtures("ort")
@pytest.mark.parametrize(("preference", "address"), [(PERFORMANCE, GPU_ADDRESS), (EFFICIENCY, SECOND_GPU_ADDRESS)])
def test_r27_the_preference_decides_which_gpu_an_onnx_stage_gets(
    runtime: Runtime, files: ModelFiles, preference: ExecutionTargetPreference, address: str
) -> None:
    with replaced_enumerators(lambda: TWO_GPUS), ort_with(TWO_GPUS) as placed:
        placed_stage(runtime, files.onnx("add"), runtime.create_target(GPU, preference))
        assert [device.pci_address for device in placed.appended] == [address]


@pytest.mark.usefixtures("ort")
def test_automatic_placement_takes_the_faster_gpu(runtime: Runtime, files: ModelFiles) -> None:
    with ort_with(TWO_GPUS) as placed:
        placed_stage(runtime, files.onnx("add"), None)
        assert placed.appended == [ORT_GPU]


@pytest.mark.usefixtures("ort")
def test_hardware_of_another_runtime_is_refused(runtime: Runtime) -> None:
    with Runtime() as other, failing(0x80070057):
        runtime.create_ort_execution_target("CPUExecutionProvider", CPU, other.create_cpu_target())


def test_a_pinned_stage_gets_its_hardware(runtime: Runtime, files: ModelFiles) -> None:
    with replaced_enumerators(lambda: TWO_GPUS), ort_with(TWO_GPUS) as placed:
        stage = placed_stage(runtime, files.onnx("add"), pinned(runtime, "gpuprovider", GPU, SECOND_GPU_ADDRESS))
        assert placed.appended == [ORT_SECOND_GPU]
        assert stage.ort_diagnostics().is_provider_pinned is True


@pytest.mark.usefixtures("ort")
def test_a_provider_that_cannot_use_the_hardware(runtime: Runtime, files: ModelFiles) -> None:
    other = ort_device(GPU, "OtherProvider", GPU_ADDRESS)
    with replaced_enumerators(lambda: TWO_GPUS), ort_with([*TWO_GPUS, other]) as placed:
        with failing(0x80070490):
            placed_stage(runtime, files.onnx("add"), pinned(runtime, "OtherProvider", GPU, SECOND_GPU_ADDRESS))
        assert placed.appended == []


@pytest.mark.usefixtures("ort")
def test_s_plc_04_explicit_hardware_that_refuses_the_model_is_the_end(runtime: Runtime, files: ModelFiles) -> None:
    refusal = WinMLError(0x80004001, "", "node 3 is not implemented")
    with replaced_enumerators(lambda: PROBED), ort_with([ORT_CPU, ORT_GPU], refusal) as placed:
        with failing(0x80004001) as caught:
            placed_stage(runtime, files.onnx("add"), runtime.create_target(GPU))
        assert placed.appended == [ORT_GPU]
    assert "node 3 is not implemented" in str(caught.value)


@pytest.mark.usefixtures("ort")
def test_automatic_placement_goes_to_the_cpu_when_the_gpu_refuses(runtime: Runtime, files: ModelFiles) -> None:
    refusal = WinMLError(0x80004001, "", "node 3 is not implemented")
    with ort_with([ORT_CPU, ORT_GPU], refusal):
        assert placed_stage(runtime, files.onnx("add"), None).execution_target.kind is CPU


@pytest.mark.usefixtures("llama")
@pytest.mark.parametrize(("address", "handle"), [(GPU_ADDRESS, 1001), (SECOND_GPU_ADDRESS, 1002)])
def test_a_gguf_stage_gets_exactly_the_adapter(runtime: Runtime, files: ModelFiles, address: str, handle: int) -> None:
    gpus = [GGML_GPU, GGML_SECOND_GPU]
    with replaced_enumerators(lambda: gpus), llama_with(gpus) as placed:
        placed_stage(runtime, files.gguf, on_adapter(runtime, GPU, address))
        assert placed.loads == [(-1, (handle,))]


@pytest.mark.usefixtures("llama")
def test_llama_cpp_picks_the_gpus_of_a_class(runtime: Runtime, files: ModelFiles) -> None:
    gpus = [GGML_GPU, GGML_SECOND_GPU]
    with replaced_enumerators(lambda: gpus), llama_with(gpus) as placed:
        placed_stage(runtime, files.gguf, runtime.create_target(GPU, EFFICIENCY))
        assert placed.loads == [(-1, ())]


@pytest.mark.usefixtures("llama")
def test_llama_cpp_picks_where_it_cannot_tell(runtime: Runtime, files: ModelFiles) -> None:
    unplaced = ggml_device("a GPU without an address", None, 1003)
    with replaced_enumerators(lambda: PROBED), llama_with([unplaced]) as placed:
        placed_stage(runtime, files.gguf, on_adapter(runtime, GPU))
        assert placed.loads == [(-1, ())]


@pytest.mark.usefixtures("llama")
def test_a_gguf_stage_never_takes_another_gpu(runtime: Runtime, files: ModelFiles) -> None:
    with replaced_enumerators(lambda: PROBED), llama_with([GGML_SECOND_GPU]) as placed:
        with failing(0x80070490) as caught:
            placed_stage(runtime, files.gguf, on_adapter(runtime, GPU))
        assert placed.loads == []
    assert "llama.cpp has no backend for a GPU; it lists another GPU" in str(caught.value)


@pytest.mark.usefixtures("llama")
def test_r129_automatic_placement_tries_the_gpu_and_then_the_cpu(runtime: Runtime, files: ModelFiles) -> None:
    with llama_with([GGML_GPU], is_too_small=True) as placed:
        placed_stage(runtime, files.gguf, None)
        assert placed.loads == [(-1, ()), (0, ())]


@pytest.mark.usefixtures("llama")
def test_r128_an_explicit_gpu_is_tried_once(runtime: Runtime, files: ModelFiles) -> None:
    with replaced_enumerators(lambda: PROBED), llama_with([GGML_GPU], is_too_small=True) as placed:
        with failing(0x80070008) as caught:
            placed_stage(runtime, files.gguf, runtime.create_target(GPU))
        assert placed.loads == [(-1, ())]
    assert "unable to allocate" in str(caught.value)


def test_the_placement_reaches_a_fake_engine(runtime: Runtime, files: ModelFiles) -> None:
    script = Script()
    with replaced_enumerators(lambda: PROBED), replaced_backend("ort", FakeBackend(script, gpu=True)):
        placed_stage(runtime, files.onnx("add"), runtime.create_target(GPU))
        placed_stage(runtime, files.onnx("add"), on_adapter(runtime, GPU))
    assert [placement.devices for placement in script.placements] == [PROBED[:1], PROBED[:1]]
    assert [placement.is_exact for placement in script.placements] == [False, True]


# This machine as it is


@pytest.mark.usefixtures("ort", "llama")
def test_a_machine_without_a_gpu(runtime: Runtime, files: ModelFiles) -> None:
    devices = runtime.enumerate_devices()
    if platform.system() != "Linux" or any(info.kind is not CPU for info in devices):
        pytest.skip("this machine has more than a CPU")
    for kind in (GPU, NPU):
        with failing(0x80070490):
            runtime.create_target(kind)
    with replaced_enumerators(lambda: PROBED):
        gpu, npu = runtime.create_target(GPU), runtime.create_target(NPU)
    for path, target, code in (
        (files.onnx("add"), gpu, 0x80070490),
        (files.onnx("add"), npu, 0x80070490),
        (files.gguf, gpu, 0x80070032),
        (files.gguf, npu, 0x80070032),
    ):
        with failing(code):
            placed_stage(runtime, path, target)
    assert library().has_gpu is False
    assert placed_stage(runtime, files.onnx("add"), None).execution_target.kind is CPU
    assert placed_stage(runtime, files.gguf, None).execution_target.kind is CPU


# Enumeration


def test_one_device_is_listed_once(runtime: Runtime) -> None:
    sources = (lambda: [ORT_CPU, ORT_GPU, ORT_NPU], lambda: [GGML_GPU, GGML_SECOND_GPU], lambda: PROBED)
    with replaced_enumerators(*sources):
        found = runtime.enumerate_devices()
    assert [(info.kind, info.pci_address, info.engines, info.providers) for info in found] == [
        (CPU, None, ("ONNX Runtime",), ("CPUExecutionProvider",)),
        (GPU, GPU_ADDRESS, ("ONNX Runtime", "llama.cpp"), ("GpuProvider",)),
        (GPU, SECOND_GPU_ADDRESS, ("llama.cpp",), ()),
        (NPU, NPU_ADDRESS, ("ONNX Runtime",), ("NpuProvider",)),
    ]
    assert (found[1].name, found[1].memory_in_bytes, found[1].is_integrated) == ("a GPU", 8 << 30, False)


def test_the_cpu_is_always_there(runtime: Runtime) -> None:
    with replaced_enumerators():
        (cpu,) = runtime.enumerate_devices()
    assert (cpu.kind, cpu.engines, cpu.providers) == (CPU, (), ())
    assert cpu.name


def test_sources_that_fail_are_passed_over(runtime: Runtime) -> None:
    def broken() -> list[Device]:
        raise RuntimeError("the driver is in a bad mood")

    with replaced_enumerators(broken, lambda: [GGML_GPU]):
        assert [info.kind for info in runtime.enumerate_devices()] == [CPU, GPU]


def test_a_usable_device_comes_before_an_unusable_one(runtime: Runtime, files: ModelFiles) -> None:
    idle = Device(GPU, "a large GPU", False, 64 << 30, pci_address="0000:09:00.0")
    with replaced_enumerators(lambda: [idle, GGML_GPU]):
        assert [info.engines for info in runtime.enumerate_devices()[1:]] == [("llama.cpp",), ()]


def test_engines_are_asked_through_the_border(runtime: Runtime) -> None:
    with (
        replaced_backend("ort", FakeBackend(devices=[ORT_CPU, ORT_NPU])),
        replaced_backend("llama", FakeBackend(problem="not installed")),
    ):
        assert ("NpuProvider",) in [info.providers for info in runtime.enumerate_devices()]
        assert runtime.create_target(NPU).kind is NPU


def test_a_closed_runtime_lists_nothing() -> None:
    runtime = Runtime()
    runtime.close()
    with pytest.raises(RuntimeError):
        runtime.enumerate_devices()


# Targets of adapters


def test_r29_what_is_no_adapter(runtime: Runtime) -> None:
    with pytest.raises(ValueError, match="must not be None"):
        runtime.create_target_from_adapter(None)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="not a bool"):
        runtime.create_target_from_adapter(True)
    for number in (0, -1):
        with pytest.raises(ValueError, match="positive"):
            runtime.create_target_from_adapter(number)
    for value in (object(), "GPU", 1.5, b"\1"):
        with pytest.raises(TypeError, match="enumerate_devices"):
            runtime.create_target_from_adapter(value)  # type: ignore[arg-type]


def test_r29_the_address_of_an_adapter(runtime: Runtime) -> None:
    with failing(0x80070032, NotSupportedError) as caught:
        runtime.create_target_from_adapter(0x7F0000001000)
    assert "Runtime.enumerate_devices()" in str(caught.value)


def test_r30_the_address_of_a_d3d12_device(runtime: Runtime) -> None:
    for arguments in ((1,), (1, None), (1, 2)):
        with failing(0x80070032, NotSupportedError) as caught:
            runtime.create_target_from_d3d12(*arguments)
    assert "create_target(ExecutionTargetKind.GPU, ExecutionTargetPreference.PERFORMANCE)" in str(caught.value)


def test_r30_what_is_no_d3d12_device(runtime: Runtime) -> None:
    with pytest.raises(ValueError):
        runtime.create_target_from_d3d12(None)  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        runtime.create_target_from_d3d12(True)
    with pytest.raises(ValueError):
        runtime.create_target_from_d3d12(0)
    with pytest.raises(TypeError):
        runtime.create_target_from_d3d12(object())  # type: ignore[arg-type]


def test_r29_r30_arguments_are_checked_before_the_runtime() -> None:
    runtime = Runtime()
    (info,) = (info for info in runtime.enumerate_devices() if info.kind is CPU)
    runtime.close()
    with pytest.raises(ValueError):
        runtime.create_target_from_adapter(0)
    with pytest.raises(TypeError):
        runtime.create_target_from_d3d12(object())  # type: ignore[arg-type]
    for adapter_or_address in (1, info):
        with pytest.raises(RuntimeError, match="closed"):
            runtime.create_target_from_adapter(adapter_or_address)
    with pytest.raises(RuntimeError, match="closed"):
        runtime.create_target_from_d3d12(1)


def test_each_target_of_an_adapter_is_a_new_object(runtime: Runtime) -> None:
    with replaced_enumerators(lambda: PROBED):
        info = adapter(runtime, GPU)
    first, second = runtime.create_target_from_adapter(info), runtime.create_target_from_adapter(info)
    assert first is not second
    assert first.kind is GPU


def test_hardware_of_another_class_cannot_be_pinned(runtime: Runtime) -> None:
    with replaced_enumerators(lambda: PROBED), failing(0x80070057):
        runtime.create_ort_execution_target("GpuProvider", NPU, on_adapter(runtime, GPU))
