"""The end of the interpreter, whatever threads, exit functions and finalizers are about (cases S-LIF-01 and 02)."""

from __future__ import annotations

import pytest
from lifetime.programs import run_quietly

from fakes.model_files import ModelFiles

# Each exit meets the threads at another place.
MOMENTS = ["0", "0.004", "0.008", "0.015", "0.025", "0.05"]


@pytest.mark.parametrize("moment", MOMENTS)
def test_s_lif_02_exit_while_daemon_threads_load(files: ModelFiles, engine: str, moment: str) -> None:
    run_quietly("exit_programs.py", "exit_while_daemon_threads_load", files, engine, EXIT_AFTER=moment)


@pytest.mark.parametrize("moment", ["0.01", "0.05", "0.2"])
def test_s_lif_02_exit_while_daemon_threads_submit(files: ModelFiles, engine: str, moment: str) -> None:
    run_quietly("exit_programs.py", "exit_while_daemon_threads_submit", files, engine, EXIT_AFTER=moment)


def test_s_lif_02_exit_with_submitted_work(files: ModelFiles, engine: str) -> None:
    run_quietly("exit_programs.py", "exit_with_submitted_work", files, engine)


def test_s_lif_01_use_after_the_exit_handlers(files: ModelFiles, engine: str) -> None:
    run_quietly("exit_programs.py", "use_after_the_exit_handlers", files, engine)


def test_s_lif_01_use_while_the_interpreter_goes(files: ModelFiles, engine: str) -> None:
    run_quietly("exit_programs.py", "use_while_the_interpreter_goes", files, engine)


def test_s_lif_01_work_in_an_exit_function(files: ModelFiles, engine: str) -> None:
    run_quietly("exit_programs.py", "work_in_an_exit_function", files, engine)
