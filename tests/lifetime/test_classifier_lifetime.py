"""Image classifiers at the end of their lives; a crash is a return code, so each test has a process."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from fakes.model_files import require_engine
from models.classifier_models import write_colour_folder

FOLDER = Path(__file__).parent
ROOT = FOLDER.parents[1]


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
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join((str(ROOT), str(ROOT / "tests")))}
    done = subprocess.run(
        [
            sys.executable,
            "-W",
            "error",
            str(FOLDER / "classifier_programs.py"),
            program,
            str(write_colour_folder(tmp_path / "model")),
        ],
        env=environment,
        capture_output=True,
        text=True,
        timeout=250,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, ""), done.stderr
