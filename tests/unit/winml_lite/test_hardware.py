"""Which sightings are one piece of hardware."""

from __future__ import annotations

import pytest

from winml_lite import ExecutionTargetKind
from winml_lite.native.hardware import Device, grouped, normal_pci_address, same_hardware

CPU, GPU, NPU = ExecutionTargetKind.CPU, ExecutionTargetKind.GPU, ExecutionTargetKind.NPU
FIRST, SECOND = "0000:03:00.0", "0000:04:00.0"
ORT, GGML, SYSTEM = "ONNX Runtime", "llama.cpp", ""


@pytest.mark.parametrize(
    "text",
    ["0000:0a:00.0", "0000:0A:00.0", "00000000:0A:00.0", " 0000:0a:00.0\n"],
    ids=["plain", "upper", "long", "blank"],
)
def test_spellings_of_a_pci_address(text: str) -> None:
    assert normal_pci_address(text) == "0000:0a:00.0"


def test_all_sightings_of_a_cpu_are_one() -> None:
    devices = [Device(CPU, "a", engine=ORT, hardware=1), Device(CPU, "b", engine=GGML, hardware=2)]
    assert grouped(devices) == [tuple(devices)]


def test_classes_are_never_one() -> None:
    devices = [Device(GPU, "x", pci_address=FIRST), Device(NPU, "x", pci_address=FIRST)]
    assert grouped(devices) == [(devices[0],), (devices[1],)]


def test_the_pci_address_decides() -> None:
    a = Device(GPU, "x", engine=ORT, pci_address=FIRST)
    b = Device(GPU, "x", engine=ORT, pci_address=SECOND)
    c = Device(GPU, "y", engine=GGML, pci_address=SECOND)
    assert grouped([a, b, c]) == [(a,), (b, c)]


def test_the_luid_decides() -> None:
    a = Device(GPU, "x", engine=ORT, luid="1")
    b = Device(GPU, "x", engine=GGML, luid="2")
    assert grouped([a, b]) == [(a,), (b,)]


def test_two_providers_of_one_engine_name_the_same_hardware() -> None:
    a = Device(GPU, engine=ORT, provider="A", hardware=7)
    b = Device(GPU, engine=ORT, provider="B", hardware=7)
    c = Device(GPU, engine=ORT, provider="A", hardware=8)
    assert grouped([a, b, c]) == [(a, b), (c,)]


def test_the_type_decides_where_nothing_else_does() -> None:
    a = Device(GPU, engine=ORT, hardware=7, vendor_id=0x10DE, device_id=0x2504)
    b = Device(GPU, "NVIDIA GPU", pci_address=FIRST, vendor_id=0x10DE, device_id=0x2504)
    assert grouped([a, b]) == [(a, b)]


def test_other_numbers_are_another_type() -> None:
    a = Device(GPU, engine=ORT, hardware=7, vendor_id=0x10DE, device_id=0x2504)
    b = Device(GPU, pci_address=FIRST, vendor_id=0x10DE, device_id=0x2484)
    assert grouped([a, b]) == [(a,), (b,)]


def test_the_name_decides_where_a_source_has_no_numbers() -> None:
    a = Device(GPU, "NVIDIA GeForce RTX 3060", engine=ORT, luid="1", vendor_id=0x10DE, device_id=0x2504)
    b = Device(GPU, "nvidia geforce rtx 3060", engine=GGML, pci_address=FIRST)
    assert grouped([a, b]) == [(a, b)]


def test_two_of_one_type_cannot_be_told_from_each_other() -> None:
    a = Device(GPU, "x", engine=ORT, luid="1")
    b = Device(GPU, "x", engine=ORT, luid="2")
    c = Device(GPU, "x", engine=GGML, pci_address=FIRST)
    assert grouped([a, b, c]) == [(a,), (b,), (c,)]


def test_what_differs_from_one_member_is_not_of_the_group() -> None:
    a = Device(GPU, "x", engine=ORT, luid="1")
    b = Device(GPU, "x", engine=GGML, pci_address=FIRST)
    c = Device(GPU, "x", pci_address=SECOND)
    assert grouped([a, b, c]) == [(a, b), (c,)]


def test_a_sighting_joins_by_an_address_that_a_later_member_brought() -> None:
    a = Device(GPU, "x", engine=ORT, luid="1")
    b = Device(GPU, "x", engine=GGML, pci_address=FIRST)
    c = Device(GPU, "NVIDIA GPU", pci_address=FIRST)
    assert grouped([a, b, c]) == [(a, b, c)]


def test_nothing_is_grouped_by_missing_facts() -> None:
    a, b = Device(GPU, engine=ORT), Device(GPU, engine=GGML)
    assert grouped([a, b]) == [(a,), (b,)]


def test_the_devices_of_the_chosen_hardware() -> None:
    chosen = Device(GPU, "NVIDIA GPU", pci_address=SECOND)
    a = Device(GPU, engine=ORT, provider="A", pci_address=FIRST, hardware=1)
    b = Device(GPU, engine=ORT, provider="A", pci_address=SECOND, hardware=2)
    c = Device(GPU, engine=ORT, provider="B", pci_address=SECOND, hardware=2)
    assert same_hardware([chosen], [a, b, c]) == [b, c]


def test_a_device_that_was_listed_before_is_found_again() -> None:
    a = Device(GPU, engine=ORT, provider="A", hardware=1)
    b = Device(GPU, engine=ORT, provider="B", hardware=1)
    assert same_hardware([a], [a, b]) == [a, b]


def test_hardware_that_is_not_there() -> None:
    assert same_hardware([Device(GPU, pci_address=SECOND)], [Device(GPU, engine=ORT, pci_address=FIRST)]) == []
