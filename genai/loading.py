"""`genai.load`: from a path or a catalog name to a model that generates (design 4a).

The file picks the engine. For a catalog name it is picked by what is installed: llama.cpp when it is there, else ONNX
Runtime on a decoder that is converted from the same file once. Everything here uses public names: it is the token
loop's set-up, written once.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from winml_lite import (
    DeviceInfo,
    ExecutionTarget,
    Model,
    PipelineBuilder,
    Runtime,
    Stage,
    WinMLError,
)

from .adapters import Adapter
from .checks import index_value
from .codes import E_INVALIDARG, NOT_SUPPORTED
from .composition import SinglePipeline
from .endpoints import Endpoints
from .language_model import LanguageModel
from .model_folder import (
    DecoderPipeline,
    declare_state,
    find_model_file,
    read_pipeline,
    read_session_options,
    read_settings,
    wire_decoder,
)
from .model_source import (
    ENGINE_NAMES,
    BuildOptions,
    CustomOperators,
    Engine,
    Progress,
    build_options,
    check_engine,
    chosen_engine,
    of_another_model,
    projector_path,
    refuse_custom_operators,
    resolve,
    single_gguf,
)
from .placement import Target, placement
from .sequence import SequenceCore
from .session_settings import building, session_settings
from .speculative_loading import Drafter, SpeculationOptions, speculate, speculation_options
from .tokenizer import Tokenizer

if TYPE_CHECKING:
    from .embedding import EmbeddingModel

DEFAULT_CONTEXT_LENGTH = 4096


@dataclass(frozen=True, slots=True)
class LoadOptions(BuildOptions):
    """How a model that generates is to be built."""

    speculation: SpeculationOptions | None = None
    chat_template: str | None = None
    projector: str | None = None
    batch_size: int | None = None


def load(
    source: str | os.PathLike[str] = "smollm2",
    *,
    engine: Engine | None = None,
    context_length: int | None = None,
    threads: int | None = None,
    target: Target = None,
    provider: str | None = None,
    provider_options: Mapping[str, str] | None = None,
    custom_operators: CustomOperators = (),
    adapters: Iterable[Adapter] = (),
    projector: str | os.PathLike[str] | None = None,
    batch_size: int | None = None,
    chat_template: str | None = None,
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
    provider: the execution provider that ONNX Runtime is to use, as `DeviceInfo.providers` and
        `Runtime.register_execution_provider` name it; the model runs there, on the device of `target` or one that the
        provider has, or does not load. Operators that the provider lacks run on the CPU.
    provider_options: options of that provider, texts by name.
    custom_operators: libraries with operators that an ONNX model needs, a path or several. They are code that will be
        run; a library that only `genai_config.json` names is not.
    adapters: LoRA adapters of a GGUF model, each a `.gguf` file or a pair (file, scale); the scale is 1 else.
    projector: the projector file of a GGUF model that sees or hears (often named mmproj, a `.gguf` file published with
        it): chats then take `images=` and `audio=`. Nothing is looked for that is not named here.
    batch_size: most tokens that a GGUF model takes in one run; default 512. Some projectors make more rows of one
        picture, and say so; a larger batch takes more memory.
    chat_template: source of a Jinja template for chats, in place of the model's own: for a model that has none, or one
        that shows no tools.
    speculation: "lookup" drafts what followed earlier in the text, "predictor" what the model's own predictor says
        (qwen3.5 GGUF files). Drafts are verified several tokens at a time: the answers stay the same, up to rounding,
        and come faster where the text repeats itself.
    draft: a smaller model with the same vocabulary that drafts instead, a path or a name as `source`, or a loaded
        model, which should have no other use from then on.
    draft_tokens: most tokens drafted at a time, at most 16; default: as many as pay.
    offline: never download.
    progress: called with ("download" or "convert", bytes done, bytes in all); what is done for the draft model has its
        name behind that, as in "download smollm2".

    Raises WinMLError: 0x80070002 for a missing file or an unknown name, 0x80070570 for an unreadable file, 0x8007007E
    for a missing engine, 0x80070490 for a missing device or provider, 0x80070032 for a graph that is no decoder, or of
    which the provider takes nothing, 0x8007000D for a `chat_template` that does not compile. Every message names the
    file and the mend.
    """
    place = placement(target, provider, provider_options)
    engine = chosen_engine(engine, place)
    built = build_options(context_length, threads, place, adapters, custom_operators)
    kind = None if isinstance(target, DeviceInfo) else target
    told = of_another_model(progress, str(draft))
    load_draft = partial(load, threads=threads, target=kind, offline=offline, progress=told)
    speculative = speculation_options(speculation, draft, draft_tokens, load_draft)
    options = LoadOptions(
        built.context_length,
        built.threads,
        place,
        built.adapters,
        built.custom_operators,
        speculative,
        chat_template,
        None if projector is None else projector_path(projector),
        None if batch_size is None else index_value(batch_size, "batch_size", minimum=1),
    )
    _check_template(chat_template)
    name, path = resolve(source, engine, offline, progress)
    if path.is_dir():
        return _load_folder(name, path, engine, options)
    if path.suffix.lower() == ".gguf":
        check_engine(path, "llama", engine)
        return _load_gguf(name, path, options)
    check_engine(path, "ort", engine)
    return _load_onnx(name, path, path.parent, options)


def _check_template(source: str | None) -> None:
    """Refuse a template that does not compile before anything is downloaded or loaded."""
    if isinstance(source, str):
        from .template import ChatTemplate  # loads the template engine

        ChatTemplate(source, "chat_template (--chat-template)")


