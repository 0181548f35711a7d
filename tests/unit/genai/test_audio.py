"""Sound in memory, from files and in blocks. Files are written with the standard library or with soundfile itself."""

from __future__ import annotations

import copy
import io
import logging
import os
import pickle
import subprocess
import sys
import tracemalloc
import wave
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import soundfile
import soxr

import genai
from genai import Audio, WinMLError, audio_blocks, read_audio, write_audio

Floats = npt.NDArray[np.float32]
NOT_INSTALLED = "pip install 'winml-lite\\[media\\]'"


def wav(samples: npt.NDArray[Any], rate: int = 8000) -> bytes:
    """A WAV file of int16 (frames, channels), written by the standard library."""
    content = io.BytesIO()
    with wave.open(content, "wb") as file:
        file.setnchannels(samples.shape[1])
        file.setsampwidth(2)
        file.setframerate(rate)
        file.writeframes(samples.astype("<i2").tobytes())
    return content.getvalue()


def encoded(samples: npt.NDArray[Any], rate: int, file_format: str, subtype: str | None = None) -> bytes:
    """A file of any format."""
    content = io.BytesIO()
    soundfile.write(content, samples, rate, subtype, format=file_format)
    return content.getvalue()


def tone(frames: int, rate: int = 8000, hertz: float = 440.0) -> Floats:
    """A sine at half of full scale."""
    return (0.5 * np.sin(2 * np.pi * hertz * np.arange(frames) / rate)).astype(np.float32)


class TestAudio:
    def test_floats_are_kept_without_a_copy(self) -> None:
        samples = np.array([0.25, -2.0], np.float32)
        assert np.shares_memory(Audio(samples, 8000).samples, samples)

    def test_the_samples_are_read_only(self) -> None:
        with pytest.raises(ValueError, match="read-only"):
            Audio(np.zeros(2, np.float32), 8000).samples[0] = 1

    @pytest.mark.parametrize(
        ("samples", "expected"),
        [
            (np.array([0, 128, 255], np.uint8), [-1, 0, 0.9921875]),
            (np.array([-32768, 0, 16384, 32767], np.int16), [-1, 0, 0.5, 0.999969482421875]),
            (np.array([-(2**31), 2**30, 1], np.int32), [-1, 0.5, 2.0**-31]),
            (np.array([0.5, -0.25], np.float64), [0.5, -0.25]),
            (np.array([0.5, -0.25], np.float16), [0.5, -0.25]),
            (np.array([-32768, 16384], ">i2"), [-1, 0.5]),
            (np.array([0.5, -0.25], ">f4"), [0.5, -0.25]),
            ([0.5, -0.25], [0.5, -0.25]),
        ],
    )
    def test_other_types_are_scaled_to_full_scale(self, samples: Any, expected: list[float]) -> None:
        audio = Audio(samples, 8000)
        assert audio.samples.dtype == np.float32
        assert audio.samples.tolist() == expected

    def test_one_column_is_one_channel(self) -> None:
        assert Audio(np.zeros((5, 1), np.float32), 8000).samples.shape == (5,)

    @pytest.mark.parametrize(
        ("samples", "message"),
        [
            (np.float32(1), "shape"),
            (np.zeros((2, 3, 4)), "shape"),
            (np.zeros((2, 480000)), "transpose"),
            (np.zeros((100, 0)), "0 channels"),
            (np.array([1, 2], np.int64), "int64"),
            (np.array([True]), "bool"),
            (np.array(["a"]), "floats"),
            (np.array([0, np.nan]), "finite"),
            (np.array([np.inf, 0], np.float32), "finite"),
            (np.array([1e300]), "finite"),
        ],
    )
    def test_what_is_no_sound_is_refused(self, samples: Any, message: str) -> None:
        with pytest.raises(ValueError, match=message):
            Audio(samples, 8000)

    @pytest.mark.parametrize(
        ("rate", "error"), [(0, ValueError), (-1, ValueError), (True, TypeError), (8e3, TypeError)]
    )
    def test_a_rate_is_a_positive_integer(self, rate: Any, error: type[Exception]) -> None:
        with pytest.raises(error, match="sample_rate"):
            Audio(np.zeros(1, np.float32), rate)

    def test_it_tells_its_length_and_channels(self) -> None:
        audio = Audio(np.zeros((12000, 2), np.float32), 8000)
        assert (audio.duration, audio.channels, repr(audio)) == (1.5, 2, "<Audio 1.500 s, 8000 Hz, 2 channels>")

    def test_it_can_be_copied_and_pickled(self) -> None:
        audio = Audio([0.5, -0.25], 8000)
        for copied in (copy.deepcopy(audio), pickle.loads(pickle.dumps(audio))):
            assert (copied.samples.tolist(), copied.sample_rate) == ([0.5, -0.25], 8000)

    def test_mono_is_the_mean_of_the_channels(self) -> None:
        audio = Audio(np.array([[0.5, -0.5, 0.3], [1, 0.5, 0]], np.float32), 8000).mono()
        np.testing.assert_allclose(audio.samples, [0.1, 0.5], rtol=1e-6)

    def test_mono_of_one_channel_and_the_same_rate_are_itself(self) -> None:
        audio = Audio(tone(10), 8000)
        assert audio.mono() is audio
        assert audio.resampled(8000) is audio


