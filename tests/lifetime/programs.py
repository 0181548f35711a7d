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
    """Run `file PROGRAM MODEL ENGINE`: it ends with 0 and says nothing, within 100 seconds."""
    path = files.onnx(graph) if engine == "ort" else files.gguf
    done = subprocess.run(
        [sys.executable, *WARNINGS, "-X", "faulthandler", str(FOLDER / file), program, path, engine],
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
        env={**os.environ, "PYTHONPATH": os.pathsep.join((str(ROOT), str(ROOT / "tests"))), **variables},
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", ""), (done.returncode, done.stdout, done.stderr)
