"""What `genai_config.json` says of the ONNX Runtime session of a decoder, `session_options`, and what a caller says.

Each entry is honoured, passed over because it changes neither answers nor devices, or refused by its name: none is
silently without effect that a user would miss. What the caller says wins. A file never makes code run: a library of
custom operators is loaded for a caller who names it, and for no other.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NoReturn

from winml_lite import DeviceInfo, ExecutionTarget, ExecutionTargetKind, Runtime, Stage, WinMLError

from .codes import INVALID_DATA, NOT_FOUND, NOT_SUPPORTED
from .model_source import BuildOptions
from .placement import Placement

_PASSED_OVER = frozenset(
    {
        *("log_id", "log_severity_level", "log_verbosity_level", "enable_profiling"),
        *("session.log_severity_level", "session.enable_profiling"),
        *("inter_op_num_threads", "enable_cpu_mem_arena", "enable_mem_pattern", "use_env_allocators"),
    }
)
"""Logs, which go where the program sends them; profiles; threads that only parallel graphs use; ways to get memory."""

_ENTRIES = {
    "graph_optimization_level": "session.graph_optimization_level",
    "disable_cpu_ep_fallback": "session.disable_cpu_ep_fallback",
    "disable_quant_qdq": "session.disable_quant_qdq",
    "enable_quant_qdq_cleanup": "session.enable_quant_qdq_cleanup",
}
"""Entries with a name of their own; all others with a dot in their key are session configuration already."""

_REFUSED = {
    "session.model_external_initializers_file_folder_path": "weights are read beside the model",
    "session.collect_node_memory_stats_to_file": "it writes a file wherever the model wants it",
    "session.debug_layout_transformation": "it writes files into the working folder",
    **dict.fromkeys(
        ("ep_context_enable", "ep.context_enable", "ep_context_file_path", "ep.context_file_path"),
        "it writes a compiled model; ModelCompiler.compile_to_file does that",
    ),
}

_NAMES_A_FILE = re.compile(r"(?:^|[._])(?:file|file_?name|file_?path|path|folder|dir|directory|root)$", re.IGNORECASE)
"""Keys whose values the engine, or a provider, opens as files: to read, to write, or to run."""
_NAMES_CODE = re.compile(r"(?:^|[._])(?:op_packages|lib_paths?)$", re.IGNORECASE)
"""Keys whose values a provider runs, wherever the system finds them."""
_ELSEWHERE = re.compile(r"[/\\]|^\.\.$")
"""What a value holds that says where a file lies; that of a key for files also where it holds a colon."""

_IS_CODE = "it names code, which no file makes run"

_SHORT_NAMES = {
    "cpu": "CPUExecutionProvider",
    "cuda": "CUDAExecutionProvider",
    "dml": "DmlExecutionProvider",
    "migraphx": "MIGraphXExecutionProvider",
    "nvtensorrtrtx": "NvTensorRTRTXExecutionProvider",
    "openvino": "OpenVINOExecutionProvider",
    "qnn": "QNNExecutionProvider",
    "rocm": "ROCMExecutionProvider",
    "tensorrt": "TensorrtExecutionProvider",
    "vitisai": "VitisAIExecutionProvider",
    "webgpu": "WebGpuExecutionProvider",
}
_SUFFIX = "executionprovider"
_KIND_KEY, _FILTER_KEY = "hardware_device_type", "device_filtering_options"

_PACKAGES = {
    "cuda": "`pip install onnxruntime-gpu` in place of onnxruntime",
    "dml": "`pip install onnxruntime-directml` in place of onnxruntime, on Windows",
    "openvino": "`pip install onnxruntime-openvino` in place of onnxruntime",
    "qnn": "`pip install onnxruntime-qnn`",
    "webgpu": "`pip install onnxruntime-ep-webgpu`",
}


@dataclass(frozen=True, slots=True)
class SessionSettings:
    """How one stage of an ONNX model is to be built."""

    placement: Placement
    threads: int | None = None
    entries: tuple[tuple[str, str], ...] = ()
    """Session configuration."""
    custom_operators: tuple[str, ...] = ()
    origin: str = ""
    """Where the provider was asked for, if it was in a file: what to say when it is not there."""

    def make_target(self, runtime: Runtime) -> ExecutionTarget | None:
        """Return what the stage is placed on; None is automatic placement."""
        return self.placement.make_target(runtime)

    def prepare(self, stage: Stage) -> None:
        """Set the options of a stage that is not built yet."""
        self.placement.prepare(stage)
        options = stage.ort_options()
        if self.threads is not None:
            options.set_thread_count(self.threads)
        options.set_session_config_entries(dict(self.entries))
        for library in self.custom_operators:
            options.register_custom_ops_library(library)

    def check(self, stages: Iterable[Stage]) -> None:
        """Refuse built stages of which the provider took no operator (0x80070032)."""
        self.placement.check(stages)


@contextmanager
def building(*settings: SessionSettings) -> Iterator[None]:
    """Say of a provider that is not there which file asks for it, and how to do without."""
    try:
        yield
    except WinMLError as error:
        text = error.native_message or ""
        missing = (own for own in settings if own.origin and str(own.placement.provider) in text)
        asked = next(missing, None) if error.hresult == NOT_FOUND else None
        if asked is None:
            raise
        mends = 'provider="CPUExecutionProvider" (--device cpu) runs the model on the CPU knowingly'
        package = _PACKAGES.get(_short(str(asked.placement.provider)))
        mends = f"{package}, or {mends}" if package is not None else mends
        raise WinMLError(NOT_FOUND, error.context, f"{asked.origin}: {text}; {mends}") from None


def session_settings(options: BuildOptions, config: Path, *sections: object) -> SessionSettings:
    """Put together what the caller and the file `config` want of a session; without `sections` it is the caller alone.

    Of several `session_options` the later ones win, entry by entry; None is one that is not there. WinMLError
    0x8007000D for a broken one, 0x80070032 for what cannot be honoured.
    """
    merged: dict[str, Any] = {}
    for section in sections:
        if section is not None:
            merged.update(_flat(config, section))
    settings = SessionSettings(options.placement, options.threads, (), options.custom_operators)
    entries: dict[str, str] = {}
    for key, value in merged.items():
        _check_name(config, key)
        if key in _PASSED_OVER or key == "provider_options":
            continue
        if key == "intra_op_num_threads":
            settings = replace(settings, threads=_threads(config, value, settings.threads))
        elif key == "custom_ops_library":
            _check_operators(config, value, settings)
        elif key in _REFUSED:
            _refuse(config, f"{key}: {_REFUSED[key]}")
        elif _NAMES_CODE.search(key):
            _refuse(config, f"{key}: {_IS_CODE}; remove it")
        elif _NAMES_A_FILE.search(key) or (key.startswith("ep.") and _ELSEWHERE.search(str(value))):
            _refuse(config, f"{key}: no file of a model chooses others that are read or written; remove it")
        elif key in _ENTRIES or "." in key:
            entries[_ENTRIES.get(key, key)] = _text(config, key, value)
        else:
            _refuse(config, f"{key}: this option is not known; set what it stands for by arguments, and remove it")
    return _placed(config, replace(settings, entries=tuple(entries.items())), merged.get("provider_options", []))


def _flat(config: Path, section: object) -> dict[str, Any]:
    """Return the options, with those of `config_entries` among them."""
    if not isinstance(section, dict) or not isinstance(section.get("config_entries", {}), dict):
        _break(config, "it is no object, or config_entries in it is none")
    options = {key: value for key, value in section.items() if key != "config_entries"}
    if not options.get("provider_options", True):
        del options["provider_options"]  # an empty list chooses nothing
    return {**options, **section.get("config_entries", {})}


def _threads(config: Path, value: object, wanted: int | None) -> int | None:
    if wanted is not None:
        return wanted
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= 512:
        _break(config, f"intra_op_num_threads must be 0 to 512, not {value!r}")
    return value or None


def _check_operators(config: Path, library: object, settings: SessionSettings) -> None:
    if library and not settings.custom_operators:
        mend = "if you trust it, name the library yourself: custom_operators=PATH (--custom-operators FILE)"
        _refuse(config, f"custom_ops_library {library!r} is code, which no file makes run; {mend}")


def _text(config: Path, key: str, value: object) -> str:
    if isinstance(value, bool):
        return str(int(value))
    if not isinstance(value, str) or not _is_engine_text(value):
        _break(config, f"{key} must be a text, not {value!r}")
    return value


def _is_engine_text(text: str) -> bool:
    """Whether C code gets it whole, as UTF-8 that ends with a NUL."""
    return "\0" not in text and text.encode(errors="replace").decode() == text


def _check_name(config: Path, name: str) -> None:
    if not name or not _is_engine_text(name):
        _break(config, f"{name!r} is no name of a provider or an option")


def _placed(config: Path, settings: SessionSettings, listed: object) -> SessionSettings:
    """Pin the provider of the file, unless the caller chose one, or the CPU."""
    providers = _providers(config, listed)
    wanted = settings.placement
    if wanted.provider is not None or not providers or _kind(wanted) is ExecutionTargetKind.CPU:
        return settings
    others = [name for name in providers if _short(name) != "cpu"]
    if len(others) > 1:
        _refuse(config, f"provider_options: {' and '.join(others)} at once; choose one by provider=NAME (--provider)")
    name = others[0] if others else next(iter(providers))
    _check_name(config, name)
    options, kind = _provider_options(config, name, providers[name])
    if not others and options:
        _refuse(config, f"provider_options: the provider {name!r} has no options; remove {', '.join(dict(options))}")
    target = wanted.target if wanted.target is not None or kind is None else kind
    pinned = Placement(target, _SHORT_NAMES.get(_short(name), name), options)
    return replace(settings, placement=pinned, origin=f"{config}: session_options asks for the provider {name!r}")


def _kind(wanted: Placement) -> ExecutionTargetKind | None:
    target = wanted.target
    return target.kind if isinstance(target, DeviceInfo) else target


def _providers(config: Path, listed: object) -> dict[str, Mapping[str, Any]]:
    """Return the providers with their options, in the order of the file."""
    if not isinstance(listed, list) or not all(isinstance(entry, dict) for entry in listed):
        _break(config, "provider_options is no list of objects")
    found = {name: options for entry in listed for name, options in entry.items()}
    if not all(isinstance(options, dict) for options in found.values()):
        _break(config, "provider_options: the options of a provider are no object")
    return found


def _provider_options(
    config: Path, name: str, options: Mapping[str, Any]
) -> tuple[tuple[tuple[str, str], ...], ExecutionTargetKind | None]:
    """Split what a provider is told from the class of hardware it is to use."""
    values = dict(options)
    chosen = values.pop(_FILTER_KEY, {})
    if not isinstance(chosen, dict) or chosen.keys() - {_KIND_KEY}:
        _refuse(config, f"provider_options.{name}.{_FILTER_KEY}: only {_KIND_KEY} is known; use target=DEVICE instead")
    kind = chosen.get(_KIND_KEY)
    if kind is not None and str(kind).upper() not in ExecutionTargetKind.__members__:
        _refuse(config, f"provider_options.{name}: {_KIND_KEY} {kind!r} is none of cpu, gpu, npu")
    pairs = tuple((key, _option(config, name, key, value)) for key, value in values.items())
    return pairs, None if kind is None else ExecutionTargetKind[str(kind).upper()]


def _option(config: Path, provider: str, key: str, value: object) -> str:
    """Return the value of a provider's option: a file of the model may name one of the provider's files, not others."""
    _check_name(config, key)
    text = _text(config, f"provider_options.{provider}.{key}", value)
    place = f"provider_options.{provider}.{key} {text!r}"
    if _NAMES_CODE.search(key):
        _refuse(config, f"{place}: {_IS_CODE}; give the options of the provider yourself")
    if _ELSEWHERE.search(text) or (":" in text and _NAMES_A_FILE.search(key)):
        _refuse(config, f"{place}: no file of a model chooses a path; give the options of the provider yourself")
    return text


def _short(provider: str) -> str:
    return provider.casefold().removesuffix(_SUFFIX)


def _break(config: Path, why: str) -> NoReturn:
    raise WinMLError(INVALID_DATA, "genai.load", f"{config}: session_options: {why}")


def _refuse(config: Path, why: str) -> NoReturn:
    raise WinMLError(NOT_SUPPORTED, "genai.load", f"{config}: session_options: {why}")
