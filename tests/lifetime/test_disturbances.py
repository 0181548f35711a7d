"""Cancelled and interrupted at random moments, two sequences over one model file stay usable and say the same."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from fakes.model_files import ModelFiles, require_engine
from models import recipes

pytestmark = pytest.mark.real

PROGRAM = Path(__file__).with_name("disturbance_programs.py")
ROOT = PROGRAM.parents[2]


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
    done = subprocess.run(
        [sys.executable, "-X", "faulthandler", "-W", "ignore::DeprecationWarning", str(PROGRAM), program, str(path)],
        capture_output=True,
        text=True,
        timeout=240,
        env={**os.environ, "PYTHONPATH": os.pathsep.join((str(ROOT), str(ROOT / "tests")))},
    )
    assert done.returncode == 0, done.stderr
