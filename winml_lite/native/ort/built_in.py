"""Providers that are built into some libraries, but list no devices: a target reaches them by its pin only.

They choose the hardware themselves, as their own option says; here is that option for each class of hardware.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from ...values import ExecutionTargetKind
from ..hardware import Device

CPU, GPU, NPU = ExecutionTargetKind.CPU, ExecutionTargetKind.GPU, ExecutionTargetKind.NPU
Settings = tuple[tuple[str, str], ...]

NAMED_PROVIDERS: dict[str, tuple[str, dict[ExecutionTargetKind, Settings]]] = {
    "CoreMLExecutionProvider": (
        "CoreML",
        {
            CPU: (("MLComputeUnits", "CPUOnly"),),
            GPU: (("MLComputeUnits", "CPUAndGPU"),),
            NPU: (("MLComputeUnits", "CPUAndNeuralEngine"),),
        },
    ),
    "OpenVINOExecutionProvider": (
        "OpenVINO",
        {kind: (("device_type", kind.name),) for kind in (CPU, GPU, NPU)},
    ),
    "MIGraphXExecutionProvider": ("MIGraphX", {GPU: ()}),
    "XnnpackExecutionProvider": ("XNNPACK", {CPU: ()}),
}
"""Name of the provider -> what the library calls it in sessions, and its options for each class of hardware."""


@dataclass(frozen=True, slots=True)
class NamedProvider:
    """Handle of a provider that is put into a session by its name."""

    name: str
    """What the library calls it there."""
    settings: Settings
    """Its options for the class of hardware; the caller's come on top."""


def built_in_device(engine: str, provider: str, kind: ExecutionTargetKind, available: Collection[str]) -> Device | None:
    """Return a stand-in for the hardware of a built-in provider; None where the library or the provider has none."""
    name = next((known for known in NAMED_PROVIDERS if known.casefold() == provider.casefold()), "")
    if name not in available or kind not in NAMED_PROVIDERS[name][1]:
        return None
    short, settings = NAMED_PROVIDERS[name]
    return Device(kind, engine=engine, provider=name, handle=NamedProvider(short, settings[kind]))
