"""Event loops, garbage collection and interpreter exit around asynchronous streams, each in its own process."""

from __future__ import annotations

from pathlib import Path

import pytest
from lifetime.programs import run_python

from fakes.model_files import ModelFiles, require_engine
from models import recipes

pytestmark = pytest.mark.real

PROGRAM = Path(__file__).with_name("async_programs.py")
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
    assert run_python("-W", "error", PROGRAM, program, path) == (0, "", "")
