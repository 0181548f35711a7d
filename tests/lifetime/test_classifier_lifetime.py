"""Image classifiers at the end of their lives; a crash is a return code, so each test has a process."""

from __future__ import annotations

from pathlib import Path

import pytest
from lifetime.programs import run_program

from fakes.model_files import require_engine
from models.classifier_models import write_colour_folder


@pytest.mark.parametrize(
    "program",
    [
        "exit_with_a_model_alive",
        "exit_while_daemon_threads_classify",
        "closing_waits_for_a_call",
        "nothing_grows_over_many_cycles",
    ],
)
def test_a_program_ends_well_and_prints_nothing(tmp_path: Path, program: str) -> None:
    require_engine("ort")
    run_program("classifier_programs.py", program, write_colour_folder(tmp_path / "model"))
