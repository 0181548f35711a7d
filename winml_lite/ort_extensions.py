"""What only ONNX Runtime stages have: bindings by name, session options, diagnostics (runtime §15.2, tensors §11)."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, cast

from .checks import THREADS_MAX, engine_text, index_value, path_value, text_value
from .errors import E_INVALIDARG, NOT_FOUND, NOT_SUPPORTED, NotSupportedError, WinMLError
from .files.artifact import OnnxArtifact, Port
from .handles import Closeable
from .model import find_port, unknown_port
from .native.backend import OrtOptions, OrtStageExecutor
from .native_libraries import library_file
from .stage_core import StageCore
from .tensor import Tensor, bindable

_MAXIMUM_KEY_LENGTH = 1024
_OPTIONS = "IWinMLOrtStageOptions"


def _ports(core: StageCore, side: str, context: str) -> tuple[Port, ...]:
    artifact = core.source.artifact
    if not isinstance(artifact, OnnxArtifact):
        raise NotSupportedError(NOT_SUPPORTED, context, f"{core.debug_name} is not an ONNX Runtime stage")
    return artifact.inputs if side == "inputs" else artifact.outputs


class OrtNamedBindings(Closeable[StageCore]):
    """Bindings by name; a name and its position are one slot. An unknown name is 0x80070490."""

    __slots__ = ()

    def bind_input(self, name: str, tensor: Tensor) -> None:
        """Bind an input, as `Stage.bind_input` does."""
        core = self._core
        position = self._find("inputs", name, "BindInput")
        core.bind_input(position, bindable(tensor))

    def bind_output(self, name: str, tensor: Tensor) -> None:
        """Publish an output into a tensor, as `Stage.bind_output` does."""
        core = self._core
        position = self._find("outputs", name, "BindOutput")
        core.bind_output(position, bindable(tensor))

    def request_output(self, name: str) -> None:
        """Publish an output into fresh memory of each run, as `Stage.request_output` does."""
        self._core.request_output(self._find("outputs", name, "RequestOutput"))

    def output(self, name: str) -> Tensor:
        """Return a published output, as `Stage.output` does."""
        core = self._core
        return Tensor(core.output(self._find("outputs", name, "GetOutput")), core.runtime)

    def find_input(self, name: str) -> int | None:
        """Return the position of an input, None where the graph has none of that name."""
        return find_port(_ports(self._core, "inputs", "IWinMLOrtNamedBindings.FindInput"), name)

    @property
    def input_names(self) -> tuple[str, ...]:
        """The names of the inputs, by position."""
        return tuple(port.name for port in _ports(self._core, "inputs", "IWinMLOrtNamedBindings.InputNames"))

    @property
    def output_names(self) -> tuple[str, ...]:
        """The names of the outputs, by position."""
        return tuple(port.name for port in _ports(self._core, "outputs", "IWinMLOrtNamedBindings.OutputNames"))

    def _find(self, side: str, name: str, member: str) -> int:
        context = f"IWinMLOrtNamedBindings.{member}"
        ports = _ports(self._core, side, context)
        position = find_port(ports, name)
        if position is None:
            raise WinMLError(NOT_FOUND, context, unknown_port(ports, name))
        return position


class OrtStageOptions(Closeable[StageCore]):
    """Session options of one stage, until `build`. The last value of a key wins.

    On a stage of another engine the setters record, and `build` refuses (0x80070032).
    """

    __slots__ = ()

    def set_thread_count(self, count: int) -> None:
        """Set the threads that work on one operator, at most 512; 0 (the default): the CPUs this process may use."""
        self._update("SetThreadCount", thread_count=index_value(count, "count", THREADS_MAX))

    def set_provider_option(self, key: str, value: str) -> None:
        """Set an option of the pinned execution provider; `build` fails with 0x80070057 when none is pinned."""
        entry = option_entry(key, value, f"{_OPTIONS}.SetProviderOption")
        self._update("SetProviderOption", provider_options=with_entry(self._options.provider_options, entry))

    def set_provider_options(self, options: Mapping[str, str]) -> None:
        """Set several provider options, one after the other; those before a wrong one stay set."""
        for key, value in _items(options, "options"):
            self.set_provider_option(key, value)

    def set_session_config(self, key: str, value: str) -> None:
        """Set a session configuration entry; unknown keys are passed on."""
        entry = option_entry(key, value, f"{_OPTIONS}.SetSessionConfig")
        self._update("SetSessionConfig", session_config=with_entry(self._options.session_config, entry))

    def set_session_config_entries(self, entries: Mapping[str, str]) -> None:
        """Set several session configuration entries, one after the other; those before a wrong one stay set."""
        for key, value in _items(entries, "entries"):
            self.set_session_config(key, value)

    def register_custom_ops_library(self, path: str | os.PathLike[str]) -> None:
        """Give the stage the operators of a library, which is code that will be run; call it once for each library.

        0x80070002 for no such file; one that does not load or has no operators fails at `build` (0x8007007E).
        """
        context = f"{_OPTIONS}.RegisterCustomOpsLibrary"
        file = path_value(path)
        self._core.check_open_for_options(context)
        libraries = dict.fromkeys((*self._options.operator_libraries, library_file(file, context)))
        self._update("RegisterCustomOpsLibrary", operator_libraries=tuple(libraries))

    def set_shared_context_group(self, name: str) -> None:
        """Let the stages of one pipeline that name the same group share what their provider compiles.

        A group has two members or more, with one provider, one target and equal provider options; else `build` fails
        with 0x80070057. Has no visible effect on the CPU.
        """
        if not text_value(name, "name") or "\0" in name:
            raise ValueError(f"the name of a group must be nonempty and free of NUL, not {name!r}")
        self._set_group(name, "SetSharedContextGroup")

    def clear_shared_context_group(self) -> None:
        """Leave the group."""
        self._set_group(None, "ClearSharedContextGroup")

    def _set_group(self, name: str | None, member: str) -> None:
        core = self._core
        core.check_open_for_options(f"{_OPTIONS}.{member}")
        core.options.context_group = name

    @property
    def _options(self) -> OrtOptions:
        return self._core.options.ort or OrtOptions()

    def _update(self, member: str, **changes: Any) -> None:
        core = self._core
        core.check_open_for_options(f"{_OPTIONS}.{member}")
        core.options.ort = replace(self._options, **changes)


def _items(mapping: Mapping[str, str], name: str) -> list[tuple[str, str]]:
    if not isinstance(mapping, Mapping):
        raise ValueError(f"{name} must be a mapping from str to str, not {type(mapping).__name__}")
    return list(mapping.items())


def option_entry(key: str, value: str, context: str) -> tuple[str, str]:
    """Check an option of the engine: ValueError for what is no text or has no key, 0x80070057 for too long a key."""
    if not engine_text(key, "key"):
        raise ValueError("the key must not be empty")
    engine_text(value, "value")
    if len(key) > _MAXIMUM_KEY_LENGTH:
        raise WinMLError(E_INVALIDARG, context, f"the key has {len(key)} characters, not <= {_MAXIMUM_KEY_LENGTH}")
    return key, value


def with_entry(entries: tuple[tuple[str, str], ...], entry: tuple[str, str]) -> tuple[tuple[str, str], ...]:
    """Return the entries with one more, or with another value of its key."""
    return tuple({**dict(entries), entry[0]: entry[1]}.items())


def pinned_provider(stage: StageCore) -> str | None:
    """Return the provider that the target of a stage pins, or else the one that has compiled its model."""
    if stage.target is not None and stage.target.provider is not None:
        return stage.target.provider
    artifact = stage.source.artifact
    return artifact.compiled_for if isinstance(artifact, OnnxArtifact) else None


_SHARE = ("ep.share_ep_contexts", "1")
_STOP_SHARING = ("ep.stop_share_ep_contexts", "1")


def shared_context_entries(stages: Iterable[StageCore], context: str) -> dict[StageCore, tuple[tuple[str, str], ...]]:
    """Check the shared context groups of a pipeline; return the session entries of their members, group by group."""
    groups: dict[str, list[StageCore]] = {}
    for stage in stages:
        if stage.options.context_group is not None:
            groups.setdefault(stage.options.context_group, []).append(stage)
    entries: dict[StageCore, tuple[tuple[str, str], ...]] = {}
    for name, members in groups.items():
        if len(members) < 2:
            raise WinMLError(E_INVALIDARG, context, f"shared context group {name!r} has one member; it needs two")
        if any(_sharing_key(member) != _sharing_key(members[0]) for member in members):
            raise WinMLError(
                E_INVALIDARG, context, f"the members of group {name!r} differ in provider, target or provider options"
            )
        entries.update({member: (_SHARE,) for member in members})
        entries[members[-1]] = (_SHARE, _STOP_SHARING)
    return entries


def _sharing_key(stage: StageCore) -> tuple[object, ...]:
    target, ort = stage.target, stage.options.ort
    return (
        target.kind if target is not None else None,
        (pinned_provider(stage) or "").casefold(),
        target.devices if target is not None else (),
        dict(ort.provider_options) if ort is not None else {},
    )


class OrtStageDiagnostics(Closeable[StageCore]):
    """Which execution provider was asked for and chosen, and how many operators each provider took."""

    __slots__ = ()

    def __repr__(self) -> str:
        core = self._open
        if core is None:
            return "<OrtStageDiagnostics (closed)>"
        provider = getattr(core.executor, "provider_name", "no provider yet")
        return f"<OrtStageDiagnostics of {core.debug_name!r}: {provider}>"

    @property
    def requested_provider(self) -> str | None:
        """The provider that the target pins, or that has compiled the model, as ONNX Runtime spells it; else None."""
        core = self._built("RequestedProvider")
        is_pinned = pinned_provider(core) is not None
        return cast(OrtStageExecutor, core.executor).provider_name if is_pinned else None

    @property
    def selected_provider(self) -> str | None:
        """The provider that represents the stage; operators that it declines run on the CPU, see `node_counts`."""
        return self._executor("SelectedProvider").provider_name

    @property
    def is_provider_pinned(self) -> bool:
        """Whether the target pins a provider, or the model is compiled for one."""
        return self.requested_provider is not None

    @property
    def node_counts(self) -> dict[str, int]:
        """Operators of the graph that each provider took, the most first; providers that took none are left out.

        They are counted before a provider fuses them, and after constants were folded: a graph may have none left.
        NotSupportedError 0x80070032 for models in the ORT format and for ONNX Runtime before 1.24, which do not tell.
        """
        counts = self._executor("NodeCounts").node_counts
        if counts is None:
            text = "ONNX Runtime tells where operators run from 1.24 on, and for .onnx models only"
            raise NotSupportedError(NOT_SUPPORTED, "IWinMLOrtStageDiagnostics.NodeCounts", text)
        return counts

    def _executor(self, member: str) -> OrtStageExecutor:
        return cast(OrtStageExecutor, self._built(member).executor)

    def _built(self, member: str) -> StageCore:
        core = self._core
        context = f"IWinMLOrtStageDiagnostics.{member}"
        _ports(core, "inputs", context)
        core.built(context)
        return core
