"""Every example runs as a user would start it, on the tiny models."""

from __future__ import annotations

import importlib.util
import os
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

from models.onnx_models import add, save
from models.recipes import (
    SENTENCE,
    media_gguf,
    media_projector_gguf,
    scripted_gguf,
    scripted_onnx,
    scripted_split,
    tool_gguf,
    tool_onnx,
)
from models.split_decoder import split_decoder

ROOT = Path(__file__).resolve().parents[2]
QUESTION = "What is the capital of France?"
NAMES = [
    *("chat.py", "classify_picture.py", "describe_picture.py", "generate.py", "mixed_pipeline.py"),
    *("native_token_loop.py", "onnx_graph.py", "search_texts.py", "speech_pipeline.py", "speech_to_chat.py"),
    *("token_loop.py", "tools.py", "web_handler.py"),
]

pytestmark = pytest.mark.real
needs_llama = pytest.mark.skipif(
    importlib.util.find_spec("llama_cpp") is None, reason="a GGUF model: llama-cpp-python is not installed"
)


def run_example(name: str, *arguments: str | Path, given: str = "") -> subprocess.CompletedProcess[str]:
    """Run an example with UTF-8 streams; it must end well."""
    command = [sys.executable, str(ROOT / "examples" / name), *map(str, arguments)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONUTF8": "1"}
    done = subprocess.run(command, input=given, env=environment, capture_output=True, encoding="utf-8", timeout=500)
    assert done.returncode == 0, done.stderr
    return done


@needs_llama
def test_token_loop_on_gguf_prints_the_sentence(tmp_path: Path) -> None:
    assert run_example("token_loop.py", scripted_gguf(tmp_path), QUESTION).stdout == SENTENCE + "\n"


@pytest.mark.parametrize("operators", ["plain", "std", "gqa"])
def test_token_loop_on_onnx_prints_the_sentence(tmp_path: Path, operators: str) -> None:
    assert run_example("token_loop.py", scripted_onnx(tmp_path, operators), QUESTION).stdout == SENTENCE + "\n"


def start(monkeypatch: pytest.MonkeyPatch, name: str, argument: str) -> object:
    """Run an example in this process as far as its command line; return its exit code."""
    if name == "web_handler.py":
        pytest.importorskip("starlette")
        pytest.importorskip("uvicorn")
    monkeypatch.setattr(sys, "argv", [str(ROOT / "examples" / name), argument])
    with pytest.raises(SystemExit) as left:
        runpy.run_path(sys.argv[0], run_name="__main__")
    return left.value.code


@pytest.mark.parametrize("name", NAMES)
def test_each_example_says_how_it_is_used(
    name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert start(monkeypatch, name, "--help") == 0
    assert capsys.readouterr().out.startswith(f"usage: {name} [-h]")


@pytest.mark.parametrize("name", NAMES)
def test_each_example_refuses_what_it_does_not_know(
    name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert start(monkeypatch, name, "--nonsense") == 2
    assert capsys.readouterr().err.startswith(f"usage: {name} [-h]")


def test_the_examples_are_all_known() -> None:
    assert sorted(path.name for path in (ROOT / "examples").glob("*.py")) == NAMES


@pytest.mark.parametrize(
    ("name", "arguments"),
    [("mixed_pipeline.py", ("model.onnx",)), ("speech_pipeline.py", ("words.wav", "model.onnx"))],
)
def test_examples_for_gguf_files_refuse_others(
    name: str, arguments: tuple[str, ...], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", [str(ROOT / "examples" / name), *arguments])
    with pytest.raises(SystemExit, match="2"):
        runpy.run_path(sys.argv[0], run_name="__main__")
    assert capsys.readouterr().err.endswith("error: model.onnx is no .gguf file\n")


@pytest.mark.parametrize("weights", ["f32", "q8"])
def test_native_token_loop_prints_the_sentence(tmp_path: Path, weights: str) -> None:
    assert run_example("native_token_loop.py", scripted_split(tmp_path, weights), QUESTION).stdout == SENTENCE + "\n"


@needs_llama
def test_native_token_loop_on_gguf_prints_the_sentence(tmp_path: Path) -> None:
    assert run_example("native_token_loop.py", scripted_gguf(tmp_path), QUESTION).stdout == SENTENCE + "\n"


def test_native_token_loop_says_what_the_loop_by_hand_says(smollm2_q8: Path) -> None:
    by_hand = run_example("token_loop.py", smollm2_q8, QUESTION).stdout
    assert run_example("native_token_loop.py", split_decoder(smollm2_q8), QUESTION).stdout == by_hand
    assert "Paris" in by_hand


def test_native_token_loop_says_how_to_split_a_model(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, str(ROOT / "examples" / "native_token_loop.py"), str(tmp_path)],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 1
    assert f"{tmp_path} has no decoder.onnx" in done.stderr
    assert f"python -m models.split_decoder {tmp_path}\n" in done.stderr


def test_generate_streams_text_and_reports_on_standard_error(tmp_path: Path) -> None:
    done = run_example("generate.py", scripted_onnx(tmp_path), "What\n")
    assert done.stdout.strip()
    assert "tokens, finished by" in done.stderr


def test_chat_answers_each_line(tmp_path: Path) -> None:
    done = run_example("chat.py", scripted_onnx(tmp_path), given="What?\nWhere?\n")
    assert done.stdout == f"{SENTENCE}\n{SENTENCE}\n"


@pytest.mark.parametrize("operators", ["gguf", "gqa"])
def test_tools_are_called_and_their_results_are_in_the_answer(tmp_path: Path, operators: str) -> None:
    if operators == "gguf" and importlib.util.find_spec("llama_cpp") is None:
        pytest.skip("a GGUF model: llama-cpp-python is not installed")
    model = tool_gguf(tmp_path) if operators == "gguf" else tool_onnx(tmp_path, operators)
    done = run_example("tools.py", model)
    assert done.stdout == "127 times 31 is 3937, and Łódź has 645693 inhabitants.\n"
    assert done.stderr.splitlines()[-2:] == [
        "multiply(a=127, b=31) -> 3937",
        "population(city='Łódź') -> 645693",
    ]


@needs_llama
def test_describe_picture_answers_questions_about_pictures(tmp_path: Path) -> None:
    image = pytest.importorskip("PIL.Image", reason="Pillow is not installed")
    image.new("RGB", (30, 20), "blue").save(tmp_path / "a.png")
    image.new("RGB", (20, 30), "red").save(tmp_path / "b.png")
    files = media_gguf(tmp_path), media_projector_gguf(tmp_path), tmp_path / "a.png", tmp_path / "b.png"
    done = run_example("describe_picture.py", *files, given="Are you sure?\n")
    assert done.stdout == "A red picture.\nA red picture.\n"
    assert done.stderr.splitlines() == [
        "(97 tokens in the prompt, 0 of them known from before)",
        "(126 tokens in the prompt, 97 of them known from before)",
    ]


@needs_llama
def test_mixed_pipeline_ranks_and_goes_on(tmp_path: Path) -> None:
    lines = run_example("mixed_pipeline.py", scripted_gguf(tmp_path), "What?\n").stdout.splitlines()
    assert lines[0] == "  99.6%  'Paris'"
    assert len(lines) == 7
    assert lines[5:] == ["What?", SENTENCE]


def test_onnx_graph_draws_the_edges_of_a_disc() -> None:
    lines = run_example("onnx_graph.py").stdout.splitlines()
    assert len(lines) == 24
    assert lines[0] == ""
    assert lines[12].strip() == "####" + " " * 28 + "####"


def test_onnx_graph_shows_and_runs_a_file(tmp_path: Path) -> None:
    shown = run_example("onnx_graph.py", save(add(), tmp_path / "add.onnx")).stdout
    assert shown == "input  A: FLOAT32 [2]\ninput  B: FLOAT32 [2]\noutput C: float32 [2]\n"
