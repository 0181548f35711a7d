"""Open a model file for reading: mapped, with failures as `WinMLError`."""

from __future__ import annotations

import mmap
import os

from ..errors import E_ACCESSDENIED, E_FAIL, FILE_CORRUPT, FILE_NOT_FOUND, WinMLError

Data = bytes | mmap.mmap
"""What a walker reads: a model in memory or a mapped file."""


class open_mapped:
    """Map a file for reading inside a `with` block; failures to open and an empty file are `WinMLError`."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._mapped: mmap.mmap | None = None

    def __enter__(self) -> mmap.mmap:
        context = "IWinMLRuntime.LoadModelFromFile"
        try:
            with open(self._path, "rb") as file:
                if os.fstat(file.fileno()).st_size == 0:
                    raise WinMLError(FILE_CORRUPT, context, f"{self._path}: the file is empty")
                self._mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        except WinMLError:
            raise
        except FileNotFoundError:
            raise WinMLError(FILE_NOT_FOUND, context, self._path) from None
        except PermissionError:
            raise WinMLError(E_ACCESSDENIED, context, self._path) from None
        except OSError as error:
            raise WinMLError(E_FAIL, context, f"{self._path}: {error.strerror}") from None
        return self._mapped

    def __exit__(self, *_: object) -> None:
        if self._mapped is not None:
            self._mapped.close()
