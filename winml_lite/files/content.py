"""Which model this is: a digest of the files it consists of.

Size and date are no identity: a file may be copied, or replaced by another of the same size. Reading gigabytes for each
saved state would cost more than the state. So a file counts by its size, its first 16 MiB (a GGUF header with its
tensor table, or a whole ONNX graph without weights) and 1,024 blocks of 4 KiB at even distances up to its end. Two
models that somebody trained differ in nearly all weights; a file that was changed in a few chosen bytes between the
blocks is not told apart.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from functools import lru_cache
from hashlib import blake2b

from ..errors import E_FAIL, WinMLError
from .artifact import Artifact, GgufArtifact
from .mapped import Identity, RegularFile, check_unchanged, identify

HEAD = 16 << 20
BLOCK = 4096
BLOCK_COUNT = 1024
DIGEST_SIZE = 32
"""Bytes of every digest here."""

_CONTEXT = "IWinMLStage.ModelDigest"


def model_digest(artifact: Artifact) -> bytes:
    """Return the digest of a model: all shards of a GGUF model, the graph and the external data of an ONNX model.

    Names and places of the files do not count. 0x800703EE when a file has changed since the model was loaded.
    """
    if isinstance(artifact, GgufArtifact):
        for shard in artifact.shards:
            check_unchanged(shard, _CONTEXT)
        return _joined(_digest_of_file(shard) for shard in artifact.shards)
    parts = []
    if artifact.identity is not None:
        check_unchanged(artifact.identity, _CONTEXT)
        parts.append(_digest_of_file(artifact.identity))
    if artifact.data is not None:
        parts.append(_digest_of_bytes(memoryview(artifact.data)))
    folder = os.path.dirname(artifact.path) if artifact.path is not None else None
    for location in artifact.external_locations:
        path = None if folder is None else os.path.join(folder, location)
        if path is not None and os.path.isfile(path):
            parts.append(file_digest(path))
        elif location in artifact.resources:
            parts.append(_digest_of_bytes(artifact.resources[location].cast("B")))
    return _joined(parts)


def file_digest(path: str) -> bytes:
    """Return the digest of one file. It is remembered for as long as size and date stay the same."""
    try:
        identity = identify(os.path.abspath(path))
    except OSError as error:
        raise WinMLError(E_FAIL, _CONTEXT, f"{path}: {error.strerror or error}") from error
    return _digest_of_file(identity)


@lru_cache(maxsize=64)
def _digest_of_file(identity: Identity) -> bytes:
    with RegularFile(identity.path) as file:

        def read(start: int, size: int) -> bytes:
            file.seek(start)
            return file.read(size)

        return _sampled(read, identity.size)


def _digest_of_bytes(data: memoryview) -> bytes:
    return _sampled(lambda start, size: bytes(data[start : start + size]), data.nbytes)


def _sampled(read: Callable[[int, int], bytes], size: int) -> bytes:
    """Digest size, head and blocks; `read(start, size)` gives a piece."""
    digest = blake2b(size.to_bytes(8, "little"), digest_size=DIGEST_SIZE)
    digest.update(read(0, min(size, HEAD)))
    rest = size - HEAD
    if rest > 0:
        count = min(BLOCK_COUNT, -(-rest // BLOCK))
        last = max(rest - BLOCK, 0)
        for number in range(count):
            start = last * number // max(count - 1, 1)
            digest.update(read(HEAD + start, BLOCK))
    return digest.digest()


def _joined(parts: Iterable[bytes]) -> bytes:
    return blake2b(b"".join(parts), digest_size=DIGEST_SIZE).digest()
