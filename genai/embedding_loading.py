"""`genai.load_embedding`: from a path or a catalog name to a model that embeds texts."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path

from winml_lite import NotSupportedError, Pipeline, PipelineBuilder, Runtime, Stage

from .adapters import Adapter
from .codes import NOT_SUPPORTED
from .embedding import EmbeddingModel
from .gguf_encoder import GgufEncoder
from .model_folder import find_model_file, read_session_options
from .model_source import (
    ENGINE_NAMES,
    BuildOptions,
    CustomOperators,
    Engine,
    Progress,
    build_options,
    check_engine,
    chosen_engine,
    naming,
    refuse_custom_operators,
    resolve,
    single_gguf,
)
from .onnx_encoder import OnnxEncoder, check_encoder, read_encoder_settings
from .placement import Target, placement
from .session_settings import building, session_settings
from .tokenizer import Tokenizer


@naming("genai.load_embedding")
def load_embedding(
    source: str | os.PathLike[str],
    *,
    engine: Engine | None = None,
    context_length: int | None = None,
    threads: int | None = None,
    target: Target = None,
    provider: str | None = None,
    provider_options: Mapping[str, str] | None = None,
    custom_operators: CustomOperators = (),
    adapters: Iterable[Adapter] = (),
    offline: bool = False,
    progress: Progress | None = None,
) -> EmbeddingModel:
    """Load a model that embeds texts.

    `source` is a `.gguf` file (an encoder such as bert, or a decoder), an `.onnx` file, or a model folder as
    sentence-transformers writes it: `model.onnx` there or in `onnx/`, `tokenizer.json`, and `1_Pooling/config.json`.

    context_length: most tokens of one text; default and limit: what the model declares.
    engine, threads, target, provider, provider_options, custom_operators, adapters, offline, progress: as for
        `genai.load`.

    Raises WinMLError: 0x80070002 for a missing file, 0x80070570 for an unreadable one, 0x8007007E for a missing engine,
    0x80070032 for a model that has no embeddings.
    """
    place = placement(target, provider, provider_options)
    engine = chosen_engine(engine, place)
    options = build_options(context_length, threads, place, adapters, custom_operators)
    name, path = resolve(source, engine, offline, progress, ("text-encoder", "text"))
    if path.is_dir() and engine != "ort":
        path = single_gguf(path) or path
    if path.suffix.lower() == ".gguf" and path.is_file():
        check_engine(path, "llama", engine)
        refuse_custom_operators(path, options)
        return gguf_embedding(name, path, options)
    check_engine(path, "ort", engine)
    if options.adapters:
        text = f"{path} is an ONNX model; LoRA adapters go with GGUF models only"
        raise NotSupportedError(NOT_SUPPORTED, "genai.load_embedding", text)
    return _onnx_embedding(name, path, options)


def gguf_embedding(name: str, path: Path, options: BuildOptions) -> EmbeddingModel:
    """Load a GGUF model."""
    runtime = Runtime()

    def add_stage(builder: PipelineBuilder) -> Stage:
        with runtime.load_model(path) as model:
            stage = builder.add_model_stage(model, options.placement.make_target(runtime), "encoder")
        llama = stage.llama_options()
        llama.adapters = options.adapters
        if options.threads is not None:
            llama.thread_count = options.threads
        return stage

    encoder = GgufEncoder(runtime, path, add_stage, options.context_length)
    return EmbeddingModel(name, ENGINE_NAMES["llama"], str(path), encoder, Tokenizer.from_file(path))


def _onnx_embedding(name: str, path: Path, options: BuildOptions) -> EmbeddingModel:
    file = find_model_file(path) if path.is_dir() else path
    folder = path if path.is_dir() else path.parent
    if folder.name == "onnx" and not (folder / "tokenizer.json").is_file():
        folder = folder.parent
    runtime = Runtime()
    with runtime.load_model(file) as model:
        schema, ports = model.schema(), model.ort_schema()
        inputs = [ports.input_name(index) for index in range(schema.input_count)]
        outputs = [ports.output_name(index) for index in range(schema.output_count)]
        check_encoder(file, inputs, outputs)
        settings = read_encoder_settings(folder)
        tokenizer = Tokenizer.from_file(folder)
        session = session_settings(options, *read_session_options(file.parent))
        builder = runtime.create_pipeline_builder()
        stage = builder.add_model_stage(model, session.make_target(runtime), "encoder")
        session.prepare(stage)
        with building(session):
            built: tuple[Stage, Pipeline] = stage, builder.build()
        session.check([stage])
    encoder = OnnxEncoder(runtime, built, (inputs, outputs), settings, options.context_length)
    return EmbeddingModel(name, ENGINE_NAMES["ort"], str(file), encoder, tokenizer)
