"""New files appear together, or nothing changes; failures to write become codes."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from winml_lite.errors import DISK_FULL, E_ACCESSDENIED, E_FAIL, E_INVALIDARG, PATH_NOT_FOUND, WinMLError
from winml_lite.files.locks import LOCK_NAME, FolderLock, lock_at_once, locked
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
        files = [path for path in tmp_path.iterdir() if path.is_file() and path.name != LOCK_NAME]
        seen.append({path.name: path.read_text() for path in files})

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


# Other processes

BEGINNING = """
import sys, time
from pathlib import Path
from winml_lite.files.writing import NewFiles

with NewFiles(sys.argv[1]) as files:
    Path(files.path, "model").write_text("half")
    print("begun", flush=True)
    time.sleep(600)
"""


@pytest.fixture
def other(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """Another process that is making new files in `tmp_path`."""
    with subprocess.Popen([sys.executable, "-c", BEGINNING, tmp_path], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "begun\n"
        yield process
        process.kill()


def grow_old(folder: Path) -> Path:
    """Make the private folder in `folder` look as if nothing had happened in it for two hours."""
    (private,) = folder.glob(".unfinished-*")
    long_ago = time.time() - 7200
    for path in (*private.rglob("*"), private):
        os.utime(path, (long_ago, long_ago))
    return private


def test_what_a_killed_process_left_goes(tmp_path: Path, other: subprocess.Popen[str]) -> None:
    other.kill()
    other.wait()
    private = grow_old(tmp_path)
    with NewFiles(str(tmp_path)) as files:
        write(files, model="new")
        assert not private.exists()
        files.appear(last="model")
    assert contents(tmp_path) == {"model": "new"}


def test_what_was_left_just_now_stays(tmp_path: Path, other: subprocess.Popen[str]) -> None:
    other.kill()
    other.wait()
    with NewFiles(str(tmp_path)):
        pass
    assert [path.read_text() for path in tmp_path.glob(".unfinished-*/new/model")] == ["half"]


def test_the_folder_of_a_living_process_stays(tmp_path: Path, other: subprocess.Popen[str]) -> None:
    private = grow_old(tmp_path)
    with NewFiles(str(tmp_path)):
        pass
    assert (private / "new" / "model").read_text() == "half"


def test_older_files_in_a_folder_that_was_left_stay(tmp_path: Path, other: subprocess.Popen[str]) -> None:
    other.kill()
    other.wait()
    (kept,) = tmp_path.glob(".unfinished-*/old")
    (kept / "weights").write_text("old")
    grow_old(tmp_path)
    with NewFiles(str(tmp_path)):
        pass
    assert (kept / "weights").read_text() == "old"


@pytest.mark.parametrize("name", [".unfinished-", ".unfinished-0123456789abcdeg", "unfinished-0123456789abcdef"])
def test_a_folder_of_a_similar_name_stays(tmp_path: Path, name: str) -> None:
    (tmp_path / name).mkdir()
    os.utime(tmp_path / name, (0, 0))
    with NewFiles(str(tmp_path)):
        pass
    assert os.listdir(tmp_path) == [name]


def test_what_a_link_of_such_a_name_leads_to_stays(tmp_path: Path) -> None:
    elsewhere, folder = tmp_path / "elsewhere", tmp_path / "folder"
    (elsewhere / "new").mkdir(parents=True)
    folder.mkdir()
    try:
        (folder / ".unfinished-0123456789abcdef").symlink_to(elsewhere, target_is_directory=True)
    except OSError:
        pytest.skip("this user makes no links")
    (elsewhere / "new" / "mine").write_text("mine")
    for path in (elsewhere / "new" / "mine", elsewhere / "new", elsewhere):
        os.utime(path, (0, 0))
    with NewFiles(str(folder)):
        pass
    assert (elsewhere / "new" / "mine").read_text() == "mine"


def test_a_folder_with_something_else_in_it_stays(tmp_path: Path) -> None:
    private = tmp_path / ".unfinished-0123456789abcdef"
    private.mkdir()
    (private / "notes").write_text("mine")
    os.utime(private / "notes", (0, 0))
    os.utime(private, (0, 0))
    with NewFiles(str(tmp_path)):
        pass
    assert (private / "notes").read_text() == "mine"


def test_files_wait_for_who_is_moving_others_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    moved, replace = threading.Event(), os.replace

    def moving(source: str, target: str) -> None:
        moved.set()
        replace(source, target)

    def make() -> None:
        with NewFiles(str(tmp_path)) as files:
            write(files, model="new", weights="new")
            files.appear(last="model")

    monkeypatch.setattr(os, "replace", moving)
    thread = threading.Thread(target=make)
    with locked(str(tmp_path)):
        thread.start()
        assert not moved.wait(0.3)
    thread.join(100)
    assert contents(tmp_path) == {"model": "new", "weights": "new"}


HOLDING = """
import sys, time
from winml_lite.files.locks import locked

with locked(sys.argv[1]):
    print("held", flush=True)
    time.sleep(600)
"""


def test_the_lock_of_a_killed_process_is_free(tmp_path: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", HOLDING, tmp_path], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        assert lock_at_once(str(tmp_path)) is None
        process.kill()
        process.wait()
    with locked(str(tmp_path)):
        assert lock_at_once(str(tmp_path)) is None
    lock = lock_at_once(str(tmp_path))
    assert lock is not None
    lock.close()
    lock.close()


@pytest.mark.skipif(os.name == "nt", reason="there no process has the handles of another")
def test_a_lock_is_given_back_though_another_process_has_its_handle(tmp_path: Path) -> None:
    lock = lock_at_once(str(tmp_path))
    assert lock is not None
    command = [sys.executable, "-c", "input()"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, pass_fds=[lock._handle]) as process:
        lock.close()
        again = lock_at_once(str(tmp_path))
        process.communicate(b"\n")
    assert again is not None


def test_who_holds_the_lock_for_long_is_not_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("winml_lite.files.locks._LONGEST_SECONDS", 0.05)
    with locked(str(tmp_path)), NewFiles(str(tmp_path)) as files:
        write(files, model="new")
        files.appear(last="model")
        assert (tmp_path / "model").read_text() == "new"
        assert lock_at_once(str(tmp_path)) is None


@pytest.mark.parametrize("failing", ["__init__", "take"])
def test_without_locks_files_appear_all_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failing: str) -> None:
    def refuse(self: FolderLock, folder: str = "") -> bool:
        raise OSError(errno.ENOLCK, "no locks available")

    monkeypatch.setattr(FolderLock, failing, refuse)
    with NewFiles(str(tmp_path)) as files:
        write(files, model="new", weights="new")
        files.appear(last="model")
    assert contents(tmp_path) == {"model": "new", "weights": "new"}


# Failures


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
