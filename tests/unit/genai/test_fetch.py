"""Downloads from a loopback server: whole, resumed, broken, refused."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from fakes.file_server import FileServer, serve
from genai import fetch as module
from genai.fetch import Download, fetch
from winml_lite import WinMLError

BODY = bytes(range(256)) * 40
DIGEST = hashlib.sha256(BODY).hexdigest()


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "RETRY_SECONDS", (0.0, 0.0))
    monkeypatch.setattr(module, "BLOCK_BYTES", 1000)
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def server() -> Iterator[FileServer]:
    with serve({"/file": BODY}) as plan:
        yield plan


def download(server: FileServer, folder: Path, path: str = "/file", sha256: str | None = DIGEST) -> Download:
    return Download(server.address + path, folder / "sub" / "file", sha256)


def begin(wanted: Download, content: bytes, tag: str | None) -> None:
    """Leave an unfinished download behind."""
    wanted.path.parent.mkdir()
    wanted.part.write_bytes(content)
    if tag is not None:
        wanted.tag.write_text(tag)


def test_a_whole_file(server: FileServer, tmp_path: Path) -> None:
    assert fetch(download(server, tmp_path)).read_bytes() == BODY


def test_nothing_else_stays_behind(server: FileServer, tmp_path: Path) -> None:
    path = fetch(download(server, tmp_path))
    assert list(path.parent.iterdir()) == [path]


def test_progress_grows_to_the_whole(server: FileServer, tmp_path: Path) -> None:
    calls: list[tuple[int, int]] = []
    fetch(download(server, tmp_path), lambda done, total: calls.append((done, total)))
    assert calls[0] == (1000, 10240)
    assert calls[-1] == (10240, 10240)
    assert len(calls) == 11


def test_an_unfinished_file_is_continued(server: FileServer, tmp_path: Path) -> None:
    wanted = download(server, tmp_path)
    begin(wanted, BODY[:4000], '"one"')
    assert fetch(wanted).read_bytes() == BODY
    assert server.asked("Range") == ["bytes=4000-"]
    assert server.asked("If-Range") == ['"one"']


def test_a_file_that_changed_meanwhile_is_taken_whole(server: FileServer, tmp_path: Path) -> None:
    wanted = download(server, tmp_path)
    begin(wanted, b"x" * 4000, '"old"')
    assert fetch(wanted).read_bytes() == BODY


def test_a_server_without_ranges_sends_the_whole(server: FileServer, tmp_path: Path) -> None:
    server.has_ranges = False
    wanted = download(server, tmp_path)
    begin(wanted, BODY[:4000], '"one"')
    assert fetch(wanted).read_bytes() == BODY


def test_a_connection_that_ends_early_is_continued(server: FileServer, tmp_path: Path) -> None:
    server.cut_after, server.cuts = 3000, 2
    assert fetch(download(server, tmp_path)).read_bytes() == BODY
    assert server.asked("Range") == [None, "bytes=3000-", "bytes=6000-"]


def test_a_server_that_always_ends_early_and_has_no_ranges_fails(server: FileServer, tmp_path: Path) -> None:
    server.has_ranges, server.cut_after, server.cuts = False, 3000, 99
    with pytest.raises(WinMLError, match=r"0x80070002.*ended early; call again to go on from 3,000 bytes"):
        fetch(download(server, tmp_path))
    assert len(server.requests) == 4


def test_the_next_call_continues_after_a_failure(server: FileServer, tmp_path: Path) -> None:
    wanted = download(server, tmp_path)
    server.has_ranges, server.cut_after, server.cuts = False, 3000, 4
    with pytest.raises(WinMLError):
        fetch(wanted)
    server.has_ranges = True
    assert fetch(wanted).read_bytes() == BODY
    assert server.asked("Range")[-1] == "bytes=3000-"


def test_a_complete_but_unverified_file_is_only_verified(server: FileServer, tmp_path: Path) -> None:
    wanted = download(server, tmp_path)
    begin(wanted, BODY, '"one"')
    assert fetch(wanted).read_bytes() == BODY
    assert len(server.requests) == 1  # answered with 416


def test_too_many_bytes_are_dropped(server: FileServer, tmp_path: Path) -> None:
    wanted = download(server, tmp_path)
    begin(wanted, BODY + b"more", '"one"')
    assert fetch(wanted).read_bytes() == BODY


def test_an_answer_for_another_range_is_dropped(server: FileServer, tmp_path: Path) -> None:
    server.range_shift = 1
    wanted = download(server, tmp_path)
    begin(wanted, BODY[:4000], '"one"')
    assert fetch(wanted).read_bytes() == BODY


def test_a_wrong_beginning_is_found_and_everything_fetched_again(server: FileServer, tmp_path: Path) -> None:
    wanted = download(server, tmp_path)
    begin(wanted, b"x" * 4000, None)
    assert fetch(wanted).read_bytes() == BODY
    assert server.asked("Range") == ["bytes=4000-", None]


def test_wrong_bytes_are_refused_and_deleted(server: FileServer, tmp_path: Path) -> None:
    server.content["/file"] = b"something else"
    wanted = download(server, tmp_path)
    with pytest.raises(WinMLError, match=f"0x80070570.*/file.*not {DIGEST}"):
        fetch(wanted)
    assert list(wanted.path.parent.iterdir()) == []


def test_without_digest_and_validator_nothing_is_continued(server: FileServer, tmp_path: Path) -> None:
    wanted = download(server, tmp_path, sha256=None)
    begin(wanted, BODY[:4000], None)
    assert fetch(wanted).read_bytes() == BODY
    assert server.asked("Range") == [None]


def test_a_missing_file_fails_at_once(server: FileServer, tmp_path: Path) -> None:
    with pytest.raises(WinMLError, match=r"0x80070002.*/absent.*404"):
        fetch(download(server, tmp_path, "/absent"))
    assert len(server.requests) == 1


def test_a_passing_server_error_is_tried_again(server: FileServer, tmp_path: Path) -> None:
    server.statuses = [503, 429]
    assert fetch(download(server, tmp_path)).read_bytes() == BODY


def test_a_lasting_server_error_fails(server: FileServer, tmp_path: Path) -> None:
    server.statuses = [503] * 9
    with pytest.raises(WinMLError, match="503"):
        fetch(download(server, tmp_path))


def test_redirects_are_followed(server: FileServer, tmp_path: Path) -> None:
    server.redirects = {"/old": server.address + "/file"}
    assert fetch(download(server, tmp_path, "/old")).read_bytes() == BODY


def test_a_token_goes_to_the_first_server_only(server: FileServer, tmp_path: Path) -> None:
    server.redirects = {"/old": server.address.replace("127.0.0.1", "localhost") + "/file"}
    wanted = Download(server.address + "/old", tmp_path / "file", DIGEST, headers={"Authorization": "Bearer t"})
    fetch(wanted)
    assert server.asked("Authorization") == ["Bearer t", None]


def test_an_unreachable_server(tmp_path: Path) -> None:
    with serve({}) as gone:
        address = gone.address
    with pytest.raises(WinMLError, match=r"0x80070002.*download failed"):
        fetch(Download(address + "/file", tmp_path / "file"))


def test_an_interruption_keeps_what_has_come(server: FileServer, tmp_path: Path) -> None:
    wanted = download(server, tmp_path)

    def interrupt(done: int, total: int) -> None:
        if done >= 5000:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fetch(wanted, interrupt)
    assert wanted.part.read_bytes() == BODY[:5000]
    assert not wanted.path.exists()


def test_messages_show_no_password(tmp_path: Path) -> None:
    wanted = Download("https://user:secret@host.example/a/file?token=1", tmp_path / "file")
    assert wanted.shown_url == "https://host.example/a/file"


def test_a_weak_tag_is_no_validator(server: FileServer, tmp_path: Path) -> None:
    server.etag, server.has_ranges, server.cut_after, server.cuts = 'W/"one"', False, 3000, 1
    fetch(download(server, tmp_path))
    assert server.asked("If-Range") == [None, None]


def test_a_proxy_is_asked_instead_of_the_server(server: FileServer, tmp_path: Path) -> None:
    server.content["http://host.invalid/file"] = BODY
    wanted = Download("http://host.invalid/file", tmp_path / "file", DIGEST, proxy=server.address)
    assert fetch(wanted).read_bytes() == BODY


def test_certificates_that_cannot_be_read_are_named(tmp_path: Path) -> None:
    (tmp_path / "certs.pem").write_text("none", encoding="ascii")
    for name in ("certs.pem", "absent.pem"):
        wanted = Download("https://host.invalid/file", tmp_path / "file", ca_file=str(tmp_path / name))
        with pytest.raises(WinMLError, match=f"0x80070002.*the certificates .*{name} cannot be read"):
            fetch(wanted)
