"""The hardware of this machine: `DeviceInfo`, and the search for the device of a target (runtime §2.3, 21).

Sources are the engines' own lists and the operating system; several of them may see one device, which is then listed
once. Not here: what a target is (`target.py`), which sightings are one device (`native/hardware.py`).
"""

from __future__ import annotations

import logging
import platform
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from .errors import NOT_FOUND, NOT_SUPPORTED, WinMLError
from .native.backend import backend
from .native.hardware import Device, grouped
from .system_devices import Enumerator, system_enumerators
from .values import ExecutionTargetKind, ExecutionTargetPreference

logger = logging.getLogger("winml_lite.native")


@dataclass(frozen=True, slots=True)
class DeviceInfo:
    """A processor that models can be placed on. `Runtime.create_target_from_adapter` makes a target of it.

    It describes this process on this machine: do not store it.
    """

    kind: ExecutionTargetKind
    """CPU, GPU or NPU."""
    name: str
    """What its maker calls it, where known."""
    vendor: str
    """Name of the maker; empty when unknown."""
    memory_in_bytes: int | None
    """Memory it can use: its own, or that of the machine for a CPU; None when unknown."""
    is_integrated: bool | None
    """Whether it is a part of the processor and shares its memory; None when unknown, and for a CPU."""
    pci_address: str | None
    """Where it is plugged in, such as `0000:03:00.0`; None when unknown. It tells two equal cards apart."""
    engines: tuple[str, ...]
    """The installed engines that can run models on it, as `winml_lite.engines()` names them; () means none can."""
    providers: tuple[str, ...]
    """Execution providers through which ONNX Runtime uses it, for `create_ort_execution_target`."""
    handle: tuple[Device, ...] = field(repr=False)
    """How the engines know it. Opaque."""


def enumerate_devices() -> list[DeviceInfo]:
    """List the CPU and every GPU and NPU that an engine or the operating system sees, fastest first in each class.

    Sources that do not answer are passed over; the CPU is always there.
    """
    groups = _groups(_ask()[0])
    cpu = next((group for group in groups if group[0].kind is ExecutionTargetKind.CPU), ())
    infos = [_describe(ExecutionTargetKind.CPU, cpu)]
    for kind in (ExecutionTargetKind.GPU, ExecutionTargetKind.NPU):
        found = [_describe(kind, group) for group in groups if group[0].kind is kind]
        infos += sorted(found, key=_rank, reverse=True)
    return infos


def find_device(kind: ExecutionTargetKind, preference: ExecutionTargetPreference) -> DeviceInfo:
    """Return the best GPU or NPU.

    A device that an installed engine can use comes before one that none can. Then PERFORMANCE (and DEFAULT) takes a
    discrete device before an integrated one, then the larger memory; EFFICIENCY the reverse. No such device is
    0x80070490, no source that answers 0x80070032.
    """
    context = "IWinMLRuntime.CreateExecutionTarget"
    devices, refusals = _ask()
    reasons = "; ".join(refusals)
    if len(refusals) == len(_search.enumerators):
        reasons = reasons or f"no device enumeration on {platform.system()}"
        raise WinMLError(NOT_SUPPORTED, context, f"the {kind.name} devices cannot be listed: {reasons}")
    candidates = [_describe(kind, group) for group in _groups(devices) if group[0].kind is kind]
    if not candidates:
        silent = f" (without an answer: {reasons})" if refusals else ""
        raise WinMLError(
            NOT_FOUND, context, f"no {kind.name} was found on this machine{silent}; use create_cpu_target()"
        )
    if preference is ExecutionTargetPreference.EFFICIENCY:
        return min(candidates, key=lambda info: (not info.engines, *_speed(info)))
    return max(candidates, key=_rank)


def _rank(info: DeviceInfo) -> tuple[bool, bool, int]:
    return (bool(info.engines), *_speed(info))


def _speed(info: DeviceInfo) -> tuple[bool, int]:
    return info.is_integrated is not True, info.memory_in_bytes or 0


def _describe(kind: ExecutionTargetKind, group: tuple[Device, ...]) -> DeviceInfo:
    """Put together what the sources know of one device; who comes first knows best."""
    vendor = next((device.vendor for device in group if device.vendor), "")
    name = next((device.name for device in group if device.name), "")
    if kind is ExecutionTargetKind.CPU:
        name = name or platform.processor() or platform.machine()
    return DeviceInfo(
        kind=kind,
        name=name or f"{vendor} {kind.name}".strip(),
        vendor=vendor,
        memory_in_bytes=next((device.memory_size for device in group if device.memory_size), None),
        is_integrated=next((d.is_integrated for d in group if d.is_integrated is not None), None),
        pci_address=next((device.pci_address for device in group if device.pci_address), None),
        engines=tuple(dict.fromkeys(device.engine for device in group if device.engine)),
        providers=tuple(dict.fromkeys(device.provider for device in group if device.provider)),
        handle=group,
    )


def _ask() -> tuple[list[Device], list[str]]:
    """Return what the sources see, and why some do not answer."""
    devices: list[Device] = []
    refusals: list[str] = []
    for enumerator in _search.enumerators:
        try:
            devices += enumerator()
        except Exception as error:  # whatever a driver, a library or a file system comes up with
            reason = error.native_message if isinstance(error, WinMLError) else None
            refusals.append(reason or str(error))
            logger.info("a source of devices does not answer: %s", error)
    return devices, refusals


def _groups(devices: list[Device]) -> list[tuple[Device, ...]]:
    """Group the sightings; what is only said to exist counts where nothing of its kind was seen in detail."""
    groups = grouped(devices)
    seen = {group[0].kind for group in groups if any(device.engine for device in group)}
    return [group for group in groups if group[0].kind not in seen or any(_is_detailed(d) for d in group)]


def _is_detailed(device: Device) -> bool:
    return bool(device.engine or device.pci_address or device.luid)


def _ort_devices() -> tuple[Device, ...]:
    return backend("ort").devices()


def _llama_devices() -> tuple[Device, ...]:
    return backend("llama").devices()


@dataclass(slots=True)
class _Search:
    enumerators: tuple[Enumerator, ...]


_search = _Search((_ort_devices, _llama_devices, *system_enumerators()))


@contextmanager
def replaced_enumerators(*enumerators: Enumerator) -> Iterator[None]:
    """Search hardware with these enumerators only, inside a `with` block (a seam for tests)."""
    before = _search.enumerators
    _search.enumerators = enumerators
    try:
        yield
    finally:
        _search.enumerators = before
