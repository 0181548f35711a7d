"""Compiled models into memory or anywhere else: the sink of `compile_to_sink` (tensors §9.6)."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import sha256
from typing import NoReturn, Protocol

from .compiled_files import ALIGNMENT
from .errors import E_FAIL, NOT_SUPPORTED, WinMLError
from .native.backend import SMALLEST_EXTERNAL

_PIECE = 16 << 20
_MEMBERS = ("write_artifact_bytes", "begin_resource", "write_resource_bytes", "end_resource")


@dataclass(frozen=True, slots=True)
class ResourceDescriptor:
    """What a resource of a compiled model is."""

    byte_size: int
    alignment: int
    """A power of two that the address of the bytes should be a multiple of."""
    offset: int
    """Where the bytes begin in the resource: 0."""


class CompileOutputSink(Protocol):
    """Takes a compiled model from `ModelCompiler.compile_to_sink`: its artifact, and its weights as resources.

    All calls come during the compilation and on its thread, in any order of artifact and resources. `data` is a
    read-only `memoryview` that ends with the call: copy what you keep, and keep no slice of it. A callback that raises
    ends the compilation: a `WinMLError` reaches the caller as it is, any other exception as the cause of 0x80004005.
    """

    def write_artifact_bytes(self, data: memoryview) -> None:
        """Take the next bytes of the artifact."""

    def begin_resource(self, key: str, descriptor: ResourceDescriptor) -> None:
        """Begin a resource. The key is what the artifact calls it; each key is begun once."""

    def write_resource_bytes(self, key: str, data: memoryview) -> None:
        """Take the next bytes of a resource; those of different resources do not mix."""

    def end_resource(self, key: str) -> None:
        """End a resource that was begun, also when writing it has failed."""


def check_sink(sink: object) -> None:
    """Raise TypeError for what lacks a member of `CompileOutputSink`."""
    missing = [name for name in _MEMBERS if not callable(getattr(sink, name, None))]
    if missing:
        raise TypeError(f"a sink needs the methods {', '.join(_MEMBERS)}; {type(sink).__name__} lacks {missing[0]}")


class SinkOutput:
    """Implements `CompileOutput` by the calls of a sink."""

    path = None
    weights = None

    def __init__(self, sink: CompileOutputSink, context: str) -> None:
        self._sink = sink
        self._context = context
        self._keys: set[str] = set()

    def place(self, data: memoryview) -> tuple[str, int] | None:
        if data.nbytes < SMALLEST_EXTERNAL:
            return None
        key = f"w-{sha256(data).hexdigest()[:32]}.bin"
        if key not in self._keys:
            with self._told_failures():
                self._store(key, data)
            self._keys.add(key)
        return key, 0

    def write(self, data: memoryview) -> None:
        with self._told_failures(), _lent(data) as piece:
            self._sink.write_artifact_bytes(piece)

    def restart(self) -> NoReturn:
        text = "the model has constants that are strings, which no sink gets whole: use compile_to_file"
        raise WinMLError(NOT_SUPPORTED, "", text)

    def _store(self, key: str, data: memoryview) -> None:
        sink = self._sink
        sink.begin_resource(key, ResourceDescriptor(data.nbytes, ALIGNMENT, 0))
        try:
            for start in range(0, data.nbytes, _PIECE):
                with _lent(data[start : start + _PIECE]) as piece:
                    sink.write_resource_bytes(key, piece)
        except BaseException:
            with contextlib.suppress(Exception):  # the first failure is the one to tell
                sink.end_resource(key)
            raise
        sink.end_resource(key)

    @contextlib.contextmanager
    def _told_failures(self) -> Iterator[None]:
        """Turn what the sink raises into the failure of the compilation."""
        try:
            yield
        except WinMLError as error:
            error.is_final = True
            raise
        except Exception as error:
            text = f"the sink failed with {type(error).__name__}: {error}"
            failure = WinMLError(E_FAIL, self._context, text)
            failure.is_final = True
            raise failure from error


def _lent(data: memoryview) -> memoryview:
    """Copy a piece, so that an array or a slice that a sink keeps by mistake never shows memory of the engine."""
    return memoryview(bytes(data))
