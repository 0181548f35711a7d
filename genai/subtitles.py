"""Segments of a transcript as subtitles: SubRip (SRT) and WebVTT.

Not here: the segments themselves (`transcript.py`).
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable, Iterator
from typing import Final, Literal, Protocol, TypeAlias

from .checks import index_value

SubtitleFormat: TypeAlias = Literal["srt", "vtt"]

LINE_LENGTH: Final = 42
"""Characters of a line, as is usual for subtitles."""
VTT_HEADER: Final = "WEBVTT\n\n"
_UNSEEN = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")


class Cue(Protocol):
    """A text and its time in seconds."""

    @property
    def start(self) -> float: ...

    @property
    def end(self) -> float: ...

    @property
    def text(self) -> str: ...


def srt(segments: Iterable[Cue], line_length: int | None = LINE_LENGTH) -> str:
    """Return segments as SubRip subtitles, numbered from 1; those without text are left out.

    line_length: most characters of a line; None leaves each text on one line.
    """
    return "".join(cues(segments, "srt", line_length))


def vtt(segments: Iterable[Cue], line_length: int | None = LINE_LENGTH) -> str:
    """Return segments as WebVTT subtitles; those without text are left out, and `&`, `<` and `>` are escaped."""
    return VTT_HEADER + "".join(cues(segments, "vtt", line_length))


def cues(segments: Iterable[Cue], form: SubtitleFormat, line_length: int | None = LINE_LENGTH) -> Iterator[str]:
    """Yield one subtitle after the other, as their segments come; `VTT_HEADER` goes before them."""
    if line_length is not None:
        index_value(line_length, "line_length", minimum=1)
    number = 0
    for segment in segments:
        text = _lines(segment.text, line_length)
        if not text:
            continue
        number += 1
        start = _milliseconds(segment.start)
        end = max(_milliseconds(segment.end), start + 1)  # players pass over a subtitle without a duration
        if form == "srt":
            # There is no escape for the arrow, which would pass for a line of times.
            yield f"{number}\n{_time(start, ',')} --> {_time(end, ',')}\n{text.replace('-->', '->')}\n\n"
        else:
            yield f"{_time(start, '.')} --> {_time(end, '.')}\n{_escaped(text)}\n\n"


def _lines(text: str, line_length: int | None) -> str:
    """Return a text in lines of similar length, none of them empty."""
    plain = " ".join(_UNSEEN.sub(" ", text).split())
    if line_length is None or len(plain) <= line_length:
        return plain
    count = len(_wrapped(plain, line_length))
    narrowest = -(-(len(plain) - (count - 1)) // count)  # the spaces where it is broken are gone
    widths = range(narrowest, line_length + 1)
    return "\n".join(next(lines for width in widths if len(lines := _wrapped(plain, width)) == count))


def _wrapped(text: str, width: int) -> list[str]:
    return textwrap.wrap(text, width, break_on_hyphens=False)


def _milliseconds(seconds: float) -> int:
    return max(0, round(seconds * 1000))


def _time(milliseconds: int, point: str) -> str:
    """Return `hours:minutes:seconds` with three digits behind the point."""
    seconds, rest = divmod(milliseconds, 1000)
    minutes, second = divmod(seconds, 60)
    hours, minute = divmod(minutes, 60)
    return f"{hours:02}:{minute:02}:{second:02}{point}{rest:03}"


def _escaped(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
