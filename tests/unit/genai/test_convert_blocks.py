"""Stored tensors as 8-bit blocks: `w = scale * (value - zero_point)`, with worked-out values."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from genai.convert.blocks import Blocks, read_blocks, round_to_blocks
from genai.convert.source import ModelSource
from models.gguf_writer import Stored, write_gguf
from winml_lite import WinMLError

HALF_ONE, HALF_TWO, HALF_MINUS_TWO = b"\x00\x3c", b"\x00\x40", b"\x00\xc0"  # 1.0, 2.0 and -2.0 as float16
LEVELS = bytes(range(16))  # low half of byte i is i, high half 0: levels 0..15, then sixteen times 0
EVERY_LEVEL = LEVELS + bytes(16)


def blocks_of(folder: Path, code: int, block: bytes) -> Blocks:
    path = write_gguf(folder / "q.gguf", {}, {"w": Stored(code, (1, 32), block)})
    with ModelSource(path) as source:
        return read_blocks(source, "w", slice(None))


def floats_of(folder: Path) -> list[float]:
    with ModelSource(folder / "q.gguf") as source:
        return [float(value) for value in source.floats("w")[0]]


def restored(blocks: Blocks) -> list[float]:
    zero = int(blocks.zero_points[0, 0])
    return [float(blocks.scales[0, 0]) * (int(value) - zero) for value in blocks.values[0, 0]]


def test_q8_0_is_taken_as_it_is(tmp_path: Path) -> None:
    blocks = blocks_of(tmp_path, 8, HALF_TWO + bytes([1, 255, 128]) + bytes(29))
    assert blocks.values[0, 0, :4].tolist() == [129, 127, 0, 128]
    assert blocks.scales.tolist() == [[2.0]]
    assert blocks.zero_points.tolist() == [[128]]


def test_q4_0_levels_are_sixteen_apart(tmp_path: Path) -> None:
    blocks = blocks_of(tmp_path, 2, HALF_TWO + LEVELS)
    assert blocks.values[0, 0, :3].tolist() == [0, 16, 32]
    assert blocks.scales.tolist() == [[0.125]]  # 2 / 16
    assert blocks.zero_points.tolist() == [[128]]


def test_q4_1_levels_are_seventeen_apart_with_a_zero_point(tmp_path: Path) -> None:
    blocks = blocks_of(tmp_path, 3, HALF_ONE + HALF_MINUS_TWO + LEVELS)  # w = q - 2
    assert blocks.values[0, 0, :3].tolist() == [0, 17, 34]
    assert blocks.scales[0, 0] == pytest.approx(1 / 17)
    assert blocks.zero_points.tolist() == [[34]]  # 2 * 17


@pytest.mark.parametrize(
    ("code", "block"),
    [
        (2, HALF_TWO + LEVELS),
        (2, HALF_MINUS_TWO + LEVELS),
        (3, HALF_ONE + HALF_MINUS_TWO + LEVELS),
        (6, HALF_TWO + b"\x01\x00\x00\x80" + LEVELS),
        (7, HALF_ONE + HALF_MINUS_TWO + b"\x01\x00\x00\x80" + LEVELS),
        (8, HALF_TWO + EVERY_LEVEL),
    ],
)
def test_values_of_the_file_are_kept(tmp_path: Path, code: int, block: bytes) -> None:
    blocks = blocks_of(tmp_path, code, block)
    assert restored(blocks) == pytest.approx(floats_of(tmp_path), abs=1e-5)


def test_a_block_without_zero_in_its_range_is_rounded(tmp_path: Path) -> None:
    blocks = blocks_of(tmp_path, 3, HALF_ONE + HALF_ONE + LEVELS)  # w = q + 1, from 1 to 16
    assert blocks.zero_points.tolist() == [[128]]
    assert restored(blocks) == pytest.approx(floats_of(tmp_path), abs=16 / 254)


def test_a_constant_block_is_kept(tmp_path: Path) -> None:
    blocks = blocks_of(tmp_path, 3, b"\x00\x00" + HALF_MINUS_TWO + LEVELS)  # scale 0: every value is -2
    assert restored(blocks) == pytest.approx([-2.0] * 32)


def test_floats_are_rounded_by_their_largest_magnitude() -> None:
    floats = np.zeros((1, 1, 32), np.float32)
    floats[0, 0, :3] = [1.27, -0.02, 0.014]
    blocks = round_to_blocks(floats)
    assert blocks.scales[0, 0] == pytest.approx(0.01)
    assert blocks.values[0, 0, :4].tolist() == [255, 126, 129, 128]


@pytest.mark.parametrize("code", [0, 3, 8])
def test_values_that_are_not_finite_are_invalid_data(tmp_path: Path, code: int) -> None:
    data = {0: np.full(32, np.nan, np.float32).tobytes(), 3: b"\x00\x7c" + bytes(18), 8: b"\x00\x7c" + bytes(32)}[code]
    with pytest.raises(WinMLError, match="w has values that are not finite"):
        blocks_of(tmp_path, code, data)


def test_a_block_of_zeros_has_the_scale_zero() -> None:
    blocks = round_to_blocks(np.zeros((1, 1, 32), np.float32))
    assert blocks.scales.tolist() == [[0.0]]
    assert blocks.values.tolist() == [[[128] * 32]]
