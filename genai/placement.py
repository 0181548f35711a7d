"""Where a model is to run: `target`, `provider` and `provider_options` of `genai.load`, and what became of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from winml_lite import DeviceInfo, ExecutionTarget, ExecutionTargetKind, NotSupportedError, Runtime, Stage, WinMLError

from .checks import enum_value
from .codes import NOT_SUPPORTED

Target = ExecutionTargetKind | DeviceInfo | None

_CPU = ExecutionTargetKind.CPU
_CPU_PROVIDER = "CPUExecutionProvider"


@dataclass(frozen=True, slots=True)
class Placement:
    """A choice of hardware, and of one execution provider of ONNX Runtime; made by `placement`."""

    target: Target = None
    """None = the engine chooses, or the provider has one device."""
    provider: str | None = None
    provider_options: tuple[tuple[str, str], ...] = ()

    def make_target(self, runtime: Runtime) -> ExecutionTarget | None:
        """Return what stages are placed on; None is automatic placement."""
        hardware = runtime.create_target_from_adapter(self.target) if isinstance(self.target, DeviceInfo) else None
        if self.provider is not None:
            kind = self.target.kind if isinstance(self.target, DeviceInfo) else self.target or self._own_kind(runtime)
            return runtime.create_ort_execution_target(self.provider, kind, hardware)
        if hardware is not None or self.target is None:
            return hardware
        assert not isinstance(self.target, DeviceInfo)
        return runtime.create_target(self.target)

    def _own_kind(self, runtime: Runtime) -> ExecutionTargetKind:
        """Return the class of the provider's fastest device; CPU where it has none, which `build` then says."""
        name = (self.provider or "").casefold()
        kinds = [device.kind for device in runtime.enumerate_devices() if name in map(str.casefold, device.providers)]
        return next((kind for kind in kinds if kind is not _CPU), _CPU)

    def prepare(self, stage: Stage) -> None:
        """Set the provider's options on a stage that is not built yet."""
        if self.provider_options:
            stage.ort_options().set_provider_options(dict(self.provider_options))

    def check(self, stages: Iterable[Stage]) -> None:
        """Refuse built stages of which the provider took no operator, so that another one does all the work.

        WinMLError 0x80070032.
        """
        if self.provider is None or self.provider.casefold() == _CPU_PROVIDER.casefold():
            return
        counts: Counter[str] = Counter()
        for stage in stages:
            try:
                counts.update(stage.ort_diagnostics().node_counts)
            except NotSupportedError:  # an older ONNX Runtime does not tell
                return
        if counts.keys() == {_CPU_PROVIDER}:
            text = f"the provider {self.provider} took none of the {counts.total()} operators of the model"
            raise WinMLError(NOT_SUPPORTED, "genai.load", f"{text}: choose another provider, or another form of it")


def placement(target: Target, provider: str | None, provider_options: Mapping[str, str] | None) -> Placement:
    """Check what a caller gave. TypeError or ValueError for what cannot be."""
    if target is not None and not isinstance(target, DeviceInfo):
        target = enum_value(target, ExecutionTargetKind, "target, unless it is a DeviceInfo,")
    if provider is not None and not isinstance(provider, str):
        raise TypeError(f"provider must be the name of an execution provider, not {type(provider).__name__}")
    if provider == "":
        raise ValueError("provider must not be empty")
    if provider_options is not None and not isinstance(provider_options, Mapping):
        raise TypeError(f"provider_options must be a mapping from str to str, not {type(provider_options).__name__}")
    if provider_options and provider is None:
        raise ValueError("provider_options go with a provider: name it")
    return Placement(target, provider, tuple((provider_options or {}).items()))
