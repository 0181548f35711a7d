"""Turns with tools under Ctrl-C and from many threads, with real engines, each program in its own process."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from lifetime.programs import run_python

from fakes.model_files import ModelFiles, require_engine
from models import recipes

PROGRAM = Path(__file__).with_name("tool_programs.py")

pytestmark = [pytest.mark.real, pytest.mark.skipif(os.name == "nt", reason="timers of POSIX")]


@pytest.mark.parametrize("form", ["gguf", "gqa"])
@pytest.mark.parametrize("program", ["interrupts", "threads", "dropped"])
def test_turns_with_tools_are_whole_or_not_there(files: ModelFiles, form: str, program: str) -> None:
    require_engine("llama" if form == "gguf" else "ort")
    path = recipes.tool_gguf(files.folder) if form == "gguf" else recipes.tool_onnx(files.folder, form)
    assert run_python(PROGRAM, program, path) == (0, "", "")
