"""The samplers of llama.cpp through llama-cpp-python's low-level module; shares no code with ours.

Import it only where `llama_cpp` is known to be installed.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import llama_cpp.llama_cpp as native
import numpy as np
import numpy.typing as npt

from fakes.llama_peer import quiet

Row = npt.NDArray[np.float32]


def applied(sampler: Any, row: Row, accepted: Sequence[int] = ()) -> dict[int, float]:
    """Return the tokens that a sampler leaves of a row, with their logits; it is freed."""
    for token_id in accepted:
        native.llama_sampler_accept(sampler, token_id)
    data = (native.llama_token_data * row.size)(*((i, float(z), 0.0) for i, z in enumerate(row)))
    candidates = native.llama_token_data_array(data, row.size, -1, False)
    native.llama_sampler_apply(sampler, ctypes.byref(candidates))
    native.llama_sampler_free(sampler)
    kept = (candidates.data[i] for i in range(candidates.size))
    return {entry.id: entry.logit for entry in kept if entry.logit > -np.inf}


def typical(p: float) -> Any:
    return native.llama_sampler_init_typical(p, 1)


def top_n_sigma(n: float) -> Any:
    return native.llama_sampler_init_top_n_sigma(n)


def xtc(threshold: float) -> Any:
    """XTC that always applies."""
    return native.llama_sampler_init_xtc(1.0, threshold, 0, 1)


def logit_bias(size: int, values: dict[int, float]) -> Any:
    biases = (native.llama_logit_bias * len(values))(*values.items())
    return native.llama_sampler_init_logit_bias(size, len(values), biases)


@contextmanager
def vocabulary(path: Path) -> Iterator[Any]:
    """The vocabulary of a GGUF file."""
    with quiet():
        params = native.llama_model_default_params()
        params.vocab_only = True
        model = native.llama_model_load_from_file(str(path).encode(), params)
        try:
            yield native.llama_model_get_vocab(model)
        finally:
            native.llama_model_free(model)


def dry(vocabulary: Any, multiplier: float, base: float, allowed_length: int, breakers: Sequence[str]) -> Any:
    """DRY that looks back over at most 4096 tokens."""
    texts = (ctypes.c_char_p * len(breakers))(*(text.encode() for text in breakers))
    return native.llama_sampler_init_dry(vocabulary, multiplier, base, allowed_length, 4096, texts, len(breakers))
