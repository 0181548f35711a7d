"""`genai.load`: from a path or a catalog name to a model that generates (design 4a).

The file picks the engine. For a catalog name it is picked by what is installed: llama.cpp when it is there, else ONNX
Runtime on a decoder that is converted from the same file once. Everything here uses public names: it is the token
loop's set-up, written once.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from winml_lite import (
    DeviceInfo,
    ExecutionTarget,
    ExecutionTargetKind,
    Model,
    PipelineBuilder,
    Runtime,
    Stage,
    WinMLError,
)

from .adapters import Adapter, adapter_pairs
from .checks import enum_value, index_value
from .codes import E_INVALIDARG, NOT_SUPPORTED
from .composition import SinglePipeline
from .endpoints import Endpoints
from .language_model import LanguageModel
from .model_folder import declare_state, find_decoder, read_settings, wire_decoder
from .sequence import SequenceCore
from .speculative_loading import Drafter, SpeculationOptions, speculate, speculation_options
from .tokenizer import Tokenizer

Engine = Literal["llama", "ort"]
Progress = Callable[[str, int, int], None]
"""Called with what is going on ("download", "convert"), the work done and the whole, in bytes."""

DEFAULT_CONTEXT_LENGTH = 4096
_ENGINE_NAMES: dict[Engine, str] = {"llama": "llama.cpp", "ort": "ONNX Runtime"}


@dataclass(frozen=True, slots=True)
class LoadOptions:
    """How a model is to be built."""

    context_length: int | None
    threads: int | None
    target: ExecutionTargetKind | DeviceInfo | None
    adapters: tuple[tuple[str, float], ...] = ()
    speculation: SpeculationOptions | None = None


def load(
    source: str | os.PathLike[str] = "smollm2",
    *,
    engine: Engine | None = None,
    context_length: int | None = None,
    threads: int | None = None,
    target: ExecutionTargetKind | DeviceInfo | None = None,
    adapters: Iterable[Adapter] = (),
    speculation: Drafter | None = None,
    draft: str | os.PathLike[str] | LanguageModel | None = None,
    draft_tokens: int | None = None,
    offline: bool = False,
    progress: Progress | None = None,
) -> LanguageModel:
    """Load a model that generates text.

    `source` is a `.gguf`, `.onnx` or `.ort` file, a model folder, or a name of the catalog (downloaded once, then taken
    from the cache).

    engine: "llama" or "ort" where a catalog name leaves the choice; a file has its own.
    context_length: most tokens of prompt and answer together; default: what the model declares, at most 4,096. More
        than an ONNX folder declares is refused; a GGUF model may be given more than it was trained on, as llama.cpp
        allows, but what it says beyond that is not to be trusted.
    threads: at most 512; default: the CPUs that this process may use.
    target: hardware class, or one device of `Runtime.enumerate_devices()`; default: a GPU where the engine has one,
        else the CPU.
    adapters: LoRA adapters of a GGUF model, each a `.gguf` file or a pair (file, scale); the scale is 1 else.
    speculation: "lookup" drafts what followed earlier in the text, "predictor" what the model's own predictor says
        (qwen3.5 GGUF files). Drafts are verified several tokens at a time: the answers stay the same, up to rounding,
        and come faster where the text repeats itself.
    draft: a smaller model with the same vocabulary that drafts instead, a path or a name as `source`, or a loaded
        model, which should have no other use from then on.
    draft_tokens: most tokens drafted at a time, at most 16; default: as many as pay.
    offline: never download.
    progress: called with ("download" or "convert", bytes done, bytes in all).

    Raises WinMLError: 0x80070002 for a missing file or an unknown name, 0x80070570 for an unreadable file, 0x8007007E
    for a missing engine, 0x80070032 for a graph that is no decoder. Every message names the file and the mend.
    """
    if engine is not None and engine not in _ENGINE_NAMES:
        raise ValueError(f"engine must be 'llama', 'ort' or None, not {engine!r}")
    options = LoadOptions(
        index_value(context_length, "context_length", minimum=1) if context_length is not None else None,
        index_value(threads, "threads", 512, 1) if threads is not None else None,
        target
        if target is None or isinstance(target, DeviceInfo)
        else enum_value(target, ExecutionTargetKind, "target, unless it is a DeviceInfo,"),
        adapter_pairs(adapters),
        speculation_options(speculation, draft, draft_tokens),
    )
    name, path = resolve(source, engine, offline, progress)
    if path.is_dir():
        return _load_folder(name, path, engine, options)
    if path.suffix.lower() == ".gguf":
        _check_engine(path, "llama", engine)
        return _load_gguf(name, path, options)
    _check_engine(path, "ort", engine)
    return _load_onnx(name, path, path.parent, options)


def resolve(
    source: str | os.PathLike[str], engine: Engine | None, offline: bool, progress: Progress | None
) -> tuple[str, Path]:
    """Return the model's name and its file or folder. An existing path wins over an equal catalog name."""
    text = os.fspath(source)
    if not isinstance(text, str):
        raise TypeError(f"source must be a path or a name, not {type(source).__name__}")
    if not text:
        raise ValueError("source must not be empty")
    path = Path(text)
    if path.exists():
        return path.stem if path.is_file() else path.resolve().name, path
    from .named_models import fetch  # a path needs neither the catalog nor downloads

    return fetch(source, engine, offline, progress)


