"""Building stages from GGUF artifacts: options, placement, adapters (runtime §9.1, 15.3, 18)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from threading import Event

from ...checks import THREADS_MAX
from ...errors import E_INVALIDARG, NOT_ENOUGH_MEMORY, NOT_SUPPORTED, WinMLError
from ...files.artifact import Artifact, GgufArtifact
from ...values import EngineInfo, ExecutionTargetKind
from ..activity import apart
from ..backend import LlamaOptions, Placement, StageExecutor, StageOptions
from ..cpus import usable_cpu_count
from ..hardware import Device
from .api import installed_version
from .context import ContextSettings
from .devices import ENGINE_NAME, named_gpus
from .embedding import EmbeddingExecutor, EmbeddingSettings
from .executor import LlamaExecutor
from .library import ENGINE, library
from .memory import bytes_per_position
from .model import LlamaModel, load_model
from .predictor import has_predictor
from .sequence import LlamaSequence
from .speculation import MAX_DRAFT

_BUILD = "IWinMLPipelineBuilder.Build"
_DEFAULT_CAPACITY = 4096
_DEFAULT_BATCH = 512
_MAX_CAPACITY = 0x7FFFFFFF
_CACHE_TYPES = {"f32": "GGML_TYPE_F32", "f16": "GGML_TYPE_F16", "q8_0": "GGML_TYPE_Q8_0"}
_CACHE_BITS = {"f32": 32, "f16": 16, "q8_0": 8.5}  # q8_0: 32 values of 8 bits and a scale of 16


@dataclass(frozen=True, slots=True)
class Resolved:
    """Where a stage goes."""

    kind: ExecutionTargetKind
    gpu_layers: int
    """0 = none, -1 = all."""
    gpus: tuple[int, ...] = ()
    """The ggml devices that the target names; () = llama.cpp picks."""


class LlamaBackend:
    """Implements `Backend`."""

    def build_stage(self, artifact: Artifact, placement: Placement, options: StageOptions) -> StageExecutor:
        """Load the model and make its context. Nothing is tried on another device than the placement asks for."""
        if not isinstance(artifact, GgufArtifact):
            raise WinMLError(NOT_SUPPORTED, _BUILD, "llama.cpp runs GGUF models only")
        settings = options.llama or LlamaOptions()
        if settings.embeddings and options.draft_token_limit:
            raise WinMLError(NOT_SUPPORTED, _BUILD, "a GGUF stage does not support drafts beside embeddings")
        ENGINE.check()
        found = library()
        resolved = resolve(placement, settings.gpu_layers, found.has_gpu)
        if resolved.gpu_layers:
            resolved = replace(resolved, gpus=named_gpus(placement, found.devices))
        try:
            return _build(artifact, resolved, options, settings)
        except WinMLError as error:
            if placement.kind is not None or not resolved.gpu_layers or error.hresult != NOT_ENOUGH_MEMORY:
                raise
        # automatic placement: a model that the GPU cannot hold runs on the CPU
        return _build(artifact, Resolved(ExecutionTargetKind.CPU, 0), options, settings)

    def describe(self) -> EngineInfo:
        """Load llama.cpp if need be and say what was found."""
        try:
            found = library()
        except WinMLError as error:
            return EngineInfo(ENGINE_NAME, (".gguf",), installed_version(), None, error.native_message)
        return EngineInfo(ENGINE_NAME, (".gguf",), found.version, found.path, None)

    def devices(self) -> tuple[Device, ...]:
        """The CPU and the GPUs that ggml sees. Loads llama.cpp if need be."""
        ENGINE.check()
        return library().devices()


def create_backend() -> LlamaBackend:
    """Make the backend; the library is loaded by its first `build_stage`."""
    return LlamaBackend()


def resolve(placement: Placement, gpu_layers: int, has_gpu: bool) -> Resolved:
    """Turn a target into a device class and a number of offloaded layers (runtime §18.1)."""
    kind = placement.kind
    if placement.provider is not None:
        text = f"{placement.provider} is a provider of ONNX Runtime; a GGUF stage takes a target without a pin"
        raise WinMLError(NOT_SUPPORTED, _BUILD, text)
    if kind is ExecutionTargetKind.NPU:
        raise WinMLError(NOT_SUPPORTED, _BUILD, "llama.cpp has no NPU backend; use a CPU or GPU target")
    if kind is ExecutionTargetKind.CPU and gpu_layers > 0:
        raise WinMLError(E_INVALIDARG, _BUILD, f"gpu_layers is {gpu_layers} on a CPU target; use a GPU target")
    if kind is ExecutionTargetKind.GPU and gpu_layers == 0:
        raise WinMLError(E_INVALIDARG, _BUILD, "gpu_layers is 0 on a GPU target; use a CPU target")
    wants_gpu = kind is ExecutionTargetKind.GPU or (kind is None and gpu_layers > 0)
    if wants_gpu and not has_gpu:
        text = (
            "this llama.cpp has no GPU module for a GPU of this machine; install llama-cpp-python built for your GPU "
            "(for example CMAKE_ARGS=-DGGML_CUDA=on), or use a CPU target"
        )
        raise WinMLError(NOT_SUPPORTED, _BUILD, text)
    if wants_gpu or (kind is None and has_gpu and gpu_layers != 0):
        return Resolved(ExecutionTargetKind.GPU, gpu_layers)
    return Resolved(ExecutionTargetKind.CPU, 0)


def _build(artifact: GgufArtifact, resolved: Resolved, options: StageOptions, settings: LlamaOptions) -> StageExecutor:
    stop = Event()

    def make() -> StageExecutor:
        predicts = options.draft_predictor_enabled and has_predictor(artifact)
        model = load_model(artifact, resolved.gpu_layers, resolved.gpus, stop, predicts)
        return (_make_embedding if settings.embeddings else _make)(model, resolved, options, settings)

    return apart(make, stop.set)


def _make(model: LlamaModel, resolved: Resolved, options: StageOptions, settings: LlamaOptions) -> LlamaExecutor:
    api = model.library.api
    if api.llama_model_has_encoder(model.pointer) or not api.llama_model_has_decoder(model.pointer):
        raise WinMLError(NOT_SUPPORTED, _BUILD, f"{model.path} is an encoder model; stages run decoders only")
    threads = _threads(settings)
    key_bits, value_bits = _CACHE_BITS[settings.key_type], _CACHE_BITS[settings.value_type]
    context = ContextSettings(
        batch_size=settings.batch_size or _DEFAULT_BATCH,
        threads=threads,
        batch_threads=settings.batch_thread_count or threads,
        key_type=getattr(api, _CACHE_TYPES[settings.key_type]),
        value_type=getattr(api, _CACHE_TYPES[settings.value_type]),
        offload=resolved.gpu_layers != 0,
        position_bytes=0 if model.keeps_recurrent_state else bytes_per_position(model.file, key_bits, value_bits),
        adapters=tuple((model.adapter(path), scale) for path, scale in settings.adapters),
        snapshots=min(options.draft_token_limit, MAX_DRAFT) if model.keeps_recurrent_state else 0,
    )
    declared = api.llama_model_n_ctx_train(model.pointer)
    capacity = min(options.capacity_hint or min(declared, _DEFAULT_CAPACITY), _MAX_CAPACITY)
    sequence = LlamaSequence(model, capacity, context)
    return LlamaExecutor(sequence, model.vocabulary_size, resolved.kind, options.draft_token_limit)


def _make_embedding(
    model: LlamaModel, resolved: Resolved, options: StageOptions, settings: LlamaOptions
) -> EmbeddingExecutor:
    api = model.library.api
    if api.llama_model_has_encoder(model.pointer):
        raise WinMLError(NOT_SUPPORTED, _BUILD, f"{model.path} is an encoder and a decoder: its embeddings are not run")
    trained = api.llama_model_n_ctx_train(model.pointer)  # beyond it a table of positions may end
    made = EmbeddingSettings(
        limit=min(options.capacity_hint or min(trained, _DEFAULT_CAPACITY), trained),
        pooling=settings.pooling,
        threads=settings.batch_thread_count or _threads(settings),
        key_type=getattr(api, _CACHE_TYPES[settings.key_type]),
        value_type=getattr(api, _CACHE_TYPES[settings.value_type]),
        offload=resolved.gpu_layers != 0,
        adapters=tuple((model.adapter(path), scale) for path, scale in settings.adapters),
    )
    return EmbeddingExecutor(model, made, resolved.kind)


def _threads(settings: LlamaOptions) -> int:
    return settings.thread_count or min(usable_cpu_count(), THREADS_MAX)
