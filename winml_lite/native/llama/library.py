"""Loading llama.cpp once, and where its log goes.

The log of llama.cpp and ggml goes to the logger `winml_lite.native`. Their log callback is one per process: whoever
sets it last gets the lines, so a program that also uses the high-level API of `llama_cpp` sends them to that package's
own logger from then on.
"""

from __future__ import annotations

import ctypes
import logging
import os
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from ...handles import free_in_child
from ...interrupts import strike_again
from ..activity import Activity, Engine, at_exit
from ..hardware import Device
from ..teams import keeps_teams
from .api import LlamaApi, MediaApi, import_api, import_media_api, installed_version
from .devices import ggml_devices, load_ggml

logger = logging.getLogger("winml_lite.native")
logger.addHandler(logging.NullHandler())  # without it, Python prints warnings of a logger nobody configured

# enum ggml_log_level; 5 continues the line before
_LEVELS = {1: logging.DEBUG, 2: logging.INFO, 3: logging.WARNING, 4: logging.ERROR}
_CONTINUE = 5
_OMP_PAUSE_SOFT = 1

ENGINE: Final = Engine("GGUF models", keeps_threads=True)
"""Its compute threads belong to OpenMP: in a forked child OpenMP would wait for them for good."""


@dataclass(frozen=True, slots=True)
class Library:
    """llama.cpp, loaded."""

    api: LlamaApi
    path: str
    """The library file."""
    repacks: bool
    """Whether weights may be repacked for the CPU's matrix instructions when a model is loaded."""

    @property
    def version(self) -> str:
        """Version of llama-cpp-python."""
        return installed_version() or "unknown"

    @property
    def has_gpu(self) -> bool:
        """Whether a GPU module of ggml is there."""
        return bool(self.api.llama_supports_gpu_offload())

    def devices(self) -> tuple[Device, ...]:
        """The CPU and the GPUs that ggml sees, in its order."""
        return ggml_devices(load_ggml(os.path.dirname(self.path)))


class NativeLog:
    """Receives log pieces from any thread, joins them to lines and hands the lines to `logging`."""

    def __init__(self) -> None:
        self._pending: dict[int, tuple[int, str]] = {}
        self._captures: dict[int, list[str]] = {}
        self.routes: list[Callable[[], object]] = []
        """What gives each library this log."""

    def receive(self, level: int, text: bytes | None, data: int | None) -> None:
        """The callback: must never raise."""
        try:
            thread = threading.get_ident()
            known, line = self._pending.pop(thread, (logging.INFO, ""))
            known = _LEVELS.get(level, logging.INFO) if level != _CONTINUE else known
            text = text or b""
            if not line and known < logging.ERROR and not logger.isEnabledFor(known):  # loading logs thousands of lines
                if not text.endswith(b"\n"):
                    self._pending[thread] = known, ""
                return
            line += text.decode("utf-8", "replace")
            *lines, rest = line.split("\n")
            if rest:
                self._pending[thread] = known, rest
            for line in lines:
                self._emit(thread, known, line)
        except KeyboardInterrupt:
            strike_again()
        except Exception:  # nothing may pass through C; logging reports failures of handlers by itself
            pass

    def _emit(self, thread: int, level: int, line: str) -> None:
        if not line.strip(" ."):  # progress dots
            return
        capture = self._captures.get(thread)
        if capture is not None and level >= logging.ERROR:
            capture.append(line)
        logger.log(level, "%s", line)

    @contextmanager
    def captured_errors(self) -> Iterator[list[str]]:
        """Collect the error lines that native calls of this thread log inside the block."""
        thread = threading.get_ident()
        lines: list[str] = []
        self._captures[thread] = lines
        try:
            for route in self.routes:  # another user of the libraries in this process may have taken their log
                route()
            yield lines
        finally:
            del self._captures[thread]


log = NativeLog()
_lock = threading.Lock()
free_in_child(_lock)
_loaded: list[Library] = []
_media: list[MediaApi] = []
_alive: list[Any] = []  # the callback objects: C keeps their addresses


def library() -> Library:
    """Return the library, loading it on first use; 0x8007007E with the mend when it cannot be loaded."""
    if _loaded:
        return _loaded[0]
    with _lock:
        if not _loaded:
            ENGINE.check()
            # Where ggml aborts, it would fork a debugger for a backtrace, and that can hang for good.
            os.environ.setdefault("GGML_NO_BACKTRACE", "1")
            with Activity(ENGINE):
                api, path = import_api()
                _route_log(api, api.llama_log_set)
                api.llama_backend_init()
            _loaded.append(Library(api, path, _may_repack(api)))
            _name_teams(path)
    return _loaded[0]


def media_library() -> MediaApi:
    """Return libmtmd, which llama-cpp-python ships beside llama.cpp, loading it on first use."""
    api = library().api
    with _lock:
        if not _media:
            with Activity(ENGINE):
                media = import_media_api()
                _route_log(api, media.mtmd_log_set)
            _media.append(media)
    return _media[0]


def c_library() -> ctypes.CDLL:
    """The C runtime: two of its functions serve as callbacks that need no interpreter."""
    return ctypes.CDLL("msvcrt") if sys.platform == "win32" else ctypes.CDLL(None)


def _may_repack(api: LlamaApi) -> bool:
    """Whether the kernels for repacked weights can be trusted.

    GCC before 13 drops most of the tile configuration that ggml's AMX kernels load, so that any prompt ends the process
    (SIGSEGV at `ldtilecfg`), and a library does not tell who compiled it. Plain weights avoid those kernels.
    """
    return b"AMX_INT8 = 1" not in api.llama_print_system_info()


def _name_teams(path: str) -> None:
    """Find OpenMP's function for letting go of a team, among the libraries that llama.cpp was linked with.

    It is absent where llama.cpp computes with threads of its own, or of another OpenMP, which keep no such teams.
    """
    pause = getattr(ctypes.CDLL(path), "omp_pause_resource_all", None)
    if pause is None:
        return
    pause.argtypes, pause.restype = [ctypes.c_int], ctypes.c_int

    def release() -> None:
        if ENGINE.is_used and not ENGINE.is_barred:
            pause(_OMP_PAUSE_SOFT)

    keeps_teams(release)


def _route_log(api: LlamaApi, set_log: Callable[[Any, None], None]) -> None:
    callback = api.llama_log_callback(log.receive)
    _alive.append(callback)
    set_log(callback, None)
    log.routes.append(partial(set_log, callback, None))
    at_exit(partial(_silence, api, set_log))


def _silence(api: LlamaApi, set_log: Callable[[Any, None], None]) -> None:
    """Take Python out of the log: static destructors may log after the interpreter is gone.

    `abs` reads its one int argument, the level, and has no effect: a log sink that lives as long as the process.
    """
    sink = ctypes.cast(c_library().abs, ctypes.c_void_p).value
    set_log(api.llama_log_callback(sink), None)
