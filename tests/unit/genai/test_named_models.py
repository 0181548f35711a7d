"""What a catalog name needs besides its file."""

from __future__ import annotations

import importlib.util
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
