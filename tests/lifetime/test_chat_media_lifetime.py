"""Chats with pictures and sound at the end of their lives; a crash is a return code, so each test has a process."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from lifetime.held_memory import COUNTED
from lifetime.programs import run_program

pytestmark = [pytest.mark.real, pytest.mark.usefixtures("llama")]


def run_silently(program: str, folder: Path) -> None:
    """Run a program of `chat_media_programs.py`: it must end well and print nothing."""
    run_program("chat_media_programs.py", program, folder, **COUNTED)


@pytest.mark.skipif(sys.platform == "win32", reason="a process cannot interrupt itself there")
def test_interrupted_turns(tmp_path: Path) -> None:
    run_silently("interrupted_turns", tmp_path)


def test_closed_by_another_thread(tmp_path: Path) -> None:
    run_silently("closed_by_another_thread", tmp_path)


def test_cancelled_tasks(tmp_path: Path) -> None:
    run_silently("cancelled_tasks", tmp_path)


def test_dropped_in_any_order(tmp_path: Path) -> None:
    run_silently("dropped_in_any_order", tmp_path)


def test_exit_in_the_midst_of_a_turn(tmp_path: Path) -> None:
    run_silently("exit_in_the_midst_of_a_turn", tmp_path)


def test_nothing_grows(tmp_path: Path) -> None:
    run_silently("nothing_grows", tmp_path)
