"""Damage files in ways that are the same on every machine, and bound what a reader of them may use.

`mutants` is for any format; the tests beside it run one subprocess per format, so that a crash is a return code.
"""

from __future__ import annotations

import faulthandler
import random
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

Mutation = Callable[[random.Random, bytearray], None]

HOSTILE = (
    b"\xff" * 10 + b"\x01",
    b"\xff" * 8,
    b"\x00" * 8,
    b"\x80" * 9 + b"\x01",
    b"\xff\xff\xff\x7f",
    b"\x7f",
    b"\x80",
)
"""Numbers that overflow, are negative, or never end, in the encodings of our formats."""


def _truncate(chance: random.Random, data: bytearray) -> None:
    del data[chance.randrange(len(data)) :]


def _flip_bits(chance: random.Random, data: bytearray) -> None:
    for _ in range(chance.choice((1, 1, 2, 8, 64))):
        data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)


def _overwrite(chance: random.Random, data: bytearray) -> None:
    start, value = chance.randrange(len(data)), chance.choice(HOSTILE)
    data[start : start + len(value)] = value


def _randomize(chance: random.Random, data: bytearray) -> None:
    start = chance.randrange(len(data))
    size = min(chance.choice((1, 2, 4, 16)), len(data) - start)
    data[start : start + size] = chance.randbytes(size)


def _insert(chance: random.Random, data: bytearray) -> None:
    start = chance.randrange(len(data))
    data[start:start] = chance.randbytes(chance.choice((1, 3, 8)))


def _cut_out(chance: random.Random, data: bytearray) -> None:
    start = chance.randrange(len(data))
    del data[start : start + chance.choice((1, 3, 8, 64))]


def _repeat(chance: random.Random, data: bytearray) -> None:
    start = chance.randrange(len(data))
    piece = bytes(data[start : start + chance.choice((4, 32, 256))])
    where = chance.randrange(len(data))
    data[where:where] = piece


MUTATIONS: tuple[Mutation, ...] = (
    _truncate,
    _flip_bits,
    _flip_bits,
    _overwrite,
    _overwrite,
    _randomize,
    _insert,
    _cut_out,
    _repeat,
)


def mutants(original: bytes, count: int, seed: int) -> Iterator[bytes]:
    """Yield `count` damaged versions of a file; the same seed gives the same ones."""
    chance = random.Random(seed)
    for _ in range(count):
        data = bytearray(original)
        for _ in range(chance.choice((1, 1, 1, 2, 3))):
            if data:
                chance.choice(MUTATIONS)(chance, data)
        yield bytes(data)


def limit_memory(gibibytes: int) -> None:
    """Make giant allocations fail in this process, where the system can do that.

    What is mapped already does not count: NumPy alone maps memory for each processor.
    """
    if sys.platform != "win32":
        import resource

        sizes = Path("/proc/self/statm")
        mapped = int(sizes.read_text().split()[0]) * resource.getpagesize() if sizes.exists() else 0
        limit = mapped + (gibibytes << 30)
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))


@contextmanager
def deadline(seconds: float) -> Iterator[None]:
    """End the process with a traceback and return code 1 when the block takes longer."""
    faulthandler.dump_traceback_later(seconds, exit=True)
    try:
        yield
    finally:
        faulthandler.cancel_dump_traceback_later()
