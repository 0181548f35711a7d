"""A picture with its labels, as one drawing to look at: the picture, and beside or below it a bar for each label.

Drawn by Pillow (the extra `media`) with the font that it brings along. Sizes are computed first (`chart_layout`), then
drawn (`draw_labels`).
"""

from __future__ import annotations

import os
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from winml_lite import NotSupportedError

from .classifier import ImageLabel, ImageSource
from .codes import MODULE_NOT_FOUND
from .picture import read_picture

if TYPE_CHECKING:
    from PIL.Image import Image

Box: TypeAlias = tuple[int, int, int, int]
"""Left, top, right, bottom in pixels; right and bottom are the first ones outside."""

_PADDING = 28
_SIDE = 448
"""Longest side of the picture in the drawing."""
_SMALLEST_ZOOMED = 160
"""A picture whose longer side is smaller is enlarged pixel by pixel, so that it can be seen."""
_PANEL = 380
"""Width of the bars."""
_WIDE = 1.9
"""From this proportion on the bars are below the picture, not beside it."""
_LABEL_SIZE, _SHARE_SIZE = 20, 18
_DESCENT = 9
"""Pixels between the line that letters stand on and the bar."""
_CUT = "..."
_SYSTEM_FONTS = ("DejaVuSans.ttf", "NotoSans-Regular.ttf", "Arial.ttf", "arial.ttf", "Helvetica.ttc")
_LABEL_HEIGHT, _BAR_HEIGHT, _GAP = 28, 12, 18


@dataclass(frozen=True, slots=True)
class Colours:
    """What a drawing is drawn in."""

    ground: str
    text: str
    faint: str
    """The part of a bar that is not filled."""
    bar: str
    first_bar: str


LIGHT = Colours(ground="#ffffff", text="#1f2430", faint="#e8ebf1", bar="#9db7ea", first_bar="#2f6fed")
DARK = Colours(ground="#16181d", text="#e8eaf0", faint="#2b2f3a", bar="#4a67a8", first_bar="#6ea1ff")


@dataclass(frozen=True, slots=True)
class Row:
    """Where one label is drawn."""

    text: Box
    """The label; its share stands at the right end."""
    track: Box
    """The whole bar."""
    filled: Box
    """The part that is filled: as much of the whole as the probability is of 1."""


@dataclass(frozen=True, slots=True)
class ChartLayout:
    """Where everything is in a drawing."""

    size: tuple[int, int]
    picture: Box
    rows: tuple[Row, ...]


def chart_layout(picture: tuple[int, int], probabilities: Sequence[float]) -> ChartLayout:
    """Place a picture of (width, height) and a bar for each probability."""
    width, height = _shown_size(*picture)
    panel_height = len(probabilities) * (_LABEL_HEIGHT + _BAR_HEIGHT + _GAP) - _GAP if probabilities else 0
    if picture[0] > _WIDE * picture[1]:
        width, height = _shown_size(*picture, 2 * _SIDE)
        across = max(width, _PANEL)
        place = _PADDING + (across - width) // 2, _PADDING
        left, top = _PADDING, 2 * _PADDING + height
        right, bottom = left + across, top + panel_height
    else:
        tallest = max(height, panel_height)
        place = _PADDING, _PADDING + (tallest - height) // 2
        left, top = 2 * _PADDING + width, _PADDING + (tallest - panel_height) // 2
        right, bottom = left + _PANEL, _PADDING + tallest
    rows = []
    for probability in probabilities:
        bar = top + _LABEL_HEIGHT
        filled = left + round(min(max(probability, 0.0), 1.0) * (right - left))
        under = bar + _BAR_HEIGHT
        rows.append(Row((left, top, right, bar), (left, bar, right, under), (left, bar, filled, under)))
        top = under + _GAP
    return ChartLayout(
        (right + _PADDING, bottom + _PADDING), (*place, place[0] + width, place[1] + height), tuple(rows)
    )


def _shown_size(width: int, height: int, side: int = _SIDE) -> tuple[int, int]:
    """Return how large a picture is drawn: in its proportions, whole multiples for a tiny one."""
    longest = max(width, height)
    factor: float = side / longest
    if longest < _SMALLEST_ZOOMED:
        factor = max(1, int(factor))
    return max(1, round(width * factor)), max(1, round(height * factor))


