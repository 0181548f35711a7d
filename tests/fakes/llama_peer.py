"""llama.cpp through the low-level module of llama-cpp-python: ids of a text, logits of ids; shares no code with ours.

Import it only where `llama_cpp` is known to be installed.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import llama_cpp
import numpy as np
import numpy.typing as npt

_QUIET = llama_cpp.llama_log_callback(lambda level, text, data: None)
_F32 = 0  # GGML_TYPE_F32
_FLASH_ATTENTION_OFF = 0


@contextmanager
def quiet() -> Iterator[None]:
    """Drop log lines; whoever wrote them down before goes on doing so afterwards."""
    before, data = llama_cpp.llama_log_callback(), ctypes.c_void_p()
    llama_cpp.llama_log_get(ctypes.byref(before), ctypes.byref(data))
    llama_cpp.llama_log_set(_QUIET, None)
    try:
        yield
    finally:
        llama_cpp.llama_log_set(before, data)


@quiet()
def tokenize(path: Path, texts: Sequence[str]) -> list[list[int]]:
    """Return the ids of each text, with what the model adds around it, special spellings recognised."""
    params = llama_cpp.llama_model_default_params()
    params.vocab_only = True
    model = llama_cpp.llama_model_load_from_file(str(path).encode(), params)
    vocabulary = llama_cpp.llama_model_get_vocab(model)
    buffer = (ctypes.c_int32 * 8192)()
    result: list[list[int]] = []
    for text in texts:
        data = text.encode("utf-8")
        count = llama_cpp.llama_tokenize(vocabulary, data, len(data), buffer, len(buffer), True, True)
        if count < 0:
            raise AssertionError(f"{-count} tokens do not fit the buffer")
        result.append(list(buffer[:count]))
    llama_cpp.llama_model_free(model)
    return result


@quiet()
def logits(path: Path, ids: Sequence[int]) -> npt.NDArray[np.float32]:
    """Return the logits of all positions, float32 [len(ids), vocabulary], with a float32 cache and exact attention."""
    loading = llama_cpp.llama_model_default_params()
    loading.use_extra_bufts = False  # repacked weights: some builds for AMX processors crash on them
    model = llama_cpp.llama_model_load_from_file(str(path).encode(), loading)
    params = llama_cpp.llama_context_default_params()
    params.n_ctx = params.n_batch = params.n_ubatch = 512
    params.n_threads = params.n_threads_batch = 2
    params.type_k = params.type_v = _F32
    params.flash_attn_type = _FLASH_ATTENTION_OFF
    context = llama_cpp.llama_init_from_model(model, params)
    batch = llama_cpp.llama_batch_init(len(ids), 0, 1)
    batch.n_tokens = len(ids)
    for index, token_id in enumerate(ids):
        batch.token[index], batch.pos[index], batch.logits[index] = token_id, index, 1
        batch.n_seq_id[index], batch.seq_id[index][0] = 1, 0
    if llama_cpp.llama_decode(context, batch) != 0:
        raise AssertionError("llama_decode failed")
    count = llama_cpp.llama_vocab_n_tokens(llama_cpp.llama_model_get_vocab(model))
    values = np.ctypeslib.as_array(llama_cpp.llama_get_logits(context), (len(ids), count)).copy()
    llama_cpp.llama_batch_free(batch)
    llama_cpp.llama_free(context)
    llama_cpp.llama_model_free(model)
    return values
