"""The pages are short enough to read, their links lead somewhere, and every code block in them runs."""

from __future__ import annotations

import importlib.util
import re
import shutil
from pathlib import Path

import pytest

from models.recipes import scripted_gguf, scripted_onnx
from rules.documents import PAGES, run_page
from rules.project import ROOT, text_of

_LINK = re.compile(r"\]\((?!https?://|#)([^)#\s]+)[^)]*\)")

needs_llama = pytest.mark.skipif(
    importlib.util.find_spec("llama_cpp") is None,
    reason="the pages use a GGUF model: llama-cpp-python is not installed",
)


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The models that the pages speak of: `model.gguf` and the folder `model-onnx`."""
    folder = tmp_path_factory.mktemp("models")
    scripted_gguf(folder).rename(folder / "model.gguf")
    scripted_onnx(folder / "onnx").rename(folder / "model-onnx")
    return folder


@pytest.fixture
def workspace(built: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder in which a page runs; the catalog's download brings the scripted model."""
    shutil.copy(built / "model.gguf", tmp_path / "model.gguf")
    shutil.copytree(built / "model-onnx", tmp_path / "model-onnx")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("WINML_LITE_HOME", str(tmp_path / "home"))
    monkeypatch.setattr("genai.download.pull", lambda entry, **options: built / "model.gguf")
    return tmp_path


def test_the_readme_is_short() -> None:
    assert len(text_of("README.md").splitlines()) <= 150


@pytest.mark.parametrize("page", [*PAGES, "CONTRIBUTING.md", "CHANGELOG.md"])
def test_links_lead_to_files(page: str) -> None:
    folder = (ROOT / page).parent
    assert [link for link in _LINK.findall(text_of(page)) if not (folder / link).exists()] == []


@needs_llama
@pytest.mark.parametrize("page", PAGES)
@pytest.mark.usefixtures("workspace")
def test_every_block_of_a_page_runs(page: str) -> None:
    run_page(page)