def _load_folder(name: str, folder: Path, engine: Engine | None, options: LoadOptions) -> LanguageModel:
    if engine != "ort" and not (folder / "genai_config.json").is_file():
        gguf = single_gguf(folder)
        if gguf is not None:
            return _load_gguf(name, gguf, options)
    if engine == "llama":
        raise WinMLError(E_INVALIDARG, "genai.load", f"{folder} holds no .gguf file for llama.cpp")
    pipeline = read_pipeline(folder)
    if pipeline is not None:
        return _load_pipeline(name, folder, pipeline, options)
    return _load_onnx(name, find_model_file(folder), folder, options)


def _load_gguf(name: str, path: Path, options: LoadOptions) -> LanguageModel:
    refuse_custom_operators(path, options)
    runtime = Runtime()
    with runtime.load_model(path) as model:
        builder, stage = _add_stage(runtime, model, options, options.placement.make_target(runtime))
        if options.context_length is not None:
            stage.set_sequence_capacity_hint(options.context_length)
        if options.threads is not None:
            stage.llama_options().thread_count = options.threads
        if options.batch_size is not None:
            stage.llama_options().batch_size = options.batch_size
        stage.llama_options().adapters = options.adapters
        pipeline = builder.build()
    endpoints = Endpoints(pipeline, stage, 0, stage, 0)
    tokenizer = Tokenizer.from_file(path, chat_template=options.chat_template)
    language_model = _assemble(name, "llama", path, tokenizer, (runtime, endpoints, stage), options)
    if options.projector is not None:
        from .media_rows import open_projector  # most models only read

        try:
            language_model._see(open_projector(runtime, stage, options.projector))
        except BaseException:
            language_model.close()
            raise
    return language_model


def _load_pipeline(name: str, folder: Path, pipeline: DecoderPipeline, options: LoadOptions) -> LanguageModel:
    from .pipeline_folder import assemble_pipeline  # most models are one graph

    _refuse_gguf_options(folder, options)
    runtime = Runtime()
    config, session_options = read_session_options(folder)
    assembly = assemble_pipeline(runtime, pipeline, partial(session_settings, options, config, session_options))
    settings = read_settings(folder)
    tokenizer = Tokenizer.from_file(folder, chat_template=options.chat_template)
    capacity = _onnx_capacity(options.context_length, settings.context_length, folder)
    endpoints, state_owner = assembly.finish(folder, capacity, settings.head_size)
    return _assemble(name, "ort", folder, tokenizer, (runtime, endpoints, state_owner), options)


def _refuse_gguf_options(path: Path, options: LoadOptions) -> None:
    unusable = {
        "LoRA adapters go": options.adapters,
        "a projector goes": options.projector,
        "batch_size (--batch-size) goes": options.batch_size,
    }
    for what, given in unusable.items():
        if given:
            text = f"{path} is an ONNX model; {what} with GGUF models only"
            raise WinMLError(NOT_SUPPORTED, "genai.load", text)


def _load_onnx(name: str, file: Path, folder: Path, options: LoadOptions) -> LanguageModel:
    _refuse_gguf_options(file, options)
    runtime = Runtime()
    with runtime.load_model(file) as model:
        wiring = wire_decoder(model, file)  # first: a file that is no decoder needs no tokenizer
        settings = read_settings(folder)
        session = session_settings(options, *read_session_options(folder))
        tokenizer = Tokenizer.from_file(folder, chat_template=options.chat_template)
        builder, stage = _add_stage(runtime, model, options, session.make_target(runtime))
        declare_state(stage, wiring, settings.head_size)
        stage.set_sequence_capacity_hint(_onnx_capacity(options.context_length, settings.context_length, folder))
        session.prepare(stage)
        with building(session):
            pipeline = builder.build()
        session.check([stage])
    endpoints = Endpoints(pipeline, stage, wiring.token_input, stage, wiring.logits_output)
    return _assemble(name, "ort", file, tokenizer, (runtime, endpoints, stage), options)


def _onnx_capacity(wanted: int | None, declared: int | None, folder: Path) -> int:
    """Choose the capacity of an ONNX decoder, whose position tables end at what its configuration declares."""
    if wanted is None:
        return min(declared or DEFAULT_CONTEXT_LENGTH, DEFAULT_CONTEXT_LENGTH)
    if declared is not None and wanted > declared:
        raise WinMLError(E_INVALIDARG, "genai.load", f"{folder} was made for {declared} tokens, not for {wanted}")
    return wanted


def _add_stage(
    runtime: Runtime, model: Model, options: LoadOptions, target: ExecutionTarget | None
) -> tuple[PipelineBuilder, Stage]:
    builder = runtime.create_pipeline_builder()
    stage = builder.add_model_stage(model, target, "decoder")
    if options.speculation is not None:
        options.speculation.prepare(stage)
    return builder, stage


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
        speculate(composition, tokenizer, options.speculation)
    core = SequenceCore(composition, tokenizer, tuple(tokenizer.eos_token_ids))
    made = partial(_make_embedder, name, file, options) if engine == "llama" else None
    return LanguageModel(name, ENGINE_NAMES[engine], str(file), core, (runtime, composition, tokenizer), made)


def _make_embedder(name: str, file: Path, options: LoadOptions) -> EmbeddingModel:
    from .embedding_loading import gguf_embedding  # most models only generate

    return gguf_embedding(name, file, options)
