"""Converted models against llama.cpp on the same GGUF: equal logits, for a prompt of 200 tokens."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fakes.ort_decoder import OrtDecoder
from fakes.real_models import smollm2_gguf
from genai.convert import convert_gguf
from models import recipes
from models.gguf_models import gemma3_model, random_model
from models.gguf_writer import write_gguf

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


@pytest.mark.parametrize(("name", "model", "error"), [("llama", random_model, 1e-4), ("gemma3", gemma3_model, 1e-2)])
def test_logits_agree_with_linear_position_scaling(tmp_path: Path, name: str, model: Any, error: float) -> None:
    metadata, tensors = model()
    scaling = {f"{name}.rope.scaling.type": "linear", f"{name}.rope.scaling.factor": 4.0}
    source = write_gguf(tmp_path / "scaled.gguf", {**metadata, **scaling}, tensors)
    folder = convert_gguf(source, tmp_path / "scaled", weights="f32", all_logits=True).folder
    ours, theirs = OrtDecoder(folder).feed(IDS), llama_peer.logits(source, IDS)
    assert np.abs(ours - theirs).max() < error


def test_logits_agree_with_rotary_factors(tmp_path: Path) -> None:
    metadata, tensors = random_model()
    factors = {**tensors, "rope_freqs.weight": np.linspace(1, 32, 8, dtype=np.float32)}
    source = write_gguf(tmp_path / "factors.gguf", metadata, factors)
    folder = convert_gguf(source, tmp_path / "factors", weights="f32", all_logits=True).folder
    ours, theirs = OrtDecoder(folder).feed(IDS), llama_peer.logits(source, IDS)
    assert np.abs(ours - theirs).max() < 1e-4


PROSE = (
    "A harbour is a sheltered body of water where ships can be docked. The word is often used for a port, which is "
    "a place where people and goods move between land and sea. Harbours may be natural or artificial. An artificial "
    "harbour has walls built out into the sea, while a natural one is surrounded on several sides by land. Many of "
    "the oldest cities of the world grew around a natural harbour, because trade by sea was cheaper than trade by "
    "land. When railways came, large ports grew still faster, since grain, coal and steel could be carried from far "
    "inland to the ships. Today most goods travel in steel boxes of one size, and a crane can lift one of them from "
    "a ship to a truck in two minutes."
)


def perplexity(logits: Any, ids: list[int]) -> float:
    rows = logits[:-1].astype(np.float64)
    shares = (
        rows - np.log(np.exp(rows - rows.max(-1, keepdims=True)).sum(-1, keepdims=True)) - rows.max(-1, keepdims=True)
    )
    return float(np.exp(-shares[np.arange(len(ids) - 1), ids[1:]].mean()))


@pytest.mark.parametrize(("operators", "weights", "error"), [("gqa", "f16", 0.02), ("gqa", "q8", 0.03)])
def test_perplexity_of_smollm2(tmp_path: Path, operators: Any, weights: Any, error: float) -> None:
    source = smollm2_gguf()
    folder = convert_gguf(
        source, tmp_path / "m", operators=operators, weights=weights, all_logits=True, context_length=512
    ).folder
    (ids,) = llama_peer.tokenize(source, [PROSE])
    theirs = perplexity(llama_peer.logits(source, ids), ids)
    ours = perplexity(OrtDecoder(folder).feed(ids), ids)
    assert len(ids) > 120 and 5 < theirs < 60
    assert ours == pytest.approx(theirs, rel=error)
