# mypy: disable-error-code="empty-body"
"""The devices of ggml, and which of them a stage names (runtime §18.1).

llama.cpp runs on GPUs and CPUs. Accelerators of ggml (BLAS, AMX) work for its CPU backend and are no place of their
own, so they are not listed.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from ...errors import NOT_FOUND, WinMLError
from ...values import ExecutionTargetKind
from ..backend import Placement
from ..ffi import exported, load_library
from ..hardware import PCI_ADDRESS, Device, normal_pci_address, same_hardware

ENGINE_NAME = "llama.cpp"

_CPU, _GPU, _INTEGRATED_GPU = 0, 1, 2  # enum ggml_backend_dev_type
_KINDS = {
    _CPU: ExecutionTargetKind.CPU,
    _GPU: ExecutionTargetKind.GPU,
    _INTEGRATED_GPU: ExecutionTargetKind.GPU,
}


class DeviceProperties(ctypes.Structure):
    """`ggml_backend_dev_props`, with room for what later versions add at its end."""

    _fields_ = (
        ("name", ctypes.c_void_p),
        ("description", ctypes.c_void_p),
        ("memory_free", ctypes.c_size_t),
        ("memory_total", ctypes.c_size_t),
        ("type", ctypes.c_int),
        ("device_id", ctypes.c_char_p),
        ("later", ctypes.c_ubyte * 256),
    )


def named_gpus(placement: Placement, list_devices: Callable[[], Sequence[Device]]) -> tuple[int, ...]:
    """Return the ggml device that a target names; () where llama.cpp picks the GPUs itself.

    It picks for a target of the class GPU, and for hardware of which it cannot be told whether ggml lists it. Hardware
    that certainly is not in ggml's list is 0x80070490.
    """
    if not placement.is_exact or not placement.devices:
        return ()
    gpus = [device for device in list_devices() if device.kind is ExecutionTargetKind.GPU]
    for device in same_hardware(placement.devices, gpus):
        assert isinstance(device.handle, int)
        return (device.handle,)
    is_placed = any(device.pci_address for device in placement.devices)
    if is_placed and gpus and all(gpu.pci_address for gpu in gpus):
        wanted = next((device.name for device in placement.devices if device.name), "the chosen GPU")
        text = f"llama.cpp has no backend for {wanted}; it lists {', '.join(gpu.name for gpu in gpus)}"
        raise WinMLError(NOT_FOUND, "", f"{text}; use one of these, or create_target(GPU)")
    return ()


@dataclass(frozen=True, slots=True)
class Ggml:
    """The device functions of ggml, named as in C without `ggml_backend_dev_`. Devices are opaque pointers."""

    count: Callable[[], int]
    get: Callable[[int], int]
    name: Callable[[int], bytes]
    description: Callable[[int], bytes]
    type: Callable[[int], int]
    memory: Callable[[int, Any, Any], None]
    get_props: Callable[[int, Any], None]


def ggml_devices(ggml: Ggml) -> tuple[Device, ...]:
    """List the devices in ggml's order."""
    pointers = [ggml.get(index) for index in range(ggml.count())]
    return tuple(_describe(ggml, pointer) for pointer in pointers if ggml.type(pointer) in _KINDS)


def _describe(ggml: Ggml, pointer: int) -> Device:
    kind = ggml.type(pointer)
    free, total = ctypes.c_size_t(), ctypes.c_size_t()
    ggml.memory(pointer, ctypes.byref(free), ctypes.byref(total))
    name = ggml.description(pointer).strip() or ggml.name(pointer)
    return Device(
        kind=_KINDS[kind],
        name=name.decode("utf-8", "replace"),
        is_integrated=None if kind == _CPU else kind == _INTEGRATED_GPU,
        memory_size=total.value,
        engine=ENGINE_NAME,
        pci_address=None if kind == _CPU else _pci_address(ggml, pointer),
        hardware=pointer,
        handle=pointer,
    )


def _pci_address(ggml: Ggml, pointer: int) -> str | None:
    """Return the address of a GPU, where the structure is laid out as in the versions that tell it."""
    found = DeviceProperties()
    ggml.get_props(pointer, ctypes.byref(found))
    texts = (ctypes.string_at(address) for address in (found.name, found.description) if address)
    if found.type != ggml.type(pointer) or tuple(texts) != (ggml.name(pointer), ggml.description(pointer)):
        return None
    text = found.device_id.decode("ascii", "replace") if found.device_id else ""
    return normal_pci_address(text) if PCI_ADDRESS.fullmatch(text) else None


@cache
def load_ggml(folder: str) -> Ggml:
    """Declare the functions on the ggml libraries beside libllama, which are loaded already."""
    registry, base = (exported(_beside(folder, name)) for name in ("ggml", "ggml-base"))
    size = ctypes.POINTER(ctypes.c_size_t)

    @registry(ctypes.c_size_t)
    def ggml_backend_dev_count() -> int: ...

    @registry(ctypes.c_void_p, ctypes.c_size_t)
    def ggml_backend_dev_get(index: int, /) -> int: ...

    @base(ctypes.c_char_p, ctypes.c_void_p)
    def ggml_backend_dev_name(device: int, /) -> bytes: ...

    @base(ctypes.c_char_p, ctypes.c_void_p)
    def ggml_backend_dev_description(device: int, /) -> bytes: ...

    @base(ctypes.c_int, ctypes.c_void_p)
    def ggml_backend_dev_type(device: int, /) -> int: ...

    @base(None, ctypes.c_void_p, size, size)
    def ggml_backend_dev_memory(device: int, free: Any, total: Any, /) -> None: ...

    @base(None, ctypes.c_void_p, ctypes.POINTER(DeviceProperties))
    def ggml_backend_dev_get_props(device: int, properties: Any, /) -> None: ...

    return Ggml(
        ggml_backend_dev_count,
        ggml_backend_dev_get,
        ggml_backend_dev_name,
        ggml_backend_dev_description,
        ggml_backend_dev_type,
        ggml_backend_dev_memory,
        ggml_backend_dev_get_props,
    )


def _beside(folder: str, name: str) -> ctypes.CDLL:
    files = [f"lib{name}.so", f"lib{name}.dylib", f"{name}.dll", f"lib{name}.dll"]
    candidates = [os.path.join(folder, file) for file in files]
    return load_library(candidates, name, "It belongs to llama-cpp-python: reinstall that package.")[0]
