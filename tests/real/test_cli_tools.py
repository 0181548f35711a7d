"""`winml-lite chat --tools` in a process of its own: from a pipe, and with a person at a terminal."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from models.recipes import tool_onnx
from models.tool_models import ANSWER

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = [sys.executable, "-c", "from cli.main import main; main(prog_name='winml-lite')", "chat"]
TOOLS = """
def multiply(a: int, b: int) -> int:
    return a * b

def population(city: str) -> int:
    return 645693
"""

pytestmark = pytest.mark.real


@pytest.fixture
def arguments(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    monkeypatch.setenv("WINML_LITE_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    (tmp_path / "tools.py").write_text(TOOLS, encoding="utf-8")
    model = str(tool_onnx(tmp_path / "models"))
    return [*PROGRAM, "-m", model, "--temperature", "0", "--tools", str(tmp_path / "tools.py")]


def test_yes_calls_from_a_pipe(arguments: list[str]) -> None:
    done = subprocess.run([*arguments, "--yes"], input=b"What?\n", capture_output=True, timeout=500)
    assert (done.returncode, done.stdout.decode()) == (0, ANSWER + "\n")
    assert done.stderr.decode().splitlines()[1:] == [
        "multiply(a=127, b=31) -> 3937",
        "population(city='Łódź') -> 645693",
    ]


def test_without_it_calls_from_a_pipe_are_refused(arguments: list[str]) -> None:
    done = subprocess.run(arguments, input=b"What?\n", capture_output=True, timeout=500)
    assert done.returncode == 0
    assert b"multiply(a=127, b=31) -> Refused: nobody is at the terminal" in done.stderr


@pytest.mark.skipif(os.name == "nt", reason="terminals of POSIX")
def test_a_person_allows_and_refuses(arguments: list[str]) -> None:
    import pty

    own, other = pty.openpty()
    program = subprocess.Popen(arguments, stdin=other, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    os.close(other)
    try:
        os.write(own, b"What?\n")
        _wait_for(program, b"[a]lways multiply: ")
        os.write(own, b"y\n")
        _wait_for(program, b"multiply(a=127, b=31) -> 3937\ncall ")
        _wait_for(program, b"[a]lways population: ")
        os.write(own, b"n\n")
        _wait_for(program, "population(city='Łódź') -> Refused: the user does not allow this call\n".encode())
        os.write(own, b"/exit\n")
        out, _ = program.communicate(timeout=500)
    finally:
        program.kill()
        os.close(own)
    assert out.decode() == ANSWER + "\n"


def _wait_for(program: subprocess.Popen[bytes], text: bytes) -> None:
    """Read standard error up to a text."""
    assert program.stderr is not None
    said = b""
    while not said.endswith(text):
        byte = program.stderr.read(1)
        assert byte, said
        said += byte
