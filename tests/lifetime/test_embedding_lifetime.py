"""Forks of embedding models, saved states under interrupts; a crash is a return code, so each test has a process."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from lifetime.held_memory import COUNTED
from lifetime.programs import run_program

from fakes.model_files import ModelFiles, require_engine
from models.recipes import encoder_gguf, random_gguf, random_onnx


def run_silently(program: str, path: str | Path) -> None:
    """Run a program of `embedding_programs.py`: it must end well and print nothing."""
    run_program("embedding_programs.py", program, path, **COUNTED)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="forks")
@pytest.mark.usefixtures("llama")
def test_a_forked_child_is_told(files: ModelFiles) -> None:
    run_silently("a_forked_child_is_told", encoder_gguf(files.folder))


@pytest.mark.usefixtures("llama")
def test_exit_in_the_midst_of_a_run(files: ModelFiles) -> None:
    run_silently("exit_in_the_midst_of_a_run", encoder_gguf(files.folder))


@pytest.mark.usefixtures("llama")
def test_states_grow_no_memory(files: ModelFiles) -> None:
    run_silently("states_grow_no_memory", files.gguf)


@pytest.mark.skipif(sys.platform == "win32", reason="signals are sent")
@pytest.mark.parametrize("recipe", [random_gguf, random_onnx])
def test_interrupts_leave_everything_whole(tmp_path: Path, recipe: Callable[[Path], Path]) -> None:
    require_engine("llama" if recipe is random_gguf else "ort")
    run_silently("interrupts_leave_everything_whole", recipe(tmp_path))
