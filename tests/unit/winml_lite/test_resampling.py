"""Where the pixels of an axis come from, and in which blocks a picture is made."""

from __future__ import annotations

import threading

import numpy as np
import pytest

from winml_lite.media.pixels import PackedPixels
from winml_lite.media.resampling import Window, axis_of, evenly, resampled_blocks


def whole(source: int, length: int) -> Window:
    """A whole axis."""
    return Window(source, 0.0, source, length)


def test_the_same_length_is_a_copy() -> None:
    axis = axis_of(whole(5, 5))
    assert axis.low.tolist() == [0, 1, 2, 3, 4]
    assert axis.fraction is None


def test_doubling_blends_by_quarters() -> None:
    axis = axis_of(whole(2, 4))
    # centres at -0.25 (clamped to 0), 0.25, 0.75, 1.25 (clamped to 1)
    assert axis.low.tolist() == [0, 0, 0, 1]
    assert axis.high.tolist() == [1, 1, 1, 1]
    assert axis.fraction is not None
    assert axis.fraction.tolist() == [0, 0.25, 0.75, 0]


def test_a_third_takes_every_third_pixel() -> None:
    axis = axis_of(whole(9, 3))
    assert axis.low.tolist() == [1, 4, 7]
    assert axis.fraction is None


def test_errors_of_rounding_are_no_fractions() -> None:
    # 1 / 3 * 3 and the like: the window is 3 pixels wide, but for the last digits
    axis = axis_of(Window(9, 3.0 + 1e-13, 3.0 - 1e-13, 3))
    assert axis.low.tolist() == [3, 4, 5]
    assert axis.fraction is None


def test_positions_are_kept_for_the_next_picture() -> None:
    assert axis_of(whole(7, 3)) is axis_of(whole(7, 3))
    assert not axis_of(whole(7, 3)).low.flags.writeable


def test_long_axes_are_not_kept() -> None:
    assert axis_of(whole(2, 20_000)) is not axis_of(whole(2, 20_000))


@pytest.mark.parametrize(
    ("positions", "index"),
    [
        ([4], slice(4, 5)),
        ([2, 3, 4], slice(2, 5, 1)),
        ([1, 4, 7], slice(1, 8, 3)),
    ],
)
def test_evenly_spaced_positions_are_a_slice(positions: list[int], index: slice) -> None:
    assert evenly(np.array(positions)) == index


@pytest.mark.parametrize("positions", [[0, 0], [0, 1, 3], [2, 2, 3]])
def test_other_positions_stay(positions: list[int]) -> None:
    found = evenly(np.array(positions))
    assert isinstance(found, np.ndarray)
    assert found.tolist() == positions


def test_blocks_cover_the_rows_once_and_in_order() -> None:
    source = PackedPixels(np.zeros((900, 700, 3), np.uint8), "RGB")
    rows = [place for place, _ in resampled_blocks(source, whole(700, 500), whole(900, 333))]
    assert [place.start for place in rows] == [0, *(place.stop for place in rows[:-1])]
    assert rows[-1].stop == 333
    assert len(rows) > 1


def test_a_row_longer_than_a_block_is_a_block() -> None:
    source = PackedPixels(np.full((2, 3, 1), 9, np.uint8), "L")
    blocks = list(resampled_blocks(source, whole(3, 50_000), whole(2, 2)))
    assert [values.shape for _, values in blocks] == [(1, 50_000, 1), (1, 50_000, 1)]


def test_pictures_in_threads_do_not_disturb_each_other() -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (80, 90, 3), np.uint8)

    def values() -> list[float]:
        source = PackedPixels(pixels, "RGB")
        blocks = resampled_blocks(source, whole(90, 57), whole(80, 61))
        return np.concatenate([part for _, part in blocks]).ravel().tolist()

    expected = values()
    found: list[list[float]] = []
    threads = [threading.Thread(target=lambda: found.append(values())) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [expected] * 4
