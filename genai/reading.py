"""Read a configuration or vocabulary file that somebody named: a regular file of bounded size, whole.

A pipe would be waited for without end, and a device could be read without end.
"""

from __future__ import annotations

import os
import stat

from winml_lite import WinMLError

from .codes import E_FAIL, E_INVALIDARG, FILE_NOT_FOUND

LARGEST = 512 << 20
"""Bytes; ten times the largest `tokenizer.json` there is."""


def read_bytes(path: str | os.PathLike[str]) -> bytes:
    """Return the content of a file.

    0x80070002 when it is missing, 0x80070057 for what is no file (a folder, a pipe, a device) or larger than `LARGEST`,
    0x80004005 when it cannot be read.
    """
    place = os.fspath(path)
    try:
        with open(place, "rb", opener=open_without_waiting) as file:
            status = os.fstat(file.fileno())
            if not stat.S_ISREG(status.st_mode):
                raise WinMLError(E_INVALIDARG, place, "this is not a file but a folder, a pipe or a device")
            if status.st_size > LARGEST:
                raise WinMLError(E_INVALIDARG, place, f"the file has {status.st_size >> 20} MiB, that is too large")
            return file.read(status.st_size)
    except WinMLError:
        raise
    except (FileNotFoundError, NotADirectoryError):
        raise WinMLError(FILE_NOT_FOUND, place, "there is no such file") from None
    except IsADirectoryError:
        raise WinMLError(E_INVALIDARG, place, "this is a folder") from None
    except (OSError, ValueError) as error:
        raise WinMLError(E_FAIL, place, str(error)) from error


def open_without_waiting(path: str, flags: int) -> int:
    """An opener for `open`: a pipe that nobody writes to is opened at once, to be refused."""
    return os.open(path, flags | getattr(os, "O_NONBLOCK", 0))
