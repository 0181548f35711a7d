"""The other side on llama.cpp: a bare `llama_decode` loop on the low-level module, as little Python as possible."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from pathlib import Path

import llama_cpp.llama_cpp as c

PLAIN_WEIGHTS = """
import llama_cpp.llama_cpp as low
if b"AMX_INT8 = 1" in low.llama_print_system_info():
    settings = low.llama_model_default_params()
    settings.use_extra_bufts = False
    low.llama_model_default_params = lambda: settings
"""
"""For programs with `llama_cpp.Llama`: no repacked weights where many builds crash on them, as our side does it."""


def use_plain_weights() -> None:
    """Run `PLAIN_WEIGHTS` in this process."""
    exec(PLAIN_WEIGHTS, {})


class BareLoop:
    """One context; tokens are fed unseen, or a sampler chain of llama.cpp chooses the next."""

    def __init__(self, path: Path, context_length: int, batch: int, threads: int) -> None:
        c.llama_backend_init()
        model_settings = c.llama_model_default_params()
        model_settings.n_gpu_layers = 0
        model_settings.use_extra_bufts = b"AMX_INT8 = 1" not in c.llama_print_system_info()
        self._model = c.llama_model_load_from_file(str(path).encode(), model_settings)
        settings = c.llama_context_default_params()
        settings.n_ctx, settings.n_batch, settings.n_ubatch = context_length, batch, batch
        settings.n_threads = settings.n_threads_batch = threads
        self._context = c.llama_init_from_model(self._model, settings)
        if not self._model or not self._context:
            raise RuntimeError(f"llama.cpp cannot load {path}")
        self._vocabulary = c.llama_model_get_vocab(self._model)
        self._memory = c.llama_get_memory(self._context)
        self._context_length = context_length
        self._batch = batch
        self._one = (c.llama_token * 1)()
        self._chain = c.llama_sampler_chain_init(c.llama_sampler_chain_default_params())
        self.position = 0

    @property
    def vocabulary_size(self) -> int:
        """Number of tokens."""
        return int(c.llama_vocab_n_tokens(self._vocabulary))

    def tokenize(self, text: str) -> list[int]:
        """Token ids of a text, with the special tokens the model adds."""
        data = text.encode()
        ids = (c.llama_token * (len(data) + 8))()
        count = c.llama_tokenize(self._vocabulary, data, len(data), ids, len(ids), True, True)
        return list(ids[:count])

    def use_sampler(self, top_k: int, top_p: float, min_p: float, temperature: float) -> None:
        """Fill the sampler chain in the order of our own rules."""
        for sampler in (
            c.llama_sampler_init_temp(temperature),
            c.llama_sampler_init_top_k(top_k),
            c.llama_sampler_init_top_p(top_p, 1),
            c.llama_sampler_init_min_p(min_p, 1),
            c.llama_sampler_init_dist(1),
        ):
            c.llama_sampler_chain_add(self._chain, sampler)

    def restart(self) -> None:
        """Forget the sequence."""
        c.llama_memory_clear(self._memory, False)
        self.position = 0

    def feed(self, tokens: Sequence[int]) -> None:
        """Decode tokens in batches."""
        array = (c.llama_token * len(tokens))(*tokens)
        for start in range(0, len(tokens), self._batch):
            count = min(self._batch, len(tokens) - start)
            part = ctypes.cast(ctypes.byref(array, start * 4), ctypes.POINTER(c.llama_token))
            self._decode(part, count)

    def step(self, token: int = 1) -> None:
        """Decode one token."""
        if self.position >= self._context_length:
            self.restart()
        self._one[0] = token
        self._decode(self._one, 1)

    def wait(self) -> None:
        """Wait for the last decode; reading the logits does."""
        c.llama_get_logits_ith(self._context, -1)

    def sample(self) -> int:
        """Let the chain choose a token from the last logits."""
        return int(c.llama_sampler_sample(self._chain, self._context, -1))

    def _decode(self, tokens: object, count: int) -> None:
        if c.llama_decode(self._context, c.llama_batch_get_one(tokens, count)) != 0:
            raise RuntimeError("llama_decode failed")
        self.position += count
