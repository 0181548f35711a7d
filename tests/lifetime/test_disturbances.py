"""Cancelled and interrupted at random moments, two sequences over one model file stay usable and say the same."""

from __future__ import annotations

from pathlib import Path

import pytest
from lifetime.programs import run_python

from fakes.model_files import ModelFiles, require_engine
from models import recipes

pytestmark = pytest.mark.real

PROGRAM = Path(__file__).with_name("disturbance_programs.py")


@pytest.fixture(params=["gguf", "hybrid", "gqa", "plain"])
def path(request: pytest.FixtureRequest, files: ModelFiles) -> Path:
    """A model with random weights."""
    require_engine("llama" if request.param in ("gguf", "hybrid") else "ort")
    if request.param == "hybrid":
        return recipes.hybrid_gguf(files.folder)
    if request.param == "gguf":
        return recipes.random_gguf(files.folder)
    return recipes.random_onnx(files.folder, request.param)


@pytest.mark.parametrize("program", ["two_short_roads", "two_long_roads", "two_models_of_one_event_loop"])
def test_s_lif_08_fifty_cancellations_and_twenty_interrupts_of_two_sequences(program: str, path: Path) -> None:
    code, _, errors = run_python("-W", "ignore::DeprecationWarning", PROGRAM, program, path)
    assert code == 0, errors
