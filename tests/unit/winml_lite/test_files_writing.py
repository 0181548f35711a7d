"""New files appear together, or nothing changes; failures to write become codes."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from winml_lite.errors import DISK_FULL, E_ACCESSDENIED, E_FAIL, E_INVALIDARG, PATH_NOT_FOUND, WinMLError
from winml_lite.files.writing import NewFiles, writing_failure


def write(files: NewFiles, **contents: str) -> None:
    for name, content in contents.items():
        Path(files.path, name).write_text(content)


def contents(folder: Path) -> dict[str, str]:
    return {path.name: path.read_text() for path in folder.iterdir()}


def test_files_appear_together_in_place_of_older_ones(tmp_path: Path) -> None:
    (tmp_path / "model").write_text("old")
    (tmp_path / "weights").write_text("old")
    with NewFiles(str(tmp_path)) as files:
        write(files, model="new", weights="new", context="new")
        files.appear(last="model")
    assert contents(tmp_path) == {"model": "new", "weights": "new", "context": "new"}


def test_nothing_appears_without_the_word(tmp_path: Path) -> None:
    with NewFiles(str(tmp_path)) as files:
        write(files, model="new")
    assert os.listdir(tmp_path) == []


def test_a_failed_move_puts_everything_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "model").write_text("old")
    (tmp_path / "weights").write_text("old")
    replace = os.replace

    def failing(source: str, target: str) -> None:
        if target == str(tmp_path / "model") and Path(source).parent.name == "new":
            raise OSError(errno.EACCES, "somebody uses it")
        replace(source, target)

    with pytest.raises(OSError, match="somebody uses it"), NewFiles(str(tmp_path)) as files:
        write(files, model="new", weights="new", context="new")
        monkeypatch.setattr(os, "replace", failing)
        files.appear(last="model")
    assert contents(tmp_path) == {"model": "old", "weights": "old"}


def test_what_cannot_be_put_back_is_not_deleted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "model").write_text("old")
    (tmp_path / "weights").write_text("old")
    replace = os.replace

    def failing(source: str, target: str) -> None:
        if target == str(tmp_path / "model"):
            raise OSError(errno.EACCES, "somebody uses it")
        replace(source, target)

    with pytest.raises(OSError, match="somebody uses it"), NewFiles(str(tmp_path)) as files:
        write(files, model="new", weights="new")
        monkeypatch.setattr(os, "replace", failing)
        files.appear(last="model")
    assert (tmp_path / "weights").read_text() == "old"
    (kept,) = tmp_path.glob(".unfinished-*/old/model")
    assert kept.read_text() == "old"


def interrupted_after(count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let Ctrl-C strike when so many files have been moved."""
    replace, left = os.replace, [count]

    def moving(source: str, target: str) -> None:
        replace(source, target)
        left[0] -= 1
        if not left[0]:
            raise KeyboardInterrupt

    monkeypatch.setattr(os, "replace", moving)


@pytest.mark.parametrize("count", [1, 2, 3])
def test_ctrl_c_between_two_moves(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, count: int) -> None:
    (tmp_path / "model").write_text("old")
    (tmp_path / "weights").write_text("old")
    with pytest.raises(KeyboardInterrupt), NewFiles(str(tmp_path)) as files:
        write(files, model="new", weights="new")
        interrupted_after(count, monkeypatch)
        files.appear(last="model")
    assert contents(tmp_path) == {"model": "old", "weights": "old"}


def test_ctrl_c_after_the_last_move(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "model").write_text("old")
    with pytest.raises(KeyboardInterrupt), NewFiles(str(tmp_path)) as files:
        write(files, model="new", weights="new")
        interrupted_after(2, monkeypatch)
        files.appear(last="model")
    assert contents(tmp_path) == {"model": "new", "weights": "new"}


def test_a_crash_leaves_no_file_with_others_than_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "model").write_text("old")
    (tmp_path / "weights").write_text("old")
    seen: list[dict[str, str]] = []
    replace = os.replace

    def looking(source: str, target: str) -> None:
        replace(source, target)
        seen.append({path.name: path.read_text() for path in tmp_path.iterdir() if path.is_file()})

    monkeypatch.setattr(os, "replace", looking)
    with NewFiles(str(tmp_path)) as files:
        write(files, model="new", weights="new")
        files.appear(last="model")
    assert seen == [{"weights": "old"}, {}, {"weights": "new"}, {"model": "new", "weights": "new"}]


def test_the_last_file_is_moved_after_the_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    moved: list[str] = []
    replace = os.replace

    def noting(source: str, target: str) -> None:
        moved.append(os.path.basename(target))
        replace(source, target)

    monkeypatch.setattr(os, "replace", noting)
    with NewFiles(str(tmp_path)) as files:
        Path(files.path, "a.onnx").write_text("")
        Path(files.path, "weights.bin").write_text("")
        files.appear(last="a.onnx")
    assert moved[-1] == "a.onnx"
    assert "weights.bin" in moved


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (OSError(errno.ENOSPC, "full"), DISK_FULL),
        (OSError(errno.ENOENT, "missing"), PATH_NOT_FOUND),
        (PermissionError(errno.EACCES, "denied"), E_ACCESSDENIED),
        (OSError(errno.EROFS, "read-only"), E_ACCESSDENIED),
        (OSError(errno.EIO, "broken"), E_FAIL),
        (ValueError("embedded null byte"), E_INVALIDARG),
    ],
)
def test_codes_of_failures(error: OSError | ValueError, code: int) -> None:
    failure = writing_failure("out.onnx", error, "Compile")
    assert failure.hresult == code
    assert "out.onnx" in str(failure)


def test_a_failure_with_a_code_keeps_it() -> None:
    error = WinMLError(0x80070490, "Build", "no device")
    assert writing_failure("out.onnx", error, "Compile") is error
