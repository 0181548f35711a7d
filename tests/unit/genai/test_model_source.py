"""What the loaders share: errors name the loader that was called."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import genai
from genai.model_source import naming
from winml_lite import NotSupportedError, WinMLError


def failing_load() -> None:
    raise NotSupportedError(0x80070032, "genai.load", "no") from LookupError("why")


@pytest.mark.parametrize(
    ("load", "name"),
    [
        (genai.load, "genai.load"),
        (genai.load_classifier, "genai.load_classifier"),
        (genai.load_embedding, "genai.load_embedding"),
    ],
)
def test_a_folder_without_a_model(tmp_path: Path, load: Callable[..., Any], name: str) -> None:
    with pytest.raises(WinMLError, match=r"holds neither genai_config\.json nor an ONNX file") as caught:
        load(tmp_path)
    assert (caught.value.hresult, caught.value.context) == (0x80070002, name)


@pytest.mark.parametrize(
    ("load", "name"),
    [
        (genai.load, "genai.load"),
        (genai.load_classifier, "genai.load_classifier"),
        (genai.load_embedding, "genai.load_embedding"),
        (genai.VoiceActivity, "genai.VoiceActivity"),
    ],
)
def test_a_speech_model_in_the_place_of_another(tmp_path: Path, load: Callable[..., Any], name: str) -> None:
    (tmp_path / "whisper.json").write_text("{}")
    with pytest.raises(WinMLError, match="it recognises speech") as caught:
        load(tmp_path)
    assert (caught.value.hresult, caught.value.context) == (0x80070057, name)


@pytest.mark.parametrize(("load", "name"), [(genai.load, "genai.load"), (genai.load_embedding, "genai.load_embedding")])
def test_an_engine_that_does_not_fit(tmp_path: Path, load: Callable[..., Any], name: str) -> None:
    (tmp_path / "model.gguf").write_bytes(b"GGUF")
    with pytest.raises(WinMLError, match=r"runs on llama\.cpp, not on ONNX Runtime") as caught:
        load(tmp_path / "model.gguf", engine="ort")
    assert (caught.value.hresult, caught.value.context) == (0x80070057, name)


def test_class_code_text_and_cause_stay() -> None:
    with pytest.raises(NotSupportedError) as caught, naming("genai.load_speech"):
        failing_load()
    assert str(caught.value) == "0x80070032: not supported [genai.load_speech]: no"
    assert isinstance(caught.value.__cause__, LookupError)


def test_errors_of_others_pass() -> None:
    error = WinMLError(0x80070570, "IWinMLRuntime.LoadModel", "broken")
    with pytest.raises(WinMLError) as caught, naming("genai.load_speech"):
        raise error
    assert caught.value is error
