"""The header of a GGUF file: key-value pairs and the tensor table, parsed from the bytes at the start of a file.

Every count and length is checked against the bytes that are left before it is acted on, so a hostile file costs neither
memory nor time. Not here: opening files and shards (`gguf.py`).
"""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import pairwise
from operator import sub
from typing import Any

from .gguf_metadata import BOOL, NUMBERS, STRING, Metadata, Span
from .quantization import STORAGE_TYPES

_MAGIC = b"GGUF"
_ARRAY = 9
_MAX_STRINGS = 1 << 24  # sixty times the largest vocabulary: a bound on the walk over one array
_MAX_DIMENSIONS = 4

_TOKENS = "tokenizer.ggml.tokens"  # an engine may end the process over the same token twice

# Engines read these without looking at the type first; a wrong one would end the process.
_EXPECTED: dict[str, tuple[bool, frozenset[int]]] = {
    "general.architecture": (False, frozenset({STRING})),
    "general.alignment": (False, frozenset({4})),
    "general.type": (False, frozenset({STRING})),
    "adapter.type": (False, frozenset({STRING})),
    "adapter.lora.alpha": (False, frozenset({6})),
    "split.no": (False, frozenset({2})),
    "split.count": (False, frozenset({2})),
    "tokenizer.ggml.model": (False, frozenset({STRING})),
    _TOKENS: (True, frozenset({STRING})),
    "tokenizer.ggml.scores": (True, frozenset({5, 6})),
    "tokenizer.ggml.token_type": (True, frozenset({4, 5})),
    "tokenizer.ggml.merges": (True, frozenset({STRING})),
    "tokenizer.ggml.precompiled_charsmap": (True, frozenset({0, 1})),
    "tokenizer.chat_template": (False, frozenset({STRING})),
}
_PER_TOKEN = ("tokenizer.ggml.scores", "tokenizer.ggml.token_type")


@dataclass(frozen=True, slots=True)
class GgufTensor:
    """One row of the tensor table."""

    name: str
    shape: tuple[int, ...]
    """Extents in row-major (NumPy) order: `(rows, row length)` for a matrix."""
    type_name: str
    """Storage type, as ggml spells it: `"F32"`, `"Q4_1"`, ..."""
    type_code: int
    offset: int
    """Where the data starts, in bytes from the start of the file."""
    byte_size: int


class CorruptHeader(Exception):
    """What is wrong with the content; the caller adds the path."""


class MoreNeeded(Exception):
    """The header goes on behind the bytes that were read."""


@dataclass(frozen=True, slots=True)
class GgufHeader:
    """Everything in front of the tensor data."""

    version: int
    metadata: Metadata
    tensors: dict[str, GgufTensor]
    """The tensor table, in file order; offsets count from the start of the file."""


