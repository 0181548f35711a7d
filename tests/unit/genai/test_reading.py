"""Reading configuration and vocabulary files: regular files of bounded size."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from genai import Tokenizer, WinMLError, reading
from genai.reading import read_bytes


def test_the_whole_content(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_bytes(b"content")
    assert read_bytes(tmp_path / "a.json") == b"content"


def test_a_missing_file(tmp_path: Path) -> None:
    with pytest.raises(WinMLError, match="there is no such file") as caught:
        read_bytes(tmp_path / "absent.json")
    assert caught.value.hresult == 0x80070002


def test_a_folder_is_no_file(tmp_path: Path) -> None:
    with pytest.raises(WinMLError, match="folder") as caught:
        read_bytes(tmp_path)
    assert caught.value.hresult == 0x80070057


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="this system has no named pipes")
def test_a_pipe_is_refused_at_once(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "tokenizer.json")
    with pytest.raises(WinMLError, match="a pipe or a device") as caught:
        Tokenizer.from_file(tmp_path / "tokenizer.json")
    assert caught.value.hresult == 0x80070057


@pytest.mark.skipif(not os.path.exists("/dev/zero"), reason="this system has no such device")
def test_a_device_is_not_read(tmp_path: Path) -> None:
    (tmp_path / "tokenizer.json").symlink_to("/dev/zero")
    with pytest.raises(WinMLError, match="a pipe or a device"):
        Tokenizer.from_file(tmp_path / "tokenizer.json")


def test_a_file_that_is_far_too_large_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "LARGEST", 3)
    (tmp_path / "a.json").write_bytes(b"content")
    with pytest.raises(WinMLError, match="too large") as caught:
        read_bytes(tmp_path / "a.json")
    assert caught.value.hresult == 0x80070057
