"""Loaded models: one native object per file and placement, shared by every stage and vocabulary that needs it."""

from __future__ import annotations

import ctypes
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from threading import Event
from typing import TypeVar
from weakref import WeakValueDictionary

from ...errors import CANCELLED, E_FAIL, NOT_ENOUGH_MEMORY, NOT_SUPPORTED, WinMLError
from ...files.artifact import GgufArtifact
from ...files.gguf import GgufFile, read_gguf
from ...files.gguf_header import GgufTensor
from ...files.mapped import Identity, check_unchanged, identify
from ...handles import Resource, free_in_child
from ..activity import SOME_THREAD, Activity, apart, free_last
from . import guard, guard_adapter
from .api import retyped
from .library import ENGINE, Library, library, log

Result = TypeVar("Result")

_BUILD = "IWinMLPipelineBuilder.Build"
_VOCABULARY_ONLY = -2  # beside the numbers of offloaded layers

Key = tuple[tuple[Identity, ...], int, tuple[int, ...], bool]
"""The files, the number of offloaded layers, the GPUs that were named, and whether the predictor is loaded."""


class LlamaModel:
    """A `llama_model` with its vocabulary."""

    def __init__(self, found: Library, artifact: GgufArtifact, pointer: int, predicts: bool = False) -> None:
        self.library = found
        self.path = artifact.path
        self.file = artifact.file
        self._shards = artifact.shards
        self.gate = threading.RLock()  # a log handler may come back to the model
        """Held around native calls on the model or its vocabulary, together with `activity`."""
        self.activity = Activity(ENGINE)
        self.resource = Resource(pointer, partial(free_last, found.api.llama_model_free), artifact.keep_alive)
        self.pointer = pointer
        self.predicts = predicts
        """Whether the layers of the model's own predictor are loaded."""
        self.vocab = found.api.llama_model_get_vocab(pointer)
        self.vocabulary_size = found.api.llama_vocab_n_tokens(self.vocab)
        self._load_adapter = retyped(
            found.api.llama_adapter_lora_init, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_char_p
        )
        self._adapters: dict[Identity, int] = {}

    @property
    def row_length(self) -> int:
        """Numbers in one embedding row that the decoder takes."""
        return self.library.api.llama_model_n_embd_inp(self.pointer)

    @property
    def has_row_axes(self) -> bool:
        """Whether an embedding row has a position in several dimensions (M-RoPE)."""
        api = self.library.api
        return api.llama_model_rope_type(self.pointer) in (api.LLAMA_ROPE_TYPE_MROPE, api.LLAMA_ROPE_TYPE_IMROPE)

    @property
    def keeps_recurrent_state(self) -> bool:
        """Whether some layers keep one state instead of one per position, so that a sequence cannot be cut anywhere."""
        api = self.library.api
        return api.llama_model_is_recurrent(self.pointer) or api.llama_model_is_hybrid(self.pointer)

    def adapter(self, path: str) -> int:
        """Return a LoRA adapter for this model, loading it on first use; it is freed together with the model."""
        path = os.path.abspath(path)
        with GgufFile(path) as file:  # a missing or damaged file is refused here, with its path
            guard_adapter.check_adapter(file, self._tensors())
            key = file.identity
        self.check()
        with self.gate:
            if key not in self._adapters:
                with log.captured_errors() as errors, self.activity:
                    pointer = self._load_adapter(self.pointer, os.fsencode(path))
                if not pointer:
                    text = errors[0] if errors else "the engine gives no reason"
                    raise WinMLError(E_FAIL, _BUILD, f"the adapter {path} does not fit {self.path}: {text}")
                self._adapters[key] = pointer
            return self._adapters[key]

    def adapt(self, context: int, adapters: tuple[tuple[int, float], ...]) -> None:
        """Apply adapters of this model, with their scales, to a new context."""
        if not adapters:
            return
        count = len(adapters)
        pointers = (ctypes.c_void_p * count)(*(pointer for pointer, _ in adapters))
        scales = (ctypes.c_float * count)(*(scale for _, scale in adapters))
        types = (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p)
        apply = retyped(self.library.api.llama_set_adapters_lora, ctypes.c_int32, *types)
        status = self.call(apply, context, pointers, count, scales)
        if status:
            raise WinMLError(E_FAIL, _BUILD, f"{self.path}: the adapters were refused (status {status})")

    def _tensors(self) -> dict[str, GgufTensor]:
        """The tensor tables of all files."""
        tensors = dict(self.file.tensors)
        for shard in self._shards[1:]:
            with GgufFile(shard.path) as file:
                tensors |= file.tensors
        return tensors

    def check(self) -> None:
        """Refuse calls at interpreter exit and in a forked child."""
        if self.activity.barred:
            self.activity.refuse()

    def call(self, function: Callable[..., Result], *arguments: object) -> Result:
        """Call a short native function on the model or its vocabulary; calls take turns."""
        activity = self.activity
        if activity.barred:  # before the gate, which a thread that does not exist in a forked child may hold
            activity.refuse()
        with self.gate:
            try:
                activity.running = SOME_THREAD
                if activity.barred:
                    activity.refuse()
                return function(*arguments)
            finally:
                activity.running = 0


