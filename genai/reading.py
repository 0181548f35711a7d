"""Read a configuration or vocabulary file that somebody named: a regular file of bounded size, whole.

A pipe would be waited for without end, and a device could be read without end.
"""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from winml_lite import WinMLError

from .codes import E_FAIL, E_INVALIDARG, FILE_NOT_FOUND, INVALID_DATA

LARGEST = 512 << 20
"""Bytes; ten times the largest `tokenizer.json` there is."""


def read_bytes(path: str | os.PathLike[str]) -> bytes:
    """Return the content of a file.

    0x80070002 when it is missing, 0x80070057 for what is no file (a folder, a pipe, a device) or larger than `LARGEST`,
    0x80004005 when it cannot be read.
    """
    place = os.fspath(path)
    with reading(place), open(place, "rb", opener=open_without_waiting) as file:
        status = os.fstat(file.fileno())
        if not stat.S_ISREG(status.st_mode):
            raise WinMLError(E_INVALIDARG, place, "this is not a file but a folder, a pipe or a device")
        if status.st_size > LARGEST:
            raise WinMLError(E_INVALIDARG, place, f"the file has {status.st_size >> 20} MiB, that is too large")
        return file.read(status.st_size)


@contextmanager
def reading(place: str) -> Iterator[None]:
    """Turn what opening and reading the file `place` raises into a WinMLError that names it."""
    try:
        yield
    except WinMLError:
        raise
    except (FileNotFoundError, NotADirectoryError):
        raise WinMLError(FILE_NOT_FOUND, place, "there is no such file") from None
    except IsADirectoryError:
        raise WinMLError(E_INVALIDARG, place, "this is a folder") from None
    except (OSError, ValueError) as error:
        raise WinMLError(E_FAIL, place, str(error)) from error


def can_seek(file: Any) -> bool:
    """Whether an open file is no pipe: those of Windows may say that they can seek."""
    with suppress(AttributeError, OSError, TypeError, ValueError):  # it need not be one of the system
        if stat.S_ISFIFO(os.fstat(file.fileno()).st_mode):
            return False
    if not hasattr(file, "seek") or not hasattr(file, "tell"):
        return False
    return bool(file.seekable()) if hasattr(file, "seekable") else True


def is_empty(file: Any) -> bool:
    """Whether a file, a path or open, has no bytes at all; False where that cannot be told. The position is lost."""
    with suppress(AttributeError, OSError, TypeError, ValueError):
        if isinstance(file, str | bytes):
            return os.stat(file).st_size == 0
        file.seek(0, os.SEEK_END)
        return bool(file.tell() == 0)
    return False


def read_json(path: Path, context: str, kind: type[dict[str, Any]] | type[list[Any]] = dict) -> Any:
    """Return the content of a JSON file, an object or (`kind` is list) an array.

    0x8007000D with `context` for any other content, and the errors of `read_bytes`.
    """
    try:
        content = json.loads(read_bytes(path).decode("utf-8-sig"))
    except (ValueError, RecursionError) as error:
        raise WinMLError(INVALID_DATA, context, f"{path} cannot be read as JSON: {error}") from None
    if not isinstance(content, kind):
        raise WinMLError(INVALID_DATA, context, f"{path} holds no JSON {'object' if kind is dict else 'array'}")
    return content


def read_json_if_there(path: Path, context: str, kind: type[dict[str, Any]] | type[list[Any]] = dict) -> Any:
    """Do as `read_json`; an empty object or array where there is no such file."""
    return read_json(path, context, kind) if path.is_file() else kind()


def open_without_waiting(path: str, flags: int) -> int:
    """An opener for `open`: a pipe that nobody writes to is opened at once, to be refused."""
    return os.open(path, flags | getattr(os, "O_NONBLOCK", 0))