class TestResampling:
    @pytest.mark.parametrize(
        ("rate", "new_rate", "frames", "expected"),
        [
            (8000, 16000, 1001, 2002),
            (44100, 16000, 44100, 16000),
            (44100, 16000, 100, 36),
            (48000, 16000, 100003, 33334),
            (192000, 16000, 192001, 16000),
            (16000, 44100, 160, 441),
            (8000, 16000, 0, 0),
        ],
    )
    def test_the_length_is_that_of_the_same_time(self, rate: int, new_rate: int, frames: int, expected: int) -> None:
        assert len(Audio(np.zeros(frames, np.float32), rate).resampled(new_rate).samples) == expected

    def test_a_tone_stays_the_same_tone(self) -> None:
        audio = Audio(tone(44100, 44100), 44100).resampled(16000)
        np.testing.assert_allclose(audio.samples[500:-500], tone(16000, 16000)[500:-500], atol=1e-3)

    def test_a_tone_that_the_new_rate_cannot_carry_is_filtered_out(self) -> None:
        audio = Audio(tone(48000, 48000, 12000), 48000).resampled(16000)
        assert np.abs(audio.samples[500:-500]).max() < 1e-4

    def test_channels_stay_apart(self) -> None:
        audio = Audio(np.stack([tone(8000), np.zeros(8000, np.float32)], axis=1), 8000).resampled(16000)
        assert audio.samples.shape == (16000, 2)
        assert not audio.samples[:, 1].any()

    def test_without_soxr_the_error_says_what_to_install(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setitem(sys.modules, "soxr", None)
        with pytest.raises(genai.NotSupportedError, match=NOT_INSTALLED):
            Audio(tone(10), 8000).resampled(16000)


class TestReading:
    def test_every_int16_value_is_read_exactly(self) -> None:
        values = np.arange(-32768, 32768).reshape(-1, 1)
        assert np.array_equal(read_audio(wav(values)).samples * 32768, values[:, 0])

    def test_channels_are_columns(self) -> None:
        audio = read_audio(wav(np.array([[1, 2], [3, 4], [5, 6]]), 44100))
        assert (audio.samples * 32768).tolist() == [[1, 2], [3, 4], [5, 6]]
        assert audio.sample_rate == 44100

    @pytest.mark.parametrize(("subtype", "tolerance"), [("PCM_U8", 1 / 128), ("PCM_24", 1e-6), ("FLOAT", 0)])
    def test_samples_of_every_width_have_full_scale_1(self, subtype: str, tolerance: float) -> None:
        content = encoded(tone(100), 8000, "WAV", subtype)
        np.testing.assert_allclose(read_audio(content).samples, tone(100), atol=tolerance)

    @pytest.mark.parametrize(("name", "tolerance"), [("FLAC", 1e-4), ("OGG", 0.05), ("MP3", 0.05)])
    def test_formats_of_music_are_read(self, name: str, tolerance: float) -> None:
        content = encoded(tone(48000, 48000), 48000, name)
        np.testing.assert_allclose(read_audio(content).samples, tone(48000, 48000), atol=tolerance)

    def test_six_channels_at_192_khz_are_read(self) -> None:
        audio = read_audio(encoded(np.zeros((1000, 6)), 192000, "WAV"))
        assert (audio.samples.shape, audio.sample_rate) == ((1000, 6), 192000)

    def test_a_file_without_a_frame_is_silence_of_no_length(self) -> None:
        audio = read_audio(wav(np.zeros((0, 2))))
        assert (audio.samples.shape, audio.duration) == ((0, 2), 0)

    def test_a_path_of_any_letters_is_read(self, tmp_path: Path) -> None:
        path = tmp_path / "Tür 日本 🎵.wav"
        path.write_bytes(wav(np.array([[7]])))
        assert len(read_audio(path).samples) == len(read_audio(str(path)).samples) == 1

    def test_a_file_object_is_read_from_its_beginning_and_stays_open(self) -> None:
        file = io.BytesIO(wav(np.array([[7], [8]])))
        file.seek(0, os.SEEK_END)
        assert len(read_audio(file).samples) == 2
        assert not file.closed

    def test_a_pipe_is_read_to_its_end(self) -> None:
        program = "import sys; sys.stdout.buffer.write(sys.stdin.buffer.read())"
        command = [sys.executable, "-c", program]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
            assert process.stdin is not None and process.stdout is not None
            process.stdin.write(encoded(tone(100), 8000, "FLAC"))
            process.stdin.close()
            assert len(read_audio(process.stdout).samples) == 100

    def test_a_header_that_announces_4_gib_does_not_allocate_them(self) -> None:
        content = bytearray(wav(np.array([[7], [8]])))
        place = content.index(b"data") + 4
        content[place : place + 4] = b"\xff\xff\xff\xff"
        assert len(read_audio(content).samples) == 2

    def test_a_cut_mp3_gives_what_is_left_and_a_warning(self, caplog: pytest.LogCaptureFixture) -> None:
        content = encoded(tone(400000), 8000, "MP3")
        with caplog.at_level(logging.WARNING, "genai.audio"):
            audio = read_audio(content[: len(content) // 2])
        assert 20 < audio.duration < 30
        assert "the file announces 50.0 s" in caplog.text

    @pytest.mark.parametrize("format_name", ["WAV", "AIFF"])
    def test_a_cut_file_whose_header_has_the_length_gives_a_warning(
        self, format_name: str, caplog: pytest.LogCaptureFixture
    ) -> None:
        content = encoded(tone(80000), 8000, format_name)
        with caplog.at_level(logging.WARNING, "genai.audio"):
            audio = read_audio(content[: len(content) // 2])
        assert 4.9 < audio.duration < 5.1
        assert "the file announces 10.0 s" in caplog.text

    def test_a_stream_whose_header_has_no_length_is_not_cut(self, caplog: pytest.LogCaptureFixture) -> None:
        content = bytearray(encoded(tone(80000), 8000, "WAV"))
        place = content.index(b"data") + 4
        content[place : place + 4] = b"\xff\xff\xff\xff"
        with caplog.at_level(logging.WARNING, "genai.audio"):
            assert read_audio(content).duration == 10
        assert caplog.text == ""


class TestReadingFailures:
    @pytest.mark.parametrize("kind", [Path, bytes, io.BytesIO])
    def test_an_empty_file_is_called_so(self, kind: Any, tmp_path: Path) -> None:
        path = tmp_path / "speech.wav"
        path.write_bytes(b"")
        with pytest.raises(WinMLError, match="the file is empty") as caught:
            read_audio(path if kind is Path else kind())
        assert caught.value.hresult == 0x80070570

    @pytest.mark.parametrize("content", [b"RIFF", b"hello, this is no sound" * 100, wav(np.zeros((9, 1)))[:30]])
    def test_what_is_no_sound_is_corrupt_and_names_the_file(self, content: bytes, tmp_path: Path) -> None:
        path = tmp_path / "speech.wav"
        path.write_bytes(content)
        with pytest.raises(WinMLError, match=r"speech\.wav.*no sound.*ffmpeg") as caught:
            read_audio(path)
        assert caught.value.hresult == 0x80070570

    def test_damage_inside_is_corrupt_and_says_where(self) -> None:
        content = bytearray(encoded(np.random.default_rng(1).uniform(-1, 1, 200000), 8000, "FLAC"))
        content[len(content) // 2 :][:2000] = bytes(2000)
        content[len(content) // 2 : len(content) // 2 + 2000] = bytes(2000)
        with pytest.raises(WinMLError, match=r"damaged after \d+\.\d+ s") as caught:
            read_audio(content)
        assert caught.value.hresult == 0x80070570

    @pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
    def test_a_sample_that_is_no_number_is_corrupt(self, value: float) -> None:
        samples = np.zeros(8000)
        samples[4000] = value
        with pytest.raises(WinMLError, match=r"after 0\.500 s.*finite") as caught:
            read_audio(encoded(samples, 8000, "WAV", "FLOAT"))
        assert caught.value.hresult == 0x80070570

    def test_a_missing_file(self, tmp_path: Path) -> None:
        with pytest.raises(WinMLError, match="absent") as caught:
            read_audio(tmp_path / "absent.wav")
        assert caught.value.hresult == 0x80070002

    def test_a_folder(self, tmp_path: Path) -> None:
        with pytest.raises(WinMLError) as caught:
            read_audio(tmp_path)
        assert caught.value.hresult in (0x80070057, 0x80004005)  # Windows: permission denied

    def test_raw_samples_have_no_header(self, tmp_path: Path) -> None:
        path = tmp_path / "speech.raw"
        path.write_bytes(bytes(100))
        with pytest.raises(WinMLError, match=r"np\.fromfile") as caught:
            read_audio(path)
        assert caught.value.hresult == 0x80070032

    def test_a_text_file_object(self) -> None:
        with pytest.raises(TypeError, match="binary mode"):
            read_audio(io.StringIO("RIFF"))  # type: ignore[arg-type]

    def test_a_file_object_that_gives_more_than_it_was_asked_for(self) -> None:
        class Generous(io.BytesIO):
            def read(self, size: int | None = -1, /) -> bytes:
                return super().read(size) + bytes(1000)

        with pytest.raises(ValueError, match="when 12 were asked for"):
            read_audio(Generous(wav(np.zeros((100, 1)))))

    def test_a_file_object_at_a_place_that_cannot_be(self) -> None:
        class Lost(io.BytesIO):
            def tell(self) -> int:
                return 1 << 70

        with pytest.raises(ValueError, match="the position in the file"):
            read_audio(Lost(wav(np.zeros((100, 1)))))

    def test_what_a_file_object_raises_comes_through(self, capfd: pytest.CaptureFixture[str]) -> None:
        class Broken(io.BytesIO):
            def read(self, size: int | None = -1, /) -> bytes:
                if self.tell() > 1000:
                    raise ZeroDivisionError("the line went dead")
                return super().read(size)

        with pytest.raises(ZeroDivisionError, match="the line went dead"):
            read_audio(Broken(wav(np.zeros((9000, 1)))))
        assert capfd.readouterr().err == ""

    def test_too_many_channels(self) -> None:
        with pytest.raises(WinMLError, match="65 channels") as caught:
            read_audio(wav(np.zeros((3, 65))))
        assert caught.value.hresult == 0x80070032

    def test_samples_without_a_rate(self) -> None:
        with pytest.raises(TypeError, match=r"genai\.Audio"):
            next(audio_blocks(np.zeros(5, np.float32)))  # type: ignore[arg-type]

    @pytest.mark.parametrize("source", [None, 5, 1.5])
    def test_what_is_no_source(self, source: Any) -> None:
        with pytest.raises(TypeError):
            read_audio(source)

    def test_without_soundfile_the_error_says_what_to_install(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setitem(sys.modules, "soundfile", None)
        with pytest.raises(genai.NotSupportedError, match=NOT_INSTALLED) as caught:
            read_audio("speech.wav")
        assert caught.value.hresult == 0x8007007E


class TestBlocks:
    @pytest.mark.parametrize("seconds", [0.032, 1.0, 7.0])
    def test_blocks_are_the_resampled_mono_sound_cut(self, seconds: float) -> None:
        samples = np.random.default_rng(2).uniform(-0.5, 0.5, (130001, 2)).astype(np.float32)
        expected = soxr.resample(samples.mean(axis=1), 44100, 16000)
        blocks = list(audio_blocks(encoded(samples, 44100, "WAV", "FLOAT"), block_seconds=seconds))
        assert {len(block) for block in blocks[:-1]} <= {round(seconds * 16000)}
        np.testing.assert_allclose(np.concatenate(blocks), expected, atol=1e-6)

    def test_a_file_and_its_samples_give_the_same_blocks(self) -> None:
        samples = tone(100000)
        from_file = list(audio_blocks(encoded(samples, 8000, "WAV", "FLOAT"), block_seconds=2))
        from_memory = list(audio_blocks((samples, 8000), block_seconds=2))
        assert [len(block) for block in from_file] == [32000] * 6 + [8000]
        assert all(np.array_equal(one, other) for one, other in zip(from_file, from_memory, strict=True))

    def test_without_resampling_the_samples_are_untouched(self) -> None:
        samples = np.random.default_rng(3).uniform(-1, 1, 1000).astype(np.float32)
        blocks = list(audio_blocks(Audio(samples, 16000), block_seconds=0.025))
        assert [len(block) for block in blocks] == [400, 400, 200]
        assert np.array_equal(np.concatenate(blocks), samples)

    def test_blocks_are_arrays_of_their_own(self) -> None:
        first, second = audio_blocks((np.ones(20, np.float32), 16000), block_seconds=10 / 16000)
        first[:] = 5
        assert second.tolist() == [1] * 10

    def test_silence_of_no_length_has_no_block(self) -> None:
        assert list(audio_blocks((np.zeros(0, np.float32), 8000))) == []

    def test_integers_with_a_rate_are_sound(self) -> None:
        (block,) = audio_blocks((np.array([-32768, 16384], np.int16), 16000))
        assert block.tolist() == [-1, 0.5]

    @pytest.mark.parametrize("seconds", [0, -1, float("nan"), float("inf")])
    def test_the_length_of_blocks_is_checked_at_once(self, seconds: float) -> None:
        with pytest.raises(ValueError, match="block_seconds"):
            audio_blocks((np.zeros(1), 8000), block_seconds=seconds)

    def test_without_packages_samples_at_the_wanted_rate_can_be_cut(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setitem(sys.modules, "soundfile", None)
        monkeypatch.setitem(sys.modules, "soxr", None)
        assert len(next(audio_blocks((np.zeros(5), 16000)))) == 5

    def test_memory_does_not_grow_with_the_length(self, tmp_path: Path) -> None:
        def peak(seconds: int) -> int:
            path = tmp_path / f"{seconds}.wav"
            path.write_bytes(wav(np.zeros((8000 * seconds, 1))))
            tracemalloc.start()
            try:
                assert sum(map(len, audio_blocks(path, block_seconds=1))) == 16000 * seconds
                return tracemalloc.get_traced_memory()[1]
            finally:
                tracemalloc.stop()

        assert peak(200) < 1.1 * peak(20)

    def test_a_rate_of_1_hz_is_resampled_in_small_steps(self) -> None:
        assert [len(block) for block in audio_blocks((np.zeros(100), 1), block_seconds=50)] == [800000, 800000]

    def test_a_file_is_closed_when_the_blocks_are_left(self, tmp_path: Path) -> None:
        path = tmp_path / "speech.wav"
        path.write_bytes(wav(np.zeros((80000, 1))))
        blocks = audio_blocks(path, block_seconds=1)
        next(blocks)
        blocks.close()  # type: ignore[attr-defined]
        path.unlink()  # on Windows only a closed file can be deleted
        assert next(blocks, None) is None


class TestWriting:
    def test_samples_without_their_rate(self, tmp_path: Path) -> None:
        with pytest.raises(TypeError, match=r"or a tuple \(samples, sample_rate\), not ndarray"):
            write_audio(tmp_path / "a.wav", np.zeros(4, np.float32))  # type: ignore[arg-type]
        assert not (tmp_path / "a.wav").exists()

    @pytest.mark.parametrize("name", ["a.wav", "a.flac", "a.aiff", "a.WAV", "ö 日.wav"])
    def test_what_keeps_samples_keeps_16_bits(self, name: str, tmp_path: Path) -> None:
        values = np.arange(-32768, 32768).astype(np.int16)
        write_audio(tmp_path / name, (values, 8000))
        audio = read_audio(tmp_path / name)
        assert audio.sample_rate == 8000
        assert np.array_equal(audio.samples * 32768, values)

    def test_the_standard_library_reads_a_wav(self, tmp_path: Path) -> None:
        write_audio(tmp_path / "a.wav", Audio(np.array([[0.5, -1], [0, 2]]), 44100))
        with wave.open(str(tmp_path / "a.wav")) as file:
            assert (file.getnchannels(), file.getframerate(), file.getsampwidth()) == (2, 44100, 2)
            assert np.frombuffer(file.readframes(2), "<i2").tolist() == [16384, -32768, 0, 32767]

    @pytest.mark.parametrize("name", ["a.ogg", "a.oga", "a.mp3"])
    def test_lossy_formats_are_written(self, name: str, tmp_path: Path) -> None:
        write_audio(tmp_path / name, Audio(tone(16000, 16000), 16000))
        np.testing.assert_allclose(read_audio(tmp_path / name).samples, tone(16000, 16000), atol=0.05)

    def test_floats_are_kept_exactly_and_unclipped(self, tmp_path: Path) -> None:
        samples = np.array([1.5, -3, 1e-20], np.float32)
        write_audio(tmp_path / "a.wav", Audio(samples, 8000), sample_format="float32")
        assert np.array_equal(read_audio(tmp_path / "a.wav").samples, samples)

    def test_24_bits(self, tmp_path: Path) -> None:
        write_audio(tmp_path / "a.flac", Audio([2.0**-23, -(2.0**-20)], 8000), sample_format="int24")
        assert read_audio(tmp_path / "a.flac").samples.tolist() == [2.0**-23, -(2.0**-20)]

    def test_no_frames_at_all(self, tmp_path: Path) -> None:
        write_audio(tmp_path / "a.wav", Audio([], 8000))
        assert read_audio(tmp_path / "a.wav").duration == 0

    @pytest.mark.parametrize(
        ("name", "sample_format", "message"),
        [
            ("a", None, "must end with"),
            ("a.doc", None, "must end with"),
            ("a.raw", None, "must end with"),
            ("a.sd2", None, "must end with"),
            ("a.wav", "int8", "sample_format"),
            ("a.flac", "float32", "FLAC"),
            ("a.mp3", "int16", "leave sample_format out"),
        ],
    )
    def test_formats_that_cannot_be_written(self, name: str, sample_format: Any, message: str, tmp_path: Path) -> None:
        with pytest.raises(ValueError, match=message):
            write_audio(tmp_path / name, Audio([0.0], 8000), sample_format=sample_format)
        assert list(tmp_path.iterdir()) == []

    @pytest.mark.parametrize(("name", "rate"), [("a.ogg", 200_001), ("a.oga", 768_000), ("a.wav", 2**31)])
    def test_rates_that_libsndfile_does_not_survive(self, name: str, rate: int, tmp_path: Path) -> None:
        with pytest.raises(WinMLError, match=f"not {rate}") as caught:
            write_audio(tmp_path / name, Audio(np.zeros(100), rate))
        assert caught.value.hresult == 0x80004005
        assert list(tmp_path.iterdir()) == []

    def test_the_highest_rate_of_ogg(self, tmp_path: Path) -> None:
        write_audio(tmp_path / "a.ogg", Audio(np.zeros(100), 200_000))
        assert read_audio(tmp_path / "a.ogg").sample_rate == 200_000

    @pytest.mark.skipif(os.name == "nt" or sys.platform == "darwin", reason="file names are text there")
    def test_a_name_that_is_no_text(self, tmp_path: Path) -> None:
        path = tmp_path / os.fsdecode(b"\xff.wav")
        write_audio(path, Audio([0.5], 8000))
        assert read_audio(path).samples.tolist() == [0.5]

    def test_a_missing_folder(self, tmp_path: Path) -> None:
        with pytest.raises(WinMLError) as caught:
            write_audio(tmp_path / "absent" / "a.wav", Audio([0.0], 8000))
        assert caught.value.hresult == 0x80070003

    def test_a_failure_leaves_the_old_file_and_nothing_else(self, tmp_path: Path) -> None:
        path = tmp_path / "a.mp3"
        path.write_bytes(b"old")
        with pytest.raises(WinMLError, match=r"a\.mp3") as caught:
            write_audio(path, Audio(np.zeros(100), 12345))  # a rate that MP3 does not have
        assert caught.value.hresult == 0x80004005
        assert [(file.name, file.read_bytes()) for file in tmp_path.iterdir()] == [("a.mp3", b"old")]


def test_content_that_the_decoder_takes_for_no_file_is_not_said_to_be_missing(tmp_path: Path) -> None:
    (tmp_path / "noise.mp3").write_bytes(np.random.default_rng(0).bytes(3000))
    with pytest.raises(WinMLError, match=r"noise\.mp3\]: no sound that can be read\. WAV, FLAC") as raised:
        read_audio(tmp_path / "noise.mp3")
    assert raised.value.hresult == 0x80070570