class _Cursor:
    """A position in the file, whose start is in memory; every read is checked against the end of the file first."""

    __slots__ = ("_data", "end", "position")

    def __init__(self, data: bytes, file_size: int) -> None:
        self._data = data
        self.position = 0
        self.end = file_size

    @property
    def remaining(self) -> int:
        return self.end - self.position

    def take(self, byte_count: int, what: str) -> int:
        """Step over `byte_count` bytes and return where they start."""
        if byte_count > self.remaining:
            raise CorruptHeader(
                f"{what} needs {byte_count} bytes, {self.remaining} are left; the file is truncated or damaged"
            )
        start = self.position
        self.position += byte_count
        if self.position > len(self._data):
            raise MoreNeeded
        return start

    def number(self, code: str, what: str) -> Any:
        start = self.take(struct.calcsize(code), what)
        return struct.unpack_from(code, self._data, start)[0]

    def text(self, what: str) -> str:
        """Read a short string that must be UTF-8: a key or a tensor name."""
        length = self._short(self.number("<Q", what), what)
        start = self.take(length, what)
        try:
            return self._data[start : start + length].decode("utf-8")
        except UnicodeDecodeError:
            raise CorruptHeader(f"{what} is not UTF-8") from None

    @staticmethod
    def _short(length: int, what: str) -> int:
        """Return the length of a name or a token, which is never long."""
        if length > 65535:
            raise CorruptHeader(f"{what} has a string of {length} bytes")
        return length

    def skip_strings(self, count: int, what: str) -> list[int]:
        """Step over `count` strings; return where each ends.

        The lengths are a chain, so this is the one loop over a vocabulary at load.
        """
        if count > _MAX_STRINGS:
            raise CorruptHeader(f"{what} claims {count} strings, more than any vocabulary has")
        length_at = struct.Struct("<Q").unpack_from
        data, position, last = self._data, self.position, len(self._data) - 8
        ends: list[int] = []
        for index in range(count):
            if position > last:
                if position <= self.end - 8:
                    raise MoreNeeded
                raise CorruptHeader(f"{what} ends in string {index} of {count}; the file is truncated or damaged")
            position += 8 + length_at(data, position)[0]
            ends.append(position)
        self.take(position - self.position, what)
        return ends

    def skip_distinct_strings(self, count: int, what: str) -> None:
        """Step over `count` tokens; refuse one that appears twice.

        An engine reads a token up to its first NUL, and gives an empty one a name; those must differ.
        """
        bounds = [self.position, *self.skip_strings(count, what)]
        self._short(max(map(sub, bounds[1:], bounds), default=8) - 8, what)
        texts = [self._data[start + 8 : stop] for start, stop in pairwise(bounds)]
        if not all(texts) or b"\0" in b"".join(texts):
            texts = [text.split(b"\0", 1)[0] or b"[EMPTY_%d]" % index for index, text in enumerate(texts)]
        if len(set(texts)) < count:
            twice = next(text for text, found in Counter(texts).items() if found > 1)
            raise CorruptHeader(f"{what} has the entry {twice!r} twice")


def read_header(data: bytes, file_size: int) -> GgufHeader:
    """Parse and check the header of a file that begins with `data`; `CorruptHeader` says what is wrong.

    `MoreNeeded` asks to call again with more of the file.
    """
    cursor = _Cursor(data, file_size)
    version, tensor_count, key_count = _read_preamble(data, cursor)
    values: dict[str, object] = {}
    for index in range(key_count):
        key, value = _read_pair(cursor, index)
        if key in values:
            raise CorruptHeader(f"key {key!r} appears twice")
        values[key] = value
    _check_vocabulary_size(values)
    alignment = values.get("general.alignment", 32)
    if not isinstance(alignment, int) or alignment <= 0 or alignment & (alignment - 1):
        raise CorruptHeader(f"general.alignment is {alignment}, not a power of two")
    tensors = _read_tensors(cursor, tensor_count, alignment)
    return GgufHeader(version, Metadata(data[: cursor.position], values), tensors)


def _read_preamble(data: bytes, cursor: _Cursor) -> tuple[int, int, int]:
    """Return version, number of tensors and number of keys, all plausible for the size of the file."""
    if data[:4] != _MAGIC:
        raise CorruptHeader(f"not a GGUF file, {_guess(data[:256])}")
    cursor.take(4, "the magic")
    version = cursor.number("<I", "the version")
    if version & 0xFFFF == 0 and version:
        raise CorruptHeader("a big-endian GGUF file; convert it to little-endian")
    if version not in (2, 3):
        raise CorruptHeader(f"GGUF version {version}; versions 2 and 3 can be read")
    tensor_count = cursor.number("<Q", "the number of tensors")
    key_count = cursor.number("<Q", "the number of keys")
    # The shortest pair has 14 bytes, the shortest row of the tensor table 33.
    if key_count * 14 + tensor_count * 33 > cursor.remaining:
        raise CorruptHeader(
            f"the header claims {key_count} keys and {tensor_count} tensors in {cursor.remaining} bytes"
        )
    return version, tensor_count, key_count


def _guess(start: bytes) -> str:
    """Say what a file with the wrong first bytes looks like."""
    if start.startswith(b"version https://git-lfs"):
        return "but a Git LFS pointer: the model itself was not downloaded"
    if start.lstrip()[:1] == b"<":
        return "but a web page: the download gave an error page"
    if start[4:8] == b"ORTM":
        return "but an ONNX Runtime model (.ort)"
    if start[:4] in (b"FUGG", b"ggml", b"ggjt", b"ggla", b"ggmf", b"lmgg", b"tjgg"):
        return "but an old or big-endian ggml file"
    if start[:1] == b"\x08" and b"\x12" in start[:4]:
        return "but most likely an ONNX model (.onnx)"
    return f"it starts with {start[:8]!r}"