def _check_engine(path: Path, own: Engine, wanted: Engine | None) -> None:
    if wanted is not None and wanted != own:
        mend = (
            f"convert it with `winml-lite convert {path} FOLDER` and load the folder"
            if own == "llama"
            else "llama.cpp reads .gguf files only"
        )
        raise WinMLError(
            E_INVALIDARG, "genai.load", f"{path} runs on {_ENGINE_NAMES[own]}, not on {_ENGINE_NAMES[wanted]}: {mend}"
        )


def _load_folder(name: str, folder: Path, engine: Engine | None, options: LoadOptions) -> LanguageModel:
    gguf = sorted(folder.glob("*.gguf"))
    if gguf and not (folder / "genai_config.json").is_file() and engine != "ort":
        first = [path for path in gguf if "-of-" not in path.stem or "-00001-of-" in path.stem]
        if len(first) != 1:
            raise WinMLError(NOT_SUPPORTED, "genai.load", f"{folder} holds several GGUF models: name one of them")
        return _load_gguf(name, first[0], options)
    if engine == "llama":
        raise WinMLError(E_INVALIDARG, "genai.load", f"{folder} holds no .gguf file for llama.cpp")
    return _load_onnx(name, find_decoder(folder), folder, options)


def _load_gguf(name: str, path: Path, options: LoadOptions) -> LanguageModel:
    runtime = Runtime()
    with runtime.load_model(path) as model:
        builder, stage = _add_stage(runtime, model, options)
        if options.context_length is not None:
            stage.set_sequence_capacity_hint(options.context_length)
        if options.threads is not None:
            stage.llama_options().thread_count = options.threads
        stage.llama_options().adapters = options.adapters
        pipeline = builder.build()
    endpoints = Endpoints(pipeline, stage, 0, stage, 0)
    return _assemble(name, "llama", path, Tokenizer.from_file(path), (runtime, endpoints, stage), options)


def _load_onnx(name: str, file: Path, folder: Path, options: LoadOptions) -> LanguageModel:
    if options.adapters:
        raise WinMLError(NOT_SUPPORTED, "genai.load", f"{file} is an ONNX model; LoRA adapters go with GGUF models only")
    runtime = Runtime()
    with runtime.load_model(file) as model:
        wiring = wire_decoder(model, file)  # first: a file that is no decoder needs no tokenizer
        settings = read_settings(folder)
        tokenizer = Tokenizer.from_file(folder)
        builder, stage = _add_stage(runtime, model, options)
        declare_state(stage, wiring, settings.head_size)
        stage.set_sequence_capacity_hint(_onnx_capacity(options.context_length, settings.context_length, folder))
        if options.threads is not None:
            stage.ort_options().set_thread_count(options.threads)
        pipeline = builder.build()
    endpoints = Endpoints(pipeline, stage, wiring.token_input, stage, wiring.logits_output)
    return _assemble(name, "ort", file, tokenizer, (runtime, endpoints, stage), options)


def _onnx_capacity(wanted: int | None, declared: int | None, folder: Path) -> int:
    """Choose the capacity of an ONNX decoder, whose position tables end at what its configuration declares."""
    if wanted is None:
        return min(declared or DEFAULT_CONTEXT_LENGTH, DEFAULT_CONTEXT_LENGTH)
    if declared is not None and wanted > declared:
        raise WinMLError(E_INVALIDARG, "genai.load", f"{folder} was made for {declared} tokens, not for {wanted}")
    return wanted


def _add_stage(runtime: Runtime, model: Model, options: LoadOptions) -> tuple[PipelineBuilder, Stage]:
    builder = runtime.create_pipeline_builder()
    stage = builder.add_model_stage(model, _target(runtime, options.target), "decoder")
    if options.speculation is not None:
        options.speculation.prepare(stage)
    return builder, stage


def _target(runtime: Runtime, wanted: ExecutionTargetKind | DeviceInfo | None) -> ExecutionTarget | None:
    if isinstance(wanted, DeviceInfo):
        return runtime.create_target_from_adapter(wanted)
    return None if wanted is None else runtime.create_target(wanted)


def _assemble(
    name: str,
    engine: Engine,
    file: Path,
    tokenizer: Tokenizer,
    parts: tuple[Runtime, Endpoints, Stage],
    options: LoadOptions,
) -> LanguageModel:
    runtime, endpoints, state_owner = parts
    composition = SinglePipeline(runtime, endpoints, state_owner, runtime.create_cpu_target())
    if options.speculation is not None:
        speculate(composition, tokenizer, options.speculation, load)
    core = SequenceCore(composition, tokenizer, tuple(tokenizer.eos_token_ids))
    return LanguageModel(name, _ENGINE_NAMES[engine], str(file), core, (runtime, composition, tokenizer))
