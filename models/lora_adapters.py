"""Tiny LoRA adapters for the random and the scripted decoder, the same on every run, and their change of the weights.

An adapter is two thin matrices for a weight: the engine computes with `W + scale * alpha / rank * B @ A` without making
that sum. Not here: the decoder (`gguf_models.py`).
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from .gguf_models import random_model, scripted_model
from .gguf_writer import Tensors

Floats = npt.NDArray[np.float32]

RANK, ALPHA = 3, 6.0
ADAPTED = ("blk.0.attn_q.weight", "blk.0.ffn_down.weight", "blk.1.attn_v.weight", "output.weight")
"""Weights that the adapter changes."""


def adapter_metadata() -> dict[str, object]:
    """Return the metadata of an adapter for a llama-type decoder."""
    return {
        "general.type": "adapter",
        "general.architecture": "llama",
        "general.name": "tiny-random-adapter",
        "adapter.type": "lora",
        "adapter.lora.alpha": ALPHA,
    }


def adapter_model(base: str = "random") -> tuple[dict[str, object], Tensors]:
    """Return metadata and tensors of the adapter for `base`: A is (rank, inputs), B is (outputs, rank)."""
    rng = np.random.default_rng(42)
    _, weights = {"random": random_model, "scripted": scripted_model}[base]()
    tensors: dict[str, Floats] = {}
    for name in ADAPTED:
        outputs, inputs = np.shape(weights[name])
        tensors[f"{name}.lora_a"] = (rng.standard_normal((RANK, inputs)) / np.sqrt(inputs)).astype(np.float32)
        tensors[f"{name}.lora_b"] = (0.5 * rng.standard_normal((outputs, RANK))).astype(np.float32)
    return adapter_metadata(), tensors


def merged_model(scale: float) -> tuple[dict[str, object], Tensors]:
    """Return the random decoder with the adapter written into its weights, at a scale."""
    metadata, weights = random_model()
    _, tensors = adapter_model()
    merged = dict(weights)
    for name in ADAPTED:
        a, b = (np.asarray(tensors[f"{name}.lora_{part}"], np.float64) for part in "ab")
        change = scale * ALPHA / RANK * (b @ a)
        merged[name] = (np.asarray(weights[name], np.float64) + change).astype(np.float32)
    return metadata, merged
