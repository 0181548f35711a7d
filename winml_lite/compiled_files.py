"""Compiled models as files: where they may lie, the file for weights beside the artifact (tensors §9.2 and 9.4).

The engine never gets to see a final path: it would write over whatever lies there, and leave parts behind when it
fails. Everything is made in a private folder beside the destination and moved when it is whole.
"""

from __future__ import annotations

import hashlib
import os
import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import BinaryIO

from .errors import ARITHMETIC_OVERFLOW, E_INVALIDARG, WinMLError
from .files.artifact import OnnxArtifact
from .files.mapped import is_same_file
from .files.writing import NewFiles, check_replaceable, writing_failure
from .native.backend import SMALLEST_EXTERNAL, CompileOutput

MOST_INSIDE = 1_900_000_000
"""Bytes of an artifact that holds its weights; a protobuf message ends at 2 GiB."""
ALIGNMENT = 64
_NOT_IN_NAMES = frozenset('*:\\\0"<>|?')
"""Characters that some system or the engine does not take in the name of a file for weights."""
_DIGITS = 16


@dataclass(frozen=True, slots=True)
class Destination:
    """Where the artifact goes, and with it its weights."""

    folder: str
    """Absolute."""
    name: str
    weights: str | None
    """Name of the file for weights; None for the usual layout: inside, or too large for that."""

    @property
    def stem(self) -> str:
        """Name of the artifact without its extension, and without what the name of a file for weights must not have."""
        stem = os.path.splitext(self.name)[0].encode("utf-8", "ignore").decode("utf-8")
        return "".join(char for char in stem if char not in _NOT_IN_NAMES)


def destination(artifact_path: str, weights_path: str | None, source: OnnxArtifact, context: str) -> Destination:
    """Check the paths. 0x80070003 without the folder, 0x80070057 for paths that would damage something or lead away."""
    folder, name = os.path.split(os.path.abspath(artifact_path))
    place = Destination(folder, name, None if weights_path is None else _weights_name(folder, name, weights_path))
    for file in (place.name, place.weights):
        path = os.path.join(folder, file) if file is not None else folder
        if file is not None and os.path.isdir(path):
            raise WinMLError(E_INVALIDARG, context, f"{path} is a folder; pass the path of a file")
        if file is not None:
            _refuse_source(source, path, context)
        check_replaceable(path, context)
    return place


def _weights_name(folder: str, artifact: str, path: str) -> str:
    """Return the name of the file for weights, which lies beside the artifact under any name but that one."""
    parent, name = os.path.split(path if os.path.isabs(path) else os.path.normpath(os.path.join(folder, path)))
    if not path or not name or not is_same_file(parent, folder):
        raise WinMLError(
            E_INVALIDARG, "", f"the weights file {path!r} must lie in the folder of the artifact, {folder}"
        )
    if not _NOT_IN_NAMES.isdisjoint(name):
        raise WinMLError(E_INVALIDARG, "", f"the weights file {name!r} must have a name that is one on every system")
    if any("\ud800" <= char <= "\udfff" for char in name):
        raise WinMLError(E_INVALIDARG, "", f"the weights file {name!r} must have a name in UTF-8, as in the artifact")
    if name.casefold() == artifact.casefold():
        raise WinMLError(E_INVALIDARG, "", f"the weights file needs another name than the artifact, {artifact!r}")
    return name


def _refuse_source(source: OnnxArtifact, path: str, context: str) -> None:
    """Raise 0x80070057 for a path that leads to the model file or one of its weights, by whatever name or link."""
    if source.path is None:
        return
    folder = os.path.dirname(source.path)
    files = (source.path, *(os.path.join(folder, location) for location in source.external_locations))
    if any(is_same_file(file, path) for file in files):
        raise WinMLError(E_INVALIDARG, context, f"{path} belongs to the source model; choose another path")


