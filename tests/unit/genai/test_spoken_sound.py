"""The sound of a transcription: what counts as sound, silences that are cut out, times in the recording, memory."""

from __future__ import annotations

import io
import os
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from genai import Audio, VoiceActivity, write_audio
from genai.spoken_sound import SoundBuffer, SpokenSound, announced_duration, sound_blocks

Samples = npt.NDArray[np.float32]
RATE = 16000
STEP = 512


class Loudness:
    """Finds speech in each step of 512 samples that is loud."""

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        self._rest = np.zeros(0, np.float32)

    def probabilities(self, samples: Samples, *, last: bool = False) -> Samples:
        joined = np.concatenate([self._rest, samples])
        if last:
            joined = np.concatenate([joined, np.zeros(-len(joined) % STEP, np.float32)])
        count = len(joined) // STEP
        self._rest = joined[count * STEP :]
        loud: Samples = (np.abs(joined[: count * STEP]).reshape(count, STEP).max(axis=1) > 0.1).astype(np.float32)
        return loud


def activity() -> VoiceActivity:
    return Loudness()  # type: ignore[return-value]


def loud(seconds: float) -> Samples:
    return np.full(round(seconds * RATE), 0.5, np.float32)


def quiet(seconds: float) -> Samples:
    return np.zeros(round(seconds * RATE), np.float32)


def sound_of(*parts: Samples, cut: Callable[[], VoiceActivity] | None = activity, **options: Any) -> SpokenSound:
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
        sound = sound_of(loud(1), quiet(28), loud(2), cut=activity, only_when_long=True)
        assert len(sound.window()[0]) < 5 * RATE


class TestSources:
    @pytest.mark.parametrize(
        "source",
        [
            np.full(8000, 0.5),
            Audio(np.full(4000, 0.5), 8000),
            (np.full((4000, 2), 16384, np.int16), 8000),
            [np.full(3000, 0.5), np.full((5000, 2), 0.5)],
            iter([np.full(8000, 16384, np.int16)]),
        ],
    )
    def test_samples_become_mono_at_16_khz(self, source: Any) -> None:
        pytest.importorskip("soxr")
        samples = np.concatenate(list(sound_blocks(source, None)[0]))
        assert samples.dtype == np.float32
        assert len(samples) == 8000
        assert samples[4000] == pytest.approx(0.5, abs=1e-3)

    def test_blocks_may_have_another_rate(self) -> None:
        pytest.importorskip("soxr")
        blocks = sound_blocks(iter([np.full(1000, 0.5)] * 8), 8000)[0]
        assert sum(map(len, blocks)) == 16000

    def test_the_memory_of_a_block_may_be_used_again(self) -> None:
        block = np.zeros(1600, np.float32)

        def microphone() -> Iterator[Samples]:
            for level in (0.25, 0.5):
                block[:] = level
                yield block

        sound = SpokenSound(sound_blocks(microphone(), None)[0], None)
        assert sound.window()[0][[0, -1]].tolist() == [0.25, 0.5]

    def test_files_by_path_bytes_and_object(self, tmp_path: Path) -> None:
        pytest.importorskip("soundfile")
        path = tmp_path / "a.wav"
        write_audio(path, (np.full(16000, 0.5), 16000))
        for source in (path, str(path), path.read_bytes(), io.BytesIO(path.read_bytes())):
            assert sum(map(len, sound_blocks(source, None)[0])) == 16000

    def test_lengths_that_are_known(self, tmp_path: Path) -> None:
        pytest.importorskip("soundfile")
        path = tmp_path / "a.wav"
        write_audio(path, (np.zeros(24000), 16000))
        assert announced_duration(path) == 1.5
        assert announced_duration(os.fspath(path)) == 1.5
        assert announced_duration(io.BytesIO()) is None
        assert sound_blocks(np.zeros(8000), None)[1] == 0.5
        assert sound_blocks([], None)[1] is None

    @pytest.mark.parametrize("source", ["a.wav", Audio(np.zeros(5), 8000), (np.zeros(5), 8000)])
    def test_a_rate_that_is_said_twice(self, source: Any) -> None:
        with pytest.raises(ValueError, match="say their own"):
            sound_blocks(source, 8000)

    @pytest.mark.parametrize("source", [None, 5, object()])
    def test_what_is_no_sound(self, source: Any) -> None:
        with pytest.raises(TypeError, match="audio must be a sound file, samples, or blocks"):
            sound_blocks(source, None)

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


@pytest.mark.parametrize("cut", [None, activity])
def test_memory_does_not_grow_with_the_recording(cut: Callable[[], VoiceActivity] | None) -> None:
    block = loud(5)
    sound = SpokenSound((block for _ in range(720)), cut)  # an hour: 230 MB of samples
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


@pytest.mark.parametrize("pair", [(16000, np.zeros(4, np.float32)), (np.zeros(4, np.float32),), (1, 2, 3)])
def test_a_pair_is_samples_and_their_rate(pair: Any) -> None:
    with pytest.raises(TypeError, match=r"must be \(samples, sample_rate\)"):
        sound_blocks(pair, None)


def test_a_list_of_files_is_refused() -> None:
    with pytest.raises(TypeError, match="not a list of files: call it for each"):
        sound_blocks(["a.wav", "b.wav"], None)
