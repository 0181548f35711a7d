"""The sound of a transcription: windows, silences that are cut out, times in the recording, live sound, memory."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from fakes.loudness import STEP, loudness
from genai import VoiceActivity
from genai.speech_sources import sound_blocks
from genai.spoken_sound import SoundBuffer, SpokenSound

Samples = npt.NDArray[np.float32]
RATE = 16000


def loud(seconds: float) -> Samples:
    return np.full(round(seconds * RATE), 0.5, np.float32)


def quiet(seconds: float) -> Samples:
    return np.zeros(round(seconds * RATE), np.float32)


def sound_of(*parts: Samples, cut: Callable[[], VoiceActivity] | None = loudness, **options: Any) -> SpokenSound:
    """A recording in blocks of a tenth of a second."""
    whole = np.concatenate(parts)
    return SpokenSound(iter([whole[at : at + 1600] for at in range(0, len(whole), 1600)]), cut, **options)


class TestWindows:
    def test_a_short_sound_is_one_window(self) -> None:
        sound = sound_of(loud(2.5), cut=None)
        samples, is_last = sound.window()
        assert (len(samples), is_last) == (40000, True)

    def test_windows_are_thirty_seconds(self) -> None:
        sound = sound_of(loud(40), cut=None)
        samples, is_last = sound.window()
        assert (len(samples), is_last) == (480_000, False)

    def test_thirty_seconds_are_the_last_window(self) -> None:
        samples, is_last = sound_of(loud(30), cut=None).window()
        assert (len(samples), is_last) == (480_000, True)

    def test_the_next_window_begins_where_it_is_told_to(self) -> None:
        ramp = np.arange(40 * RATE, dtype=np.float32) * np.float32(2**-20)
        sound = sound_of(ramp, cut=None)
        sound.window()
        sound.advance(400_000)
        samples, is_last = sound.window()
        assert np.array_equal(samples, ramp[400_000:])
        assert is_last

    def test_after_the_last_window_there_is_nothing(self) -> None:
        sound = sound_of(loud(1), cut=None)
        sound.window()
        sound.advance(RATE)
        assert sound.window()[0].size == 0
        assert (sound.done, sound.length) == (RATE, RATE)

    def test_closing_ends_what_is_read(self) -> None:
        ended: list[bool] = []

        def blocks() -> Iterator[Samples]:
            try:
                while True:
                    yield loud(20)
            finally:
                ended.append(True)

        sound = SpokenSound(blocks(), None)
        sound.window()
        sound.close()
        assert ended == [True]

    def test_times_are_those_of_the_recording(self) -> None:
        sound = sound_of(loud(40), cut=None)
        sound.window()
        sound.advance(320 * 50)
        assert sound.times_of(0, 320) == (1.0, 1.02)


class TestCuts:
    """Loud for 2 s, quiet for 10, loud for 3: steps of 512 samples, of which 0.4 s (6,400) stay on each side."""

    PARTS = (loud(2), quiet(10), loud(3))
    FIRST = 63 * STEP + 6400  # step 62 is half loud: it ends speech, 2.016 s
    SECOND_START = 375 * STEP - 6400  # step 375 is where the second part begins, at 12.0 s

    def test_long_silences_are_cut_out(self) -> None:
        samples, is_last = sound_of(*self.PARTS).window()
        assert len(samples) == self.FIRST + 15 * RATE - self.SECOND_START
        assert is_last

    def test_times_after_a_cut_are_those_of_the_recording(self) -> None:
        sound = sound_of(*self.PARTS)
        sound.window()
        place = self.FIRST + RATE
        assert sound.times_of(place, place + RATE) == (self.SECOND_START / RATE + 1, self.SECOND_START / RATE + 2)

    def test_what_ends_behind_a_cut_ends_before_it(self) -> None:
        sound = sound_of(*self.PARTS)
        sound.window()
        assert sound.times_of(0, self.FIRST + 8000) == (0.0, self.FIRST / RATE)

    def test_what_begins_before_a_cut_begins_behind_it(self) -> None:
        sound = sound_of(*self.PARTS)
        sound.window()
        place = self.FIRST + 2 * RATE
        assert sound.times_of(self.FIRST - 3200, place)[0] == self.SECOND_START / RATE

    def test_what_goes_over_a_cut_has_its_times_on_both_sides(self) -> None:
        sound = sound_of(*self.PARTS)
        sound.window()
        place = self.FIRST + 2 * RATE
        assert sound.times_of(RATE, place) == (1.0, self.SECOND_START / RATE + 2)

    def test_a_word_right_behind_a_cut_stays_there(self) -> None:
        sound = sound_of(*self.PARTS)
        sound.window()
        begin, end = sound.times_of(self.FIRST + 3200, self.FIRST + 8000)
        assert (begin, end) == ((self.SECOND_START + 3200) / RATE, (self.SECOND_START + 8000) / RATE)

    def test_silences_of_less_than_two_seconds_stay(self) -> None:
        assert len(sound_of(loud(2), quiet(1.9), loud(2)).window()[0]) == round(5.9 * RATE)

    def test_nothing_but_silence(self) -> None:
        sound = sound_of(quiet(100))
        assert sound.window()[0].size == 0
        assert sound.length == 100 * RATE

    def test_speech_without_a_pause_comes_in_parts_and_loses_nothing(self) -> None:
        whole = np.linspace(0.2, 1, 100 * RATE, dtype=np.float32)
        sound = sound_of(whole)
        heard = []
        while (window := sound.window()[0]).size:
            heard.append(window)
            sound.advance(len(window))
        assert np.array_equal(np.concatenate(heard), whole)

    def test_a_recording_of_one_window_is_heard_whole(self) -> None:
        def never() -> VoiceActivity:
            raise AssertionError("nobody asked for it")

        sound = sound_of(loud(1), quiet(28), loud(1), cut=never, only_when_long=True)
        assert len(sound.window()[0]) == 30 * RATE

    def test_a_longer_one_is_cut_from_its_beginning(self) -> None:
        sound = sound_of(loud(1), quiet(28), loud(2), cut=loudness, only_when_long=True)
        assert len(sound.window()[0]) < 5 * RATE


class Microphone:
    """Sound in blocks of a tenth of a second, and how many of them were read."""

    def __init__(self, *parts: Samples) -> None:
        self.read = 0
        self._sound = np.concatenate(parts)

    def __iter__(self) -> Iterator[Samples]:
        for at in range(0, len(self._sound), 1600):
            self.read += 1
            yield self._sound[at : at + 1600]

    def live(self) -> SpokenSound:
        return SpokenSound(iter(self), loudness, is_live=True)


class TestLiveSound:
    """A pause is known 17 steps of 512 samples after its beginning, when more than half a second of it is over; 0.25 s
    (4,000 samples) of it stay on each side.
    """

    def test_a_window_ends_at_a_pause_and_no_block_behind_it_is_read(self) -> None:
        microphone = Microphone(loud(2), quiet(1), loud(1), quiet(2))
        sound = microphone.live()
        samples, is_last = sound.window()
        assert (len(samples), is_last) == (63 * STEP + 4000, True)  # step 62 is half loud
        assert microphone.read == 26  # 80 * 512 = 40,960 samples are less than 26 blocks
        sound.advance(len(samples))
        samples, is_last = sound.window()
        assert (len(samples), is_last) == (125 * STEP + 4000 - (93 * STEP - 4000), True)
        assert sound.times_of(0, len(samples)) == ((93 * STEP - 4000) / RATE, (125 * STEP + 4000) / RATE)
        assert microphone.read == 46  # 142 * 512 = 72,704
        sound.advance(len(samples))
        assert sound.window()[0].size == 0
        assert microphone.read == 60

    def test_what_is_left_of_a_window_is_the_next_one(self) -> None:
        microphone = Microphone(loud(2), quiet(1), loud(1))
        sound = microphone.live()
        size = len(sound.window()[0])
        sound.advance(16000)
        samples, is_last = sound.window()
        assert (len(samples), is_last) == (size - 16000, True)
        assert sound.times_of(0, 320) == (1.0, 1.02)
        assert microphone.read == 26

    def test_a_pause_of_less_than_half_a_second_is_none(self) -> None:
        assert len(Microphone(loud(1), quiet(0.45), loud(1)).live().window()[0]) == round(2.45 * RATE)

    def test_the_end_of_the_sound_ends_the_last_window(self) -> None:
        samples, is_last = Microphone(loud(1), quiet(0.2)).live().window()
        assert (len(samples), is_last) == (round(1.2 * RATE), True)

    def test_speech_without_a_pause_comes_in_windows_of_half_a_minute(self) -> None:
        microphone = Microphone(loud(40), quiet(1))
        sound = microphone.live()
        samples, is_last = sound.window()
        assert (len(samples), is_last) == (921 * STEP, False)  # half a minute, less the paddings, and whole steps
        assert microphone.read == 297  # with the 5 steps that are sure to be speech: 926 * 512 = 474,112
        sound.advance(448_000)
        samples, is_last = sound.window()  # from there, with what was not written down
        assert (len(samples), is_last) == (644_000 - 448_000, True)
        assert microphone.read == 406  # 1250 + 17 steps

    def test_what_does_not_fit_is_left_to_the_next_window(self) -> None:
        sound = Microphone(loud(50), quiet(1)).live()
        sound.window()
        sound.advance(100_000)
        samples, is_last = sound.window()
        assert (len(samples), is_last) == (480_000, False)
        sound.advance(480_000)
        samples, is_last = sound.window()
        assert (len(samples), is_last) == (1563 * STEP + 4000 - 580_000, True)

    def test_long_speech_is_divided_at_its_longest_pause(self) -> None:
        microphone = Microphone(loud(20), quiet(0.3), loud(20), quiet(1))
        samples, is_last = microphone.live().window()
        assert (len(samples), is_last) == ((625 + 634) * STEP // 2, False)  # the pause is from step 625 up to 634
        assert microphone.read == 296

    def test_speech_without_a_pause_loses_nothing(self) -> None:
        whole = np.linspace(0.2, 1, 100 * RATE, dtype=np.float32)
        sound = Microphone(whole).live()
        heard = []
        while (window := sound.window()[0]).size:
            heard.append(window)
            sound.advance(len(window))
        assert np.array_equal(np.concatenate(heard), whole)

    def test_a_noise_of_a_tenth_of_a_second_is_no_speech(self) -> None:
        assert Microphone(quiet(1.024), loud(0.09), quiet(1)).live().window()[0].size == 0

    def test_a_short_word_is_speech(self) -> None:
        assert len(Microphone(quiet(1.024), loud(0.12), quiet(1)).live().window()[0]) == 4 * STEP + 8000

    def test_blocks_of_several_sentences(self) -> None:
        block = np.concatenate([loud(1), quiet(0.8), loud(1), quiet(0.8)])
        sound = SpokenSound(iter([block]), loudness, is_live=True)
        samples, is_last = sound.window()
        assert (len(samples), is_last) == (32 * STEP + 4000, True)


class TestBuffer:
    def test_samples_over_several_blocks(self) -> None:
        buffer = SoundBuffer()
        for start in (0, 3, 6):
            buffer.append(np.arange(start, start + 3, dtype=np.float32))
        assert buffer.between(2, 7).tolist() == [2, 3, 4, 5, 6]
        buffer.forget(4)
        assert (buffer.start, buffer.end) == (4, 9)
        assert buffer.between(4, 9).tolist() == [4, 5, 6, 7, 8]

    def test_nothing(self) -> None:
        buffer = SoundBuffer()
        buffer.append(np.zeros(0, np.float32))
        assert buffer.between(0, 0).size == 0


@pytest.mark.parametrize(("cut", "is_live"), [(None, False), (loudness, False), (loudness, True)])
def test_memory_does_not_grow_with_the_recording(cut: Callable[[], VoiceActivity] | None, is_live: bool) -> None:
    block = loud(5)
    sound = SpokenSound((block for _ in range(720)), cut, is_live=is_live)  # an hour: 230 MB of samples
    tracemalloc.start()
    while (window := sound.window()[0]).size:
        sound.advance(len(window))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert sound.length == 3600 * RATE
    assert peak < 16 << 20


def test_floats_on_the_scale_of_16_bits_are_refused() -> None:
    blocks, _ = sound_blocks(np.array([0.0, 1200.0], np.float32), None)
    with pytest.raises(ValueError, match="one of these is 1200: divide samples on the scale of 16 bits by 32768"):
        SpokenSound(blocks, None).window()


def test_sound_somewhat_above_full_scale_is_heard() -> None:
    blocks, _ = sound_blocks(np.array([0.0, -1.5], np.float32), None)
    assert SpokenSound(blocks, None).window()[0].tolist() == [0.0, -1.5]
