"""Execution targets (runtime §2.3, 5 and 18): the token that places a stage, and the search for hardware.

A target says where a stage shall run; the engines resolve it at `build`. The search asks replaceable enumerators which
GPUs and NPUs the machine has. It says nothing about providers or drivers of an engine: those are `build`'s business.
"""

from __future__ import annotations

import os
import platform
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from .errors import E_NOINTERFACE, NOT_FOUND, NOT_SUPPORTED, NotSupportedError, WinMLError
from .handles import Closeable
from .values import ExecutionTargetKind, ExecutionTargetPreference


class RuntimeCore:
    """What the objects of one Runtime have in common: whether it is open, and its private CPU target."""

    __slots__ = ("cpu_target", "is_open")

    def __init__(self) -> None:
        self.is_open = True
        self.cpu_target: TargetCore | None = None

    def default_target(self) -> TargetCore:
        """Return the private CPU target of the tensor factories, made on first use."""
        if not self.is_open:
            raise RuntimeError("Runtime is closed")
        if self.cpu_target is None:
            self.cpu_target = TargetCore(self, ExecutionTargetKind.CPU)
        return self.cpu_target

    def close(self) -> None:
        self.is_open = False
        self.cpu_target = None


@dataclass(frozen=True, slots=True, eq=False)
class TargetCore:
    """A placement: hardware class and, for a pinned target, the execution provider."""

    runtime: RuntimeCore = field(repr=False)
    kind: ExecutionTargetKind
    provider: str | None = None


class ExecutionTarget(Closeable[TargetCore]):
    """Where a stage runs: a hardware class, or exactly one execution provider. Made by a `Runtime`."""

    __slots__ = ()

    @property
    def kind(self) -> ExecutionTargetKind:
        """Hardware class: CPU, GPU or NPU."""
        return self._core.kind


def target_core(target: ExecutionTarget | None, name: str = "target") -> TargetCore | None:
    """Return the core of an optional target argument; another class is TypeError, a closed one RuntimeError."""
    if target is None:
        return None
    if not isinstance(target, ExecutionTarget):
        raise TypeError(f"{name} must be an ExecutionTarget or None, not {type(target).__name__}")
    return target._core


def tensor_target(target: ExecutionTarget | None, runtime: RuntimeCore) -> TargetCore:
    """Return the target that a tensor shall keep: the given one, else the Runtime's private CPU target."""
    core = target_core(target)
    if core is None:
        return runtime.default_target()
    if core.provider is not None:
        raise NotSupportedError(
            E_NOINTERFACE,
            "IWinMLExecutionTarget",
            f"the target pinned to {core.provider} only places stages; make tensors on create_cpu_target()",
        )
    return core


@dataclass(frozen=True, slots=True)
class Device:
    """One piece of hardware that an enumerator found."""

    kind: ExecutionTargetKind
    name: str
    is_integrated: bool = False
    memory_size: int = 0
    """Bytes of its own memory; 0 when unknown."""


Enumerator = Callable[[], Iterable[Device]]
"""Lists devices of a kind of bus or driver; raises OSError where that cannot be asked."""


def create_target(
    runtime: RuntimeCore, kind: ExecutionTargetKind, preference: ExecutionTargetPreference
) -> ExecutionTarget:
    """Return a target of a hardware class; a GPU or NPU must exist."""
    if kind is not ExecutionTargetKind.CPU:
        find_device(kind, preference)
    return ExecutionTarget(TargetCore(runtime, kind))


def find_device(kind: ExecutionTargetKind, preference: ExecutionTargetPreference) -> Device:
    """Return the best device of a class.

    PERFORMANCE (and DEFAULT) takes a discrete device before an integrated one, then the larger memory; EFFICIENCY the
    reverse. No such device is 0x80070490, no enumerator that answers 0x80070032.
    """
    context = "IWinMLRuntime.CreateExecutionTarget"
    found: list[Device] = []
    refusals: list[str] = []
    for enumerator in _search.enumerators:
        try:
            found += enumerator()
        except OSError as error:
            refusals.append(str(error))
    if len(refusals) == len(_search.enumerators):
        reasons = "; ".join(refusals) or f"no device enumeration on {platform.system()}"
        raise WinMLError(NOT_SUPPORTED, context, f"the {kind.name} devices cannot be listed: {reasons}")
    candidates = [device for device in found if device.kind is kind]
    if not candidates:
        raise WinMLError(NOT_FOUND, context, f"this machine has no {kind.name}; use create_cpu_target()")
    best = min if preference is ExecutionTargetPreference.EFFICIENCY else max
    return best(candidates, key=lambda device: (not device.is_integrated, device.memory_size))


def _linux_devices() -> list[Device]:
    """List GPUs of the direct rendering manager and NPUs of the accel subsystem."""
    classes = Path("/sys/class")
    os.stat(classes)
    gpus = [_pci_gpu(card / "device") for card in sorted(classes.glob("drm/card?"))]
    npus = [Device(ExecutionTargetKind.NPU, node.name) for node in sorted(classes.glob("accel/accel*"))]
    return [gpu for gpu in gpus if gpu is not None] + npus


_GPU_VENDORS = {"0x1002": "AMD", "0x10de": "NVIDIA", "0x8086": "Intel"}


def _pci_gpu(device: Path) -> Device | None:
    """Describe a PCI display device; None for what cannot compute, such as the display of a virtual machine."""
    vendor = _GPU_VENDORS.get(_attribute(device / "vendor"))
    if vendor is None:
        return None
    address = device.resolve().name
    memory = _attribute(device / "mem_info_vram_total")
    # Intel's processor graphics always sit at 00:02.0.
    is_integrated = vendor == "Intel" and address.endswith("00:02.0")
    return Device(
        ExecutionTargetKind.GPU, f"{vendor} GPU {address}", is_integrated, int(memory) if memory.isdigit() else 0
    )


def _attribute(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError):
        return ""


def _nvidia_devices() -> list[Device]:
    """List GPUs of NVIDIA's own driver, which containers see without the direct rendering manager."""
    return [
        Device(ExecutionTargetKind.GPU, f"NVIDIA GPU {node.name}")
        for node in sorted(Path("/proc/driver/nvidia/gpus").iterdir())
    ]


def _apple_devices() -> list[Device]:
    """Apple silicon always has a GPU and a Neural Engine."""
    return [
        Device(ExecutionTargetKind.GPU, "Apple GPU", is_integrated=True),
        Device(ExecutionTargetKind.NPU, "Apple Neural Engine", is_integrated=True),
    ]


def _platform_enumerators() -> tuple[Enumerator, ...]:
    system = platform.system()
    if system == "Linux":
        return _linux_devices, _nvidia_devices
    if system == "Darwin" and platform.machine() == "arm64":
        return (_apple_devices,)
    return ()


@dataclass(slots=True)
class _Search:
    enumerators: tuple[Enumerator, ...]


_search = _Search(_platform_enumerators())


@contextmanager
def replaced_enumerators(*enumerators: Enumerator) -> Iterator[None]:
    """Search hardware with these enumerators only, inside a `with` block (a seam for tests)."""
    before = _search.enumerators
    _search.enumerators = enumerators
    try:
        yield
    finally:
        _search.enumerators = before
