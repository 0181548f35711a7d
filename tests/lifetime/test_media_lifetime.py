"""Encoders and segments at the end of their lives; a crash is a return code, so each test has a process."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from lifetime.held_memory import COUNTED
from lifetime.programs import run_program

from models import recipes

pytestmark = [pytest.mark.real, pytest.mark.usefixtures("llama")]


def run_silently(program: str, folder: Path) -> None:
    """Run a program of `media_programs.py`: it must end well and print nothing."""
    models = recipes.random_gguf(folder), recipes.projector_gguf(folder)
    run_program("media_programs.py", program, *models, **COUNTED)


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
