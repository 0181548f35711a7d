"""What commands over several files share: where that which is made of each goes, and files that cannot be read."""

from __future__ import annotations

from pathlib import Path

import click

import genai
from genai import codes

from . import terminal
from .failure import ModelFailure, describe

STANDARD_INPUT = "-"
"""Stands for standard input among the files."""


def targets(files: tuple[str, ...], place: Path | None, option: str, ending: str, unnamed: str) -> list[Path | None]:
    """Return where that which is made of each file goes; None is standard output, or nowhere.

    place: what `option` names: a file for one, a folder for several, which is made. There the names are those of the
        files, with another `ending`; equal ones get numbers, and standard input is called `unnamed`.
    """
    if place is None:
        return [None] * len(files)
    if len(files) == 1 and not place.is_dir():
        return [place]
    if place.exists() and not place.is_dir():
        raise click.UsageError(f"{option} names a folder for several files, and {place} is a file")
    place.mkdir(parents=True, exist_ok=True)
    names = [Path(file).stem if file != STANDARD_INPUT else unnamed for file in files]
    earlier = [names[:index].count(name) for index, name in enumerate(names)]
    numbers = [f"-{count + 1}" if count else "" for count in earlier]
    return [place / f"{name}{number}{ending}" for name, number in zip(names, numbers, strict=True)]


def tell_unreadable(file: str, error: genai.WinMLError, *, is_only: bool) -> None:
    """Say that a file could not be read; that of the only one is the failure of the command."""
    if error.hresult == codes.MODULE_NOT_FOUND:  # a package is not there, and will not be for the next one
        raise error
    text = describe(error)
    text = text if file in text else f"{file}: {text}"
    if is_only:
        raise ModelFailure(text) from error
    terminal.note(f"Error: {text}")


def check_all_read(done: int, count: int) -> None:
    """Fail at the end of a command that could not read some of its files."""
    if done < count:
        raise ModelFailure(f"{count - done} of {terminal.counted(count, 'file')} could not be read")
