"""Execution targets (runtime §2, 5 and 18): the token that places a stage.

A target says where a stage shall run; the engines resolve it at `build`. A GPU or NPU target names one device of the
machine (`devices.py`); whether an engine has a provider, a driver or memory for it is `build`'s business.
"""

from __future__ import annotations

import operator
import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from .devices import DeviceInfo, find_device
from .errors import E_NOINTERFACE, NOT_SUPPORTED, NotSupportedError
from .handles import Closeable
from .native.backend import Placement
from .native.hardware import Device
from .values import CompiledModelForm, ExecutionTargetKind, ExecutionTargetPreference

if TYPE_CHECKING:
    from .compiler import ModelCompileOptions, ModelCompiler
    from .model import Model


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
    """A placement: hardware class, the device that was chosen, and for a pinned target the execution provider."""

    runtime: RuntimeCore = field(repr=False)
    kind: ExecutionTargetKind
    provider: str | None = None
    devices: tuple[Device, ...] = ()
    """How the engines know the device; () for a CPU, and where the engine shall choose."""
    is_exact: bool = False
    """Whether the caller named the device, and not only its class."""

    def placement(self) -> Placement:
        """Return it in the form that the engines take."""
        return Placement(self.kind, self.provider, self.devices, self.is_exact)


class ExecutionTarget(Closeable[TargetCore]):
    """Where a stage runs: a hardware class, or exactly one execution provider. Made by a `Runtime`."""

    __slots__ = ()

    def __repr__(self) -> str:
        core = self._open
        if core is None:
            return "<ExecutionTarget (closed)>"
        return f"<ExecutionTarget {', '.join(filter(None, (core.kind.name, core.provider)))}>"

    @property
    def kind(self) -> ExecutionTargetKind:
        """Hardware class: CPU, GPU or NPU."""
        return self._core.kind

    def model_compiler(self) -> ModelCompiler:
        """Return a compiler of ONNX models for this target; NotSupportedError 0x80004002 for a GPU without provider."""
        from .compiler import compiler_of  # which is made of targets and models

        return compiler_of(self._core)

    def compile_to_file(
        self,
        model: Model,
        artifact_path: str | os.PathLike[str],
        external_weights_path: str | os.PathLike[str] | None = None,
        form: CompiledModelForm | int | None = None,
        options: ModelCompileOptions | None = None,
    ) -> None:
        """Compile a model into a file; a shortcut to `ModelCompiler.compile_to_file`."""
        with self.model_compiler() as compiler:
            compiler.compile_to_file(model, artifact_path, external_weights_path, form, options)


def target_core(target: ExecutionTarget | None, name: str = "target") -> TargetCore | None:
    """Return the core of an optional target argument; another class is TypeError, a closed one RuntimeError."""
    if target is None:
        return None
    if not isinstance(target, ExecutionTarget):
        raise TypeError(
            f"{name} must be an ExecutionTarget or None, not {type(target).__name__}; "
            "make one with runtime.create_cpu_target or create_target"
        )
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


def create_target(
    runtime: RuntimeCore, kind: ExecutionTargetKind, preference: ExecutionTargetPreference
) -> ExecutionTarget:
    """Return a target of a hardware class; a GPU or NPU must exist."""
    if kind is ExecutionTargetKind.CPU:
        return ExecutionTarget(TargetCore(runtime, kind))
    return ExecutionTarget(TargetCore(runtime, kind, devices=find_device(kind, preference).handle))


def create_target_of(runtime: RuntimeCore, device: DeviceInfo) -> ExecutionTarget:
    """Return a target that is exactly this device."""
    if device.kind is ExecutionTargetKind.CPU:
        return ExecutionTarget(TargetCore(runtime, device.kind))
    return ExecutionTarget(TargetCore(runtime, device.kind, devices=device.handle, is_exact=True))


def create_pinned_target(
    runtime: RuntimeCore, provider: str, kind: ExecutionTargetKind, hardware: TargetCore | None
) -> ExecutionTarget:
    """Return a target of one execution provider, on the hardware of another target if there is one."""
    devices = hardware.devices if hardware is not None else ()
    return ExecutionTarget(TargetCore(runtime, kind, provider, devices, is_exact=bool(devices)))


def check_address(value: object, name: str, counterpart: str) -> None:
    """Raise TypeError or ValueError for what cannot be the address of a Windows object."""
    if value is None:
        raise ValueError(f"{name} must not be None")
    if isinstance(value, bool):
        raise TypeError(f"{name} must be an address, not a bool")
    try:
        address = operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        raise TypeError(f"{name} must be an address, not {type(value).__name__}; {counterpart}") from None
    if address <= 0:
        raise ValueError(f"{name} must be a positive address, not {address}")


def windows_only(what: str, context: str, counterpart: str) -> NotSupportedError:
    """Return the refusal of an object that only Windows has."""
    return NotSupportedError(NOT_SUPPORTED, context, f"{what} cannot be used here; {counterpart}")