class _Files:
    """Implements `CompileOutput`: an artifact, and a file for weights if one is wanted."""

    def __init__(self, folder: str, place: Destination, is_inside: bool) -> None:
        self._folder = folder
        self._place = place
        self.path = os.path.join(folder, place.name)
        self.weights = None if is_inside else place.weights or f"{place.stem}.{secrets.token_hex(_DIGITS // 2)}.bin"
        self._artifact: BinaryIO | None = None
        self._weights: BinaryIO | None = None
        self._end = 0
        """Bytes in the file for weights."""
        self._offsets: dict[bytes, int] = {}
        """Where initializers lie, by their digest: equal ones, as tied embeddings are, lie there once."""

    def place(self, data: memoryview) -> tuple[str, int] | None:
        if self.weights is None or data.nbytes < SMALLEST_EXTERNAL:
            return None
        if self._weights is None:
            try:
                self._weights = open(os.path.join(self._folder, self.weights), "xb")
            except FileExistsError:
                raise self._weights_of_two() from None
        digest = hashlib.sha256(data).digest()
        if digest not in self._offsets:
            self._weights.write(bytes(-self._weights.tell() % ALIGNMENT))
            self._offsets[digest] = self._weights.tell()
            self._weights.write(data)
            self._weights.flush()  # what a provider then does to the file shows in its size
            self._end = self._weights.tell()
        return self.weights, self._offsets[digest]

    def write(self, data: memoryview) -> None:
        if self._artifact is None:
            self._artifact = open(self.path, "wb")
        self._artifact.write(data)
        if self.weights is None and self._artifact.tell() > MOST_INSIDE:
            raise WinMLError(ARITHMETIC_OVERFLOW, "", f"the artifact is larger than {MOST_INSIDE:,} bytes")

    def restart(self) -> str:
        self.close()
        for name in os.listdir(self._folder):
            os.unlink(os.path.join(self._folder, name))
        self._artifact = self._weights = None
        self._offsets.clear()
        return self.path

    def close(self) -> None:
        """Close the files."""
        for file in (self._artifact, self._weights):
            if file is not None:
                file.close()

    def check_weights(self) -> None:
        """Raise 0x80070057 when the file for weights is not what was written here."""
        if self._weights is not None and os.path.getsize(self._weights.name) != self._end:
            raise self._weights_of_two()

    def _weights_of_two(self) -> WinMLError:
        text = f"the provider writes a file {self.weights!r} of its own; give the weights another name"
        return WinMLError(E_INVALIDARG, "", text)

    def name_weights(self) -> None:
        """Name a file for weights after its content.

        That is known only now that the artifact refers to it, so until now it had a random name of the same length.
        """
        if self.weights is None or self._place.weights is not None:
            return
        weights = os.path.join(self._folder, self.weights)
        if not os.path.exists(weights):
            return
        with open(weights, "rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        name = f"{self._place.stem}.{digest[:_DIGITS]}.bin"
        with open(self.path, "r+b") as file:
            artifact = file.read().replace(self.weights.encode(), name.encode())
            file.seek(0)
            file.write(artifact)
        os.replace(weights, os.path.join(self._folder, name))


def compile_into(
    place: Destination, source: OnnxArtifact, compile_model: Callable[[CompileOutput], None], context: str
) -> None:
    """Have `compile_model` make the files of a compiled model; they appear when they are whole."""
    with writing(place, context, source) as files:
        if place.weights is None and _size_of(source) <= MOST_INSIDE:
            try:
                return _compile(_Files(files.path, place, True), compile_model)
            except WinMLError as error:
                if error.hresult != ARITHMETIC_OVERFLOW:
                    raise
        return _compile(_Files(files.path, place, False), compile_model)


@contextmanager
def writing(place: Destination, context: str, source: OnnxArtifact) -> Iterator[NewFiles]:
    """Give a folder for new files, which appear when the block ends well, but for the place of a source file."""
    path = os.path.join(place.folder, place.name)
    try:
        with NewFiles(place.folder) as files:
            yield files
            for name in os.listdir(files.path):  # a provider may have put more there
                _refuse_source(source, os.path.join(place.folder, name), context)
            files.appear(last=place.name)
    except (OSError, ValueError) as error:
        raise writing_failure(path, error, context) from error.__cause__


def _compile(output: _Files, compile_model: Callable[[CompileOutput], None]) -> None:
    try:
        compile_model(output)
    finally:
        output.close()
    output.check_weights()
    output.name_weights()


def _size_of(source: OnnxArtifact) -> int:
    """Bytes of a model with its external data."""
    size = source.identity.size if source.identity is not None else len(source.data or b"")
    return size + sum(source.external_sizes.values())
