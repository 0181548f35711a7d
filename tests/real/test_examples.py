"""Every example runs as a user would start it, on the tiny models."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

from models.onnx_models import add, save
from models.recipes import SENTENCE, scripted_gguf, scripted_onnx

ROOT = Path(__file__).resolve().parents[2]
QUESTION = "What is the capital of France?"

pytestmark = pytest.mark.real
needs_llama = pytest.mark.skipif(
    importlib.util.find_spec("llama_cpp") is None, reason="a GGUF model: llama-cpp-python is not installed"
)


def run_example(name: str, *arguments: str | Path, given: str = "") -> subprocess.CompletedProcess[str]:
    """Run an example with UTF-8 streams; it must end well."""
    command = [sys.executable, str(ROOT / "examples" / name), *map(str, arguments)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONUTF8": "1"}
    done = subprocess.run(command, input=given, env=environment, capture_output=True, encoding="utf-8", timeout=120)
    assert done.returncode == 0, done.stderr
    return done


@needs_llama
def test_token_loop_on_gguf_prints_the_sentence(tmp_path: Path) -> None:
    assert run_example("token_loop.py", scripted_gguf(tmp_path), QUESTION).stdout == SENTENCE + "\n"


@pytest.mark.parametrize("operators", ["plain", "std", "gqa"])
def test_token_loop_on_onnx_prints_the_sentence(tmp_path: Path, operators: str) -> None:
    assert run_example("token_loop.py", scripted_onnx(tmp_path, operators), QUESTION).stdout == SENTENCE + "\n"


def test_token_loop_without_a_model_says_how_it_is_used() -> None:
    done = subprocess.run(
        [sys.executable, str(ROOT / "examples" / "token_loop.py")],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 1
    assert done.stderr == "usage: python examples/token_loop.py MODEL [PROMPT]\n"


def test_generate_streams_text_and_reports_on_standard_error(tmp_path: Path) -> None:
    done = run_example("generate.py", scripted_onnx(tmp_path), "What\n")
    assert done.stdout.strip()
    assert "tokens, finished by" in done.stderr


def test_chat_answers_each_line(tmp_path: Path) -> None:
    done = run_example("chat.py", scripted_onnx(tmp_path), given="What?\nWhere?\n")
    assert done.stdout == f"{SENTENCE}\n{SENTENCE}\n"


def test_onnx_graph_draws_the_edges_of_a_disc() -> None:
    lines = run_example("onnx_graph.py").stdout.splitlines()
    assert len(lines) == 24
    assert lines[0] == ""
    assert lines[12].strip() == "####" + " " * 28 + "####"


def test_onnx_graph_shows_and_runs_a_file(tmp_path: Path) -> None:
    shown = run_example("onnx_graph.py", save(add(), tmp_path / "add.onnx")).stdout
    assert shown == "input  A: FLOAT32 [2]\ninput  B: FLOAT32 [2]\noutput C: float32 [2]\n"
