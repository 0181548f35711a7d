"""The search for hardware, on a made-up file system."""

from __future__ import annotations

import platform
from pathlib import Path

import pytest

from winml_lite import ExecutionTargetKind, target
from winml_lite.target import Device

GPU = ExecutionTargetKind.GPU


def card(folder: Path, address: str, **attributes: str) -> Path:
    device = folder / address
    device.mkdir(parents=True)
    for name, value in attributes.items():
        (device / name).write_text(value + "\n", encoding="ascii")
    return device


def test_a_discrete_card_with_its_memory(tmp_path: Path) -> None:
    device = card(tmp_path, "0000:03:00.0", vendor="0x1002", mem_info_vram_total="8589934592")
    assert target._pci_gpu(device) == Device(GPU, "AMD GPU 0000:03:00.0", memory_size=8 << 30)


@pytest.mark.parametrize(("address", "integrated"), [("0000:00:02.0", True), ("0000:03:00.0", False)])
def test_processor_graphics_are_integrated(tmp_path: Path, address: str, integrated: bool) -> None:
    found = target._pci_gpu(card(tmp_path, address, vendor="0x8086"))
    assert found is not None
    assert found.is_integrated is integrated


@pytest.mark.parametrize("attributes", [{"vendor": "0x1234"}, {"vendor": "0x1af4"}, {}])
def test_displays_that_do_not_compute_are_no_gpus(tmp_path: Path, attributes: dict[str, str]) -> None:
    assert target._pci_gpu(card(tmp_path, "0000:00:01.0", **attributes)) is None


def test_a_platform_without_enumerators(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platform, "system", lambda: "Plan9")
    assert target._platform_enumerators() == ()


def test_apple_silicon_has_both_classes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platform, "system", lambda: "Darwin")
    monkeypatch.setattr(platform, "machine", lambda: "arm64")
    kinds = {device.kind for enumerator in target._platform_enumerators() for device in enumerator()}
    assert kinds == {ExecutionTargetKind.GPU, ExecutionTargetKind.NPU}


def test_the_enumerators_of_this_machine_answer_or_refuse() -> None:
    for enumerator in target._platform_enumerators():
        try:
            assert all(isinstance(device, Device) for device in enumerator())
        except OSError:
            pass
