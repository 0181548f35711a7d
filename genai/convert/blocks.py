"""Stored tensors re-coded as blocks of 32 unsigned 8-bit values: `w = scale * (value - zero_point)`.

The 4- and 5-bit formats become 8-bit ones by spreading their levels, so the new values are those of the file (with a
minimum per block, up to the rounding of the zero point); Q8_0 is taken as it is; everything else is rounded to 8 bits
by its largest magnitude. Block layouts are those of ggml. Not here: the operators that use the blocks (`weights.py`).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from .source import Floats, ModelSource, Rows, invalid

BLOCK = 32
MIDDLE = 128
"""The zero point of a symmetric block; operators assume it when none is given."""

Bytes = npt.NDArray[np.uint8]


@dataclass(frozen=True, slots=True)
class Blocks:
    """`values` uint8 [rows, blocks, 32], `scales` float32 [rows, blocks], `zero_points` uint8 [rows, blocks]."""

    values: Bytes
    scales: Floats
    zero_points: Bytes


def _symmetric(values: Bytes, scales: Floats) -> Blocks:
    return Blocks(values, scales, np.full(scales.shape, MIDDLE, np.uint8))


def read_blocks(source: ModelSource, name: str, rows: slice | Rows) -> Blocks:
    """Return some rows of a matrix as 8-bit blocks; the row length must be a multiple of 32."""
    with np.errstate(invalid="ignore", over="ignore"):
        blocks = _read_blocks(source, name, rows)
    if not np.isfinite(blocks.scales).all():
        raise invalid(source.path, f"{name} has values that are not finite")
    return blocks


def _read_blocks(source: ModelSource, name: str, rows: slice | Rows) -> Blocks:
    kind = source.type_name(name)
    if kind == "Q8_0":
        stored = _split(source, name, rows, 34)
        return _symmetric(stored[..., 2:] ^ np.uint8(0x80), _half(stored, 0))
    if kind == "Q4_0":  # 16 levels about 8: times 16
        stored = _split(source, name, rows, 18)
        return _symmetric(_four_bits(stored[..., 2:]) << np.uint8(4), _half(stored, 0) / np.float32(16))
    if kind == "Q5_0":  # 32 levels about 16: times 8
        stored = _split(source, name, rows, 22)
        levels = _four_bits(stored[..., 6:]) | _fifth_bit(stored, 2)
        return _symmetric(levels << np.uint8(3), _half(stored, 0) / np.float32(8))
    if kind == "Q4_1":  # 16 levels from a minimum: times 17 fills 0..255
        stored = _split(source, name, rows, 20)
        return _spread(_four_bits(stored[..., 4:]), 17, _half(stored, 0), _half(stored, 2))
    if kind == "Q5_1":
        stored = _split(source, name, rows, 24)
        levels = _four_bits(stored[..., 8:]) | _fifth_bit(stored, 4)
        return _spread(levels, 8, _half(stored, 0), _half(stored, 2))
    floats = source.floats(name, rows)
    return round_to_blocks(floats.reshape(floats.shape[0], -1, BLOCK))


def round_to_blocks(floats: Floats) -> Blocks:
    """Round float32 [rows, blocks, 32] to 8 bits, symmetric about zero."""
    scales = np.abs(floats).max(axis=-1) / np.float32(127)
    divisors = np.where(scales == 0, np.float32(1), scales)
    return _symmetric((np.rint(floats / divisors[..., None]) + MIDDLE).astype(np.uint8), scales)


def _spread(levels: Bytes, factor: int, delta: Floats, minimum: Floats) -> Blocks:
    """Recode `delta * level + minimum` with a zero point; blocks whose zero is outside their range are rounded
    instead."""
    scales = delta / np.float32(factor)
    with np.errstate(divide="ignore", invalid="ignore"):
        zeros = np.rint(-minimum / scales)
    fits = (zeros >= 0) & (zeros <= 255)  # false for NaN too
    values = levels * np.uint8(factor)
    if not fits.all():
        odd = ~fits
        rounded = round_to_blocks(levels[odd].astype(np.float32) * delta[odd][:, None] + minimum[odd][:, None])
        values[odd], scales[odd], zeros[odd] = rounded.values, rounded.scales, MIDDLE
    return Blocks(values, scales, zeros.astype(np.uint8))


def _split(source: ModelSource, name: str, rows: slice | Rows, block_bytes: int) -> Bytes:
    raw = source.raw(name)[rows]
    return raw.reshape(raw.shape[0], -1, block_bytes)


def _half(stored: Bytes, start: int) -> Floats:
    return np.ascontiguousarray(stored[..., start : start + 2]).view("<f2")[..., 0].astype(np.float32)


def _four_bits(packed: Bytes) -> Bytes:
    return np.concatenate([packed & np.uint8(15), packed >> np.uint8(4)], axis=-1)


def _fifth_bit(stored: Bytes, start: int) -> Bytes:
    return np.unpackbits(stored[..., start : start + 4], axis=-1, bitorder="little") << np.uint8(4)
