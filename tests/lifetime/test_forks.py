"""Forked children: they work, or say why not, and never hang; `multiprocessing` in all its ways."""

from __future__ import annotations

import os

import pytest
from lifetime.programs import run_quietly

from fakes.model_files import ModelFiles

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")


@pytest.mark.parametrize(
    "program",
    [
        "fork_before_the_first_use",
        "fork_and_use_what_was_loaded",
        "fork_and_load_again",
        "fork_and_leave",
        "fork_in_a_child",
        "fork_while_another_thread_works",
        "processes_of_every_kind",
    ],
)
def test_forks(files: ModelFiles, engine: str, program: str) -> None:
    run_quietly("exit_programs.py", program, files, engine)


def test_a_child_keeps_the_file_of_a_model_from_a_buffer(files: ModelFiles, llama: None) -> None:
    run_quietly("exit_programs.py", "keep_the_file_of_a_model_from_a_buffer", files, "llama")
