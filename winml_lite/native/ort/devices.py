"""Execution providers and the devices they offer, as the library lists them (runtime §18).

The built-in CUDA provider of `onnxruntime-gpu` is not in the library's list; its GPUs come from NVIDIA's driver. Not
here: which device a stage gets (`placement.py`).
"""

from __future__ import annotations

import ctypes
import os
import re
from collections.abc import Iterable
from dataclasses import dataclass

from ...errors import E_INVALIDARG, MODULE_NOT_FOUND, NOT_FOUND, WinMLError
from ...values import ExecutionTargetKind
from ..hardware import PCI_ADDRESS, VENDORS, Device, normal_pci_address
from . import api
from .built_in import NamedProvider, Settings
from .cuda import CudaGpu, cuda_gpus
from .cuda_libraries import load_cuda_libraries
from .environment import ENGINE, environment, owned
from .placement import ENGINE_NAME, Listing
from .provider_libraries import ep_devices, idle_libraries, register_installed

CUDA_PROVIDER = "CUDAExecutionProvider"

_KINDS = {0: ExecutionTargetKind.CPU, 1: ExecutionTargetKind.GPU, 2: ExecutionTargetKind.NPU}


@dataclass(frozen=True, slots=True)
class EpDevice:
    """Handle of a device in the library's list."""

    pointer: int
    """`OrtEpDevice`; owned by the environment."""


@dataclass(frozen=True, slots=True)
class CudaDevice:
    """Handle of a GPU of the built-in CUDA provider."""

    ordinal: int


def provider_listing() -> Listing:
    """List the devices, and say which built-in or installed provider has none and why."""
    ENGINE.check()
    problems = register_installed() + idle_libraries()
    devices = tuple(map(_describe, ep_devices()))
    built_in = available_providers()
    if CUDA_PROVIDER not in built_in or any(device.provider == CUDA_PROVIDER for device in devices):
        return Listing(devices, problems, built_in)
    try:
        return Listing(devices + tuple(map(_describe_cuda, cuda_gpus())), problems, built_in)
    except WinMLError as error:
        problem = f"{CUDA_PROVIDER} is built in, but finds no GPU: {error.native_message}"
        return Listing(devices, (problem, *problems), built_in)


def available_providers() -> tuple[str, ...]:
    """Names of the providers that are built into the library."""
    names = ctypes.c_void_p()
    count = ctypes.c_int()
    api.GetAvailableProviders(ctypes.byref(names), ctypes.byref(count))
    found = tuple(name.decode() for name in (ctypes.c_char_p * count.value).from_address(names.value or 0) if name)
    api.ReleaseAvailableProviders(names.value or 0, count.value)
    return found


def _describe(pointer: int) -> Device:
    hardware = api.EpDevice_Device(pointer) or 0
    facts = api.HardwareDevice_Metadata(hardware) or 0
    vendor_id = api.HardwareDevice_VendorId(hardware)
    discrete = _fact(facts, b"Discrete")
    megabytes = re.match(r"\d+", _fact(facts, b"DxgiVideoMemory"))
    return Device(
        kind=_KINDS.get(api.HardwareDevice_Type(hardware), ExecutionTargetKind.CPU),
        name=" ".join(_fact(facts, b"Description").split()),
        is_integrated=discrete == "0" if discrete else None,
        memory_size=int(megabytes[0]) << 20 if megabytes else 0,
        vendor=api.HardwareDevice_Vendor(hardware).decode("utf-8", "replace") or VENDORS.get(vendor_id, ""),
        engine=ENGINE_NAME,
        provider=api.EpDevice_EpName(pointer).decode(),
        pci_address=_pci_address(facts),
        luid=_fact(facts, b"LUID") or None,
        vendor_id=vendor_id,
        device_id=api.HardwareDevice_DeviceId(hardware),
        hardware=hardware,
        handle=EpDevice(pointer),
    )


def _describe_cuda(gpu: CudaGpu) -> Device:
    return Device(
        kind=ExecutionTargetKind.GPU,
        name=gpu.name,
        is_integrated=gpu.is_integrated,
        memory_size=gpu.memory_size,
        vendor="NVIDIA",
        engine=ENGINE_NAME,
        provider=CUDA_PROVIDER,
        pci_address=gpu.pci_address,
        handle=CudaDevice(gpu.ordinal),
    )


