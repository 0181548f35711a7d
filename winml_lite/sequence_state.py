"""The state of a stage as a file: an extension of the object model.

A file is the engine's part, then what it is about as JSON, then the caller's note, then a footer of fixed size with the
digest of the middle, which holds the digest of the engine's part. The engine's part comes first because llama.cpp reads
it by the name of the file, so that neither side holds a whole state in memory a second time. Nothing reaches an engine
before the digests are right: engines trust the sizes they read. A digest is no signature: it tells damage, not malice.

Not here: what the engines write (`native/*/saved_state.py`), which model it is (`files/content.py`).
"""

from __future__ import annotations

import json
import os
import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from hashlib import blake2b
from secrets import token_hex
from typing import Any, BinaryIO

from .checks import path_value
from .errors import (
    E_FAIL,
    E_NOT_VALID_STATE,
    FILE_CORRUPT,
    INSUFFICIENT_BUFFER,
    INVALID_DATA,
    NOT_SUPPORTED,
    NotSupportedError,
    WinMLError,
)
from .files.artifact import GgufArtifact
from .files.content import DIGEST_SIZE, file_digest, model_digest
from .files.mapped import RegularFile
from .files.writing import check_replaceable, writing_failure
from .handles import Closeable
from .native.backend import Sequence
from .native.saved_state import SavedState
from .stage_core import StageCore

_SAVE = "IWinMLStage.SaveSequenceState"
_LOAD = "IWinMLStage.LoadSequenceState"
_MAGIC = b"WMLSTATE"
_VERSION = 1
_FOOTER = struct.Struct(f"<8sIQQ{DIGEST_SIZE}s")  # magic, version, bytes of the description and of the note, digest
_MAX_DESCRIPTION = 16 << 20
_PIECE = 1 << 20


class SavedStateMembers(Closeable[StageCore]):
    """Saving the state that a stage keeps between runs, and going on from it in another process."""

    __slots__ = ()

    @property
    def model_digest(self) -> str:
        """Which weights the stage runs on: a hexadecimal digest of the model's files and of its adapters.

        Equal wherever the same files lie, different for another quantisation or fine-tune. Of a large file the first
        16 MiB and samples of the rest count. NotSupportedError 0x80070032 for a processor.
        """
        core = self._core
        model, adapters = _identity(core, "IWinMLStage.ModelDigest")
        return blake2b(f"{model} {json.dumps(adapters)}".encode(), digest_size=DIGEST_SIZE).hexdigest()

    def save_sequence_state(self, path: str | os.PathLike[str], note: bytes = b"") -> None:
        """Write the state behind the present position into a file, with a note of the caller's.

        The size follows the positions in use, not the capacity. The file appears as a whole, or not at all. 0x8007139F
        at position 0, NotSupportedError 0x80070032 for a stage that keeps no state or holds embedding rows.
        """
        core = self._core
        target = path_value(path)
        sequence, state = _parts(core, _SAVE)
        core.gate.hold(_SAVE, _save, core, sequence, state, target, bytes(note))

    def load_sequence_state(
        self, path: str | os.PathLike[str], check: Callable[[bytes], object] | None = None
    ) -> bytes:
        """Replace the state by one that `save_sequence_state` wrote, and return its note; bindings and outputs stay.

        `check` is called with the note when everything else is right: what it raises leaves the state as it is.

        0x80070570 for a file that is damaged or no state, 0x8007000D for the state of another model, other adapters,
        another build of llama.cpp or another layout of the cache, 0x8007007A when the capacity is too small. Then
        nothing has changed. When the engine itself fails, the position is 0.

        Load only states you trust: the engine believes what a well-formed file says.
        """
        core = self._core
        source = path_value(path)
        sequence, state = _parts(core, _LOAD)
        return core.gate.hold(_LOAD, _load, core, sequence, state, source, check)


def _parts(core: StageCore, context: str) -> tuple[Sequence, SavedState]:
    executor = core.built(context)
    sequence, state = executor.sequence, executor.saved_state
    if sequence is None or state is None:
        raise NotSupportedError(NOT_SUPPORTED, context, f"{core.debug_name} keeps no state that could be saved")
    return sequence, state


def _identity(core: StageCore, context: str) -> tuple[str, list[list[object]]]:
    """Digest of the model, and digest and scale of each adapter."""
    artifact = core.source.artifact
    if artifact is None:
        raise NotSupportedError(NOT_SUPPORTED, context, f"{core.debug_name} runs no model")
    llama = core.options.llama
    adapters = llama.adapters if llama is not None and isinstance(artifact, GgufArtifact) else ()
    return model_digest(artifact).hex(), [[file_digest(path).hex(), scale] for path, scale in adapters]


# Writing