def _read_pair(cursor: _Cursor, index: int) -> tuple[str, object]:
    """Read one key and its value: a number, or the span of a string or an array."""
    key = cursor.text(f"key {index}")
    if not key:
        raise CorruptHeader(f"key {index} is empty")
    what = f"the value of {key!r}"
    code = cursor.number("<I", what)
    is_array = code == _ARRAY
    count = 1
    if is_array:
        code, count = cursor.number("<I", what), cursor.number("<Q", what)
    if code not in NUMBERS and code != STRING:
        raise CorruptHeader(f"{what} has the type {code}, which is unknown" + (" inside an array" if is_array else ""))
    expected = _EXPECTED.get(key)
    if expected is not None and (is_array != expected[0] or code not in expected[1]):
        raise CorruptHeader(f"{what} has the wrong type ({'array of ' if is_array else ''}{code})")
    if not is_array and code != STRING:
        number = cursor.number(NUMBERS[code], what)
        return key, bool(number) if code == BOOL else number
    start = cursor.position
    if not is_array:
        start = cursor.take(cursor.number("<Q", what), what)
    elif code == STRING and key == _TOKENS:
        cursor.skip_distinct_strings(count, what)
    elif code == STRING:
        cursor.skip_strings(count, what)
    else:
        cursor.take(count * struct.calcsize(NUMBERS[code]), what)
    return key, Span(code, is_array, count, start, cursor.position)


def _check_vocabulary_size(values: Mapping[str, object]) -> None:
    """Refuse per-token arrays shorter than the vocabulary: engines read them by token id."""
    tokens = values.get(_TOKENS)
    for key in _PER_TOKEN:
        value = values.get(key)
        if isinstance(value, Span) and isinstance(tokens, Span) and value.count < tokens.count:
            raise CorruptHeader(f"{key!r} has {value.count} entries for {tokens.count} tokens")


def _read_tensors(cursor: _Cursor, count: int, alignment: int) -> dict[str, GgufTensor]:
    """Read the tensor table and check that all data lies inside the file."""
    table: list[GgufTensor] = []
    for index in range(count):
        table.append(_read_tensor(cursor, index))
    base = -(-cursor.position // alignment) * alignment
    tensors: dict[str, GgufTensor] = {}
    for row in table:
        offset = base + row.offset
        if row.offset % alignment:
            raise CorruptHeader(f"tensor {row.name!r} starts at {row.offset}, not a multiple of {alignment}")
        if offset + row.byte_size > cursor.end:
            need = offset + row.byte_size
            raise CorruptHeader(
                f"tensor {row.name!r} ends at byte {need}, the file has {cursor.end}: it is truncated or damaged"
            )
        if row.name in tensors:
            raise CorruptHeader(f"tensor {row.name!r} appears twice")
        tensors[row.name] = replace(row, offset=offset)
    return tensors


def _read_tensor(cursor: _Cursor, index: int) -> GgufTensor:
    """Read one row of the tensor table; its offset is still relative to the data section."""
    name = cursor.text(f"the name of tensor {index}")
    what = f"tensor {name!r}"
    rank = cursor.number("<I", what)
    if not 1 <= rank <= _MAX_DIMENSIONS:
        raise CorruptHeader(f"{what} has {rank} dimensions, not 1 to {_MAX_DIMENSIONS}")
    shape = tuple(cursor.number("<Q", what) for _ in range(rank))[::-1]
    code, offset = cursor.number("<I", what), cursor.number("<Q", what)
    storage = STORAGE_TYPES.get(code)
    if storage is None:
        raise CorruptHeader(f"{what} has the unknown type {code}")
    if min(shape) == 0 or shape[-1] % storage.block_values:
        raise CorruptHeader(f"{what} of type {storage.name} cannot have the shape {shape}")
    values = 1
    for extent in shape:
        values *= extent
    return GgufTensor(name, shape, storage.name, code, offset, values // storage.block_values * storage.block_bytes)
