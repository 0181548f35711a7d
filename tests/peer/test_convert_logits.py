"""Converted models against llama.cpp on the same GGUF: equal logits, for a prompt of 200 tokens."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fakes.ort_decoder import OrtDecoder
from models import recipes

llama_cpp = pytest.importorskip("llama_cpp", reason="llama-cpp-python is not installed")

from fakes import llama_peer  # noqa: E402  only where llama_cpp is installed

pytestmark = pytest.mark.peer

IDS = np.random.default_rng(1).integers(0, 290, 200).tolist()


@pytest.mark.parametrize(
    ("gguf", "onnx", "error"),
    [
        (recipes.scripted_gguf, recipes.scripted_onnx, 1e-4),
        (recipes.random_gguf, recipes.random_onnx, 1e-4),
        # llama.cpp looks GELU up in a table of float16 values.
        (recipes.gemma3_gguf, recipes.gemma3_onnx, 1e-2),
    ],
)
def test_logits_agree(tmp_path: Path, gguf: Any, onnx: Any, error: float) -> None:
    ours = OrtDecoder(onnx(tmp_path, "gqa", "f32", all_logits=True)).feed(IDS)
    theirs = llama_peer.logits(gguf(tmp_path), IDS)
    assert ours.shape == theirs.shape
    assert np.abs(ours - theirs).max() < error
