"""The place of the cache, and its locks."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path

import pytest

from genai import WinMLError
from genai.cache import cache_folder, locked

HOLD = """
import sys, pathlib
from genai.cache import locked
with locked(pathlib.Path(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.readline()
"""


def test_the_variable_names_the_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WINML_LITE_HOME", str(tmp_path / "x"))
    assert cache_folder() == tmp_path / "x"


@pytest.mark.parametrize(
    ("platform", "variable", "expected"),
    [
        ("linux", "XDG_CACHE_HOME", "given/winml-lite"),
        ("win32", "LOCALAPPDATA", "given/winml-lite/Cache"),
        ("linux", "", "home/.cache/winml-lite"),
        ("darwin", "", "home/Library/Caches/winml-lite"),
        ("win32", "", "home/AppData/Local/winml-lite/Cache"),
    ],
)
def test_the_convention_of_each_platform(
    platform: str, variable: str, expected: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("WINML_LITE_HOME", "XDG_CACHE_HOME", "LOCALAPPDATA"):
        monkeypatch.delenv(name, raising=False)
    if variable:
        monkeypatch.setenv(variable, str(tmp_path / "given"))
    monkeypatch.setattr(sys, "platform", platform)
    monkeypatch.setattr(Path, "home", lambda: tmp_path / "home")
    assert cache_folder() == tmp_path / expected


def test_a_cache_that_cannot_be_written_is_named_with_the_mend(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "taken").write_bytes(b"")
    monkeypatch.setenv("WINML_LITE_HOME", str(tmp_path / "taken"))
    with (
        pytest.raises(WinMLError, match=r"0x80070005.*taken.*cannot be written: .*; WINML_LITE_HOME"),
        locked(cache_folder() / "models" / "a"),
    ):
        pass


def test_a_lock_of_another_thread_is_waited_for(tmp_path: Path) -> None:
    order: list[str] = []

    def second() -> None:
        with locked(tmp_path / "a"):
            order.append("second")

    with locked(tmp_path / "a"):
        thread = threading.Thread(target=second)
        thread.start()
        thread.join(0.25)
        order.append("first")
    thread.join()
    assert order == ["first", "second"]


def test_a_lock_of_another_process_is_waited_for(tmp_path: Path) -> None:
    command = [sys.executable, "-c", HOLD, str(tmp_path / "a")]
    order: list[str] = []

    def wait() -> None:
        with locked(tmp_path / "a"):
            order.append("ours")

    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdin is not None and other.stdout is not None
        assert other.stdout.readline() == "held\n"
        thread = threading.Thread(target=wait)
        thread.start()
        thread.join(0.25)
        order.append("other")
        other.stdin.write("\n")
        other.stdin.flush()
        thread.join()
    assert order == ["other", "ours"]


def test_the_lock_of_a_dead_process_is_free(tmp_path: Path) -> None:
    command = [sys.executable, "-c", HOLD, str(tmp_path / "a")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout is not None
        other.stdout.readline()
        other.kill()
    with locked(tmp_path / "a"):
        pass


def test_different_names_do_not_wait(tmp_path: Path) -> None:
    with locked(tmp_path / "a"), locked(tmp_path / "b"):
        pass
