"""Opening files that somebody named (runtime 2.1, step 2)."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from fakes.rig import failing
from winml_lite import Runtime
from winml_lite.files.mapped import RegularFile, check_unchanged, identify, open_mapped


def test_a_file_is_mapped_inside_the_block(tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    path.write_bytes(b"content")
    with open_mapped(str(path)) as data:
        assert data[:] == b"content"
    with pytest.raises(ValueError, match="closed"):
        data[:1]


def test_an_empty_file_is_corrupt(tmp_path: Path) -> None:
    (tmp_path / "m.onnx").touch()
    with failing(0x80070570) as caught:
        RegularFile(str(tmp_path / "m.onnx"))
    assert "the file is empty" in str(caught.value)


@pytest.mark.parametrize(
    ("name", "code"),
    [("absent.gguf", 0x80070002), ("absent/m.gguf", 0x80070003), ("x" * 300, 0x800700CE), ("\0", 0x80070057)],
)
def test_what_cannot_be_opened(tmp_path: Path, name: str, code: int) -> None:
    with failing(code):
        RegularFile(f"{tmp_path}/{name}")


@pytest.mark.skipif(os.name == "nt", reason="Windows keeps the folder that a process is in")
def test_a_relative_path_where_the_working_directory_is_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, runtime: Runtime
) -> None:
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    with failing(0x80070002):
        runtime.load_model("m.onnx")


def test_a_folder_is_an_invalid_argument(tmp_path: Path) -> None:
    with failing(0x80070057) as caught:
        RegularFile(str(tmp_path))
    assert str(tmp_path) in str(caught.value)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="this system has no named pipes")
@pytest.mark.parametrize("extension", ["onnx", "ort", "gguf"])
def test_s_lod_02_a_pipe_is_refused_at_once(tmp_path: Path, runtime: Runtime, extension: str) -> None:
    path = tmp_path / f"pipe.{extension}"
    os.mkfifo(path)
    with failing(0x80070057) as caught:
        runtime.load_model(path)
    assert f"{path} is a pipe" in str(caught.value)


@pytest.mark.skipif(not os.path.exists("/dev/zero"), reason="this system has no such device")
@pytest.mark.parametrize("extension", ["onnx", "ort", "gguf"])
def test_s_lod_02_a_device_is_refused_at_once(tmp_path: Path, runtime: Runtime, extension: str) -> None:
    path = tmp_path / f"zeros.{extension}"
    path.symlink_to("/dev/zero")
    with failing(0x80070057) as caught:
        runtime.load_model(path)
    assert f"{path} is a device" in str(caught.value)


def test_a_file_that_stayed_as_it_was_passes(tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    path.write_bytes(b"content")
    check_unchanged(identify(str(path)), "build")


def test_a_file_that_has_shrunk_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    path.write_bytes(b"content")
    before = identify(str(path))
    path.write_bytes(b"cont")
    with failing(0x800703EE) as caught:
        check_unchanged(before, "build")
    assert f"{path} has changed since it was loaded; load it again" in str(caught.value)


def test_a_file_that_is_gone_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    path.write_bytes(b"content")
    before = identify(str(path))
    path.unlink()
    with failing(0x800703EE) as caught:
        check_unchanged(before, "build")
    assert "cannot be read any more" in str(caught.value)
