"""The pages are short enough to read, their links lead somewhere, and every code block in them runs."""

from __future__ import annotations

import importlib.util
import json
import re
import shutil
import wave
from hashlib import sha256
from pathlib import Path

import numpy as np
import onnx
import pytest

from models.classifier_models import efficientnet_weights, write_colour_folder
from models.recipes import (
    adapter_gguf,
    encoder_gguf,
    encoder_onnx,
    media_gguf,
    media_projector_gguf,
    projector_gguf,
    scripted_gguf,
    scripted_onnx,
    tool_gguf,
)
from models.torch_files import torch_file
from models.voice_models import loudness_sequence
from models.whisper_models import tiny_whisper, tones
from models.whisper_weights import ct2_whisper
from rules.documents import PAGES, run_page
from rules.project import ROOT, text_of

_FOLDERS = ("", "genai", "winml_lite", "winml_lite/native/ort")
"""Where a file lies that CONTRIBUTING.md names."""
_LINK = re.compile(r"\]\((?!https?://|#)([^)#\s]+)[^)]*\)")

CATALOG = """
[[model]]
name = "{name}"
kind = "{kind}"
file = "{file}"
size = {size}
sha256 = "{sha256}"
licence = "MIT"
chat = true
[[model.source]]
path = {path}
"""

needs_llama = pytest.mark.skipif(
    importlib.util.find_spec("llama_cpp") is None,
    reason="the pages use a GGUF model: llama-cpp-python is not installed",
)


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The files that the pages speak of: five models, a program, and two folders."""
    folder = tmp_path_factory.mktemp("models")
    scripted_gguf(folder).rename(folder / "model.gguf")
    projector_gguf(folder, row_length=96).rename(folder / "projector.gguf")
    media_gguf(folder).rename(folder / "seeing.gguf")
    media_projector_gguf(folder, "both").rename(folder / "mmproj.gguf")
    adapter_gguf(folder, "scripted").rename(folder / "adapter.gguf")
    encoder_gguf(folder).rename(folder / "encoder.gguf")
    encoder_onnx(folder).rename(folder / "encoder-onnx")
    scripted_onnx(folder / "onnx").rename(folder / "model-onnx")
    tool_gguf(folder)
    onnx.save(loudness_sequence(), folder / "voice.onnx")
    _write_sound(folder / "speech.wav")
    tiny_whisper(folder / "whisper")
    ct2_whisper(folder / "faster-whisper-tiny.en")
    _write_words(folder / "words.wav")
    _write_classifier(folder)
    (folder / "my_tools.py").write_text(
        "def multiply(a: float, b: float) -> float:\n    return a * b\n", encoding="utf-8"
    )
    return folder


def _write_sound(path: Path) -> None:
    """Write three seconds of stereo at 44.1 kHz; the second one is loud."""
    loud = 0.8 * np.sin(2 * np.pi * 200 * np.arange(44100) / 44100)
    samples = np.concatenate([np.zeros(44100), loud, np.zeros(44100)])
    with wave.open(str(path), "wb") as file:
        file.setnchannels(2)
        file.setsampwidth(2)
        file.setframerate(44100)
        file.writeframes(np.repeat(np.rint(samples * 32767), 2).astype("<i2").tobytes())


def _entry(name: str, kind: str, path: Path) -> str:
    """The entry of a catalog file for a model that is there."""
    data = path.read_bytes()
    place = json.dumps(str(path))
    return CATALOG.format(
        name=name, kind=kind, file=path.name, size=len(data), sha256=sha256(data).hexdigest(), path=place
    )


def _write_words(path: Path) -> None:
    """Write three seconds of mono at 16 kHz, in which the tiny Whisper model hears two words."""
    with wave.open(str(path), "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(16000)
        file.writeframes((tones([0, None, 6], amplitude=0.9) * 32767).astype("<i2").tobytes())


def _write_classifier(folder: Path) -> None:
    """Write a classifier, two pictures for it, and weights to be converted."""
    write_colour_folder(folder / "classifier")
    (folder / "classifier" / "names.txt").write_text("cat\ndog\nbird\nfish\n", encoding="utf-8")
    (folder / "weights.pth").write_bytes(torch_file(efficientnet_weights()))
    image = pytest.importorskip("PIL.Image", reason="the pages use pictures: Pillow is not installed")
    for name, colour in (("cat", (200, 90, 40)), ("dog", (40, 90, 200))):
        image.new("RGB", (60, 40), colour).save(folder / f"{name}.jpg")


def _folder_entry(name: str, kind: str, folder: Path) -> str:
    """The entry of a catalog file for a model of several files."""
    lines = ["[[model]]", f'name = "{name}"', f'kind = "{kind}"', 'licence = "MIT"']
    for path in sorted(folder.iterdir()):
        data = path.read_bytes()
        lines += ["[[model.files]]", f'name = "{path.name}"', f"size = {len(data)}"]
        lines += [f'sha256 = "{sha256(data).hexdigest()}"', f"source = [{{ path = {json.dumps(str(path))} }}]"]
    return "\n".join(lines) + "\n"


@pytest.fixture
def workspace(built: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder in which a page runs, with a cache folder whose catalog names the scripted model `smollm2`."""
    for name in (
        "model.gguf",
        "projector.gguf",
        "seeing.gguf",
        "mmproj.gguf",
        "adapter.gguf",
        "encoder.gguf",
        "tools.gguf",
        "my_tools.py",
        "speech.wav",
        "words.wav",
        "cat.jpg",
        "dog.jpg",
        "weights.pth",
    ):
        shutil.copy(built / name, tmp_path / name)
    for name in ("model-onnx", "encoder-onnx", "whisper", "faster-whisper-tiny.en", "classifier"):
        shutil.copytree(built / name, tmp_path / name)
    monkeypatch.chdir(tmp_path)
    home = tmp_path / "home"
    home.mkdir()
    catalog = _entry("smollm2", "text", built / "model.gguf") + _entry(
        "silero-vad", "voice-activity", built / "voice.onnx"
    )
    catalog += _folder_entry("efficientnet-lite0", "image-classifier", built / "classifier")
    catalog += _folder_entry("whisper-tiny.en", "speech", built / "whisper")
    (home / "catalog.toml").write_text(catalog, encoding="utf-8")
    monkeypatch.setenv("WINML_LITE_HOME", str(home))
    return tmp_path


def test_the_readme_is_short() -> None:
    assert len(text_of("README.md").splitlines()) <= 150


@pytest.mark.parametrize("page", [*PAGES, "CONTRIBUTING.md", "CHANGELOG.md"])
def test_links_lead_to_files(page: str) -> None:
    folder = (ROOT / page).parent
    assert [link for link in _LINK.findall(text_of(page)) if not (folder / link).exists()] == []


def test_files_that_contributors_are_sent_to_are_there() -> None:
    names = re.findall(r"`([\w/]+\.py)`", text_of("CONTRIBUTING.md"))
    assert len(names) > 60
    assert [name for name in names if not any((ROOT / folder / name).is_file() for folder in _FOLDERS)] == []


@needs_llama
@pytest.mark.parametrize("page", PAGES)
@pytest.mark.usefixtures("workspace")
def test_every_block_of_a_page_runs(page: str) -> None:
    if page == "docs/structured.md":
        pytest.importorskip("llguidance")
        pytest.importorskip("pydantic")
    run_page(page)
