"""The drawing of a picture and its labels: where everything is, and what the pixels are."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fakes.rig import failing
from genai import ImageLabel, codes, draw_labels
from genai.label_drawing import DARK, LIGHT, chart_layout
from winml_lite import NotSupportedError

pytest.importorskip("PIL", reason="Pillow is not installed")

LABELS = [ImageLabel(1, "tiger cat", 0.5), ImageLabel(2, "Egyptian cat", 0.25), ImageLabel(3, "lynx", 0.0)]
SHARES = [label.probability for label in LABELS]


def colour(text: str) -> tuple[int, ...]:
    """Red, green, blue of "#rrggbb"."""
    return tuple(bytes.fromhex(text[1:]))


def picture(height: int, width: int) -> np.ndarray:
    """A green picture."""
    return np.broadcast_to(np.array([10, 200, 30], np.uint8), (height, width, 3))


# Where everything is


def test_the_bars_are_beside_the_picture() -> None:
    layout = chart_layout((300, 300), SHARES)
    assert layout.picture == (28, 28, 476, 476)
    # 3 rows of 28 for the label and 12 for the bar, 18 between them: 156, in the middle of 448
    assert layout.rows[0].text == (504, 174, 884, 202)
    assert layout.rows[0].track == (504, 202, 884, 214)
    assert layout.rows[2].track == (504, 318, 884, 330)
    assert layout.size == (912, 504)


def test_a_bar_is_filled_as_far_as_its_label_is_probable() -> None:
    rows = chart_layout((300, 300), [1.0, 0.5, 0.25, 0.001, 0.0]).rows
    assert [row.filled[2] - row.filled[0] for row in rows] == [380, 190, 95, 0, 0]


def test_the_bars_are_below_a_wide_picture() -> None:
    layout = chart_layout((1200, 200), SHARES)
    assert layout.picture == (28, 28, 924, 177)
    assert layout.rows[0].text == (28, 205, 924, 233)
    assert layout.size == (952, 389)


def test_a_tall_picture_keeps_its_proportions() -> None:
    assert chart_layout((100, 500), SHARES).picture == (28, 28, 118, 476)


def test_a_tiny_picture_is_enlarged_by_a_whole_number() -> None:
    left, top, right, bottom = chart_layout((30, 20), SHARES).picture
    assert (right - left, bottom - top) == (420, 280)


@pytest.mark.parametrize("size", [(1, 1), (1, 3000), (3000, 1), (5000, 4000), (150, 79)])
@pytest.mark.parametrize("count", [0, 1, 20])
def test_everything_is_inside_and_nothing_lies_on_the_picture(size: tuple[int, int], count: int) -> None:
    layout = chart_layout(size, [0.5] * count)
    width, height = layout.size
    boxes = [layout.picture, *(box for row in layout.rows for box in (row.text, row.track))]
    assert all(0 < left < right < width and 0 < top < bottom < height for left, top, right, bottom in boxes)
    _, _, edge, end = layout.picture
    assert all(left > edge or top > end for left, top, _, _ in boxes[1:])


# The pixels


def drawn(*arguments: Any, **options: Any) -> np.ndarray:
    """The pixels of a drawing (rows, columns, 3)."""
    return np.asarray(draw_labels(*arguments, **options))


def run_length(row: np.ndarray, wanted: str) -> int:
    """How many pixels of a row have a colour."""
    return int((row == colour(wanted)).all(axis=1).sum())


@pytest.mark.parametrize(("dark", "colours"), [(False, LIGHT), (True, DARK)])
def test_picture_and_bars_are_drawn_in_their_colours(dark: bool, colours: Any) -> None:
    pixels = drawn(picture(300, 300), LABELS, dark=dark)
    assert pixels.shape == (504, 912, 3)
    assert tuple(pixels[0, 0]) == colour(colours.ground)
    assert (pixels[28:476, 28:476] == (10, 200, 30)).all()
    assert tuple(pixels[27, 27]) == colour(colours.faint)  # the outline
    assert run_length(pixels[208], colours.first_bar) == 190
    assert run_length(pixels[208], colours.faint) == 380 - 190 + 2
    assert run_length(pixels[266], colours.bar) == 95
    assert run_length(pixels[324], colours.bar) == 0
    assert (pixels[180:196, 504:600] == colour(colours.text)).all(axis=2).any()


def test_a_tiny_picture_has_sharp_pixels() -> None:
    board = np.array([[[0, 0, 0], [255, 255, 255]], [[255, 255, 255], [0, 0, 0]]], np.uint8)
    pixels = drawn(board, LABELS)
    assert set(pixels[28:476, 28:476].ravel().tolist()) == {0, 255}


def test_a_long_label_is_cut_before_its_share() -> None:
    pixels = drawn(picture(300, 300), [ImageLabel(1, "great white shark, " * 9, 0.5)])
    text = (pixels[230:260, 504:884] != 255).any(axis=(0, 2))
    assert not text[290:310].any()  # between label and share
    assert text[:280].any() and text[320:].any()


def test_labels_of_every_kind_are_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    labels = [ImageLabel(1, text, 0.1) for text in ("", "a\nb\tc", "Zürich – café", "猫", "x" * 500, "😀")]
    assert drawn(picture(30, 30), labels).shape[2] == 3
    monkeypatch.setattr("genai.label_drawing._SYSTEM_FONTS", ())
    with_accents = drawn(picture(30, 30), [ImageLabel(1, "Zürich", 0.1)])
    assert (with_accents == drawn(picture(30, 30), [ImageLabel(1, "Zurich", 0.1)])).all()


def test_without_labels_the_picture_is_drawn_alone() -> None:
    assert drawn(picture(100, 100), []).shape[0] == 28 * 2 + 400


def test_a_probability_that_is_almost_nothing_says_so() -> None:
    nothing, little = (drawn(picture(9, 9), [ImageLabel(1, "a", share)]) for share in (0.0, 0.0001))
    assert not (nothing == little).all()


def test_a_font_of_ones_own(tmp_path: Path) -> None:
    (tmp_path / "font.ttf").write_text("no font")
    with pytest.raises(OSError, match="unknown file format"):
        draw_labels(picture(9, 9), LABELS, font=tmp_path / "font.ttf")


def test_without_pillow_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "PIL.ImageDraw", None)
    with failing(codes.MODULE_NOT_FOUND, NotSupportedError) as caught:
        draw_labels(picture(9, 9), LABELS)
    assert "pip install 'winml-lite[media]'" in str(caught.value)
