"""What one generated token costs outside the engine, in Python calls, and that it does not grow with the answer."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType

import pytest

import genai
from fakes.model_files import ModelFiles, require_engine
from genai.loop import GenerationLoop
from models.recipes import random_gguf, random_onnx

pytestmark = pytest.mark.perf

SAMPLING = {"temperature": 0.8, "top_k": 40, "top_p": 0.95, "min_p": 0.05, "seed": 1}


def calls_per_update(read: Callable[[], object], updates: int) -> float:
    """Mean number of Python functions of the project that one update enters."""
    entered = 0

    def profile(frame: FrameType, event: str, argument: object) -> None:
        nonlocal entered
        entered += event == "call" and ("genai" in frame.f_code.co_filename or "winml_lite" in frame.f_code.co_filename)

    sys.setprofile(profile)
    try:
        for _ in range(updates):
            read()
    finally:
        sys.setprofile(None)
    return entered / updates


def model_of(form: str, folder: Path) -> Path:
    require_engine("llama" if form == "gguf" else "ort")
    return random_gguf(folder) if form == "gguf" else random_onnx(folder, form)


@pytest.mark.parametrize(
    ("form", "options", "most"),
    [("gguf", {}, 40), ("gguf", SAMPLING, 50), ("gqa", {}, 90), ("std", {}, 115)],
    ids=["gguf-greedy", "gguf-sampled", "gqa", "std"],
)
def test_a_token_costs_a_bounded_number_of_calls(
    files: ModelFiles, form: str, options: dict[str, float], most: int
) -> None:
    with genai.load(model_of(form, files.folder), threads=1, context_length=512) as model:
        stream = model.stream("a b", max_new_tokens=60, stop_token_ids=(), **options)  # type: ignore[arg-type]
        read = stream._operation.read_next
        for _ in range(20):
            read()
        assert calls_per_update(read, 20) <= most
        assert read() is not None  # the stream was running all the time


@pytest.mark.parametrize("form", ["gguf", "gqa", "std"])
def test_late_tokens_cost_no_more_calls_than_early_ones(files: ModelFiles, form: str) -> None:
    with genai.load(model_of(form, files.folder), threads=1, context_length=512) as model:
        options = {"repetition_penalty": 1.1, "stop": ("never said",)}
        stream = model.stream("a b", max_new_tokens=480, **options)  # type: ignore[arg-type]
        loop = stream._operation.loop
        assert isinstance(loop, GenerationLoop)
        loop._eos = frozenset()
        read = stream._operation.read_next
        for _ in range(60):
            read()
        early = calls_per_update(read, 40)
        for _ in range(300):
            read()
        assert calls_per_update(read, 40) <= early + 1
        assert read() is not None
