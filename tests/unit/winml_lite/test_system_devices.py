"""What the operating system tells about hardware, on a made-up file system."""

from __future__ import annotations

import platform
from pathlib import Path

import pytest

from winml_lite import ExecutionTargetKind
from winml_lite import system_devices as system
from winml_lite.native.hardware import Device

GPU, NPU = ExecutionTargetKind.GPU, ExecutionTargetKind.NPU


def card(folder: Path, address: str, **attributes: str) -> Path:
    device = folder / address
    device.mkdir(parents=True)
    for name, value in attributes.items():
        (device / name).write_text(value + "\n", encoding="ascii")
    return device


def test_a_discrete_card_with_its_memory(tmp_path: Path) -> None:
    device = card(tmp_path, "0000:03:00.0", vendor="0x10de", device="0x2504", mem_info_vram_total="8589934592")
    assert system.pci_gpu(device) == Device(
        GPU,
        "NVIDIA GPU 0000:03:00.0",
        False,
        8 << 30,
        "NVIDIA",
        pci_address="0000:03:00.0",
        vendor_id=0x10DE,
        device_id=0x2504,
    )


@pytest.mark.parametrize(
    ("vendor", "address", "integrated"),
    [("0x8086", "0000:00:02.0", True), ("0x8086", "0000:03:00.0", False), ("0x1002", "0000:03:00.0", None)],
)
def test_processor_graphics_are_integrated(tmp_path: Path, vendor: str, address: str, integrated: bool | None) -> None:
    found = system.pci_gpu(card(tmp_path, address, vendor=vendor))
    assert found is not None
    assert found.is_integrated is integrated


@pytest.mark.parametrize("attributes", [{"vendor": "0x1234"}, {"vendor": "0x1af4"}, {"vendor": "none"}, {}])
def test_displays_that_do_not_compute_are_no_gpus(tmp_path: Path, attributes: dict[str, str]) -> None:
    assert system.pci_gpu(card(tmp_path, "0000:00:01.0", **attributes)) is None


def test_an_npu(tmp_path: Path) -> None:
    found = system.pci_npu(card(tmp_path, "0000:00:0b.0", vendor="0x8086", device="0x7d1d"))
    assert (found.kind, found.name, found.pci_address) == (NPU, "Intel NPU 0000:00:0b.0", "0000:00:0b.0")


def test_a_gpu_of_the_nvidia_driver(tmp_path: Path) -> None:
    node = card(tmp_path, "0000:0A:00.0", information="Model: \t\t NVIDIA GeForce RTX 3060\nIRQ:   \t\t 33")
    found = system.nvidia_gpu(node)
    assert (found.kind, found.name, found.pci_address) == (GPU, "NVIDIA GeForce RTX 3060", "0000:0a:00.0")


def test_a_gpu_of_the_nvidia_driver_that_says_nothing(tmp_path: Path) -> None:
    assert system.nvidia_gpu(card(tmp_path, "0000:0a:00.0")).name == "NVIDIA GPU 0000:0a:00.0"


def test_a_platform_without_enumerators(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platform, "system", lambda: "Plan9")
    assert system.system_enumerators() == ()


def test_apple_silicon_has_both_classes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platform, "system", lambda: "Darwin")
    monkeypatch.setattr(platform, "machine", lambda: "arm64")
    kinds = [device.kind for enumerator in system.system_enumerators() for device in enumerator()]
    assert kinds == [GPU, NPU]


def test_the_enumerators_of_this_machine_answer_or_refuse() -> None:
    for enumerator in system.system_enumerators():
        try:
            assert all(isinstance(device, Device) for device in enumerator())
        except OSError:
            pass
