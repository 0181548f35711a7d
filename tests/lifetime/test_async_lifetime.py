"""Event loops, garbage collection and interpreter exit around asynchronous streams, each in its own process."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from fakes.model_files import ModelFiles, require_engine
from models import recipes

pytestmark = pytest.mark.real

PROGRAM = Path(__file__).with_name("async_programs.py")
ROOT = PROGRAM.parents[2]
PROGRAMS = (
    "leave_with_a_stream_in_hand",
    "leave_during_a_generation",
    "leave_inside_the_event_loop",
    "interrupt_of_asyncio_run",
    "streams_in_cycles",
    "no_threads_stay",
    "close_in_every_moment",
)


@pytest.fixture(params=["gguf", "gqa"])
def path(request: pytest.FixtureRequest, files: ModelFiles) -> Path:
    """A model with random weights."""
    require_engine("llama" if request.param == "gguf" else "ort")
    return recipes.random_gguf(files.folder) if request.param == "gguf" else recipes.random_onnx(files.folder, "gqa")


@pytest.mark.parametrize("program", PROGRAMS)
def test_s_lif_09_event_loops_exits_and_collections(program: str, path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-X", "faulthandler", "-W", "error", str(PROGRAM), program, str(path)],
        capture_output=True,
        text=True,
        timeout=120,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
