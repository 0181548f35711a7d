"""Engines with made-up hardware, and what becomes of a stage that shall run on it.

The engines are the real ones: only what their libraries list, and the last step onto a GPU or NPU, is made up. A stage
that was placed there really computes on the CPU.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from threading import Event
from typing import Any
from unittest.mock import patch

from winml_lite import ExecutionTarget, ExecutionTargetKind, PipelineBuilder, Runtime, Stage, WinMLError
from winml_lite.errors import NOT_ENOUGH_MEMORY
from winml_lite.files.artifact import GgufArtifact
from winml_lite.native.hardware import Device

CPU, GPU, NPU = ExecutionTargetKind.CPU, ExecutionTargetKind.GPU, ExecutionTargetKind.NPU
GPU_ADDRESS, SECOND_GPU_ADDRESS, NPU_ADDRESS = "0000:03:00.0", "0000:04:00.0", "0000:00:0b.0"

PROBED = (
    Device(GPU, "a GPU", False, 8 << 30, pci_address=GPU_ADDRESS),
    Device(NPU, "an NPU", True, pci_address=NPU_ADDRESS),
)
"""What the operating system says of a machine with a GPU and an NPU."""


def ort_device(kind: ExecutionTargetKind, provider: str, address: str | None = None, **facts: Any) -> Device:
    """A device as ONNX Runtime lists it."""
    handle = facts.pop("handle", f"handle of {provider} at {address}")
    return Device(
        kind, engine="ONNX Runtime", provider=provider, pci_address=address, hardware=address, handle=handle, **facts
    )


def ggml_device(name: str, address: str | None, handle: int, is_integrated: bool = False) -> Device:
    """A GPU as llama.cpp lists it."""
    return Device(GPU, name, is_integrated, engine="llama.cpp", pci_address=address, hardware=handle, handle=handle)


@dataclass(slots=True)
class Placed:
    """What reached the engine."""

    appended: list[Device] = field(default_factory=list)
    """Devices whose provider was put into a session of ONNX Runtime."""
    loads: list[tuple[int, tuple[int, ...]]] = field(default_factory=list)
    """Offloaded layers and named GPUs of each model that llama.cpp was asked to load."""


@contextmanager
def ort_with(devices: Sequence[Device], refusal: WinMLError | None = None) -> Iterator[Placed]:
    """Let ONNX Runtime list these devices; `refusal` is what its providers say to every model."""
    from winml_lite.native.ort import devices as native
    from winml_lite.native.ort.placement import Listing
    from winml_lite.native.ort.session import Session

    placed = Placed()

    def append(options: int, device: Device, settings: tuple[tuple[str, str], ...]) -> None:
        placed.appended.append(device)
        if refusal is not None:
            raise refusal

    with (
        patch.object(native, "provider_listing", lambda: Listing(tuple(devices))),
        patch.object(native, "append_provider", append),
        patch.object(Session, "node_counts", lambda session: None),  # it would tell that the CPU has them all
    ):
        yield placed


@contextmanager
def llama_with(gpus: Sequence[Device], is_too_small: bool = False) -> Iterator[Placed]:
    """Let llama.cpp have these GPUs; with `is_too_small` no model fits one of them."""
    from winml_lite.native.llama import backend as native
    from winml_lite.native.llama.library import Library
    from winml_lite.native.llama.model import LlamaModel, load_model

    placed = Placed()

    def load(artifact: GgufArtifact, layers: int, named: tuple[int, ...], stop: Event, predicts: bool) -> LlamaModel:
        placed.loads.append((layers, named))
        if layers and is_too_small:
            raise WinMLError(NOT_ENOUGH_MEMORY, "", "unable to allocate CUDA0 buffer")
        return load_model(artifact, 0, (), stop, predicts)

    with (
        patch.object(Library, "has_gpu", bool(gpus)),
        patch.object(Library, "devices", lambda library: tuple(gpus)),
        patch.object(native, "load_model", load),
    ):
        yield placed


def placed_stage(runtime: Runtime, path: str, target: ExecutionTarget | None) -> Stage:
    """A built stage of a model on a target."""
    builder = runtime.create_pipeline_builder()
    stage = builder.add_model_stage(runtime.load_model(path), target)
    builder.build()
    return stage


def outcome(
    runtime: Runtime,
    make_target: Callable[[Runtime], ExecutionTarget | None],
    add_stage: Callable[[PipelineBuilder, ExecutionTarget | None], Stage],
) -> str:
    """Where a stage went, such as `"GPU"`; or what failed and how, such as `"build 0x80070490"`."""
    moment = "target"
    try:
        target = make_target(runtime)
        builder = runtime.create_pipeline_builder()
        stage = add_stage(builder, target)
        moment = "build"
        builder.build()
    except WinMLError as error:
        assert type(error) is WinMLError
        return f"{moment} 0x{error.hresult:08X}"
    return stage.execution_target.kind.name
