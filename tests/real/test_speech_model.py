"""`genai.load_speech` on the tiny model that hears tones, and on Whisper itself: texts, times, streams, threads."""

from __future__ import annotations

import asyncio
import io
import itertools
import json
import os
import select
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import onnx
import pytest

import genai
from fakes.model_files import require_engine
from fakes.ort_whisper import OrtWhisper
from fakes.real_models import catalog_model
from fakes.spoken import spoken
from genai import (
    SpeechModel,
    SpeechStream,
    Transcript,
    TranscriptionOptions,
    VoiceActivity,
    WinMLError,
    catalog,
    named_models,
)
from genai.log_mel import log_mel
from genai.pipe_reader import PipeReader
from models.recipes import scripted_onnx
from models.voice_models import loudness_sequence
from models.whisper_models import WORDS, tiny_whisper, tones

Samples = npt.NDArray[np.float32]
pytestmark = pytest.mark.real

ONE, TWO, THREE, CAFE = 0, 1, 2, 6
LONG = [None if index % 3 == 0 else index % 8 for index in range(100)]
"""A hundred seconds: two of every three have a word."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    require_engine("ort")
    return tiny_whisper(tmp_path_factory.mktemp("speech") / "tiny")


@pytest.fixture
def model(folder: Path) -> Iterator[SpeechModel]:
    with genai.load_speech(folder) as loaded:
        yield loaded


@pytest.fixture
def german(folder: Path) -> Iterator[SpeechModel]:
    with genai.load_speech(tiny_whisper(folder.parent / "multilingual", multilingual=True)) as loaded:
        yield loaded


@pytest.fixture(scope="module")
def whisper() -> Iterator[SpeechModel]:
    require_engine("ort")
    with genai.load_speech(catalog_model("whisper-tiny.en")) as loaded:
        yield loaded


@pytest.fixture
def loudness(tmp_path: Path) -> Iterator[VoiceActivity]:
    """Takes for speech what is louder than half of full scale."""
    onnx.save(loudness_sequence(), tmp_path / "voice.onnx")
    with VoiceActivity(tmp_path / "voice.onnx") as activity:
        yield activity


def shown(transcript: Transcript) -> list[tuple[float, float, str]]:
    return [(segment.start, segment.end, segment.text) for segment in transcript.segments]


def words_of(script: list[int | None]) -> list[tuple[float, float, str]]:
    """What is heard of a second of sound for each word."""
    return [(at, at + 1.0, WORDS[word].strip()) for at, word in enumerate(script) if word is not None]


class TestTranscribe:
    def test_text_and_times(self, model: SpeechModel) -> None:
        result = model.transcribe(tones([ONE, None, THREE, CAFE]))
        assert shown(result) == [(0.0, 1.0, "one"), (2.0, 3.0, "three"), (3.0, 4.0, "café")]
        assert result.text == str(result) == "one three café"
        assert (result.language, result.duration, result.finish_reason.name) == ("en", 4.0, "INPUT_COMPLETE")

    def test_what_the_model_is_sure_of(self, model: SpeechModel) -> None:
        segment = model.transcribe(tones([ONE])).segments[0]
        assert b"".join(map(model.tokenizer.token_bytes, segment.token_ids)) == b" one"
        assert segment.average_log_probability == pytest.approx(0, abs=1e-3)
        assert segment.no_speech_probability == pytest.approx(0, abs=1e-3)
        assert segment.temperature == 0

    def test_silence(self, model: SpeechModel) -> None:
        result = model.transcribe(tones([None] * 3))
        assert (result.text, result.segments, result.duration) == ("", (), 3.0)

    def test_no_sound(self, model: SpeechModel) -> None:
        result = model.transcribe(np.zeros(0, np.float32))
        assert (result.text, result.duration, result.timings.window_count) == ("", 0.0, 0)
        assert result.timings.real_time_factor == 0.0

    def test_a_long_recording_loses_no_word_and_says_none_twice(self, model: SpeechModel) -> None:
        assert shown(model.transcribe(tones(LONG), voice_activity=False)) == words_of(LONG)

    def test_a_word_at_the_border_of_two_windows_is_heard_whole(self, model: SpeechModel) -> None:
        parts = tones([ONE, *[None] * 71], 0.4), tones([TWO], 1.6), tones([None, THREE], 0.4)
        found = shown(model.transcribe(np.concatenate(parts), voice_activity=False))
        assert found == [(0.0, 0.4, "one"), (28.8, 30.4, "two"), (30.8, 31.2, "three")]

    def test_without_times_there_is_a_segment_for_each_window(self, model: SpeechModel) -> None:
        result = model.transcribe(tones(LONG), timestamps=False, voice_activity=False)
        assert result.text == " ".join(text for _, _, text in words_of(LONG))
        assert [segment.end for segment in result.segments][-1] == 100.0
        assert all(a.end == b.start for a, b in itertools.pairwise(result.segments))

    def test_silences_are_cut_out_and_times_stay(self, model: SpeechModel, loudness: VoiceActivity) -> None:
        sound = tones([ONE, *[None] * 40, TWO, *[None] * 30, CAFE], amplitude=0.9)
        result = model.transcribe(sound, voice_activity=loudness)
        assert result.timings.window_count == 1
        assert [text for _, _, text in shown(result)] == ["one", "two", "café"]
        assert [start for start, _, _ in shown(result)] == pytest.approx([0, 41, 72], abs=0.21)
        assert [end for _, end, _ in shown(result)] == pytest.approx([1, 42, 73], abs=0.41)
        assert result.duration == 73.0

    def test_nothing_but_silence_is_not_heard_at_all(self, model: SpeechModel, loudness: VoiceActivity) -> None:
        result = model.transcribe(tones([None] * 50), voice_activity=loudness)
        assert (result.timings.window_count, result.duration, result.language) == (0, 50.0, "en")

    def test_timings(self, model: SpeechModel) -> None:
        timings = model.transcribe(tones(LONG), voice_activity=False).timings
        assert timings.sound_seconds == 100.0
        assert timings.window_count == 4
        assert 0 < timings.encode_seconds < timings.seconds
        assert 0 < timings.decode_seconds < timings.seconds
        assert timings.real_time_factor == timings.seconds / 100

    def test_progress(self, model: SpeechModel) -> None:
        told: list[tuple[float, float | None]] = []
        model.transcribe(tones(LONG), voice_activity=False, progress=lambda *report: told.append(report))
        assert len(told) == 5  # after each of four windows, and at the end
        assert [done for done, _ in told] == sorted(done for done, _ in told)
        assert told[-1][0] == 100.0
        assert {whole for _, whole in told} == {100.0}

    def test_a_prompt_changes_nothing_here(self, model: SpeechModel) -> None:
        result = model.transcribe(tones([ONE, TWO]), prompt="Names: one, two.", condition_on_previous_text=True)
        assert result.text == "one two"


class TestSources:
    @pytest.fixture
    def path(self, tmp_path: Path) -> Path:
        pytest.importorskip("soundfile")
        genai.write_audio(tmp_path / "words.wav", (tones([ONE, CAFE]), 16000))
        return tmp_path / "words.wav"

    def test_files(self, model: SpeechModel, path: Path) -> None:
        for source in (path, str(path), path.read_bytes(), io.BytesIO(path.read_bytes())):
            assert model.transcribe(source).text == "one café"

    def test_a_file_tells_its_length_to_progress(self, model: SpeechModel, path: Path) -> None:
        told: list[float | None] = []
        model.transcribe(path, progress=lambda done, whole: told.append(whole))
        assert set(told) == {2.0}

    def test_samples_at_another_rate(self, model: SpeechModel) -> None:
        pytest.importorskip("soxr")
        sound = genai.Audio(tones([ONE, CAFE]), 16000).resampled(44100)
        stereo = np.stack([sound.samples, sound.samples], axis=1)
        for source, fields in ((sound, {}), ((stereo, 44100), {}), (stereo, {"sample_rate": 44100})):
            assert model.transcribe(source, **fields).text == "one café"  # type: ignore[arg-type]

    @pytest.mark.parametrize("length", [160, 1600, 100_000])
    def test_blocks_of_a_microphone(self, model: SpeechModel, length: int) -> None:
        sound = tones([ONE, None, CAFE])
        blocks = (sound[at : at + length] for at in range(0, len(sound), length))
        assert model.transcribe(blocks).text == "one café"

    def test_windows_are_heard_while_blocks_come(self, model: SpeechModel) -> None:
        given: list[int] = []

        def microphone() -> Iterator[Samples]:
            for index, word in enumerate(LONG):
                given.append(index)
                yield tones([word])

        stream = model.stream(microphone(), voice_activity=False)
        assert next(stream).text == "two"
        assert len(given) == 31
        stream.close()

    def test_a_missing_file(self, model: SpeechModel) -> None:
        pytest.importorskip("soundfile")
        with pytest.raises(WinMLError, match="no such file") as caught:
            model.transcribe("nowhere.wav")
        assert caught.value.hresult == 0x80070002
        assert model.transcribe(tones([ONE])).text == "one"

    def test_a_microphone_that_fails(self, model: SpeechModel) -> None:
        def microphone() -> Iterator[Samples]:
            yield tones([ONE] * 31)
            raise OSError("unplugged")

        with pytest.raises(OSError, match="unplugged"):
            model.transcribe(microphone(), voice_activity=False)
        assert model.transcribe(tones([ONE])).text == "one"

    @pytest.mark.parametrize("block", [np.zeros((2, 2, 2)), np.array(["a"]), [float("nan")]])
    def test_blocks_that_are_no_sound(self, model: SpeechModel, block: Any) -> None:
        with pytest.raises(ValueError, match="samples"):
            model.transcribe([block])


class TestLive:
    """The loud tones of a second are words; a pause is known 17 steps of 512 samples after it begins. The model of
    loudness finds the beginning and the end of speech a step late.
    """

    SCRIPT: ClassVar[list[int | None]] = [ONE, TWO, None, None, CAFE, None, None]

    @pytest.fixture
    def given(self) -> list[int]:
        """The blocks that were read."""
        return []

    @pytest.fixture
    def microphone(self, given: list[int]) -> Iterator[Samples]:
        """The script in blocks of a tenth of a second."""

        def blocks() -> Iterator[Samples]:
            sound = tones(self.SCRIPT, amplitude=0.9)
            for at in range(0, len(sound), 1600):
                given.append(at)
                yield sound[at : at + 1600]

        return blocks()

    def test_a_sentence_is_there_before_the_next_begins(
        self, model: SpeechModel, loudness: VoiceActivity, microphone: Iterator[Samples], given: list[int]
    ) -> None:
        stream = model.stream(microphone, live=True, voice_activity=loudness)
        assert [(segment.text, len(given)) for segment in stream] == [("one", 26), ("two", 26), ("café", 56)]
        assert stream.result.timings.window_count == 2
        assert stream.result.duration == 7.0

    def test_times_are_those_of_the_recording(
        self, model: SpeechModel, loudness: VoiceActivity, microphone: Iterator[Samples]
    ) -> None:
        result = model.transcribe(microphone, live=True, voice_activity=loudness)
        assert [start for start, _, _ in shown(result)] == pytest.approx([0, 1, 4], abs=0.3)
        assert [end for _, end, _ in shown(result)] == pytest.approx([1, 2, 5], abs=0.3)

    def test_without_times_each_sentence_is_a_segment(
        self, model: SpeechModel, loudness: VoiceActivity, microphone: Iterator[Samples]
    ) -> None:
        stream = model.stream(microphone, live=True, voice_activity=loudness, timestamps=False)
        assert [segment.text for segment in stream] == ["one two", "café"]

    def test_what_was_written_stands_before_the_next_sentence(
        self, model: SpeechModel, loudness: VoiceActivity, microphone: Iterator[Samples]
    ) -> None:
        fields: Any = {"prompt": "Names: one.", "condition_on_previous_text": True}
        assert model.transcribe(microphone, live=True, voice_activity=loudness, **fields).text == "one two café"

    def test_a_file_can_be_heard_sentence_by_sentence(
        self, model: SpeechModel, loudness: VoiceActivity, tmp_path: Path
    ) -> None:
        pytest.importorskip("soundfile")
        genai.write_audio(tmp_path / "talk.wav", (tones(self.SCRIPT, amplitude=0.9), 16000))
        result = model.transcribe(tmp_path / "talk.wav", live=True, voice_activity=loudness)
        assert (result.text, result.timings.window_count) == ("one two café", 2)

    def test_progress_is_told_after_each_sentence(
        self, model: SpeechModel, loudness: VoiceActivity, microphone: Iterator[Samples]
    ) -> None:
        told: list[float] = []
        model.transcribe(microphone, live=True, voice_activity=loudness, progress=lambda done, _: told.append(done))
        assert told == [(64 * 512 + 4000) / 16000, (158 * 512 + 4000) / 16000, 7.0]

    def test_with_asyncio(self, model: SpeechModel, loudness: VoiceActivity, microphone: Iterator[Samples]) -> None:
        async def read() -> list[str]:
            return [segment.text async for segment in model.astream(microphone, live=True, voice_activity=loudness)]

        assert asyncio.run(read()) == ["one", "two", "café"]

    def test_cancelled_between_two_sentences(
        self, model: SpeechModel, loudness: VoiceActivity, microphone: Iterator[Samples]
    ) -> None:
        with model.stream(microphone, live=True, voice_activity=loudness, timestamps=False) as stream:
            assert next(stream).text == "one two"
            stream.cancel()
            assert list(stream) == []
        assert (stream.result.text, stream.result.finish_reason.name) == ("one two", "CANCELED")

    @pytest.mark.skipif(not hasattr(select, "poll"), reason="this system cannot tell what a pipe holds")
    @pytest.mark.parametrize("end", [SpeechStream.close, SpeechStream.cancel])
    def test_ended_by_another_thread_while_nothing_is_heard(
        self, model: SpeechModel, loudness: VoiceActivity, end: Any, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        is_silent = threading.Event()
        monkeypatch.setattr(PipeReader, "has_come", lambda pipe, seconds: is_silent.set())
        reader, writer = os.pipe()
        with open(reader, "rb") as microphone, open(writer, "wb"):
            stream = model.stream(microphone, live=True, voice_activity=loudness)
            reading = threading.Thread(target=stream.read, daemon=True)
            reading.start()
            assert is_silent.wait(100)
            ending = threading.Thread(target=end, args=(stream,), daemon=True)
            ending.start()
            ending.join(100)
            reading.join(100)
            assert (ending.is_alive(), reading.is_alive()) == (False, False)
        assert stream.result.finish_reason.name == "CANCELED"

    def test_it_takes_voice_activity(self, model: SpeechModel) -> None:
        with pytest.raises(ValueError, match="leave voice_activity=False out"):
            model.transcribe(tones([ONE]), live=True, voice_activity=False)
        with pytest.raises(TypeError, match="live must be a bool"):
            model.transcribe(tones([ONE]), live=1)  # type: ignore[arg-type]

    def test_what_is_told_while_the_model_for_pauses_is_fetched_names_it(
        self, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def prepare(entry: catalog.CatalogEntry, engine: Any, offline: bool, progress: Any) -> Path:
            progress("download", 1, 2)
            onnx.save(loudness_sequence(), tmp_path / "voice.onnx")
            return tmp_path / "voice.onnx"

        monkeypatch.setattr(named_models, "prepare", prepare)
        told: list[Any] = []
        with genai.load_speech(folder, progress=lambda *report: told.append(report)) as model:
            model.transcribe(tones([ONE]), live=True)
        assert told == [("download silero-vad", 1, 2)]

    def test_the_model_for_pauses_may_be_missing(self, folder: Path) -> None:
        with genai.load_speech(folder, offline=True) as model:
            with pytest.raises(WinMLError, match="silero-vad") as caught:
                model.transcribe(tones([ONE]), live=True)
            assert "voice_activity=False" not in str(caught.value)


class TestLanguages:
    def test_an_english_model(self, model: SpeechModel) -> None:
        assert (model.languages, model.is_multilingual) == (("en",), False)
        with pytest.raises(ValueError, match="English only"):
            model.transcribe(tones([ONE]), language="de")

    def test_the_language_is_found_out(self, german: SpeechModel) -> None:
        assert german.languages == ("en", "zh", "de", "es")
        result = german.transcribe(tones([4, 5]))  # the upper four tones are German
        assert (result.language, result.text) == ("de", "fünf sechs")

    def test_the_language_is_said(self, german: SpeechModel) -> None:
        result = german.transcribe(tones([4, 5]), language="en")
        assert (result.language, result.text) == ("en", "five six")

    def test_translation(self, german: SpeechModel) -> None:
        assert german.transcribe(tones([4, 5]), translate=True).text == "five six"

    def test_an_unknown_language(self, german: SpeechModel) -> None:
        with pytest.raises(ValueError, match="one of en, zh, de, es, not 'fr'"):
            german.stream(tones([4]), language="fr")


class TestStreams:
    def test_segments_come_one_by_one(self, model: SpeechModel) -> None:
        stream = model.stream(tones([ONE, None, TWO]))
        assert repr(stream) == "<SpeechStream unfinished>"
        assert [segment.text for segment in stream] == ["one", "two"]
        assert stream.result.text == "one two"
        assert repr(stream) == "<SpeechStream INPUT_COMPLETE>"

    def test_nothing_runs_before_the_first_read(self, model: SpeechModel) -> None:
        def microphone() -> Iterator[Samples]:
            raise AssertionError("it was read")
            yield np.zeros(0, np.float32)

        model.stream(microphone()).close()

    def test_the_result_is_there_at_the_end_only(self, model: SpeechModel) -> None:
        with model.stream(tones([ONE, TWO])) as stream:
            next(stream)
            with pytest.raises(WinMLError, match="not at its end"):
                print(stream.result)

    def test_closing_leaves_what_was_heard(self, model: SpeechModel) -> None:
        stream = model.stream(tones(LONG), voice_activity=False)
        next(stream)
        stream.close()
        assert stream.result.finish_reason.name == "CANCELED"
        assert shown(stream.result) == words_of(LONG[:29])  # the last one may be cut off
        assert stream.result.duration == pytest.approx(30, abs=2)
        assert list(stream) == []

    def test_a_dropped_stream_gives_the_model_free(self, model: SpeechModel) -> None:
        next(model.stream(tones([ONE])))
        assert model.transcribe(tones([TWO])).text == "two"

    def test_a_second_stream_of_the_same_thread(self, model: SpeechModel) -> None:
        first = model.stream(tones([ONE]))
        with pytest.raises(WinMLError, match="unfinished stream"):
            model.stream(tones([ONE]))
        first.close()

    def test_cancel_from_outside(self, model: SpeechModel) -> None:
        source = genai.CancellationSource()
        stream = model.stream(tones(LONG), voice_activity=False, cancellation=source)
        next(stream)
        source.cancel()
        rest = list(stream)
        assert len(rest) == len(words_of(LONG[:29])) - 1
        assert stream.result.finish_reason.name == "CANCELED"

    def test_cancel_while_nobody_speaks(self, model: SpeechModel, loudness: VoiceActivity) -> None:
        source = genai.CancellationSource()
        read: list[int] = []

        def silence() -> Iterator[Samples]:
            for index in range(1000):
                if index == 50:
                    source.cancel()
                read.append(index)
                yield np.zeros(16_000, np.float32)

        result = model.transcribe(silence(), voice_activity=loudness, cancellation=source)
        assert (result.text, result.finish_reason.name, len(read)) == ("", "CANCELED", 51)

    def test_cancelled_before_it_began(self, model: SpeechModel) -> None:
        source = genai.CancellationSource()
        source.cancel()
        result = model.transcribe(tones([ONE]), cancellation=source)
        assert (result.text, result.finish_reason.name) == ("", "CANCELED")

    def test_an_interrupt_leaves_what_was_heard_and_a_usable_model(self, model: SpeechModel) -> None:
        def interrupt(done: float, whole: float | None) -> None:
            if done > 40:
                raise KeyboardInterrupt

        stream = model.stream(tones(LONG), voice_activity=False, progress=interrupt)
        with pytest.raises(KeyboardInterrupt):
            list(stream)
        assert stream.result.finish_reason.name == "CANCELED"
        assert shown(stream.result)[:20] == words_of(LONG)[:20]
        assert model.transcribe(tones([ONE])).text == "one"

    def test_options_as_a_record(self, model: SpeechModel) -> None:
        options = TranscriptionOptions(timestamps=False)
        assert shown(model.transcribe(tones([ONE, TWO]), options=options)) == [(0.0, 2.0, "one two")]

    @pytest.mark.parametrize(
        ("fields", "kind"),
        [
            ({"voice_activity": 1}, TypeError),
            ({"cancellation": 1}, TypeError),
            ({"progress": 1}, TypeError),
            ({"timeout": "1"}, TypeError),
            ({"timeout": -1}, ValueError),
        ],
    )
    def test_arguments_that_cannot_be(self, model: SpeechModel, fields: Any, kind: type[Exception]) -> None:
        with pytest.raises(kind):
            model.transcribe(tones([ONE]), **fields)


class TestThreads:
    def test_calls_take_turns(self, model: SpeechModel) -> None:
        found: list[str] = []
        threads = [
            threading.Thread(target=lambda word=word: found.append(model.transcribe(tones([word])).text))
            for word in range(6)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sorted(found) == sorted(WORDS[word].strip() for word in range(6))

    def test_a_call_waits_no_longer_than_it_is_told(self, model: SpeechModel) -> None:
        failures: list[BaseException] = []

        def call() -> None:
            try:
                model.transcribe(tones([ONE]), timeout=0.05)
            except TimeoutError as error:
                failures.append(error)

        with model.stream(tones([ONE])) as stream:
            next(stream)
            thread = threading.Thread(target=call)
            thread.start()
            thread.join()
        assert len(failures) == 1

    def test_closing_ends_the_stream_of_another_thread(self, folder: Path) -> None:
        model = genai.load_speech(folder)
        has_begun, may_go = threading.Event(), threading.Event()
        results: list[Transcript] = []

        def microphone() -> Iterator[Samples]:
            while True:
                yield tones([ONE])

        def read() -> None:
            stream = model.stream(microphone(), voice_activity=False)
            next(stream)
            has_begun.set()
            may_go.wait()
            list(stream)
            results.append(stream.result)

        thread = threading.Thread(target=read)
        thread.start()
        has_begun.wait()
        model.close()
        may_go.set()
        thread.join()
        assert results[0].finish_reason.name == "CANCELED"

    def test_a_closed_model(self, folder: Path) -> None:
        model = genai.load_speech(folder)
        model.close()
        model.close()
        assert repr(model) == "<SpeechModel 'tiny' (closed)>"
        with pytest.raises(RuntimeError, match="SpeechModel is closed"):
            model.transcribe(tones([ONE]))
        with pytest.raises(RuntimeError, match="SpeechModel is closed"):
            model.__enter__()


class TestAsyncio:
    def test_a_stream(self, model: SpeechModel) -> None:
        async def read() -> tuple[list[str], str]:
            stream = model.astream(tones([ONE, None, TWO]))
            return [segment.text async for segment in stream], stream.result.text

        assert asyncio.run(read()) == (["one", "two"], "one two")

    def test_two_transcriptions_at_once(self, model: SpeechModel) -> None:
        async def both() -> tuple[Transcript, ...]:
            return await asyncio.gather(model.atranscribe(tones([ONE])), model.atranscribe(tones([TWO])))

        assert [result.text for result in asyncio.run(both())] == ["one", "two"]

    def test_a_cancelled_task_gives_the_model_free(self, model: SpeechModel) -> None:
        def microphone() -> Iterator[Samples]:
            while True:
                yield tones([ONE])

        async def cancelled() -> str:
            task = asyncio.create_task(model.atranscribe(microphone(), voice_activity=False))
            await asyncio.sleep(0.05)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            return (await model.atranscribe(tones([TWO]))).text

        assert asyncio.run(cancelled()) == "two"

    def test_a_model_that_is_closed_without_waiting(self, folder: Path) -> None:
        async def use() -> str:
            async with genai.load_speech(folder) as model:
                return (await model.atranscribe(tones([ONE]))).text

        assert asyncio.run(use()) == "one"

    def test_arguments_are_checked_at_once(self, model: SpeechModel) -> None:
        with pytest.raises(TypeError, match="audio must be"):
            model.astream(5)  # type: ignore[arg-type]


class TestLoading:
    def test_what_it_shows(self, model: SpeechModel, folder: Path) -> None:
        assert repr(model) == f"<SpeechModel 'tiny' on ONNX Runtime, English, {folder}>"

    def test_a_multilingual_model_shows_how_many_languages(self, german: SpeechModel) -> None:
        assert "4 languages" in repr(german)

    def test_a_file_instead_of_the_folder(self, folder: Path) -> None:
        with pytest.raises(WinMLError, match="is a file; a speech recognition model is a folder"):
            genai.load_speech(folder / "encoder.onnx")

    def test_a_ctranslate2_folder_says_how_to_convert_it(self, tmp_path: Path) -> None:
        (tmp_path / "model.bin").write_bytes(b"")
        with pytest.raises(genai.NotSupportedError, match="winml-lite convert"):
            genai.load_speech(tmp_path)

    def test_a_model_of_another_kind(self, tmp_path: Path) -> None:
        with pytest.raises(WinMLError, match="exports of other tools are not read"):
            genai.load_speech(scripted_onnx(tmp_path))

    def test_a_catalog_name_of_another_kind(self) -> None:
        with pytest.raises(WinMLError, match=r"load it with genai.load\('smollm2'\)"):
            genai.load_speech("smollm2")

    def test_settings_that_do_not_fit_the_graphs(self, folder: Path, tmp_path: Path) -> None:
        for file in folder.iterdir():
            (tmp_path / file.name).write_bytes(file.read_bytes())
        settings = json.loads((tmp_path / "whisper.json").read_text())
        settings["shape"]["mel_count"] = 128
        (tmp_path / "whisper.json").write_text(json.dumps(settings))
        with pytest.raises(WinMLError, match="has 80 mel bands, its settings say 128"):
            genai.load_speech(tmp_path)

    @pytest.mark.parametrize("threads", [1, 2])
    def test_threads(self, folder: Path, threads: int) -> None:
        with genai.load_speech(folder, threads=threads) as model:
            assert model.transcribe(tones([ONE])).text == "one"

    def test_the_model_for_silences_may_be_missing(self, folder: Path) -> None:
        with genai.load_speech(folder, offline=True) as model:
            with pytest.raises(WinMLError, match="voice_activity=False"):
                model.transcribe(tones([ONE] * 31))
            assert model.transcribe(tones([ONE] * 31), voice_activity=False).text.startswith("one")


class TestWhisper:
    """The real model, on sentences of a synthetic voice."""

    def test_hello_world(self, whisper: SpeechModel) -> None:
        result = whisper.transcribe(spoken("Hello world. This is a test."))
        assert "hello world" in result.text.casefold()
        assert result.segments[-1].end <= result.duration

    def test_tokens_are_those_of_a_plain_loop(self, whisper: SpeechModel) -> None:
        sound = spoken("The weather is nice today, and the sun is shining over the hills.")
        segments = whisper.transcribe(sound, timestamps=False, temperatures=0).segments
        plain = OrtWhisper(Path(whisper.file))
        plain.hear(log_mel(sound))
        settings = json.loads((Path(whisper.file) / "whisper.json").read_text())["tokens"]
        prompt = [settings["start"], settings["no_timestamps"]]
        assert [list(segment.token_ids) for segment in segments] == [plain.say(prompt, settings)]

    def test_pauses_of_a_long_recording_are_cut_out(self, whisper: SpeechModel) -> None:
        sentences = [
            spoken(text)
            for text in (
                "Please open the window and close the door.",
                "My favourite book is about a ship and the open sea.",
                "The train to London leaves at nine in the morning.",
            )
        ]
        pause = np.zeros(20 * 16000, np.float32)
        sound = np.concatenate([sentences[0], pause, sentences[1], pause, sentences[2]])
        with VoiceActivity(catalog_model("silero-vad")) as activity:
            result = whisper.transcribe(sound, voice_activity=activity)
        assert result.timings.window_count == 1
        assert [word for word in ("window", "ship", "train") if word in result.text.casefold()] == [
            "window",
            "ship",
            "train",
        ]
        begun = (len(sound) - len(sentences[2])) / 16000
        assert result.segments[-1].start == pytest.approx(begun, abs=1)

    def test_live_a_sentence_is_written_before_the_next_is_spoken(self, whisper: SpeechModel) -> None:
        first, second = (
            spoken("Please open the window and close the door."),
            spoken("My favourite book is about a ship."),
        )
        sound = np.concatenate([first, np.zeros(24_000, np.float32), second, np.zeros(24_000, np.float32)])
        given: list[int] = []

        def microphone() -> Iterator[Samples]:
            for at in range(0, len(sound), 1600):
                given.append(at)
                yield sound[at : at + 1600]

        with VoiceActivity(catalog_model("silero-vad")) as activity:
            segments = [
                (segment, len(given)) for segment in whisper.stream(microphone(), live=True, voice_activity=activity)
            ]
        whole = whisper.transcribe(sound, voice_activity=False).text.casefold()
        live = " ".join(segment.text for segment, _ in segments).casefold()
        assert [word for word in ("window", "door", "book", "ship") if word in live and word in whole] == [
            "window",
            "door",
            "book",
            "ship",
        ]
        assert segments[0][1] * 1600 < len(first) + 16_000  # within a second of the last word
        assert segments[-1][0].start == pytest.approx((len(first) + 24_000) / 16000, abs=0.5)
