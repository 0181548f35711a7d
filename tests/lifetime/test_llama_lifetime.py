"""llama.cpp stages and vocabularies at the end of their lives; a crash is a return code, so each test has a process."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from fakes.model_files import ModelFiles

pytestmark = pytest.mark.usefixtures("llama")

FOLDER = Path(__file__).parent
ROOT = FOLDER.parents[1]


def run_silently(program: str, path: str) -> None:
    """Run a program of `llama_programs.py`: it must end well and print nothing."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join((str(ROOT), str(ROOT / "tests")))}
    done = subprocess.run(
        [sys.executable, "-W", "error", str(FOLDER / "llama_programs.py"), program, path],
        env=environment,
        capture_output=True,
        text=True,
        timeout=250,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


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
