"""Reading a pipe: what is waited for outside of the file, and what cannot be."""

from __future__ import annotations

import gzip
import io
import os
import select
import threading
from collections.abc import Iterator
from types import SimpleNamespace
from typing import BinaryIO

import pytest

from fakes.piped import Pipe
from genai import pipe_reader
from genai.pipe_reader import PipeReader

needs_poll = pytest.mark.skipif(not hasattr(select, "poll"), reason="this system cannot tell what a pipe holds")


@pytest.fixture
def ends() -> Iterator[tuple[BinaryIO, BinaryIO]]:
    """What is read from and what is written to."""
    reader, writer = os.pipe()
    with open(reader, "rb") as file, open(writer, "wb", buffering=0) as pipe:
        yield file, pipe


@needs_poll
def test_it_tells_whether_something_has_come(ends: tuple[BinaryIO, BinaryIO]) -> None:
    file, pipe = ends
    reader = PipeReader(file)
    assert not reader.has_come(0)
    pipe.write(b"abc")
    assert reader.has_come(0)


@needs_poll
def test_the_end_is_something(ends: tuple[BinaryIO, BinaryIO]) -> None:
    file, pipe = ends
    pipe.close()
    reader = PipeReader(file)
    assert reader.has_come(0)
    assert reader.read(10) == b""


@needs_poll
def test_what_is_there_is_returned_without_waiting_for_more(ends: tuple[BinaryIO, BinaryIO]) -> None:
    file, pipe = ends
    pipe.write(b"abc")
    assert PipeReader(file).read(10) == b"abc"


@needs_poll
def test_nothing_is_kept_back_in_a_buffer(ends: tuple[BinaryIO, BinaryIO]) -> None:
    file, pipe = ends
    pipe.write(b"abc")
    reader = PipeReader(file)
    assert reader.read(1) == b"a"
    assert reader.has_come(0)


@needs_poll
def test_a_file_without_a_buffer(ends: tuple[BinaryIO, BinaryIO]) -> None:
    file, pipe = ends
    pipe.write(b"abc")
    with open(os.dup(file.fileno()), "rb", buffering=0) as raw:
        assert PipeReader(raw).read(10) == b"abc"


def test_what_unpacks_a_pipe_is_asked_itself(ends: tuple[BinaryIO, BinaryIO]) -> None:
    file, pipe = ends
    pipe.write(gzip.compress(b"abc"))
    pipe.close()
    with gzip.GzipFile(fileobj=file) as unpacked:
        reader = PipeReader(unpacked)
        assert reader.has_come(0)
        assert reader.read(2) + reader.read(2) == b"abc"
        assert reader.has_come(0)


def test_an_object_that_reads() -> None:
    reader = PipeReader(Pipe(b"abc", at_once=2))
    assert reader.has_come(0)
    assert [reader.read(10), reader.read(10), reader.read(10)] == [b"ab", b"c", b""]


def test_a_closed_file_tells_it_when_it_is_read(ends: tuple[BinaryIO, BinaryIO]) -> None:
    file, _ = ends
    file.close()
    with pytest.raises(ValueError, match="closed file"):
        PipeReader(file).read(1)


def test_text() -> None:
    with pytest.raises(TypeError, match="binary mode; read gave str"):
        PipeReader(io.StringIO("abc")).read(1)


class HeldFile:
    """A file whose reading is known to be under way, and ends when it may."""

    def __init__(self) -> None:
        self.is_inside, self.may_end = threading.Event(), threading.Event()
        self.read_count = 0

    def read1(self, count: int) -> bytes:
        self.read_count += 1
        self.is_inside.set()
        assert self.may_end.wait(100)
        return b"abc"

    read = read1


def test_an_exit_waits_for_who_is_inside_and_lets_nobody_in(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever holds the lock of a buffer when the interpreter is finalized ends it with SIGABRT."""
    monkeypatch.setattr(pipe_reader, "_waiting_for", lambda file: SimpleNamespace(poll=lambda: [(0, 1)]))
    monkeypatch.setattr(pipe_reader, "_LONGEST_READ", 100.0)
    file = HeldFile()
    reader = PipeReader(file)
    inside = threading.Thread(target=reader.read, args=(3,))
    inside.start()
    assert file.is_inside.wait(100)
    barring = threading.Thread(target=reader.bar)
    barring.start()
    barring.join(0.1)
    assert barring.is_alive()
    file.may_end.set()
    inside.join(100)
    barring.join(100)
    assert not barring.is_alive()
    late = threading.Thread(target=reader.read, args=(3,))
    late.start()
    late.join(0.1)
    assert late.is_alive()
    assert file.read_count == 1
    reader._inside.release()
    late.join(100)
