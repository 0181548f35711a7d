"""Running a program of this folder in a process of its own: a crash is a return code, and silence is asked for."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from fakes.model_files import ModelFiles

FOLDER = Path(__file__).parent
ROOT = FOLDER.parents[1]
WARNINGS = ("-W", "error", "-W", "ignore:This process .* is multi-threaded:DeprecationWarning")


def run_quietly(file: str, program: str, files: ModelFiles, engine: str, graph: str = "add", **variables: str) -> None:
    """Run `file PROGRAM MODEL ENGINE`: it ends with 0 and says nothing."""
    run_program(file, program, files.onnx(graph) if engine == "ort" else files.gguf, engine, **variables)


def run_program(file: str, program: str, *arguments: str | Path, **variables: str) -> None:
    """Run `file PROGRAM ARGUMENTS`: it ends with 0 and says nothing, within 250 seconds."""
    done = subprocess.run(
        [sys.executable, *WARNINGS, "-X", "faulthandler", str(FOLDER / file), program, *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=250,
        check=False,
        env={**os.environ, "PYTHONPATH": os.pathsep.join((str(ROOT), str(ROOT / "tests"))), **variables},
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", ""), (done.returncode, done.stdout, done.stderr)
