"""llama.cpp missing or unfit, and its log; a subprocess where a process would be changed."""

from __future__ import annotations

import logging
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from winml_lite.errors import MODULE_NOT_FOUND, WinMLError
from winml_lite.native.llama import api, library
from winml_lite.native.llama.library import NativeLog

ROOT = Path(__file__).parents[3]
BLOCKED = "import sys; sys.modules['llama_cpp'] = None\n"


def run(code: str) -> str:
    """Run a program in a new interpreter and return what it printed."""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=500, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def test_r20_missing_package_is_module_not_found_with_both_mends() -> None:
    code = BLOCKED + (
        "from winml_lite.native.llama.library import library\n"
        "try: library()\n"
        "except OSError as error: print(hex(error.hresult), error.native_message)"
    )
    printed = run(code)
    assert printed.startswith("0x8007007e ")
    assert "pip install 'winml-lite[gguf]'" in printed
    assert "winml-lite convert" in printed


def test_missing_package_is_described_without_raising() -> None:
    code = BLOCKED + (
        "from winml_lite.native.llama.backend import create_backend\n"
        "info = create_backend().describe()\n"
        "print(info.name, info.extensions, info.path, 'pip install' in info.problem)"
    )
    assert run(code) == "llama.cpp ('.gguf',) None True\n"


def test_r1_importing_the_backend_loads_nothing() -> None:
    code = "import sys, winml_lite.native.llama.backend, winml_lite.vocabulary\nprint('llama_cpp' in sys.modules)"
    assert run(code) == "False\n"


def test_missing_name_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    module = ModuleType("llama_cpp.llama_cpp")
    for name in api.names_in_use():
        setattr(module, name, None)
    del module.llama_memory_seq_rm
    monkeypatch.setitem(sys.modules, "llama_cpp", ModuleType("llama_cpp"))
    monkeypatch.setitem(sys.modules, "llama_cpp.llama_cpp", module)
    with pytest.raises(WinMLError, match=r"has no llama_memory_seq_rm.*pip install") as caught:
        api.import_api()
    assert caught.value.hresult == MODULE_NOT_FOUND


def test_names_in_use_cover_functions_constants_and_types() -> None:
    names = api.names_in_use()
    assert {"llama_decode", "GGML_TYPE_F16", "llama_log_callback", "LLAMA_TOKEN_ATTR_CONTROL"} <= set(names)
    assert len(names) == len(set(names))


# Log


def messages(caplog: pytest.LogCaptureFixture) -> list[tuple[str, str]]:
    return [(record.levelname, record.getMessage()) for record in caplog.records]


def test_native_levels(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "winml_lite.native")
    log = NativeLog()
    for level, text in ((1, b"a\n"), (2, b"b\n"), (3, b"c\n"), (4, b"d\n"), (99, b"e\n")):
        log.receive(level, text, None)
    assert messages(caplog) == [("DEBUG", "a"), ("INFO", "b"), ("WARNING", "c"), ("ERROR", "d"), ("INFO", "e")]


def test_pieces_are_joined_to_lines(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "winml_lite.native")
    log = NativeLog()
    for level, text in ((3, b"one "), (5, b"line\ntwo"), (5, b" lines\n"), (2, b"\n"), (2, b"....\n"), (2, b"three\n")):
        log.receive(level, text, None)
    assert messages(caplog) == [("WARNING", "one line"), ("WARNING", "two lines"), ("INFO", "three")]


def test_errors_of_a_call_are_captured(caplog: pytest.LogCaptureFixture) -> None:
    log = NativeLog()
    with log.captured_errors() as errors:
        log.receive(4, b"first\n", None)
        log.receive(2, b"second\n", None)
    log.receive(4, b"third\n", None)
    assert errors == ["first"]


def test_the_callback_never_raises() -> None:
    NativeLog().receive(4, None, None)
    NativeLog().receive(4, b"\xff\n", None)


def test_an_interrupt_in_a_log_handler_is_not_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    struck: list[str] = []

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(library.logger, "log", interrupt)
    monkeypatch.setattr(library, "strike_again", lambda: struck.append("again"))
    NativeLog().receive(4, b"a line\n", None)
    assert struck == ["again"]
