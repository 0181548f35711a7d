"""The examples of speech recognition run as a user would start them."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import genai
from fakes.model_files import require_engine
from fakes.real_models import catalog_model
from fakes.spoken import spoken
from models.recipes import SENTENCE, scripted_gguf, scripted_onnx
from models.whisper_models import tiny_whisper, tones

pytest.importorskip("soundfile", reason="sound files need soundfile: pip install 'winml-lite[media]'")
pytestmark = pytest.mark.real

ROOT = Path(__file__).resolve().parents[2]
needs_llama = pytest.mark.skipif(
    importlib.util.find_spec("llama_cpp") is None, reason="a GGUF model: llama-cpp-python is not installed"
)


@pytest.fixture
def words(tmp_path: Path) -> Path:
    """A recording of two words, beside the folder of the model that hears them."""
    require_engine("ort")
    tiny_whisper(tmp_path / "whisper")
    genai.write_audio(tmp_path / "words.wav", (tones([0, None, 6]), 16000))
    return tmp_path / "words.wav"


def run_example(name: str, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """Run an example with UTF-8 streams."""
    command = [sys.executable, str(ROOT / "examples" / name), *map(str, arguments)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONUTF8": "1"}
    return subprocess.run(command, env=environment, capture_output=True, encoding="utf-8", timeout=500)


@needs_llama
def test_speech_is_answered_by_a_gguf_model(words: Path, tmp_path: Path) -> None:
    done = run_example("speech_to_chat.py", words, scripted_gguf(tmp_path), tmp_path / "whisper")
    assert (done.stdout, done.returncode) == (f"> one café\n{SENTENCE}\n", 0)


def test_speech_is_answered_by_an_onnx_model(words: Path, tmp_path: Path) -> None:
    done = run_example("speech_to_chat.py", words, scripted_onnx(tmp_path), tmp_path / "whisper")
    assert (done.stdout, done.returncode) == (f"> one café\n{SENTENCE}\n", 0)


def test_silence_is_no_question(tmp_path: Path) -> None:
    require_engine("ort")
    genai.write_audio(tmp_path / "silence.wav", (np.zeros(16000), 16000))
    done = run_example("speech_to_chat.py", tmp_path / "silence.wav", "smollm2", tiny_whisper(tmp_path / "whisper"))
    assert done.returncode == 1
    assert done.stderr == f"{tmp_path / 'silence.wav'}: nobody says anything\n"


@pytest.mark.parametrize("name", ["speech_to_chat.py", "speech_pipeline.py"])
def test_without_a_recording_it_says_how_it_is_used(name: str) -> None:
    done = run_example(name)
    assert done.returncode == 2
    assert done.stderr.startswith(f"usage: {name} [-h] RECORDING")


@needs_llama
def test_one_pipeline_of_both_engines_judges_each_token(words: Path, tmp_path: Path) -> None:
    done = run_example("speech_pipeline.py", words, scripted_gguf(tmp_path), tmp_path / "whisper")
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert [line[9:] for line in lines] == ["' o'", "'n'", "'e'", "' caf'", "'\ufffd'", "'\ufffd'"]
    assert lines[0].startswith(" " * 9)
    assert [line[:7].strip()[-1] for line in lines[1:]] == ["%"] * 5


@needs_llama
def test_hello_world_is_spoken_and_answered(smollm2_gguf: Path, tmp_path: Path) -> None:
    genai.write_audio(tmp_path / "hello.wav", (spoken("Hello world. This is a test."), 16000))
    done = run_example("speech_to_chat.py", tmp_path / "hello.wav", smollm2_gguf, catalog_model("whisper-tiny.en"))
    assert done.returncode == 0, done.stderr
    heard, answer = done.stdout.splitlines()[:2]
    assert "hello world" in heard.casefold()
    assert answer
