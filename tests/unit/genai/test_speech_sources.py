"""What counts as sound to transcribe: files, pipes, samples and blocks, all as mono at 16 kHz."""

from __future__ import annotations

import io
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from fakes.piped import Pipe
from genai import Audio, WinMLError, write_audio
from genai.codes import FILE_CORRUPT
from genai.speech_sources import announced_duration, sound_blocks


class TestSources:
    @pytest.mark.parametrize(
        "source",
        [
            np.full(8000, 0.5),
            Audio(np.full(4000, 0.5), 8000),
            (np.full((4000, 2), 16384, np.int16), 8000),
            [np.full(3000, 0.5), np.full((5000, 2), 0.5)],
            iter([np.full(8000, 16384, np.int16)]),
            [0.5] * 8000,
            list(np.full(8000, 0.5, np.float32)),
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

        def microphone() -> Iterator[npt.NDArray[np.float32]]:
            for level in (0.25, 0.5):
                block[:] = level
                yield block

        assert np.concatenate(list(sound_blocks(microphone(), None)[0]))[[0, -1]].tolist() == [0.25, 0.5]

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

    @pytest.mark.parametrize("source", [None, 5, object(), {"array": np.zeros(9), "sampling_rate": 16000}])
    def test_what_is_no_sound(self, source: Any) -> None:
        with pytest.raises(TypeError, match="audio must be a sound file, samples, or blocks"):
            sound_blocks(source, None)

    def test_a_pipe_is_read_to_its_end_first_and_live_as_it_comes(self, tmp_path: Path) -> None:
        pytest.importorskip("soundfile")
        path = tmp_path / "a.wav"
        write_audio(path, (np.full(16000, 0.5), 16000))
        first = {}
        for is_live in (False, True):
            pipe = Pipe(path.read_bytes())
            first[is_live] = len(next(sound_blocks(pipe, None, is_live=is_live)[0])), pipe.taken
        assert first == {False: (16000, 32044), True: (1600, 3244)}

    def test_files_are_read_the_same_way_live(self, tmp_path: Path) -> None:
        pytest.importorskip("soundfile")
        path = tmp_path / "a.flac"
        write_audio(path, (np.full(16000, 0.5), 16000))
        for source in (path, path.read_bytes(), io.BytesIO(path.read_bytes())):
            assert sum(map(len, sound_blocks(source, None, is_live=True)[0])) == 16000


@pytest.mark.parametrize("pair", [(16000, np.zeros(4, np.float32)), (np.zeros(4, np.float32),), (1, 2, 3)])
def test_a_pair_is_samples_and_their_rate(pair: Any) -> None:
    with pytest.raises(TypeError, match=r"must be \(samples, sample_rate\)"):
        sound_blocks(pair, None)


def test_a_list_of_files_is_refused() -> None:
    with pytest.raises(TypeError, match="not a list of files: call it for each"):
        sound_blocks(["a.wav", "b.wav"], None)


@pytest.mark.parametrize("is_live", [False, True])
def test_a_file_on_the_scale_of_16_bits(tmp_path: Path, is_live: bool) -> None:
    pytest.importorskip("soundfile")
    path = tmp_path / "a.wav"
    write_audio(path, (np.full(1600, 20000, np.float32), 16000), sample_format="float32")
    source = Pipe(path.read_bytes()) if is_live else path
    with pytest.raises(WinMLError, match="one of the file's is 20000") as caught:
        list(sound_blocks(source, None, is_live=is_live)[0])
    assert caught.value.hresult == FILE_CORRUPT
