"""What a folder of a Whisper model says about itself, and what is refused."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import genai
from genai import whisper_folder
from genai.whisper_folder import WhisperFolder, WhisperShape, WhisperTokens
from winml_lite import NotSupportedError, WinMLError

SHAPE = WhisperShape(80, 4, 6, 64, 51865)
TOKENS = WhisperTokens(
    end=50257,
    start=50258,
    translate=50358,
    transcribe=50359,
    start_of_lm=50360,
    start_of_previous=50361,
    no_speech=50362,
    no_timestamps=50363,
    timestamp_begin=50364,
    languages={"en": 50259, "de": 50261},
    suppress=(1, 2, 50258),
    suppress_at_begin=(220, 50257),
    is_multilingual=True,
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("encoder.onnx", "decoder.onnx", "tokenizer.json"):
        (tmp_path / name).write_bytes(b"x")
    (tmp_path / "whisper.json").write_text(whisper_folder.settings_text(SHAPE, TOKENS), encoding="utf-8")
    return tmp_path


def change(folder: Path, table: str, key: str, value: Any) -> None:
    path = folder / "whisper.json"
    content = json.loads(path.read_text(encoding="utf-8"))
    content[table][key] = value
    path.write_text(json.dumps(content), encoding="utf-8")


def test_what_is_written_is_read_back(folder: Path) -> None:
    found = WhisperFolder.open(folder)
    assert (found.path, found.shape, found.tokens) == (folder, SHAPE, TOKENS)


def test_the_files(folder: Path) -> None:
    found = WhisperFolder.open(str(folder))
    assert found.encoder_path == folder / "encoder.onnx"
    assert found.decoder_path == folder / "decoder.onnx"
    assert found.tokenizer_path == folder / "tokenizer.json"


def test_features_have_the_rows_of_the_model(folder: Path) -> None:
    """Silence is -1.5 everywhere: the floor 1e-10, log10, plus 4, by 4."""
    features = genai.WhisperFolder.open(folder).features(np.zeros(16000, np.float32))
    assert features.shape == (1, 80, 3000)
    assert np.unique(features).tolist() == pytest.approx([-1.5], abs=1e-6)


@pytest.mark.parametrize(
    ("options", "prompt"),
    [
        ({}, [50258, 50259, 50359, 50363]),
        ({"translate": True}, [50258, 50259, 50358, 50363]),
        ({"timestamps": True}, [50258, 50259, 50359]),
    ],
)
def test_a_multilingual_prompt_names_language_and_task(options: dict[str, bool], prompt: list[int]) -> None:
    assert TOKENS.prompt("en", **options) == prompt


@pytest.mark.parametrize(("timestamps", "prompt"), [(False, [50258, 50363]), (True, [50258])])
def test_an_english_prompt_names_neither(timestamps: bool, prompt: list[int]) -> None:
    tokens = replace(TOKENS, is_multilingual=False)
    assert tokens.prompt(timestamps=timestamps) == prompt
    assert tokens.prompt("en", timestamps=timestamps) == prompt


def test_what_a_model_cannot_do() -> None:
    english = replace(TOKENS, is_multilingual=False)
    with pytest.raises(ValueError, match="one of en, de, not None"):
        TOKENS.prompt()
    with pytest.raises(ValueError, match="one of en, de, not 'xx'"):
        TOKENS.prompt("xx")
    with pytest.raises(ValueError, match="English only, not 'de'"):
        english.prompt("de")
    with pytest.raises(ValueError, match="cannot translate"):
        english.prompt(translate=True)


def test_times() -> None:
    assert (TOKENS.is_timestamp(50363), TOKENS.is_timestamp(50364)) == (False, True)
    assert (TOKENS.seconds(50364), TOKENS.seconds(50365), TOKENS.seconds(51864)) == (0.0, 0.02, 30.0)


def test_a_missing_folder(tmp_path: Path) -> None:
    with pytest.raises(WinMLError, match=r"0x80070002.*there is no folder .*absent"):
        WhisperFolder.open(tmp_path / "absent")


@pytest.mark.parametrize("name", ["encoder.onnx", "decoder.onnx", "tokenizer.json"])
def test_a_missing_file_is_named(folder: Path, name: str) -> None:
    (folder / name).unlink()
    with pytest.raises(WinMLError, match=rf"0x80070002.*holds no {name}"):
        WhisperFolder.open(folder)


def test_a_folder_of_something_else(tmp_path: Path) -> None:
    with pytest.raises(WinMLError, match=r"0x80070002.*holds no whisper\.json"):
        WhisperFolder.open(tmp_path)


@pytest.mark.parametrize(
    ("name", "mend"),
    [
        ("model.bin", "CTranslate2 model; `winml-lite convert"),
        ("encoder_model.onnx", "holds encoder_model.onnx: exports of other tools"),
        ("genai_config.json", "holds genai_config.json: exports of other tools"),
    ],
)
def test_other_layouts_are_refused_by_name(tmp_path: Path, name: str, mend: str) -> None:
    (tmp_path / name).write_bytes(b"x")
    with pytest.raises(NotSupportedError, match=mend):
        WhisperFolder.open(tmp_path)


@pytest.mark.parametrize(
    ("table", "key", "value", "reason"),
    [
        ("shape", "mel_count", 0, "mel_count must be a whole number in 1"),
        ("shape", "layer_count", True, "layer_count must be"),
        ("shape", "vocabulary_size", "many", "vocabulary_size must be"),
        ("tokens", "end", -1, "end must be a whole number in 0..50364"),
        ("tokens", "timestamp_begin", 50365, "timestamp_begin must be a whole number in 0..50364"),
        ("tokens", "languages", [1], "no object 'languages'"),
        ("tokens", "languages", {"en": 51865}, "en must be"),
        ("tokens", "suppress", 3, "must be a list"),
        ("tokens", "suppress", [51865], "suppressed token must be"),
        ("tokens", "suppress_at_begin", [1.5], "suppressed token must be"),
        ("tokens", "is_multilingual", 1, "true or false"),
    ],
)
def test_a_wrong_value_is_named(folder: Path, table: str, key: str, value: Any, reason: str) -> None:
    change(folder, table, key, value)
    with pytest.raises(WinMLError, match=rf"0x8007000D.*whisper\.json: .*{reason}"):
        WhisperFolder.open(folder)


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"\xff", "utf-8"),
        (b"{", "Expecting"),
        (b"[]", "no object 'shape'"),
        (b'{"shape": {}}', "'mel_count' is missing"),
    ],
)
def test_broken_settings(folder: Path, content: bytes, reason: str) -> None:
    (folder / "whisper.json").write_bytes(content)
    with pytest.raises(WinMLError, match=rf"0x8007000D.*whisper\.json: .*{reason}"):
        WhisperFolder.open(folder)


@pytest.mark.parametrize("load", [genai.load, genai.load_embedding])
def test_other_loaders_say_what_loads_it(folder: Path, load: Any) -> None:
    with pytest.raises(WinMLError, match=r"0x80070057.*recognises speech: load it with genai\.load_speech\('"):
        load(folder)
