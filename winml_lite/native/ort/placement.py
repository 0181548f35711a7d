"""Which device of which execution provider a stage gets (runtime §18).

An explicit choice is met exactly or refused. Automatic placement takes a GPU that a provider offers, else the CPU.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ...errors import NOT_FOUND, WinMLError
from ...values import ExecutionTargetKind
from ..backend import Placement
from ..hardware import Device, same_hardware
from .built_in import NAMED_PROVIDERS, built_in_device

ENGINE_NAME = "ONNX Runtime"
CPU_PROVIDER = "CPUExecutionProvider"

_MENDS = {
    ExecutionTargetKind.GPU: (
        "install a build of ONNX Runtime with a provider for the GPU (for NVIDIA `pip install onnxruntime-gpu` in "
        "place of onnxruntime), or use create_cpu_target()"
    ),
    ExecutionTargetKind.NPU: (
        "install a build of ONNX Runtime with a provider for the NPU of this machine, or use create_cpu_target()"
    ),
}


@dataclass(frozen=True, slots=True)
class Listing:
    """What the engine can compute on."""

    devices: tuple[Device, ...]
    """In the engine's order; hardware that several providers can use is there several times."""
    problems: tuple[str, ...] = ()
    """Why devices of built-in and registered providers are missing."""
    built_in: tuple[str, ...] = ()
    """Names of the built-in providers."""


def choose_device(placement: Placement, list_devices: Callable[[], Listing]) -> Device | None:
    """Return the device that a placement asks for; None is the built-in CPU provider.

    Explicit hardware or a pinned provider that is not there is 0x80070490.
    """
    kind, provider = placement.kind, placement.provider
    if provider is None and kind is ExecutionTargetKind.CPU:
        return None
    if provider is not None and provider.casefold() == CPU_PROVIDER.casefold():
        if kind not in (None, ExecutionTargetKind.CPU):
            raise WinMLError(NOT_FOUND, "", f"{CPU_PROVIDER} has no {kind.name} device; pin it with the kind CPU")
        return None
    listing = list_devices()
    found = list(listing.devices)
    if placement.devices:
        found = same_hardware(placement.devices, found)
    if kind is not None or provider is None:
        found = [device for device in found if device.kind is (kind or ExecutionTargetKind.GPU)]
    if provider is not None:
        found = [device for device in found if device.provider.casefold() == provider.casefold()]
    if found:
        return found[0] if placement.devices else max(found, key=_speed)
    if provider is None and kind is None:
        return None
    if provider is not None and kind is not None and not placement.devices:
        named = built_in_device(ENGINE_NAME, provider, kind, listing.built_in)
        if named is not None:
            return named
    raise WinMLError(NOT_FOUND, "", _nothing_found(placement, listing))


def _speed(device: Device) -> tuple[bool, int]:
    """Order devices like `create_target` does with PERFORMANCE; equal ones stay in the engine's order."""
    return device.is_integrated is not True, device.memory_size


def _nothing_found(placement: Placement, listing: Listing) -> str:
    kind, provider = placement.kind, placement.provider
    listed = {device.provider for device in listing.devices}
    available = {f"{device.provider} ({device.kind.name})" for device in listing.devices}
    available |= {name for name in listing.built_in if name in NAMED_PROVIDERS and name not in listed}
    what = f"execution provider {provider!r}" if provider else "an execution provider"
    if placement.devices:
        name = next((device.name for device in placement.devices if device.name), "the chosen device")
        what += f" for {name}"
    elif kind is not None:
        what += f" with {'an' if kind is ExecutionTargetKind.NPU else 'a'} {kind.name} device"
    text = f"{what} was not found; available: {', '.join(sorted(available | {f'{CPU_PROVIDER} (CPU)'}))}"
    parts = [text, *listing.problems]
    if listing.problems:
        parts.append("mend that, or use create_cpu_target()")
    elif kind in _MENDS:
        parts.append(_MENDS[kind])
    elif provider is not None and provider not in listed:
        parts.append(
            "Runtime.register_execution_provider, or --provider-library at the terminal, adds a library of one"
        )
    return "; ".join(parts)
