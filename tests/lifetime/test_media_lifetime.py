"""Encoders and segments at the end of their lives; a crash is a return code, so each test has a process."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from models import recipes

pytestmark = [pytest.mark.real, pytest.mark.usefixtures("llama")]

FOLDER = Path(__file__).parent
ROOT = FOLDER.parents[1]


def run_silently(program: str, folder: Path) -> None:
    """Run a program of `media_programs.py`: it must end well and print nothing."""
    names = (str(recipes.random_gguf(folder)), str(recipes.projector_gguf(folder)))
    done = subprocess.run(
        [sys.executable, "-W", "error", str(FOLDER / "media_programs.py"), program, *names],
        env={**os.environ, "PYTHONPATH": str(ROOT), "MALLOC_ARENA_MAX": "1"},
        capture_output=True,
        text=True,
        timeout=250,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_exit_with_everything_alive(tmp_path: Path) -> None:
    run_silently("exit_with_everything_alive", tmp_path)


def test_exit_while_a_daemon_thread_encodes(tmp_path: Path) -> None:
    run_silently("exit_while_a_daemon_thread_encodes", tmp_path)


def test_closing_orders(tmp_path: Path) -> None:
    run_silently("closing_orders", tmp_path)


def test_nothing_grows(tmp_path: Path) -> None:
    run_silently("nothing_grows", tmp_path)


@pytest.mark.skipif(sys.platform == "win32", reason="a process cannot interrupt itself there")
def test_interrupts_lose_no_position(tmp_path: Path) -> None:
    run_silently("interrupts_lose_no_position", tmp_path)
