"""The folder that holds downloaded and converted models, and locks across processes.

<cache folder>/models/<name>/<sha256, 8 digits>/<file>       complete and verified files only
<cache folder>/converted/<name>-<sha256, 8 digits>-<variant>  ONNX decoders made from them
<cache folder>/downloads                                      unfinished downloads
<cache folder>/catalog.toml                                   the user's own catalog entries, if any
"""

from __future__ import annotations

import errno
import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from winml_lite import WinMLError

from .codes import DISK_FULL, E_ACCESSDENIED

MOVE = "WINML_LITE_HOME names another place for models"
NO_SPACE = {errno.ENOSPC, getattr(errno, "EDQUOT", errno.ENOSPC)}
_POLL_SECONDS = 0.1


def cache_folder() -> Path:
    """Return the cache folder, which may not exist: `WINML_LITE_HOME`, else the platform's place for caches."""
    if chosen := os.environ.get("WINML_LITE_HOME"):
        return Path(chosen).expanduser().absolute()
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData/Local") / "winml-lite" / "Cache"
    if sys.platform == "darwin":
        return Path.home() / "Library/Caches/winml-lite"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "winml-lite"


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold the lock that belongs to `path` against other threads and processes; wait as long as another holds it.

    The system frees the lock of a process that dies. The lock file beside `path` stays: removing it would let two
    processes lock two different files of the same name.

    Raises WinMLError: 0x80070005 when the cache cannot be written, 0x80070070 when its disk is full.
    """
    with _lock_file(path) as file:
        while not _try_lock(file):
            time.sleep(_POLL_SECONDS)
        try:
            yield
        finally:
            _unlock(file)


def _lock_file(path: Path) -> IO[bytes]:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        return (path.parent / f".{path.name}.lock").open("a+b")
    except OSError as error:
        code = DISK_FULL if error.errno in NO_SPACE else E_ACCESSDENIED
        text = f"the folder of the cache cannot be written: {error.strerror}; {MOVE}"
        raise WinMLError(code, str(cache_folder()), text) from error


if sys.platform == "win32":
    import msvcrt

    def _try_lock(file: IO[bytes]) -> bool:
        file.seek(0)
        try:
            msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)
        except OSError:
            return False
        return True

    def _unlock(file: IO[bytes]) -> None:
        file.seek(0)
        msvcrt.locking(file.fileno(), msvcrt.LK_UNLCK, 1)

else:
    import fcntl

    def _try_lock(file: IO[bytes]) -> bool:
        try:
            fcntl.flock(file.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def _unlock(file: IO[bytes]) -> None:
        fcntl.flock(file.fileno(), fcntl.LOCK_UN)
