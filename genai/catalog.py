"""Models by name: what `catalog.toml` and the user's own catalog file say about them (design of `genai.load`).

Here: reading and checking the entries. Not here: getting the files (`download.py`).
"""

from __future__ import annotations

import hashlib
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any, TypeAlias

from winml_lite import WinMLError

from .cache import cache_folder
from .codes import INVALID_DATA

NEEDED_MODULES = {"": "", "kquants": "gguf"}
"""The module that an extra installs."""
LOADERS = {
    "text": "genai.load",
    "speech": "genai.load_speech",
    "voice-activity": "genai.VoiceActivity",
    "image-classifier": "genai.load_classifier",
    "text-encoder": "genai.load_embedding",
}
"""Kinds of models, and what loads one by its name."""
COMMANDS = {"text": "generate", "speech": "transcribe", "image-classifier": "classify"}
"""Kinds of models that have a command, and the command."""


def loaded_by(kind: str, source: str) -> str:
    """Say how a model of a kind is loaded, by its name or path."""
    command = f", or run `winml-lite {COMMANDS[kind]} --model {source}`" if kind in COMMANDS else ""
    return f"load it with {LOADERS[kind]}({source!r}){command}"


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
    """Files of packages; joined in order they are the file."""

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
class CatalogFile:
    """One file of a model, as it lies in the cache; its sources are tried in order."""

    file_name: str
    byte_size: int
    sha256: str
    sources: tuple[Source, ...]


@dataclass(frozen=True, slots=True)
class CatalogEntry:
    """One model of the catalog.

    kind: what it is for, a key of `LOADERS`.
    can_chat: whether it has a chat template.
    variant: what is made of the files before they run on ONNX Runtime, "" for nothing: "gqa-q8" and the like
        (operators and weights of a decoder, which is made where llama.cpp is absent) for a GGUF file, else a key of
        `named_models.CONVERSIONS`.
    convert_context_length: limit of tokens of a decoder that is made; None takes that of the model.
    needs: the extra of this distribution that making it takes, "" for none.
    """

    name: str
    description: str
    files: tuple[CatalogFile, ...]
    licence: str
    licence_url: str = ""
    kind: str = "text"
    can_chat: bool = False
    variant: str = ""
    convert_context_length: int | None = None
    needs: str = ""

    @property
    def byte_size(self) -> int:
        """What all files weigh in the cache, in bytes."""
        return sum(file.byte_size for file in self.files)

    @property
    def download_size(self) -> int:
        """What the first sources transfer, in bytes: packages are compressed, and each is fetched once."""
        wheels: dict[str, int] = {}
        plain = 0
        for file in self.files:
            source = file.sources[0] if file.sources else None
            packed = {part.requirement: part.size for part in source.parts} if isinstance(source, PackageSource) else {}
            wheels |= packed
            plain += 0 if all(packed.values()) and packed else file.byte_size
        return plain + sum(wheels.values())

    @property
    def sources(self) -> tuple[str, ...]:
        """Where the files come from, as texts."""
        return tuple(dict.fromkeys(str(source) for file in self.files for source in file.sources))

    @property
    def digest(self) -> str:
        """The sha256 of the one file, or of the digests of all."""
        if len(self.files) == 1:
            return self.files[0].sha256
        return hashlib.sha256("".join(file.sha256 for file in self.files).encode()).hexdigest()

    @property
    def is_gguf(self) -> bool:
        return len(self.files) == 1 and self.files[0].file_name.lower().endswith(".gguf")


def entries() -> tuple[CatalogEntry, ...]:
    """Return all entries, the built-in ones first; an entry of the user's file replaces a built-in one of its name.

    WinMLError 0x8007000D for a user's file that cannot be read as a catalog.
    """
    found = {entry.name: entry for entry in _read(resources.files(__package__) / "catalog.toml")}
    own = cache_folder() / "catalog.toml"
    if own.is_file():
        found |= {entry.name: entry for entry in _read(own)}
    return tuple(found.values())


def find(name: str) -> CatalogEntry | None:
    """Return the entry of `name`, whatever its letter case, or None."""
    folded = name.casefold()
    return next((entry for entry in entries() if entry.name.casefold() == folded), None)


def _read(path: Path | Traversable) -> list[CatalogEntry]:
    try:
        tables = tomllib.loads(path.read_text(encoding="utf-8")).get("model", [])
        return [_entry(table) for table in tables]
    except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
        reason = f"the entry lacks {error}" if isinstance(error, KeyError) else str(error)
        raise WinMLError(INVALID_DATA, str(path), f"not a model catalog: {reason}") from error


def _entry(table: Mapping[str, Any]) -> CatalogEntry:
    files = tuple(map(_file, table["files"])) if "files" in table else (_file({**table, "name": table["file"]}),)
    if not files:
        raise ValueError("files must be a list of tables, not empty")
    is_gguf = files[0].file_name.lower().endswith(".gguf")
    entry = CatalogEntry(
        name=_plain(table, "name"),
        description=str(table.get("description", "")),
        files=files,
        licence=_text(table, "licence"),
        licence_url=str(table.get("licence_url", "")),
        kind=str(table.get("kind", "text")),
        can_chat=bool(table.get("chat", False)),
        variant=str(table.get("convert", "gqa-q8" if is_gguf else "")),
        convert_context_length=int(table["convert_context"]) if "convert_context" in table else None,
        needs=str(table.get("needs", "")),
    )
    for what, value, known in (("kind", entry.kind, LOADERS), ("needs", entry.needs, NEEDED_MODULES)):
        if value not in known:
            raise ValueError(f"{what} of {entry.name} must be one of {', '.join(filter(None, known))}, not {value!r}")
    if len({file.file_name for file in files}) != len(files):
        raise ValueError(f"the files of {entry.name} must have different names")
    return entry


def _file(table: Mapping[str, Any]) -> CatalogFile:
    """Read one of `files`, or an entry that has one file and says all about it itself."""
    file = CatalogFile(
        file_name=_plain(table, "name"),
        byte_size=int(table["size"]),
        sha256=_text(table, "sha256").lower(),
        sources=tuple(_source(source) for source in table["source"]),
    )
    if len(file.sha256) != _SHA256_DIGITS or set(file.sha256) - set("0123456789abcdef"):
        raise ValueError(f"sha256 of {file.file_name} must be {_SHA256_DIGITS} hexadecimal digits")
    return file


def _plain(table: Mapping[str, Any], key: str) -> str:
    """Read a name that becomes part of a path in the cache."""
    text = _text(table, key)
    if text != Path(text).name or text in (".", "..") or "\\" in text:
        raise ValueError(f"{key} {text!r} must be a plain name")
    return text


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