_models: WeakValueDictionary[Key, LlamaModel] = WeakValueDictionary()
_loading = threading.Lock()
free_in_child(_loading)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_models.clear)  # they are of no use there


@contextmanager
def _one_load(stop: Event) -> Iterator[None]:
    """One load at a time, so that nothing is loaded twice."""
    while not _loading.acquire(timeout=0.1):
        _end_if(stop)
    try:
        yield
    finally:
        _loading.release()


def _end_if(stop: Event) -> None:
    if stop.is_set():
        raise WinMLError(CANCELLED, _BUILD, "loading was interrupted")


def load_model(
    artifact: GgufArtifact, gpu_layers: int, gpus: tuple[int, ...], stop: Event, predicts: bool = False
) -> LlamaModel:
    """Return the model of an artifact with `gpu_layers` layers offloaded (0 = no GPU at all, -1 = all).

    `gpus` are the ggml devices to use; with () llama.cpp picks them. `predicts`: load the layers of the model's own
    predictor as well.
    0x80070570 for a damaged file, 0x80070008 when the GPU has too little memory, 0x800704C7 after `stop`, else
    0x80004005 with the engine's text.
    """
    ENGINE.check()
    found = library()
    with _one_load(stop):
        for identity in artifact.shards:
            check_unchanged(identity, _BUILD)
        key = artifact.shards, gpu_layers, gpus, predicts
        model = _models.get(key)
        if model is None:
            guard.check_model(artifact)
            model = _models[key] = _load(found, artifact, gpu_layers, gpus, stop, predicts)
    return model


def load_vocabulary(path: str) -> LlamaModel:
    """Return a model that has at least the vocabulary of a file: a loaded one, else the vocabulary alone."""
    path = os.path.abspath(path)
    ENGINE.check()
    stop = Event()
    model = apart(lambda: _load_vocabulary(path, stop), stop.set)
    _need_vocabulary(model.file)
    return model


def _load_vocabulary(path: str, stop: Event) -> LlamaModel:
    with _one_load(stop):
        model = _loaded(path)
        if model is None:
            artifact = read_gguf(path)
            _need_vocabulary(artifact.file)
            found = library()
            guard.check_model(artifact)
            model = _load(found, artifact, _VOCABULARY_ONLY, (), stop, predicts=False)
            _models[artifact.shards, _VOCABULARY_ONLY, (), False] = model
    return model


def _loaded(path: str) -> LlamaModel | None:
    """Return a loaded model whose first file this is: its header need not be read a second time."""
    try:
        first = identify(path)
    except OSError:  # reading the file says it better
        return None
    return next((model for key, model in list(_models.items()) if key[0][0] == first), None)


def _need_vocabulary(file: GgufFile) -> None:
    if not guard.has_vocabulary(file):
        raise WinMLError(NOT_SUPPORTED, "opening the vocabulary", f"{file.path} holds no vocabulary")


def _load(
    found: Library, artifact: GgufArtifact, gpu_layers: int, gpus: tuple[int, ...], stop: Event, predicts: bool
) -> LlamaModel:
    params = found.api.llama_model_default_params()
    params.vocab_only = gpu_layers == _VOCABULARY_ONLY
    params.n_gpu_layers = max(gpu_layers, -1)
    params.use_extra_bufts = found.repacks
    params.load_mtp = predicts
    listed = (ctypes.c_void_p * (len(gpus) + 1))(*gpus)  # ends with a null pointer
    if gpu_layers in (0, _VOCABULARY_ONLY):
        params.n_gpu_layers = 0
        params.devices = ctypes.addressof(listed)  # empty; without a list a GPU would keep caches, take large batches
    elif gpus:
        params.devices = ctypes.addressof(listed)
    progress = params.progress_callback = found.api.llama_progress_callback(lambda done, data: not stop.is_set())
    with log.captured_errors() as errors, Activity(ENGINE, stop.set):
        pointer = found.api.llama_model_load_from_file(os.fsencode(artifact.path), params)
    del progress
    if not pointer:
        _end_if(stop)
        code = NOT_ENOUGH_MEMORY if params.n_gpu_layers and _is_too_large(errors) else E_FAIL
        text = errors[0] if errors else "the engine gives no reason"
        raise WinMLError(code, _BUILD, f"{artifact.path}: {text} (llama-cpp-python {found.version})")
    return LlamaModel(found, artifact, pointer, predicts)


def _is_too_large(errors: list[str]) -> bool:
    """Whether loading onto a GPU failed for its memory; its backends word that in their own ways."""
    return not errors or any(word in line.lower() for line in errors for word in ("alloc", "memory"))
