"""Pieces of hardware as their sources see them, and which of these are one and the same (runtime §2.3, 18).

A source is an engine's library or a probe of the operating system. What a target shall be placed on is a group of such
sightings. Not here: who asks the sources (`winml_lite/devices.py`), how an engine lists its devices (`ort/devices.py`,
`llama/devices.py`).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from ..values import ExecutionTargetKind

ModelKey = tuple[ExecutionTargetKind, str]


@dataclass(frozen=True, slots=True)
class Device:
    """One piece of hardware that one source found."""

    kind: ExecutionTargetKind
    name: str = ""
    """What its maker calls it; empty when the source does not know."""
    is_integrated: bool | None = None
    """Whether it is part of the processor; None when unknown."""
    memory_size: int = 0
    """Bytes of memory it can use; 0 when unknown."""
    vendor: str = ""
    engine: str = ""
    """Name of the engine that can compute on it; empty for a probe of the operating system."""
    provider: str = ""
    """Execution provider through which ONNX Runtime uses it."""
    pci_address: str | None = None
    """`domain:bus:device.function` in lower-case hexadecimal digits, such as `0000:03:00.0`."""
    luid: str | None = None
    """Identifier that Windows gave the adapter."""
    vendor_id: int = 0
    """PCI number of the vendor; 0 when unknown."""
    device_id: int = 0
    """PCI number of the device type; two cards of one type have the same."""
    hardware: object = None
    """The engine's own identity of the hardware, which several of its providers may share."""
    handle: object = None
    """What the engine needs to use it; nobody else looks inside."""


PCI_ADDRESS = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]", re.IGNORECASE)
VENDORS = {0x1002: "AMD", 0x10DE: "NVIDIA", 0x8086: "Intel", 0x106B: "Apple", 0x5143: "Qualcomm"}


def normal_pci_address(text: str) -> str:
    """Spell a PCI address like Linux does: drivers write the domain with four or eight digits, in either case."""
    domain, _, rest = text.strip().lower().partition(":")
    return f"{domain[-4:].rjust(4, '0')}:{rest}"


def grouped(devices: Iterable[Device]) -> list[tuple[Device, ...]]:
    """Put sightings of one piece of hardware together, in the order in which each was first seen.

    PCI address, LUID and the engine's own identity decide where both sides have them. Otherwise the type (by PCI
    numbers, or else by name) decides, unless a source has seen two of that type. All sightings of a CPU are one.
    """
    different = list(dict.fromkeys(devices))
    repeated = _repeated(different, _numbers) | _repeated(different, _name)
    groups: list[list[Device]] = []
    for device in different:
        group = next((group for group in groups if _belongs(device, group, repeated)), None)
        if group is None:
            groups.append([device])
        else:
            group.append(device)
    return [tuple(group) for group in groups]


def same_hardware(chosen: Iterable[Device], devices: Iterable[Device]) -> list[Device]:
    """Return those of an engine's devices that are the chosen hardware."""
    wanted, offered = list(chosen), list(devices)
    group = next((group for group in grouped([*wanted, *offered]) if wanted[0] in group), ())
    return [device for device in offered if device in group]


def _belongs(device: Device, group: list[Device], repeated: set[ModelKey]) -> bool:
    if device.kind is not group[0].kind:
        return False
    if device.kind is ExecutionTargetKind.CPU:
        return True
    verdicts = [_same_by_identity(device, other) for other in group]
    if True in verdicts or False in verdicts:
        return False not in verdicts
    return any(_same_by_type(device, other, repeated) for other in group)


def _same_by_identity(a: Device, b: Device) -> bool | None:
    """Compare what is unique in a machine; None where that cannot be told."""
    if a.engine == b.engine and a.hardware is not None and b.hardware is not None:
        return a.hardware == b.hardware
    if a.pci_address is not None and b.pci_address is not None:
        return a.pci_address == b.pci_address
    if a.luid is not None and b.luid is not None:
        return a.luid == b.luid
    return None


def _same_by_type(a: Device, b: Device, repeated: set[ModelKey]) -> bool:
    for key_of in (_numbers, _name):
        left, right = key_of(a), key_of(b)
        if left is not None and right is not None:
            return left == right and left not in repeated
    return False


def _numbers(device: Device) -> ModelKey | None:
    return (device.kind, f"{device.vendor_id:04x}:{device.device_id:04x}") if device.device_id else None


def _name(device: Device) -> ModelKey | None:
    return (device.kind, device.name.casefold()) if device.name else None


def _repeated(devices: list[Device], key_of: Callable[[Device], ModelKey | None]) -> set[ModelKey]:
    """Return the types of which one source has seen two pieces."""
    seen = {
        (device.engine, key, device.hardware or device.pci_address or device.luid or number)
        for number, device in enumerate(devices)
        if (key := key_of(device)) is not None
    }
    counts = Counter((engine, key) for engine, key, _ in seen)
    return {key for (_, key), count in counts.items() if count > 1}
