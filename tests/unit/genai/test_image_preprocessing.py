"""From pixels to the input of a classifier."""

from __future__ import annotations

import numpy as np
import pytest

from genai.image_preprocessing import ImagePreprocessing, reduced, reduction
from winml_lite import (
    ImageResizeMode,
    Runtime,
    TensorChannelOrder,
    TensorDataType,
    TensorLayout,
    TensorNormalization,
)

STRETCH, CROP, LETTERBOX = ImageResizeMode.STRETCH, ImageResizeMode.CENTER_CROP, ImageResizeMode.LETTERBOX
PLAIN = TensorNormalization.identity()


def ramp(height: int, width: int) -> np.ndarray:
    """Pixels whose red is the column, green the row, blue 7."""
    rows, columns = np.mgrid[:height, :width]
    return np.stack([columns, rows, np.full_like(rows, 7)], axis=2).astype(np.uint8)


@pytest.mark.parametrize(
    ("mode", "factors"),
    [(STRETCH, (4, 2)), (CROP, (2, 2)), (LETTERBOX, (4, 4))],
)
def test_how_many_pixels_become_one(mode: ImageResizeMode, factors: tuple[int, int]) -> None:
    assert reduction(np.zeros((50, 90, 3), np.uint8), (20, 20), mode) == factors  # 90 / 20 = 4.5, 50 / 20 = 2.5


def test_a_picture_that_is_small_stays_as_it_is() -> None:
    pixels = ramp(39, 10)
    assert reduction(pixels, (20, 20), STRETCH) == (1, 1)
    assert reduced(pixels, 1, 1) is pixels


def test_a_thin_picture_keeps_a_row() -> None:
    assert reduction(np.zeros((1, 90, 3), np.uint8), (20, 20), LETTERBOX) == (4, 1)


def test_blocks_become_their_mean_and_a_remainder_is_left_out_on_both_sides() -> None:
    # 7 columns by 3: columns 0..5 are two blocks, one column is left over; 5 rows by 2: the last row is left over.
    found = reduced(ramp(5, 7), 3, 2)
    assert found.shape == (2, 2, 3)
    assert found[:, :, 0].tolist() == [[1, 4], [1, 4]]
    assert found[:, :, 1].tolist() == [[1, 1], [3, 3]]  # rows 0 and 1 have the mean 0.5, which is rounded up
    assert found[:, :, 2].tolist() == [[7, 7], [7, 7]]
    # 8 columns by 3: one is left out in front, one behind.
    assert reduced(ramp(1, 8), 3, 1)[0, :, 0].tolist() == [2, 5]


def test_white_stays_white_however_large_the_picture() -> None:
    assert reduced(np.full((300, 300, 3), 255, np.uint8), 300, 300).tolist() == [[[255, 255, 255]]]


def test_fine_detail_becomes_gray_instead_of_noise() -> None:
    board = np.zeros((64, 64, 3), np.uint8)
    board[::2, ::2] = board[1::2, 1::2] = 255
    with Runtime() as runtime:
        found = ImagePreprocessing((8, 8), PLAIN).array(runtime, board)
    assert set(found.ravel().tolist()) == {128.0}


def test_the_middle_is_cut_out_after_resizing() -> None:
    # 12 x 8 to 6 x 4 would halve; resized is 8 x 8 of the middle 8 columns (2..9), of which the middle 4 stay: 4..7.
    steps = ImagePreprocessing((4, 4), PLAIN, CROP, resized=(8, 8))
    with Runtime() as runtime:
        found = steps.array(runtime, ramp(8, 12))
    assert (found.shape, found.dtype) == ((1, 3, 4, 4), np.float32)
    assert found[0, 0].tolist() == [[4, 5, 6, 7]] * 4
    assert found[0, 1].T.tolist() == [[2, 3, 4, 5]] * 4


def test_every_layout_order_and_type() -> None:
    options = {"layout": TensorLayout.NHWC, "channel_order": TensorChannelOrder.BGR, "data_type": TensorDataType.UINT8}
    with Runtime() as runtime:
        found = ImagePreprocessing((4, 4), PLAIN, CROP, (8, 8), **options).array(runtime, ramp(8, 8))  # type: ignore[arg-type]
        gray = ImagePreprocessing((2, 2), PLAIN, channel_order=TensorChannelOrder.GRAY).array(runtime, ramp(2, 2))
    assert (found.shape, found.dtype) == ((1, 4, 4, 3), np.uint8)
    assert found[0, 0, 0].tolist() == [7, 2, 2]
    assert gray.shape == (1, 1, 2, 2)
    assert gray[0, 0].tolist() == [[1, 1], [1, 2]]  # 0.114 * 7 = 0.8; 0.299 + 0.587 + 0.8 = 1.68


def test_colours_are_normalized_by_channel() -> None:
    normalization = TensorNormalization((0.5, 0.25, 2.0, 1.0), (1.0, 1.0, 5.0, 0.0))
    with Runtime() as runtime:
        found = ImagePreprocessing((2, 2), normalization).array(runtime, ramp(2, 2))
    assert found[0].tolist() == [[[-0.5, 0], [-0.5, 0]], [[-0.25, -0.25], [0, 0]], [[4, 4], [4, 4]]]
