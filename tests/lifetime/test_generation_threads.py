"""Text generation from many threads, under Ctrl-C and at exit, with real engines, each program in its own process."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from lifetime.programs import run_python

from fakes.model_files import ModelFiles, require_engine
from models import recipes

pytestmark = pytest.mark.real

PROGRAM = Path(__file__).with_name("generation_programs.py")


@pytest.fixture(params=["gguf", "gqa", "plain"])
def path(request: pytest.FixtureRequest, files: ModelFiles) -> Path:
    """The scripted model in one of its forms."""
    require_engine("llama" if request.param == "gguf" else "ort")
    if request.param == "gguf":
        return recipes.scripted_gguf(files.folder)
    return recipes.scripted_onnx(files.folder, request.param)


def run(program: str, path: Path) -> tuple[int, str, str]:
    return run_python("-W", "ignore::DeprecationWarning", PROGRAM, program, path)


def test_s_lif_06_eight_threads_get_the_right_answers(path: Path) -> None:
    assert run("eight_threads", path) == (0, "", "")


def test_s_lif_06_conversations_in_threads_do_not_mix(path: Path) -> None:
    assert run("chats_in_threads", path) == (0, "", "")


def test_streams_dropped_half_read_in_threads_give_their_turn_back(path: Path) -> None:
    assert run("dropped_streams", path) == (0, "", "")


def test_closing_a_model_that_other_threads_use(path: Path) -> None:
    assert run("closed_while_running", path) == (0, "", "")


def test_s_lif_08_twenty_interrupts_leave_the_model_usable(path: Path) -> None:
    code, _, errors = run("interrupts", path)
    assert code == 0, errors


def test_s_lif_08_twenty_interrupts_leave_a_session_usable(path: Path) -> None:
    code, _, errors = run("interrupts_of_the_long_road", path)
    assert code == 0, errors


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_a_fork_while_another_thread_streams(path: Path) -> None:
    assert run("fork_while_another_thread_streams", path) == (0, "", "")


@pytest.mark.parametrize("program", ["leave_a_stream_open", "leave_a_session_open"])
def test_s_lif_01_leaving_with_a_stream_half_read_is_silent(program: str, path: Path) -> None:
    assert run(program, path) == (0, "", "")
