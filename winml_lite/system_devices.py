"""What the operating system tells about GPUs and NPUs, without an engine and without a driver call (runtime §2.3).

Windows is not asked: there ONNX Runtime looks the adapters up for its providers.
"""

from __future__ import annotations

import os
import platform
from collections.abc import Callable, Iterable
from pathlib import Path

from .native.hardware import PCI_ADDRESS, VENDORS, Device, normal_pci_address
from .values import ExecutionTargetKind

Enumerator = Callable[[], Iterable[Device]]
"""Lists what one source sees; raises where that cannot be asked."""

_NVIDIA = 0x10DE
_GPU_VENDORS = (0x1002, _NVIDIA, 0x8086)


def system_enumerators() -> tuple[Enumerator, ...]:
    """Return the sources of this operating system."""
    system = platform.system()
    if system == "Linux":
        return (linux_devices,)
    if system == "Darwin" and platform.machine() == "arm64":
        return (apple_devices,)
    return ()


def linux_devices() -> list[Device]:
    """List GPUs of NVIDIA's driver and of the direct rendering manager, and NPUs of the accel subsystem.

    Containers see NVIDIA's driver without the direct rendering manager.
    """
    classes, nvidia = Path("/sys/class"), Path("/proc/driver/nvidia/gpus")
    nodes = sorted(nvidia.iterdir()) if nvidia.is_dir() else []
    if not nodes:
        os.stat(classes)
    gpus = [pci_gpu(card / "device") for card in sorted(classes.glob("drm/card*")) if card.name[4:].isdigit()]
    npus = [pci_npu(node / "device") for node in sorted(classes.glob("accel/accel*"))]
    return [nvidia_gpu(node) for node in nodes] + [gpu for gpu in gpus if gpu is not None] + npus


def pci_gpu(device: Path) -> Device | None:
    """Describe a PCI display device; None for what cannot compute, such as the display of a virtual machine."""
    vendor_id, device_id = (_number(device / name, 16) for name in ("vendor", "device"))
    if vendor_id not in _GPU_VENDORS:
        return None
    vendor = VENDORS[vendor_id]
    address = normal_pci_address(device.resolve().name)
    # Intel's processor graphics always sit at 00:02.0; AMD's cannot be told by their address.
    is_integrated = {"Intel": address.endswith("00:02.0"), "NVIDIA": False}.get(vendor)
    return Device(
        ExecutionTargetKind.GPU,
        f"{vendor} GPU {address}",
        is_integrated,
        _number(device / "mem_info_vram_total", 10),
        vendor,
        pci_address=address,
        vendor_id=vendor_id,
        device_id=device_id,
    )


def pci_npu(device: Path) -> Device:
    """Describe an accelerator."""
    vendor_id, device_id = (_number(device / name, 16) for name in ("vendor", "device"))
    vendor = VENDORS.get(vendor_id, "")
    place = device.resolve().name
    return Device(
        ExecutionTargetKind.NPU,
        f"{vendor} NPU {place}".strip(),
        vendor=vendor,
        pci_address=normal_pci_address(place) if PCI_ADDRESS.fullmatch(place) else None,
        vendor_id=vendor_id,
        device_id=device_id,
    )


def nvidia_gpu(node: Path) -> Device:
    """Describe a GPU by its folder in the driver's part of /proc; the folder is named after the PCI address."""
    address = normal_pci_address(node.name)
    lines = dict(line.partition(":")[::2] for line in _text(node / "information").splitlines())
    name = lines.get("Model", "").strip() or f"NVIDIA GPU {address}"
    return Device(ExecutionTargetKind.GPU, name, False, vendor="NVIDIA", pci_address=address, vendor_id=_NVIDIA)


def apple_devices() -> list[Device]:
    """Apple silicon always has a GPU and a Neural Engine."""
    return [
        Device(ExecutionTargetKind.GPU, "Apple GPU", is_integrated=True, vendor="Apple"),
        Device(ExecutionTargetKind.NPU, "Apple Neural Engine", is_integrated=True, vendor="Apple"),
    ]


def _number(path: Path, base: int) -> int:
    try:
        return int(_text(path), base)
    except ValueError:
        return 0


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""
