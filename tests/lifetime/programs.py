"""Running a program of this folder in a process of its own: a crash is a return code, and silence is asked for."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

from fakes.model_files import ModelFiles

FOLDER = Path(__file__).parent
ROOT = FOLDER.parents[1]
WARNINGS = ("-W", "error", "-W", "ignore:This process .* is multi-threaded:DeprecationWarning")
HANGING = 500
"""Seconds after which a program is taken to hang: the slowest needs a tenth of them."""


def run_quietly(file: str, program: str, files: ModelFiles, engine: str, graph: str = "add", **variables: str) -> None:
    """Run `file PROGRAM MODEL ENGINE`: it ends with 0 and says nothing."""
    run_program(file, program, files.onnx(graph) if engine == "ort" else files.gguf, engine, **variables)


def run_program(file: str, program: str, *arguments: str | Path, **variables: str) -> None:
    """Run `file PROGRAM ARGUMENTS`: it ends with 0 and says nothing."""
    done = run_python(*WARNINGS, FOLDER / file, program, *arguments, **variables)
    assert done == (0, "", ""), done


def run_python(*arguments: str | Path, **variables: str) -> tuple[int, str, str]:
    """Run `python ARGUMENTS`: its return code, output and errors. Of one that hangs they tell where its threads are."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join((str(ROOT), str(ROOT / "tests"))), **variables}
    command = [sys.executable, "-X", "faulthandler", *map(str, arguments)]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True, env=environment) as process:
        try:
            output, errors = process.communicate(timeout=HANGING)
        except subprocess.TimeoutExpired:
            if os.name == "posix":
                process.send_signal(signal.SIGABRT)  # the fault handler tells
            else:
                process.kill()
            output, errors = process.communicate()
    return process.returncode, output, errors
