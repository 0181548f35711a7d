"""Walking over a recording in windows: borders, pieces without an end, windows in which nothing is said, models that
are stuck. The decoder is a script; the sound is silence except where a test says something else.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import numpy as np
import numpy.typing as npt
import pytest

from fakes.loudness import loudness
from genai.speech_windows import Heard, Piece, TimedPiece, divided, quiet_place, undivided, walk
from genai.spoken_sound import SpokenSound
from genai.whisper_folder import WhisperTokens

Samples = npt.NDArray[np.float32]
RATE = 16000
END, BEGIN = 100, 200
A, B, C, D = 1, 2, 3, 4
TOKENS = WhisperTokens(
    end=END,
    start=101,
    translate=102,
    transcribe=103,
    start_of_lm=104,
    start_of_previous=105,
    no_speech=106,
    no_timestamps=107,
    timestamp_begin=BEGIN,
    languages={"en": 108},
)


def at(seconds: float) -> int:
    """The timestamp token of a time."""
    return BEGIN + round(seconds / 0.02)


def silence(seconds: float) -> Samples:
    return np.zeros(round(seconds * RATE), np.float32)


def speech(seconds: float) -> Samples:
    return np.full(round(seconds * RATE), 0.5, np.float32)


def said(*token_ids: int, **facts: object) -> Heard:
    return Heard(token_ids, **facts)  # type: ignore[arg-type]


def walked(
    seconds: float, script: Iterable[Heard], *, timestamps: bool = True
) -> tuple[list[tuple[float, float, tuple[int, ...]]], list[float]]:
    """Walk over silence; return the pieces, and the length of each window in seconds."""
    scripted, lengths = iter(script), list[float]()

    def hear(samples: Samples) -> Heard:
        lengths.append(len(samples) / RATE)
        return next(scripted)

    sound = SpokenSound(iter([silence(seconds)]), None)
    pieces = [piece for window in walk(sound, hear, TOKENS, timestamps=timestamps) for piece in window]
    return [(piece.start, piece.end, piece.token_ids) for piece in pieces], lengths


class TestOneWindow:
    def test_each_pair_of_times_is_a_piece(self) -> None:
        heard = said(at(0), A, B, at(1.5), at(2), C, at(3.02))
        assert walked(5, [heard])[0] == [(0.0, 1.5, (A, B)), (2.0, 3.02, (C,))]

    def test_a_piece_without_an_end_goes_to_the_end_of_the_recording(self) -> None:
        assert walked(5, [said(at(0), A, at(2), at(2.5), B)])[0] == [(0.0, 2.0, (A,)), (2.5, 5.0, (B,))]

    def test_times_beyond_the_recording_are_its_end(self) -> None:
        assert walked(1, [said(at(0.5), A, at(1.4), at(2), B, at(3))])[0] == [(0.5, 1.0, (A,)), (1.0, 1.0, (B,))]

    def test_other_special_tokens_are_no_text(self) -> None:
        assert walked(5, [said(at(0), A, TOKENS.no_speech, at(1))])[0] == [(0.0, 1.0, (A,))]

    def test_nothing_said(self) -> None:
        assert walked(5, [said()]) == ([], [5.0])

    def test_what_is_no_speech_is_dropped(self) -> None:
        assert walked(5, [said(at(0), A, at(1), is_speech=False)]) == ([], [5.0])

    def test_less_than_a_tenth_of_a_second_is_not_heard(self) -> None:
        assert walked(0.09, []) == ([], [])

    def test_no_sound_at_all(self) -> None:
        assert walked(0, []) == ([], [])

    def test_tokens_that_ran_out_leave_the_rest_to_the_next_window(self) -> None:
        first = said(at(0), A, at(4), at(4), B, C, is_whole=False)
        pieces, lengths = walked(10, [first, said(at(0), B, C, D, at(5))])
        assert pieces == [(0.0, 4.0, (A,)), (4.0, 9.0, (B, C, D))]
        assert lengths == [10.0, 6.0]

    def test_a_time_that_begins_another_piece_has_the_rest_heard(self) -> None:
        pieces, lengths = walked(10, [said(at(0), A, at(4), at(4)), said(at(0), B, at(2))])
        assert pieces == [(0.0, 4.0, (A,)), (4.0, 6.0, (B,))]
        assert lengths == [10.0, 6.0]


class TestLiveSound:
    """Windows end at pauses: a pause is known when 17 steps of 512 samples of it are over, and 4,000 samples stay."""

    FIRST = 63 * 512 + 4000  # samples of the first sentence, of 2 s in steps
    SECOND_START = 93 * 512 - 4000  # of the second, which begins at 3 s, in step 93
    SECOND = 125 * 512 + 4000 - SECOND_START

    def walked(self, script: Iterable[Heard], *parts: Samples) -> tuple[list[tuple[float, float, int]], list[int]]:
        """The pieces, with the blocks of 1,600 samples that were read before each, and the windows' samples."""
        sizes, read = list[int](), list[int]()
        scripted, whole = iter(script), np.concatenate(parts)

        def blocks() -> Iterator[Samples]:
            for at in range(0, len(whole), 1600):
                read.append(at)
                yield whole[at : at + 1600]

        def hear(samples: Samples) -> Heard:
            sizes.append(len(samples))
            return next(scripted)

        sound = SpokenSound(blocks(), loudness, is_live=True)
        windows = walk(sound, hear, TOKENS, timestamps=True)
        return [(piece.start, piece.end, len(read)) for pieces in windows for piece in pieces], sizes

    def test_a_sentence_is_written_down_to_its_end_once_it_pauses(self) -> None:
        script = [said(at(0), A, at(2.24)), said(at(0.5), B)]  # as if cut off, if there were no pause
        pieces, sizes = self.walked(script, speech(2), silence(1), speech(1), silence(2))
        begin, end = self.SECOND_START / RATE, (self.SECOND_START + self.SECOND) / RATE
        assert pieces == [(0.0, 2.24, 26), (begin + 0.5, end, 46)]
        assert sizes == [self.FIRST, self.SECOND]

    def test_tokens_that_ran_out_have_the_rest_of_the_sentence_heard(self) -> None:
        script = [said(at(0), A, at(1.5), at(1.5), B, is_whole=False), said(at(0), B, at(0.7)), said()]
        pieces, sizes = self.walked(script, speech(2), silence(1), speech(1))
        assert pieces == [(0.0, 1.5, 26), (1.5, 2.2, 26)]
        assert sizes == [self.FIRST, self.FIRST - 24_000, 64_000 - self.SECOND_START]

    def test_a_rest_that_holds_no_word_is_not_the_end(self) -> None:
        script = [said(at(0), A, at(2.2), at(2.2)), said(at(0), B, at(1))]
        pieces, sizes = self.walked(script, speech(2), silence(1), speech(1))
        assert [piece[0] for piece in pieces] == [0.0, self.SECOND_START / RATE]
        assert sizes == [self.FIRST, 64_000 - self.SECOND_START]

    def test_who_speaks_without_a_pause_is_heard_in_windows_of_half_a_minute(self) -> None:
        script = [said(at(0), A, at(28), at(28), B), said(at(0), B, C, at(5))]
        pieces, sizes = self.walked(script, speech(40), silence(1))
        assert pieces == [(0.0, 28.0, 297), (28.0, 33.0, 406)]
        assert sizes == [921 * 512, 644_000 - 448_000]


