"""Execution providers and their devices, and the choice among them (runtime §18)."""

from __future__ import annotations

import ctypes
import os
from dataclasses import dataclass

from ...errors import NOT_FOUND, WinMLError
from ...values import ExecutionTargetKind
from ..backend import Placement
from . import api
from .environment import RunState, environment, refuse_at_exit

CPU_PROVIDER = "CPUExecutionProvider"

_KINDS = {0: ExecutionTargetKind.CPU, 1: ExecutionTargetKind.GPU, 2: ExecutionTargetKind.NPU}


@dataclass(frozen=True, slots=True)
class OrtDevice:
    """One device of one execution provider."""

    provider: str
    kind: ExecutionTargetKind
    vendor: str
    device_id: int
    pointer: int
    """`OrtEpDevice`; owned by the environment."""


def provider_devices() -> tuple[OrtDevice, ...]:
    """Devices of all registered providers, in the engine's order."""
    if RunState.leaving:
        refuse_at_exit()
    array = ctypes.c_void_p()
    count = ctypes.c_size_t()
    api.GetEpDevices(environment().pointer, ctypes.byref(array), ctypes.byref(count))
    pointers = (ctypes.c_void_p * count.value).from_address(array.value) if array.value else ()
    return tuple(_describe(pointer) for pointer in pointers if pointer)


def _describe(pointer: int) -> OrtDevice:
    hardware = api.EpDevice_Device(pointer) or 0
    return OrtDevice(
        provider=api.EpDevice_EpName(pointer).decode(),
        kind=_KINDS.get(api.HardwareDevice_Type(hardware), ExecutionTargetKind.CPU),
        vendor=api.HardwareDevice_Vendor(hardware).decode("utf-8", "replace"),
        device_id=api.HardwareDevice_DeviceId(hardware),
        pointer=pointer,
    )


def register_library(name: str, path: str) -> None:
    """Register a provider library under a name of the caller's choice; it is code that will be run."""
    api.RegisterExecutionProviderLibrary(environment().pointer, name.encode(), api.native_path(os.path.abspath(path)))


def choose_device(placement: Placement) -> OrtDevice | None:
    """The device that a placement asks for; None is the built-in CPU provider.

    Explicit hardware or a pinned provider that is not there is 0x80070490; automatic placement takes a GPU if there
    is one.
    """
    kind, provider = placement.kind, placement.provider
    if provider is None and kind is ExecutionTargetKind.CPU:
        return None
    if provider is not None and provider.casefold() == CPU_PROVIDER.casefold():
        if kind not in (None, ExecutionTargetKind.CPU):
            raise WinMLError(NOT_FOUND, "", f"{CPU_PROVIDER} has no {kind.name if kind else ''} device")
        return None
    devices = provider_devices()
    wanted = kind or (ExecutionTargetKind.GPU if provider is None else None)
    found = [
        device
        for device in devices
        if (wanted is None or device.kind is wanted)
        and (provider is None or device.provider.casefold() == provider.casefold())
        and (placement.device is None or placement.device in (device, device.device_id))
    ]
    if found:
        return found[0]
    if provider is None and kind is None:
        return None
    raise WinMLError(NOT_FOUND, "", _nothing_found(provider, wanted, devices))


def _nothing_found(provider: str | None, kind: ExecutionTargetKind | None, devices: tuple[OrtDevice, ...]) -> str:
    available = sorted({f"{device.provider} ({device.kind.name})" for device in devices} | {f"{CPU_PROVIDER} (CPU)"})
    what = f"execution provider {provider!r}" if provider else "an execution provider"
    on = f" with a {kind.name} device" if kind else ""
    return f"{what}{on} was not found; available: {', '.join(available)}"


def append_provider(options: int, device: OrtDevice, settings: tuple[tuple[str, str], ...]) -> None:
    """Put a device's provider, with its provider options, into session options."""
    keys = (ctypes.c_char_p * len(settings))(*(key.encode() for key, _ in settings))
    values = (ctypes.c_char_p * len(settings))(*(value.encode() for _, value in settings))
    api.SessionOptionsAppendExecutionProvider_V2(
        options,
        environment().pointer,
        (ctypes.c_void_p * 1)(device.pointer),
        1,
        ctypes.cast(keys, ctypes.c_void_p),
        ctypes.cast(values, ctypes.c_void_p),
        len(settings),
    )
