"""llama.cpp stages and vocabularies at the end of their lives; a crash is a return code, so each test has a process."""

from __future__ import annotations

import sys

import pytest
from lifetime.held_memory import COUNTED
from lifetime.programs import run_program

from fakes.model_files import ModelFiles

pytestmark = pytest.mark.usefixtures("llama")


def run_silently(program: str, path: str) -> None:
    """Run a program of `llama_programs.py`: it must end well and print nothing."""
    run_program("llama_programs.py", program, path, **COUNTED)


def test_s_lif_01_exit_with_everything_alive(files: ModelFiles) -> None:
    run_silently("exit_with_everything_alive", files.gguf)


def test_s_lif_02_exit_while_daemon_threads_run(files: ModelFiles) -> None:
    run_silently("exit_while_daemon_threads_run", files.gguf)


def test_s_lif_04_everything_goes_at_once_without_the_collector(files: ModelFiles) -> None:
    run_silently("everything_goes_at_once_without_the_collector", files.gguf)


def test_s_lif_04_nothing_grows_over_many_cycles(files: ModelFiles) -> None:
    run_silently("nothing_grows_over_many_cycles", files.gguf)


def test_s_lif_01_a_failed_build_leaves_nothing_behind(files: ModelFiles) -> None:
    run_silently("a_failed_build_leaves_nothing_behind", files.gguf)


@pytest.mark.skipif(sys.platform == "win32", reason="a process cannot interrupt itself there")
def test_s_lif_08_interrupt_leaves_the_sequence_usable(files: ModelFiles) -> None:
    run_silently("interrupt_leaves_the_sequence_usable", files.gguf)