class TestBorders:
    def test_a_piece_that_is_cut_off_is_heard_whole_in_the_next_window(self) -> None:
        first = said(at(0), A, at(27), at(27.5), B)
        pieces, lengths = walked(40, [first, said(at(0.5), B, C, at(6))])
        assert pieces == [(0.0, 27.0, (A,)), (27.5, 33.0, (B, C))]
        assert lengths == [30.0, 13.0]

    def test_a_piece_that_ends_with_the_window_may_be_cut_off(self) -> None:
        first = said(at(0), A, at(20), at(20), B, at(30))
        pieces, lengths = walked(40, [first, said(at(0), B, C, at(11))])
        assert pieces == [(0.0, 20.0, (A,)), (20.0, 31.0, (B, C))]
        assert lengths == [30.0, 20.0]

    def test_the_next_window_begins_where_the_last_pair_of_times_stands(self) -> None:
        first = said(at(0), A, at(10), at(10), B, at(29.5), at(29.5))
        pieces, lengths = walked(40, [first, said(at(0.5), C, at(4))])
        assert pieces == [(0.0, 10.0, (A,)), (10.0, 29.5, (B,)), (30.0, 33.5, (C,))]
        assert lengths == [30.0, 10.5]

    def test_silence_behind_the_last_piece_is_walked_over(self) -> None:
        pieces, lengths = walked(40, [said(at(0), A, at(10)), said(at(0.5), B, at(4))])
        assert pieces == [(0.0, 10.0, (A,)), (30.5, 34.0, (B,))]
        assert lengths == [30.0, 10.0]

    def test_one_piece_as_long_as_the_window_is_taken_as_it_is(self) -> None:
        pieces, lengths = walked(40, [said(at(0), A), said(at(0), B, at(4))])
        assert pieces == [(0.0, 30.0, (A,)), (30.0, 34.0, (B,))]
        assert lengths == [30.0, 10.0]

    def test_a_recording_of_exactly_one_window(self) -> None:
        assert walked(30, [said(at(0), A, at(29), at(29), B)]) == ([(0.0, 29.0, (A,)), (29.0, 30.0, (B,))], [30.0])

    def test_a_window_of_silence_is_walked_over(self) -> None:
        pieces, lengths = walked(65, [said(), said(at(0), A, is_speech=False), said(at(1), B, at(2))])
        assert pieces == [(61.0, 62.0, (B,))]
        assert lengths == [30.0, 30.0, 5.0]