def _save(core: StageCore, sequence: Sequence, state: SavedState, target: str, note: bytes) -> None:
    if sequence.position == 0:
        raise WinMLError(E_NOT_VALID_STATE, _SAVE, f"{core.debug_name} is at position 0: there is nothing to save")
    check_replaceable(target, _SAVE)
    model, adapters = _identity(core, _SAVE)
    try:
        with _replacing(target) as path:
            told = state.write(path)
            with open(path, "r+b") as file:
                payload = file.seek(0, os.SEEK_END)
                description = json.dumps(
                    {
                        "model": model,
                        "adapters": adapters,
                        "layout": state.layout,
                        "position": sequence.position,
                        "told": told,
                        "size": payload,
                        "digest": _digest_of(file, payload).hex(),
                    }
                ).encode()
                digest = blake2b(description + note, digest_size=DIGEST_SIZE).digest()
                file.seek(payload)
                file.write(description + note)
                file.write(_FOOTER.pack(_MAGIC, _VERSION, len(description), len(note), digest))
                file.flush()
                os.fsync(file.fileno())
    except WinMLError:
        raise
    except (OSError, ValueError) as error:
        raise writing_failure(target, error, _SAVE) from error


@contextmanager
def _replacing(target: str) -> Iterator[str]:
    """Give a new file beside `target`, which takes its place when the block ends well."""
    folder, name = os.path.split(os.path.abspath(target))
    path = os.path.join(folder, f".{name}.{token_hex(8)}.part")
    try:
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))  # what was said is nobody else's business
        yield path
        os.replace(path, target)
    finally:
        with suppress(FileNotFoundError):  # it has taken its place
            os.unlink(path)


def _digest_of(file: BinaryIO, size: int) -> bytes:
    digest = blake2b(digest_size=DIGEST_SIZE)
    file.seek(0)
    while size > 0:
        piece = file.read(min(size, _PIECE))
        if not piece:
            break
        digest.update(piece)
        size -= len(piece)
    return digest.digest()


# Reading


@dataclass(frozen=True, slots=True)
class _Described:
    """What a file says about itself, with right digests."""

    model: object
    adapters: object
    layout: dict[str, object]
    position: int
    told: object
    note: bytes


def _load(
    core: StageCore,
    sequence: Sequence,
    state: SavedState,
    source: str,
    check: Callable[[bytes], object] | None,
) -> bytes:
    path = os.path.abspath(source)
    try:
        with RegularFile(path, _LOAD) as file:
            described = _described(file, path)
    except WinMLError:  # an OSError too
        raise
    except OSError as error:
        raise WinMLError(E_FAIL, _LOAD, f"{path}: {error.strerror or error}") from error
    model, adapters = _identity(core, _LOAD)
    _check_same("another model", described.model, model, path)
    _check_same("other adapters", described.adapters, adapters, path)
    layout: Any = json.loads(json.dumps(state.layout))
    for key in {**layout, **described.layout}:
        what = f"another {key.replace('_', ' ')} ({described.layout.get(key)}, here {layout.get(key)})"
        _check_same(what, described.layout.get(key), layout.get(key), path)
    if sequence.capacity and described.position > sequence.capacity:
        text = f"{path} holds {described.position} positions, {core.debug_name} has room for {sequence.capacity}"
        raise WinMLError(INSUFFICIENT_BUFFER, _LOAD, f"{text}; build with a larger sequence capacity (context_length)")
    if check is not None:
        check(described.note)
    core.pending_step = None
    state.read(path, described.position, described.told)
    return described.note


def _check_same(what: str, saved: object, present: object, path: str) -> None:
    if saved != present:
        raise WinMLError(INVALID_DATA, _LOAD, f"{path} was saved with {what}; it cannot be used here")


def _described(file: RegularFile, path: str) -> _Described:
    """Read the end of a file and verify all of it."""
    size = file.identity.size
    file.seek(max(size - _FOOTER.size, 0))
    footer = file.read()
    if len(footer) != _FOOTER.size or not footer.startswith(_MAGIC):
        raise _damaged(path, "it is no saved state, or its end is missing")
    _, version, description_size, note_size, digest = _FOOTER.unpack(footer)
    if version != _VERSION:
        raise WinMLError(NOT_SUPPORTED, _LOAD, f"{path} has format {version}, this version reads format {_VERSION}")
    payload = size - _FOOTER.size - description_size - note_size
    if description_size > _MAX_DESCRIPTION or payload < 0:
        raise _damaged(path, "its parts are longer than the file")
    file.seek(payload)
    middle = file.read(description_size + note_size)
    if blake2b(middle, digest_size=DIGEST_SIZE).digest() != digest:
        raise _damaged(path, "its description is damaged")
    found: dict[str, Any] = json.loads(middle[:description_size])
    if found["size"] != payload or _digest_of(file, payload).hex() != found["digest"]:
        raise _damaged(path, "its contents are damaged")
    known = {name: found[name] for name in ("model", "adapters", "layout", "position", "told")}
    return _Described(**known, note=middle[description_size:])


def _damaged(path: str, problem: str) -> WinMLError:
    return WinMLError(FILE_CORRUPT, _LOAD, f"{path}: {problem}")
