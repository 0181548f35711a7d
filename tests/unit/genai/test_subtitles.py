"""Subtitles: times, lines, what would break the file."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from genai.subtitles import Cue, cues, srt, vtt


@dataclass(frozen=True)
class Said:
    start: float
    end: float
    text: str


def test_srt_counts_from_one() -> None:
    found = srt([Said(0, 1.5, "one"), Said(2, 3.25, "two")])
    assert found == "1\n00:00:00,000 --> 00:00:01,500\none\n\n2\n00:00:02,000 --> 00:00:03,250\ntwo\n\n"


def test_vtt_has_a_header_and_points() -> None:
    assert vtt([Said(0, 1.5, "one")]) == "WEBVTT\n\n00:00:00.000 --> 00:00:01.500\none\n\n"


def test_nothing_said() -> None:
    assert srt([]) == ""
    assert vtt([]) == "WEBVTT\n\n"


def test_segments_without_text_are_left_out_and_not_counted() -> None:
    assert srt([Said(0, 1, " \n"), Said(1, 2, "\x00"), Said(2, 3, "a")]).startswith("1\n00:00:02,000")


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [
        (59.9996, "00:01:00,000"),
        (3599.9996, "01:00:00,000"),
        (3661.001, "01:01:01,001"),
        (360000.5, "100:00:00,500"),
        (0.0004, "00:00:00,000"),
        (-1.0, "00:00:00,000"),
    ],
)
def test_times_are_rounded_with_a_carry(seconds: float, shown: str) -> None:
    assert srt([Said(seconds, seconds + 1, "a")]).splitlines()[1].startswith(f"{shown} --> ")


def test_a_subtitle_lasts_at_least_a_millisecond() -> None:
    assert srt([Said(1.0001, 1.0004, "a")]).splitlines()[1] == "00:00:01,000 --> 00:00:01,001"


def test_lines_are_broken_into_similar_lengths() -> None:
    text = "We are going to the market to buy apples, bread and cheese."
    assert srt([Said(0, 1, text)]).splitlines()[2:4] == [
        "We are going to the market to",
        "buy apples, bread and cheese.",
    ]


def test_a_line_of_just_the_length_is_one_line() -> None:
    assert srt([Said(0, 1, "a" * 42)]).splitlines()[2:] == ["a" * 42, ""]


def test_a_word_longer_than_a_line_is_broken() -> None:
    assert srt([Said(0, 1, "a" * 50)]).splitlines()[2:4] == ["a" * 25, "a" * 25]


def test_no_line_is_empty() -> None:
    assert srt([Said(0, 1, "one\n\n\ntwo")]).splitlines()[2:] == ["one two", ""]


def test_the_length_of_lines_can_be_chosen() -> None:
    assert vtt([Said(0, 1, "one two")], 3).splitlines()[3:5] == ["one", "two"]


def test_a_line_has_at_least_one_character() -> None:
    with pytest.raises(ValueError, match="line_length must be in 1"):
        srt([], 0)


def test_lines_can_be_left_whole() -> None:
    assert vtt([Said(0, 1, "word " * 50)], None).splitlines()[3] == ("word " * 50).strip()


def test_vtt_escapes_markup() -> None:
    assert vtt([Said(0, 1, "<b> --> R&D")]).splitlines()[3] == "&lt;b&gt; --&gt; R&amp;D"


def test_srt_has_no_arrow_in_a_text() -> None:
    assert srt([Said(0, 1, "a --> b <i>")]).splitlines()[2] == "a -> b <i>"


def test_subtitles_come_as_their_segments_do() -> None:
    read: list[int] = []

    def segments() -> Iterator[Cue]:
        for number in range(3):
            read.append(number)
            yield Said(number, number + 1, str(number))

    coming = cues(segments(), "vtt")
    assert next(coming) == "00:00:00.000 --> 00:00:01.000\n0\n\n"
    assert read == [0]