def _fact(facts: int, key: bytes) -> str:
    """Return an entry of a device's metadata; "" when it is absent."""
    value = api.GetKeyValue(facts, key) if facts else None
    return value.decode("utf-8", "replace") if value is not None else ""


def _pci_address(facts: int) -> str | None:
    """Return the address of a device; older libraries tell the number of its card only."""
    text = _fact(facts, b"pci_bus_id")
    card = _fact(facts, b"card_idx")
    if not text and card:
        text = os.path.basename(os.path.realpath(f"/sys/class/drm/card{card}/device"))
    return normal_pci_address(text) if PCI_ADDRESS.fullmatch(text) else None


def check_device_option(device: Device, settings: Settings) -> None:
    """Refuse a provider option that names another GPU than the target (0x80070057)."""
    handle, wanted = device.handle, dict(settings).get("device_id")
    if isinstance(handle, CudaDevice) and wanted not in (None, str(handle.ordinal)):
        text = f"provider option device_id is {wanted}, but the target is {device.name}, number {handle.ordinal}"
        raise WinMLError(E_INVALIDARG, "", text)


def append_provider(options: int, device: Device, settings: Settings) -> None:
    """Put a device's provider, with its provider options, into session options."""
    handle = device.handle
    if isinstance(handle, CudaDevice):
        return _append_cuda(options, handle.ordinal, settings)
    if isinstance(handle, NamedProvider):
        return _append_named(options, device, handle, settings)
    assert isinstance(handle, EpDevice)
    api.SessionOptionsAppendExecutionProvider_V2(
        options,
        environment().pointer,
        (ctypes.c_void_p * 1)(handle.pointer),
        1,
        _texts(key for key, _ in settings),
        _texts(value for _, value in settings),
        len(settings),
    )
    return None


def _append_named(options: int, device: Device, handle: NamedProvider, settings: Settings) -> None:
    """Put a built-in provider into session options; one that finds no such hardware is 0x80070490."""
    values = {**dict(handle.settings), **dict(settings)}
    try:
        api.SessionOptionsAppendExecutionProvider(
            options, handle.name.encode(), _texts(values), _texts(values.values()), len(values)
        )
    except WinMLError as error:
        listed = ", ".join(f"{key}={value}" for key, value in values.items())
        text = f"{device.provider} refuses a {device.kind.name} session with {listed or 'no options'}"
        # With options of the caller, it may be them that it refuses.
        code = error.hresult if settings or device.kind is ExecutionTargetKind.CPU else NOT_FOUND
        raise WinMLError(code, error.context, f"{text}: {error.native_message}") from None


def _append_cuda(options: int, ordinal: int, settings: Settings) -> None:
    """Put the built-in CUDA provider into session options; the first time loads it with CUDA and cuDNN."""
    values = {"device_id": str(ordinal), **dict(settings)}
    load_cuda_libraries()
    pointer = ctypes.c_void_p()
    api.CreateCUDAProviderOptions(ctypes.byref(pointer))
    cuda = owned(pointer, api.ReleaseCUDAProviderOptions)
    try:
        api.UpdateCUDAProviderOptions(cuda.pointer, _texts(values), _texts(values.values()), len(values))
        api.SessionOptionsAppendExecutionProvider_CUDA_V2(options, cuda.pointer)
    except WinMLError as error:
        message = (error.native_message or "").strip()
        if "Failed to load" not in message:
            raise
        text = (
            f"{CUDA_PROVIDER} does not load: {message}; it needs CUDA and cuDNN in the versions that this "
            "onnxruntime-gpu was built for: `pip install 'onnxruntime-gpu[cuda,cudnn]'`, or install them where the "
            "system finds libraries; or use create_cpu_target()"
        )
        raise WinMLError(MODULE_NOT_FOUND, error.context, text) from None
    finally:
        cuda.close()


def _texts(texts: Iterable[str]) -> ctypes.Array[ctypes.c_char_p]:
    """Make a C array of texts."""
    encoded = [text.encode() for text in texts]
    return (ctypes.c_char_p * len(encoded))(*encoded)