class TestModelsThatAreStuck:
    def test_a_first_piece_of_no_length_does_not_hold_it_up(self) -> None:
        heard = said(at(0), A, at(0.02), at(0.02), B)
        pieces, lengths = walked(90, [heard] * 3)
        assert lengths == [30.0, 30.0, 30.0]
        assert [piece[:2] for piece in pieces] == [
            (0.0, 0.02),
            (0.02, 30.0),
            (30.0, 30.02),
            (30.02, 60.0),
            (60.0, 60.02),
            (60.02, 90.0),
        ]

    def test_every_window_is_at_least_a_second_further(self) -> None:
        heard = said(at(0), A, at(1), at(1), B)
        lengths = walked(60, [heard] * 31)[1]
        assert len(lengths) == 31
        assert lengths[-1] == 30.0

    def test_times_never_decrease(self) -> None:
        heard = said(at(5), A, at(3), at(1), B, at(8))
        assert walked(10, [heard])[0] == [(5.0, 5.0, (A,)), (5.0, 8.0, (B,))]

    def test_tokens_that_ran_out_without_a_time_are_taken_as_they_are(self) -> None:
        pieces, lengths = walked(40, [said(at(0), A, B, is_whole=False), said()])
        assert pieces == [(0.0, 30.0, (A, B))]
        assert lengths == [30.0, 10.0]


class TestWithoutTimes:
    def test_a_window_is_one_piece(self) -> None:
        assert walked(5, [said(A, B)], timestamps=False) == ([(0.0, 5.0, (A, B))], [5.0])

    def test_nothing_said_is_no_piece(self) -> None:
        assert walked(5, [said()], timestamps=False)[0] == []

    def test_windows_end_at_a_quiet_place(self) -> None:
        recording = np.full(40 * RATE, 0.5, np.float32)
        recording[27 * RATE : 28 * RATE] = 0
        lengths: list[int] = []

        def hear(samples: Samples) -> Heard:
            lengths.append(len(samples))
            return said(A)

        sound = SpokenSound(iter([recording]), None)
        found = [window[0] for window in walk(sound, hear, TOKENS, timestamps=False)]
        # The last 0.18 s that are silent are those from 27.82 to 28, whose middle is at 27.9.
        assert [(piece.start, piece.end) for piece in found] == [(0.0, 27.9), (27.9, 40.0)]
        assert lengths == [round(27.9 * RATE), round(12.1 * RATE)]


class TestQuietPlace:
    def test_the_middle_of_a_pause(self) -> None:
        samples = np.full(RATE, 0.5, np.float32)
        samples[4800:8000] = 0  # 0.3 to 0.5 s: steps 15 to 24
        assert quiet_place(samples, 0) == (16 + 4) * 320

    def test_of_equal_places_the_last(self) -> None:
        assert quiet_place(silence(1), 0) == RATE

    def test_not_before_the_earliest(self) -> None:
        samples = np.full(RATE, 0.5, np.float32)
        samples[:4000] = 0
        assert quiet_place(samples, 8000) == RATE

    @pytest.mark.parametrize("earliest", [RATE, RATE + 5, RATE - 1])
    def test_nothing_is_left(self, earliest: int) -> None:
        assert quiet_place(silence(1), earliest) == RATE

    def test_places_are_those_of_timestamps(self) -> None:
        noise = np.random.default_rng(1).standard_normal(RATE).astype(np.float32)
        assert quiet_place(noise, 123) % 320 == 0


def test_the_last_window_goes_to_its_end() -> None:
    assert divided(said(at(0), A, at(1)), TOKENS, silence(5), True) == ([Piece(0, RATE, (A,))], 5 * RATE)


def test_undivided_text_goes_from_end_to_end() -> None:
    assert undivided(said(A), 77) == ([Piece(0, 77, (A,))], 77)


Hear = Callable[[Samples], Heard]


def perfect(words: list[tuple[float, float, int]], sound: SpokenSound) -> Hear:
    """A decoder that hears each word of a recording; one that a window cuts off has no end, as far as it is there."""

    def hear(samples: Samples) -> Heard:
        begin = sound.done / RATE
        end = begin + len(samples) / RATE
        tokens: list[int] = []
        for start, stop, token in words:
            if start >= begin - 1e-9 and start < end:
                tokens += [at(start - begin), token, *([at(stop - begin)] if stop <= end else [])]
        return said(*tokens)

    return hear


def test_no_word_is_lost_or_heard_twice_wherever_the_borders_fall() -> None:
    generator = np.random.default_rng(7)
    words: list[tuple[float, float, int]] = []
    place = 0.0
    for token in range(1, 90):
        length = round(float(generator.uniform(0.2, 6)) / 0.02) * 0.02
        words.append((round(place, 2), round(place + length, 2), token))
        place += length + float(generator.choice([0, 0.5, 5]))
        place = round(place / 0.02) * 0.02
    sound = SpokenSound(iter([silence(place + 1)]), None)
    found: list[TimedPiece] = [
        p for window in walk(sound, perfect(words, sound), TOKENS, timestamps=True) for p in window
    ]
    assert [piece.token_ids for piece in found] == [(token,) for _, _, token in words]
    assert np.allclose([(p.start, p.end) for p in found], [word[:2] for word in words])
