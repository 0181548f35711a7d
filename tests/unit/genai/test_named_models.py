"""What a catalog name needs besides its file."""

from __future__ import annotations

import importlib.util
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from genai import catalog, download, named_models
from winml_lite import WinMLError


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("WINML_LITE_HOME", str(tmp_path))
    return tmp_path


@pytest.fixture
def pulls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names that were pulled; the `gguf` and `llama_cpp` packages are not installed."""
    names: list[str] = []

    def pull(entry: catalog.CatalogEntry, **options: Any) -> Path:
        names.append(entry.name)
        return tmp_path / entry.files[0].file_name

    monkeypatch.setattr(download, "pull", pull)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    return names


@pytest.mark.parametrize("engine", [None, "ort"])
def test_an_extra_that_the_conversion_needs_is_asked_for_before_the_download(pulls: list[str], engine: Any) -> None:
    with pytest.raises(WinMLError, match=r"pip install 'winml-lite\[kquants\]'.*winml-lite\[gguf\]") as caught:
        named_models.fetch("gemma3-270m", engine, False, None)
    assert caught.value.hresult == 0x8007007E
    assert pulls == []


def test_llama_needs_no_extra(pulls: list[str], tmp_path: Path) -> None:
    found = named_models.fetch("gemma3-270m", "llama", False, None)
    assert found == ("gemma3-270m", tmp_path / "gemma-3-270m-q4_k_m.gguf")


def test_what_was_converted_needs_no_extra(pulls: list[str]) -> None:
    entry = catalog.find("gemma3-270m")
    assert entry is not None
    folder = download.converted_folder(entry)
    folder.mkdir(parents=True)
    (folder / "genai_config.json").write_text("{}")
    assert named_models.fetch("gemma3-270m", "ort", False, None) == ("gemma3-270m", folder)


def test_the_conversion_gets_the_context_length_of_the_catalog(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    options: list[Any] = []

    def convert(source: Path, folder: Path, **given: Any) -> None:
        options.append((given["operators"], given["weights"], given["context_length"]))

    monkeypatch.setattr(download, "pull", lambda entry, **given: tmp_path / entry.files[0].file_name)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: object())
    monkeypatch.setattr("genai.convert.convert_gguf", convert, raising=False)
    named_models.fetch("gemma3-270m", "ort", False, None)
    assert options == [("gqa", "q8", 8192)]


def entry_of(name: str) -> catalog.CatalogEntry:
    entry = catalog.find(name)
    assert entry is not None
    return entry


def test_a_speech_model_is_converted_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    asked: list[Any] = []

    def convert(source: Path, folder: Path, **given: Any) -> None:
        asked.append((source, folder, given["weights"]))
        folder.mkdir(parents=True)

    monkeypatch.setattr(download, "pull", lambda entry, **given: tmp_path / "files")
    monkeypatch.setattr("genai.convert.convert_whisper", convert, raising=False)
    folder = download.converted_folder(entry_of("whisper-tiny.en"))
    for _ in range(2):
        found = named_models.fetch("Whisper-Tiny.EN", None, False, None, ("speech",))
        assert found == ("whisper-tiny.en", folder)
    assert asked == [(tmp_path / "files", folder, "f16")]
    assert folder.name.endswith("-whisper-f16")


@pytest.mark.parametrize("weights", ["f16", "f32", "q8"])
def test_a_catalog_says_how_weights_are_stored(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, weights: str) -> None:
    asked: list[str] = []

    def convert(source: Path, folder: Path, **given: object) -> None:
        asked.append(str(given["weights"]))
        folder.mkdir(parents=True)

    monkeypatch.setattr(download, "pull", lambda entry, **given: tmp_path / "files")
    monkeypatch.setattr("genai.convert.convert_whisper", convert, raising=False)
    entry = replace(entry_of("whisper-tiny.en"), variant=f"whisper-{weights}")
    assert named_models.prepare(entry).name.endswith(f"-whisper-{weights}")
    assert asked == [weights]


def test_what_is_converted_needs_its_files_no_more(pulls: list[str]) -> None:
    folder = download.converted_folder(entry_of("whisper-tiny.en"))
    folder.mkdir(parents=True)
    assert named_models.prepare(entry_of("whisper-tiny.en"), offline=True) == folder
    assert pulls == []


def test_a_model_without_a_conversion_is_its_file(pulls: list[str], tmp_path: Path) -> None:
    entry = entry_of("silero-vad")
    found = named_models.fetch("silero-vad", None, False, None, ("voice-activity",))
    assert found == ("silero-vad", tmp_path / entry.files[0].file_name)


def test_progress_names_the_stage(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def pull(entry: catalog.CatalogEntry, *, offline: bool, progress: Any) -> Path:
        progress(1, 2)
        return tmp_path

    calls: list[Any] = []
    monkeypatch.setattr(download, "pull", pull)
    monkeypatch.setattr(
        "genai.convert.convert_whisper", lambda source, folder, *, weights, progress: progress(3, 4), raising=False
    )
    named_models.prepare(entry_of("whisper-tiny.en"), progress=lambda *given: calls.append(given))
    assert calls == [("download", 1, 2), ("convert", 3, 4)]


def test_prepared_is_what_can_be_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    speech, voice = entry_of("whisper-tiny.en"), entry_of("silero-vad")
    assert (named_models.prepared(speech), named_models.prepared(voice)) == (None, None)
    folder = download.converted_folder(speech)
    folder.mkdir(parents=True)
    monkeypatch.setattr(download, "cached", lambda entry: Path(entry.files[0].file_name))
    assert named_models.prepared(speech) == folder
    assert named_models.prepared(voice) == Path(voice.files[0].file_name)


@pytest.mark.parametrize(
    ("name", "kinds", "message"),
    [
        ("whisper-tiny.en", ("text",), r"\[genai\.load\]: .* is a speech model: .*load_speech\('whisper-tiny\.en'\)"),
        ("smollm2", ("speech",), r"\[genai\.load_speech\]: .* is a text model: .*genai\.load\('smollm2'\)"),
        ("silero-vad", ("text-encoder", "text"), r"\[genai\.load_embedding\]: .* is a voice-activity model"),
        ("efficientnet-lite0", ("text",), r"is an image-classifier model: .*genai\.load_classifier"),
    ],
)
def test_another_kind_is_refused_with_what_loads_it(pulls: list[str], name: str, kinds: Any, message: str) -> None:
    with pytest.raises(WinMLError, match=f"0x80070057.*{message}"):
        named_models.fetch(name, None, False, None, kinds)
    assert pulls == []


def test_an_unknown_name_is_answered_with_names_of_the_kind() -> None:
    with pytest.raises(WinMLError, match=r"did you mean 'whisper-tiny\.en'"):
        named_models.fetch("whisper-tiny", None, False, None, ("speech",))
    with pytest.raises(WinMLError, match=r"known names: whisper-tiny\.en; `winml-lite convert`"):
        named_models.fetch("abc", None, False, None, ("speech",))


def test_every_entry_names_a_conversion_that_there_is() -> None:
    variants = {entry.variant for entry in catalog.entries() if entry.variant and not entry.is_gguf}
    assert variants <= set(named_models.CONVERSIONS)


def test_a_conversion_that_there_is_not(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(download, "pull", lambda entry, **given: tmp_path)
    entry = catalog.CatalogEntry("mine", "", entry_of("silero-vad").files, "MIT", kind="speech", variant="magic")
    with pytest.raises(WinMLError, match=r"0x8007000D.*convert of mine is 'magic'; known are .*whisper-f16"):
        named_models.prepare(entry)


@pytest.mark.parametrize("name", ["large-v3", "openai/whisper-large-v3"])
def test_where_other_speech_models_come_from(name: str) -> None:
    with pytest.raises(WinMLError, match="`winml-lite convert` makes folders of the CTranslate2 models"):
        named_models.fetch(name, None, True, None, ("speech",))
