"""llama.cpp driven by the bare C functions of llama-cpp-python: a second opinion that shares no code with ours."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

Doubles = npt.NDArray[np.float64]


class RawLlama:
    """One model and one context of 512 positions, one thread."""

    def __init__(self, path: str) -> None:
        import llama_cpp.llama_cpp as api

        self._api = api
        params = api.llama_model_default_params()
        params.n_gpu_layers = 0
        params.use_extra_bufts = False  # kernels that end the process where their compiler was too old
        self._model = api.llama_model_load_from_file(path.encode(), params)
        wanted = api.llama_context_default_params()
        wanted.n_ctx, wanted.n_batch, wanted.n_ubatch = 512, 512, 512
        wanted.n_threads = wanted.n_threads_batch = 1
        self._context = api.llama_init_from_model(self._model, wanted)
        self._size = api.llama_vocab_n_tokens(api.llama_model_get_vocab(self._model))

    def forget(self) -> None:
        """Begin a new sequence."""
        self._api.llama_memory_clear(self._api.llama_get_memory(self._context), True)

    def rows(self, tokens: Sequence[int]) -> Doubles:
        """Append tokens in one batch and return the logits after each, float64 (tokens, vocabulary)."""
        api, count = self._api, len(tokens)
        ids, marks = (ctypes.c_int32 * count)(*tokens), (ctypes.c_int8 * count)(*[1] * count)
        batch = api.llama_batch()
        batch.n_tokens, batch.token, batch.logits = count, ids, marks
        assert api.llama_decode(self._context, batch) == 0
        pointers = (api.llama_get_logits_ith(self._context, index) for index in range(count))
        return np.stack([np.ctypeslib.as_array(pointer, (self._size,)).astype(np.float64) for pointer in pointers])

    def log_probabilities(self, tokens: Sequence[int], first: int, width: int = 32) -> Doubles:
        """Log probabilities of `tokens[first:]`: what comes before in one batch, then batches of `width` tokens."""
        self.forget()
        if first > 1:
            self.rows(tokens[: first - 1])
        fed = tokens[first - 1 : -1]
        rows = np.concatenate([self.rows(fed[start : start + width]) for start in range(0, len(fed), width)])
        return log_softmax(rows)[np.arange(len(fed)), tokens[first:]]

    def close(self) -> None:
        """Give the memory back."""
        self._api.llama_free(self._context)
        self._api.llama_model_free(self._model)


def log_softmax(rows: npt.NDArray[np.floating]) -> Doubles:
    """Natural logarithms of the softmax of each row."""
    rows = rows.astype(np.float64)
    rows = rows - rows.max(axis=-1, keepdims=True)
    result: Doubles = rows - np.log(np.exp(rows).sum(axis=-1, keepdims=True))
    return result
