"""Loaded models: one native object per file and placement, shared by every stage and vocabulary that needs it."""

from __future__ import annotations

import ctypes
import os
import threading
from collections.abc import Callable
from functools import partial
from weakref import WeakValueDictionary

from ...errors import E_FAIL, NOT_ENOUGH_MEMORY, NOT_SUPPORTED, WinMLError
from ...files.artifact import GgufArtifact
from ...files.gguf import GgufFile, read_gguf
from ...handles import Resource
from . import guard
from .api import retyped
from .library import Library, library, log

_BUILD = "IWinMLPipelineBuilder.Build"
_VOCABULARY_ONLY = -2  # beside the numbers of offloaded layers
_EXIT_WAIT = 10.0

Key = tuple[tuple[tuple[str, int, int], ...], int]
"""(path, size, modification time) of each file, and the number of offloaded layers."""


class LlamaModel:
    """A `llama_model` with its vocabulary."""

    def __init__(self, found: Library, artifact: GgufArtifact, pointer: int) -> None:
        self.library = found
        self.path = artifact.path
        self.file = artifact.file
        self.gate = threading.RLock()  # a log handler may come back to the model
        """Held around every native call on the model or its vocabulary; they are short."""
        self.resource = Resource(pointer, gated(found.api.llama_model_free, self.gate), artifact.keep_alive)
        self.pointer = pointer
        self.vocab = found.api.llama_model_get_vocab(pointer)
        self.vocabulary_size = found.api.llama_vocab_n_tokens(self.vocab)
        self._load_adapter = retyped(
            found.api.llama_adapter_lora_init, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_char_p
        )
        self._adapters: dict[tuple[str, int, int], int] = {}

    def adapter(self, path: str) -> int:
        """Return a LoRA adapter for this model, loading it on first use; it is freed together with the model."""
        path = os.path.abspath(path)
        with GgufFile(path):  # a missing or damaged file is refused here, with its path
            key = _identity(path)
        with self.gate:
            if key not in self._adapters:
                with log.captured_errors() as errors:
                    pointer = self._load_adapter(self.pointer, os.fsencode(path))
                if not pointer:
                    text = errors[0] if errors else "the engine gives no reason"
                    raise WinMLError(E_FAIL, _BUILD, f"the adapter {path} does not fit {self.path}: {text}")
                self._adapters[key] = pointer
            return self._adapters[key]


def gated(free: Callable[[int], object], gate: threading.Lock | threading.RLock) -> Callable[[int], object]:
    """Return a `free` that waits until no native call is inside the object.

    One can only be inside at interpreter exit, in a daemon thread. The gate is not opened again: that thread waits at
    it until the process has ended, instead of using what was freed.
    """
    return partial(_free_when_idle, free, gate)


def _free_when_idle(free: Callable[[int], object], gate: threading.Lock | threading.RLock, pointer: int) -> None:
    if gate.acquire(timeout=_EXIT_WAIT):
        free(pointer)


_models: WeakValueDictionary[Key, LlamaModel] = WeakValueDictionary()
_loading = threading.Lock()


def load_model(artifact: GgufArtifact, gpu_layers: int) -> LlamaModel:
    """Return the model of an artifact with `gpu_layers` layers offloaded (0 = no GPU at all, -1 = all).

    0x80070570 for a damaged file, 0x80070008 when the GPU has too little memory, else 0x80004005 with the engine's
    text.
    """
    found = library()
    with _loading:
        key = _files(artifact), gpu_layers
        model = _models.get(key)
        if model is None:
            guard.check_model(artifact)
            model = _models[key] = _load(found, artifact, gpu_layers)
    return model


def load_vocabulary(path: str) -> LlamaModel:
    """Return a model that has at least the vocabulary of a file: a loaded one, else the vocabulary alone."""
    path = os.path.abspath(path)
    with _loading:
        model = _loaded(path)
        if model is None:
            artifact = read_gguf(path)
            _need_vocabulary(artifact.file)
            found = library()
            guard.check_model(artifact)
            model = _models[_files(artifact), _VOCABULARY_ONLY] = _load(found, artifact, _VOCABULARY_ONLY)
    _need_vocabulary(model.file)
    return model


def _loaded(path: str) -> LlamaModel | None:
    """Return a loaded model whose first file this is: its header need not be read a second time."""
    try:
        first = _identity(path)
    except OSError:  # reading the file says it better
        return None
    return next((model for key, model in list(_models.items()) if key[0][0] == first), None)


def _need_vocabulary(file: GgufFile) -> None:
    if not guard.has_vocabulary(file):
        raise WinMLError(NOT_SUPPORTED, "opening the vocabulary", f"{file.path} holds no vocabulary")


def _files(artifact: GgufArtifact) -> tuple[tuple[str, int, int], ...]:
    return tuple(map(_identity, artifact.shards))


def _identity(path: str) -> tuple[str, int, int]:
    status = os.stat(path)
    return path, status.st_size, status.st_mtime_ns


def _load(found: Library, artifact: GgufArtifact, gpu_layers: int) -> LlamaModel:
    params = found.api.llama_model_default_params()
    params.vocab_only = gpu_layers == _VOCABULARY_ONLY
    params.n_gpu_layers = max(gpu_layers, -1)
    params.use_extra_bufts = found.repacks
    no_devices = (ctypes.c_void_p * 1)()  # an empty list; without it a GPU would keep caches and take large batches
    if gpu_layers in (0, _VOCABULARY_ONLY):
        params.n_gpu_layers = 0
        params.devices = ctypes.addressof(no_devices)
    with log.captured_errors() as errors:
        pointer = found.api.llama_model_load_from_file(os.fsencode(artifact.path), params)
    if not pointer:
        code = NOT_ENOUGH_MEMORY if params.n_gpu_layers else E_FAIL
        text = errors[0] if errors else "the engine gives no reason"
        raise WinMLError(code, _BUILD, f"{artifact.path}: {text} (llama-cpp-python {found.version})")
    return LlamaModel(found, artifact, pointer)
