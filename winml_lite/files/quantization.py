"""Storage formats of GGUF tensors: the block sizes of every type, and the way back to float32 for the common ones.

The simple formats are decoded with NumPy here; the K and IQ formats are left to the `gguf` package (extra `kquants`),
which carries their tables. Block layouts are those of ggml (`ggml-common.h`). Not here: the file itself (`gguf.py`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from ..errors import NOT_SUPPORTED, WinMLError

Bytes = npt.NDArray[np.uint8]
Floats = npt.NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class StorageType:
    """How a tensor type packs its values: `block_bytes` bytes for every `block_values` values of a row."""

    name: str
    block_values: int
    block_bytes: int


STORAGE_TYPES: dict[int, StorageType] = {
    0: StorageType("F32", 1, 4),
    1: StorageType("F16", 1, 2),
    2: StorageType("Q4_0", 32, 18),
    3: StorageType("Q4_1", 32, 20),
    6: StorageType("Q5_0", 32, 22),
    7: StorageType("Q5_1", 32, 24),
    8: StorageType("Q8_0", 32, 34),
    9: StorageType("Q8_1", 32, 36),
    10: StorageType("Q2_K", 256, 84),
    11: StorageType("Q3_K", 256, 110),
    12: StorageType("Q4_K", 256, 144),
    13: StorageType("Q5_K", 256, 176),
    14: StorageType("Q6_K", 256, 210),
    15: StorageType("Q8_K", 256, 292),
    16: StorageType("IQ2_XXS", 256, 66),
    17: StorageType("IQ2_XS", 256, 74),
    18: StorageType("IQ3_XXS", 256, 98),
    19: StorageType("IQ1_S", 256, 50),
    20: StorageType("IQ4_NL", 32, 18),
    21: StorageType("IQ3_S", 256, 110),
    22: StorageType("IQ2_S", 256, 82),
    23: StorageType("IQ4_XS", 256, 136),
    24: StorageType("I8", 1, 1),
    25: StorageType("I16", 1, 2),
    26: StorageType("I32", 1, 4),
    27: StorageType("I64", 1, 8),
    28: StorageType("F64", 1, 8),
    29: StorageType("IQ1_M", 256, 56),
    30: StorageType("BF16", 1, 2),
    34: StorageType("TQ1_0", 256, 54),
    35: StorageType("TQ2_0", 256, 66),
    39: StorageType("MXFP4", 32, 17),
    40: StorageType("NVFP4", 64, 36),
    41: StorageType("Q1_0", 128, 18),
}
"""Tensor type code -> storage type: every type that llama.cpp reads (retired codes are left out)."""

PLAIN_TYPES: dict[str, str] = {
    "F32": "<f4",
    "F16": "<f2",
    "F64": "<f8",
    "I8": "<i1",
    "I16": "<i2",
    "I32": "<i4",
    "I64": "<i8",
}
"""Types without blocks, as NumPy reads them."""


def dequantize(raw: Bytes, type_code: int, name: str = "tensor") -> Floats:
    """Return the float32 values of `raw`, uint8 [rows, row bytes], as [rows, values].

    Always a new array. `name` is for the error, NOT_SUPPORTED, of a type without a decoder.
    """
    storage = STORAGE_TYPES[type_code]
    rows = raw.shape[0]
    if storage.name in PLAIN_TYPES:
        return raw.view(PLAIN_TYPES[storage.name]).astype(np.float32)
    if storage.name == "BF16":
        return (raw.view("<u2").astype(np.uint32) << 16).view(np.float32)
    decode = _DECODERS.get(storage.name)
    if decode is not None:
        return decode(raw.reshape(-1, storage.block_bytes)).reshape(rows, -1)
    return _by_gguf_package(raw, type_code, name)


def half(blocks: Bytes, start: int) -> Floats:
    """Return the float16 at byte `start` of every block as a float32 column [blocks, 1]."""
    return np.ascontiguousarray(blocks[:, start : start + 2]).view("<f2").astype(np.float32)


def low_high(packed: Bytes) -> Bytes:
    """Unpack two 4-bit values per byte: all low halves of a block come before its high halves."""
    return np.concatenate([packed & np.uint8(15), packed >> np.uint8(4)], axis=-1)


def fifth_bits(blocks: Bytes, start: int) -> Bytes:
    """Return bit 4 of the 32 values of every block, from the 32-bit word at byte `start`, shifted into place."""
    return np.unpackbits(blocks[:, start : start + 4], axis=-1, bitorder="little") << np.uint8(4)


def _q4_0(blocks: Bytes) -> Floats:
    return half(blocks, 0) * (low_high(blocks[:, 2:]).astype(np.float32) - 8)


def _q4_1(blocks: Bytes) -> Floats:
    return half(blocks, 0) * low_high(blocks[:, 4:]) + half(blocks, 2)


def _q5_0(blocks: Bytes) -> Floats:
    values = low_high(blocks[:, 6:]) | fifth_bits(blocks, 2)
    return half(blocks, 0) * (values.astype(np.float32) - 16)


def _q5_1(blocks: Bytes) -> Floats:
    values = low_high(blocks[:, 8:]) | fifth_bits(blocks, 4)
    return half(blocks, 0) * values + half(blocks, 2)


def _q8_0(blocks: Bytes) -> Floats:
    return half(blocks, 0) * blocks[:, 2:].view(np.int8)


_DECODERS: dict[str, Callable[[Bytes], Floats]] = {
    "Q4_0": _q4_0,
    "Q4_1": _q4_1,
    "Q5_0": _q5_0,
    "Q5_1": _q5_1,
    "Q8_0": _q8_0,
}


def _by_gguf_package(raw: Bytes, type_code: int, name: str) -> Floats:
    """Decode with the `gguf` package; an absent package or an unknown type is one clear error."""
    type_name = STORAGE_TYPES[type_code].name
    try:
        from gguf import GGMLQuantizationType, quants
    except ImportError:
        mend = f"{name} is {type_name}, which the 'gguf' package decodes: pip install 'winml-lite[kquants]'"
        raise WinMLError(NOT_SUPPORTED, "GgufFile.dequantize", mend) from None
    try:
        values: Any = quants.dequantize(np.ascontiguousarray(raw), GGMLQuantizationType(type_code))
    except (NotImplementedError, ValueError, KeyError) as error:
        raise WinMLError(NOT_SUPPORTED, "GgufFile.dequantize", f"{name} is {type_name}: {error}") from error
    return np.asarray(values, dtype=np.float32).reshape(raw.shape[0], -1)
