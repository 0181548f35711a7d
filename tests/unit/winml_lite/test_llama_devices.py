"""The devices of ggml, with made-up functions of it."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from typing import Any

import pytest

from winml_lite import ExecutionTargetKind, WinMLError
from winml_lite.native.backend import Placement
from winml_lite.native.hardware import Device
from winml_lite.native.llama.devices import Ggml, ggml_devices, named_gpus

CPU, GPU = ExecutionTargetKind.CPU, ExecutionTargetKind.GPU


@dataclass
class GgmlDevice:
    name: bytes
    description: bytes
    type: int
    total: int = 0
    address: bytes | None = None
    told_type: int | None = None
    """What the structure says, when it is laid out in another way."""


def ggml(*devices: GgmlDevice) -> Ggml:
    """Functions over devices whose pointers are 1000, 1001, ..."""

    def find(pointer: int) -> GgmlDevice:
        return devices[pointer - 1000]

    def memory(pointer: int, free: Any, total: Any) -> None:
        total._obj.value = find(pointer).total

    def properties(pointer: int, out: Any) -> None:
        device, found = find(pointer), out._obj
        found.keep = [ctypes.create_string_buffer(text) for text in (device.name, device.description)]
        found.name, found.description = map(ctypes.addressof, found.keep)
        found.type = device.type if device.told_type is None else device.told_type
        found.device_id = device.address

    return Ggml(
        count=lambda: len(devices),
        get=lambda index: 1000 + index,
        name=lambda pointer: find(pointer).name,
        description=lambda pointer: find(pointer).description,
        type=lambda pointer: find(pointer).type,
        memory=memory,
        get_props=properties,
    )


def test_a_machine_with_gpus() -> None:
    found = ggml_devices(
        ggml(
            GgmlDevice(b"CUDA0", b"NVIDIA GeForce RTX 3060", 1, 12 << 30, b"0000:0A:00.0"),
            GgmlDevice(b"Vulkan1", b"Intel(R) UHD", 2, 16 << 30),
            GgmlDevice(b"CPU", b"A processor", 0, 32 << 30),
        )
    )
    assert [(d.kind, d.name, d.is_integrated, d.memory_size >> 30, d.pci_address, d.handle) for d in found] == [
        (GPU, "NVIDIA GeForce RTX 3060", False, 12, "0000:0a:00.0", 1000),
        (GPU, "Intel(R) UHD", True, 16, None, 1001),
        (CPU, "A processor", None, 32, None, 1002),
    ]
    assert {device.engine for device in found} == {"llama.cpp"}


@pytest.mark.parametrize("kind", [3, 4, 99], ids=["accelerator", "meta", "unknown"])
def test_devices_that_are_no_place_of_their_own(kind: int) -> None:
    assert ggml_devices(ggml(GgmlDevice(b"BLAS", b"OpenBLAS", kind))) == ()


def test_a_device_without_a_description() -> None:
    (found,) = ggml_devices(ggml(GgmlDevice(b"Metal", b" ", 1)))
    assert found.name == "Metal"


def test_a_structure_of_another_layout_tells_no_address() -> None:
    (found,) = ggml_devices(ggml(GgmlDevice(b"CUDA0", b"A card", 1, address=b"0000:0a:00.0", told_type=7)))
    assert found.pci_address is None


def test_an_identifier_that_is_no_pci_address() -> None:
    (found,) = ggml_devices(ggml(GgmlDevice(b"RPC0", b"A server", 1, address=b"10.0.0.1:50052")))
    assert found.pci_address is None


# Which GPU a target names

FIRST = Device(GPU, "first", engine="llama.cpp", pci_address="0000:03:00.0", hardware=1, handle=1)
SECOND = Device(GPU, "second", engine="llama.cpp", pci_address="0000:04:00.0", hardware=2, handle=2)
UNPLACED = Device(GPU, "third", engine="llama.cpp", hardware=3, handle=3)


def seen_at(address: str) -> tuple[Device, ...]:
    return (Device(GPU, "a card", pci_address=address),)


def test_a_class_names_none() -> None:
    assert named_gpus(Placement(GPU, None, seen_at("0000:04:00.0")), lambda: [FIRST, SECOND]) == ()


def test_a_device_is_named_by_its_address() -> None:
    placement = Placement(GPU, None, seen_at("0000:04:00.0"), is_exact=True)
    assert named_gpus(placement, lambda: [FIRST, SECOND]) == (2,)


def test_a_device_of_ggml_is_named_by_itself() -> None:
    assert named_gpus(Placement(GPU, None, (UNPLACED,), is_exact=True), lambda: [FIRST, UNPLACED]) == (3,)


def test_a_device_that_is_certainly_not_there() -> None:
    placement = Placement(GPU, None, seen_at("0000:05:00.0"), is_exact=True)
    with pytest.raises(WinMLError, match="no backend for a card; it lists first, second") as caught:
        named_gpus(placement, lambda: [FIRST, SECOND])
    assert caught.value.hresult == 0x80070490


def test_a_device_that_may_be_there() -> None:
    placement = Placement(GPU, None, seen_at("0000:05:00.0"), is_exact=True)
    assert named_gpus(placement, lambda: [FIRST, UNPLACED]) == ()
