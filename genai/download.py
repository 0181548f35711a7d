"""The files of catalog entries in the cache: whether they are there, getting them, removing them.

Here: what lies where. Not here: sources (`file_sources.py`), what is made of the files (`named_models.py`).
"""

from __future__ import annotations

import glob
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from winml_lite import WinMLError

from .cache import MOVE, NO_SPACE
from .cache import cache_folder as cache_folder
from .cache import locked as locked
from .catalog import CatalogEntry, CatalogFile, PackageSource
from .codes import DISK_FULL
from .convert import CONVERTER_VERSION
from .file_sources import FileSources, Progress, downloads_folder


def model_path(entry: CatalogEntry) -> Path:
    """Return where the file of `entry` lies once it is there; where its folder is, for several files."""
    folder = cache_folder() / "models" / entry.name / entry.digest[:8]
    return folder / entry.files[0].file_name if len(entry.files) == 1 else folder


def cached(entry: CatalogEntry) -> Path | None:
    """Return the file or the folder of `entry` when it is in the cache; only verified files ever get there."""
    return None if _missing(entry) else model_path(entry)


def _missing(entry: CatalogEntry) -> list[tuple[CatalogFile, Path]]:
    path = model_path(entry)
    places = [(file, path if len(entry.files) == 1 else path / file.file_name) for file in entry.files]
    return [(file, place) for file, place in places if not place.is_file() or place.stat().st_size != file.byte_size]


def converted_folder(entry: CatalogEntry) -> Path:
    """Return where the folder that is made from the files of `entry` belongs; it may not exist."""
    return _converted() / f"{entry.name}-{entry.digest[:8]}-{entry.variant}"


def _converted() -> Path:
    """The folder of this converter's output: another version of it never takes up what an older one has made."""
    return cache_folder() / "converted" / f"v{CONVERTER_VERSION}"


def remove(entry: CatalogEntry) -> bool:
    """Delete file, conversions and unfinished downloads of `entry`; return whether the cache held any."""
    models = cache_folder() / "models"
    with locked(models / entry.name):
        found = [models / entry.name, *_converted().glob(f"{glob.escape(entry.name)}-????????-*"), *_unfinished(entry)]
        found = [path for path in dict.fromkeys(found) if path.exists()]
        for path in found:
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    return bool(found)


def _unfinished(entry: CatalogEntry) -> Iterator[Path]:
    sources = [source for file in entry.files for source in file.sources if isinstance(source, PackageSource)]
    for part in {part for source in sources for part in source.parts}:
        yield from downloads_folder().glob(f"{part.name.replace('-', '_')}-{part.version}-*")


def pull(entry: CatalogEntry, *, offline: bool = False, progress: Progress | None = None) -> Path:
    """Return the file of `entry` in the cache, or the folder of its files, after fetching what is not there.

    offline: use no network; an installed package or a local file still serves.
    progress: called with the bytes downloaded and the bytes in all.

    Raises WinMLError: 0x80070002 when no source has a file, 0x80070570 when its bytes are not the expected ones,
    0x80070070 when the disk is too small. An interrupted download is continued by the next call.
    """
    path = cached(entry)
    if path is not None:
        return path
    path = model_path(entry)
    with locked(cache_folder() / "models" / entry.name):
        missing = _missing(entry)
        if missing:
            missing[0][1].parent.mkdir(parents=True, exist_ok=True)
            with _disk_errors(entry, path), FileSources(entry, None if offline else progress or _silent) as sources:
                sources.get_all(missing)
    return path


def _silent(done: int, total: int) -> None:
    """Progress that nobody looks at."""


@contextmanager
def _disk_errors(entry: CatalogEntry, path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if isinstance(error, WinMLError) or error.errno not in NO_SPACE:
            raise
        raise WinMLError(DISK_FULL, str(path.parent), f"no space left for {entry.name}; {MOVE}") from error
