"""Small libraries in C beside this file, compiled for a test."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest


def compiled(name: str, folder: Path) -> Path:
    """Compile `name`.c into a shared library in `folder`; skip the test where there is no compiler."""
    compiler = shutil.which("cc")
    if compiler is None or sys.platform == "win32":
        pytest.skip("there is no C compiler `cc`")
    library = folder / f"{name}.so"
    source = Path(__file__).with_name(f"{name}.c")
    subprocess.run([compiler, "-shared", "-fPIC", "-o", str(library), str(source)], check=True)
    return library
