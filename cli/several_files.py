"""What commands over several files share: where that which is made of each goes, and files that cannot be read."""

from __future__ import annotations

import contextlib
import importlib.util
import os
from collections.abc import Iterator
from pathlib import Path

import click

import genai
from genai import codes

from . import terminal
from .failure import ModelFailure, OutputFailure, describe

STANDARD_INPUT = "-"
"""Stands for standard input among the files."""
_FILE_ENDINGS = frozenset({".png", ".jpg", ".jpeg", ".webp", ".txt", ".json", ".srt", ".vtt"})
"""Of names that mean a file: a folder of such a name is only taken, never made."""


def check_before_loading(files: tuple[str, ...], package: str, purpose: str) -> None:
    """Fail before a model is downloaded where no file could be read: `package`, of the extra media, is not installed,
    or none of the files is there.

    purpose: what is said of the package, as in "sound files need soundfile".
    """
    if importlib.util.find_spec(package) is None:
        text = f"{purpose}: pip install 'winml-lite[media]'"
        raise genai.NotSupportedError(codes.MODULE_NOT_FOUND, "winml-lite", text)
    if any(file == STANDARD_INPUT or os.path.lexists(file) for file in files):
        return
    for file in files:
        missing = genai.WinMLError(codes.FILE_NOT_FOUND, file, "there is no such file")
        tell_unreadable(why_unreadable(file, missing), is_only=len(files) == 1)
    check_all_read(0, len(files))


def targets(files: tuple[str, ...], place: Path | None, option: str, ending: str, unnamed: str) -> list[Path | None]:
    """Return where that which is made of each file goes; None is standard output, or nowhere.

    place: what `option` names: a file for one, a folder for several, which is made. There the names are those of the
        files, with another `ending`; equal ones get numbers, and standard input is called `unnamed`.

    UsageError where one of the files would be written over.
    """
    if place is None:
        return [None] * len(files)
    found = [place] if len(files) == 1 and not place.is_dir() else _inside(place, files, option, ending, unnamed)
    given = {identity for file in files if (identity := _identity(file)) is not None}
    for target in found:
        if _identity(target) in given:
            raise click.UsageError(f"{option} would write over {target}, which is to be read; name another place")
    return [*found]


def _inside(place: Path, files: tuple[str, ...], option: str, ending: str, unnamed: str) -> list[Path]:
    """Make a folder and return a name in it for each file, no two of them equal in any letter case."""
    if place.exists() and not place.is_dir():
        raise click.UsageError(f"{option} names a folder for several files, and {place} is a file")
    if not place.exists() and place.suffix.lower() in _FILE_ENDINGS:
        raise click.UsageError(f"{option} names a folder for several files, and {place} is the name of a file")
    place.mkdir(parents=True, exist_ok=True)
    found: list[Path] = []
    taken: set[str] = set()
    for file in files:
        stem = Path(file).stem if file != STANDARD_INPUT else unnamed
        name, number = stem, 1
        while name.casefold() in taken:
            number += 1
            name = f"{stem}-{number}"
        taken.add(name.casefold())
        found.append(place / f"{name}{ending}")
    return found


@contextlib.contextmanager
def writing(path: Path) -> Iterator[None]:
    """Say which file an OSError kept from being written; OutputFailure."""
    try:
        yield
    except OSError as error:
        raise OutputFailure(f"{path} cannot be written: {error.strerror or error}") from error


def _identity(file: str | Path) -> tuple[int, int] | None:
    """Return what tells a file from all others by whatever name, None where there is none."""
    try:
        status = os.stat(file)
    except (OSError, ValueError):
        return None
    return status.st_dev, status.st_ino


def why_unreadable(file: str, error: genai.WinMLError) -> str:
    """Return what is said of a file that could not be read; what is wrong with all files is raised again."""
    if error.hresult == codes.MODULE_NOT_FOUND:  # a package is not there, and will not be for the next one
        raise error
    text = describe(error)
    return text if file in text else f"{file}: {text}"


def tell_unreadable(text: str, *, is_only: bool) -> None:
    """Say that a file could not be read; that of the only one is the failure of the command."""
    if is_only:
        raise ModelFailure(text)
    terminal.note(f"Error: {text}")


def check_all_read(done: int, count: int) -> None:
    """Fail at the end of a command that could not read some of its files."""
    if done < count:
        raise ModelFailure(f"{count - done} of {terminal.counted(count, 'file')} could not be read")