def draw_labels(
    image: ImageSource, labels: Sequence[ImageLabel], *, dark: bool = False, font: str | os.PathLike[str] | None = None
) -> Image:
    """Return a drawing of a picture and its labels, a Pillow image of mode RGB; `.save("labels.png")` writes it.

    Each label stands above a bar that is as long as it is probable. The bars are beside the picture, below a wide one.
    Long labels are cut.

    image: what `ImageClassifier.classify` takes. labels: what it returns. dark: light on dark.
    font: a TrueType or OpenType file. Pillow's own font has the letters of ASCII; labels with others are drawn in a
        well-known font of the system (DejaVu, Noto, Arial, Helvetica), and without their accents where it has none.

    WinMLError 0x8007007E where Pillow is not installed; OSError for a font that cannot be read.
    """
    pillow = _pillow()
    pixels = read_picture(image)
    colours = DARK if dark else LIGHT
    layout = chart_layout((pixels.shape[1], pixels.shape[0]), [label.probability for label in labels])
    drawing: Image = pillow.Image.new("RGB", layout.size, colours.ground)
    drawing.paste(_fitted(pillow, pixels, layout.picture), layout.picture[:2])
    pen = pillow.ImageDraw.Draw(drawing)
    left, top, right, bottom = layout.picture
    pen.rectangle((left - 1, top - 1, right, bottom), outline=colours.faint)
    names = [" ".join(label.label.split()) for label in labels]
    if font is None and not "".join(names).isascii():
        font = _system_font(pillow)
        names = names if font is not None else [_in_ascii(name) for name in names]
    label_font, share_font = (_font(pillow, font, size) for size in (_LABEL_SIZE, _SHARE_SIZE))
    for number, (name, label, row) in enumerate(zip(names, labels, layout.rows, strict=True)):
        left, _, right, bottom = row.text
        base = bottom - _DESCENT
        share = _percent(label.probability)
        room = right - left - pen.textlength(share, font=share_font) - _PADDING
        pen.text((left, base), _shortened(pen, name, label_font, room), colours.text, label_font, anchor="ls")
        pen.text((right, base), share, colours.text, share_font, anchor="rs")
        pen.rectangle(_inside(row.track), colours.faint)
        if row.filled[2] > row.filled[0]:
            pen.rectangle(_inside(row.filled), colours.bar if number else colours.first_bar)
    return drawing


def _percent(probability: float) -> str:
    return "<0.1%" if 0 < probability < 0.0005 else f"{probability:.1%}"


def _fitted(pillow: Any, pixels: Any, box: Box) -> Any:
    image = pillow.Image.fromarray(pixels)
    size = box[2] - box[0], box[3] - box[1]
    is_tiny = max(image.size) < _SMALLEST_ZOOMED
    return image.resize(size, pillow.Image.Resampling.NEAREST if is_tiny else pillow.Image.Resampling.LANCZOS)


def _inside(box: Box) -> Box:
    """Return the box as Pillow draws it: its last row and column are part of it."""
    return box[0], box[1], box[2] - 1, box[3] - 1


def _shortened(pen: Any, text: str, font: Any, room: float) -> str:
    """Return a text that fits; one that does not is cut, behind a word if one ends near."""
    if pen.textlength(text, font=font) <= room:
        return text
    kept = len(text)
    while kept and pen.textlength(text[:kept] + _CUT, font=font) > room:
        kept -= 1
    words = text[: kept + 1].rpartition(" ")[0]
    return (words if 3 * len(words) > 2 * kept else text[:kept]).rstrip(" ,;") + _CUT


def _font(pillow: Any, font: str | os.PathLike[str] | None, size: int) -> Any:
    if font is None:
        return pillow.ImageFont.load_default(size)
    return pillow.ImageFont.truetype(os.fspath(font), size)


def _system_font(pillow: Any) -> str | None:
    """Return a font of the system that has more letters than Pillow's own."""
    for name in _SYSTEM_FONTS:
        try:
            pillow.ImageFont.truetype(name, _LABEL_SIZE)
        except OSError:
            continue
        return name
    return None


def _in_ascii(text: str) -> str:
    """Leave accents out, and write "?" for other letters."""
    plain = "".join(c for c in unicodedata.normalize("NFKD", text) if not unicodedata.combining(c))
    return plain.encode("ascii", "replace").decode()


def _pillow() -> Any:
    try:
        import PIL.Image
        import PIL.ImageDraw
        import PIL.ImageFont
    except ImportError as error:
        text = "drawing needs Pillow: pip install 'winml-lite[media]'"
        raise NotSupportedError(MODULE_NOT_FOUND, "genai.draw_labels", text) from error
    return PIL
