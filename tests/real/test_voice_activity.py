"""Voice activity: tiny graphs whose every number can be worked out, and silero-vad against ONNX Runtime itself."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
import pytest

import genai
from fakes.model_files import require_engine
from fakes.real_models import catalog_model
from fakes.rig import failing
from fakes.spoken import _utterance, spoken
from genai import SpeechRegionOptions, VoiceActivity, WinMLError, audio_blocks, speech_regions
from models.onnx_models import add
from models.voice_models import loudness_sequence, loudness_step

Floats = npt.NDArray[np.float32]


@pytest.fixture(params=["step", "sequence"])
def activity(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[VoiceActivity]:
    """The tiny model, in both forms."""
    require_engine("ort")
    path = tmp_path / f"{request.param}.onnx"
    onnx.save(loudness_step() if request.param == "step" else loudness_sequence(), path)
    with VoiceActivity(path) as opened:
        yield opened


def loudness(samples: Floats) -> list[float]:
    """What the tiny model says: half the loudest sample of a step and its context, and half of that before."""
    padded = np.concatenate([np.zeros(64), samples, np.zeros(-len(samples) % 512)])
    loudest = [0.0, *(np.abs(padded[k : k + 576]).max() for k in range(0, len(padded) - 64, 512))]
    return [(before + now) / 2 for before, now in itertools.pairwise(loudest)]


def noise(frames: int, seed: int = 1) -> Floats:
    """Sound that is now loud, now quiet."""
    generator = np.random.default_rng(seed)
    envelope = np.repeat(generator.uniform(0, 1, frames // 700 + 1), 700)[:frames]
    return (generator.uniform(-1, 1, frames) * envelope).astype(np.float32)


class TestProbabilities:
    def test_each_step_hears_64_samples_again_and_the_state_of_the_one_before(self, activity: VoiceActivity) -> None:
        samples = noise(512 * 150)
        np.testing.assert_allclose(activity.probabilities(samples), loudness(samples), rtol=1e-6)

    @pytest.mark.parametrize("length", [1, 100, 511, 512, 513, 5000])
    def test_the_lengths_of_the_pieces_do_not_matter(self, activity: VoiceActivity, length: int) -> None:
        samples = noise(512 * 20)
        pieces = [activity.probabilities(samples[k : k + length]) for k in range(0, len(samples), length)]
        np.testing.assert_allclose(np.concatenate(pieces), loudness(samples), rtol=1e-6)

    def test_the_last_step_is_completed_with_silence(self, activity: VoiceActivity) -> None:
        samples = noise(512 * 3 + 7)
        np.testing.assert_allclose(activity.probabilities(samples, last=True), loudness(samples), rtol=1e-6)

    def test_the_end_may_be_told_with_nothing_left(self, activity: VoiceActivity) -> None:
        activity.probabilities(noise(1024))
        assert activity.probabilities([], last=True).shape == (0,)

    def test_after_the_last_step_a_new_sound_begins(self, activity: VoiceActivity) -> None:
        first = activity.probabilities(noise(3000), last=True)
        assert np.array_equal(activity.probabilities(noise(3000), last=True), first)

    def test_reset_forgets_everything(self, activity: VoiceActivity) -> None:
        activity.probabilities(noise(3000, seed=2))
        activity.reset()
        samples = noise(3000)
        np.testing.assert_allclose(activity.probabilities(samples), loudness(samples)[:5], rtol=1e-6)

    def test_integers_are_sound_as_well(self, activity: VoiceActivity) -> None:
        samples = np.full(1024, 16384, np.int16)
        assert activity.probabilities(samples).tolist() == [0.25, 0.5]

    def test_many_steps_take_few_runs_where_the_graph_takes_many(self, activity: VoiceActivity) -> None:
        activity.probabilities(np.zeros(512 * 938))  # 30 seconds
        assert activity._pipeline.run_count == (15 if activity.name == "sequence" else 938)

    def test_results_are_arrays_of_their_own(self, activity: VoiceActivity) -> None:
        first = activity.probabilities(np.full(512, 1.0))
        activity.probabilities(np.zeros(5120))
        assert first.tolist() == [0.5]

    def test_the_caller_keeps_his_samples(self, activity: VoiceActivity) -> None:
        samples = noise(2000)
        before = samples.copy()
        activity.probabilities(samples)
        samples[:] = 0
        np.testing.assert_allclose(activity.probabilities(before[:600]), loudness(np.append(before, before[:600]))[3:5])

    @pytest.mark.parametrize("samples", [np.zeros((5, 2)), np.zeros((1, 5, 1)), [float("nan")], np.zeros(5, np.int64)])
    def test_what_is_no_sound_of_one_channel_is_not_heard(self, activity: VoiceActivity, samples: Any) -> None:
        with pytest.raises(ValueError):
            activity.probabilities(samples)
        assert activity.probabilities(np.full(512, 1.0)).tolist() == [0.5]

    def test_after_an_interrupted_run_a_new_sound_begins(
        self, activity: VoiceActivity, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def interrupted() -> None:
            raise KeyboardInterrupt

        activity.probabilities(np.ones(700))
        with monkeypatch.context() as patch:
            patch.setattr(activity, "_bind", lambda steps: interrupted())
            with pytest.raises(KeyboardInterrupt):
                activity.probabilities(np.ones(5000))
        assert activity.probabilities(np.full(512, 1.0)).tolist() == [0.5]

    def test_closed(self, activity: VoiceActivity) -> None:
        activity.close()
        activity.close()
        for call in (lambda: activity.probabilities([]), activity.reset, activity.__enter__):
            with pytest.raises(RuntimeError, match="VoiceActivity is closed"):
                call()


class TestRegions:
    def test_loud_parts_are_regions(self, activity: VoiceActivity) -> None:
        samples = np.zeros(16000, np.float32)
        samples[5120:10240] = 1
        regions = list(speech_regions([samples[:6000], samples[6000:6001], samples[6001:]], activity))
        # Two steps more at the end: one that hears the last 64 loud samples again, one through the state.
        assert [(region.start, region.end) for region in regions] == [(5120 - 480, 10240 + 1024 + 480)]

    def test_the_end_of_the_sound_is_the_end_of_the_region(self, activity: VoiceActivity) -> None:
        regions = list(speech_regions([np.ones(10000, np.float32)], activity))
        assert [(region.start, region.end) for region in regions] == [(0, 10000)]

    def test_a_region_comes_before_the_sound_ends(self, activity: VoiceActivity) -> None:
        def blocks() -> Iterator[Floats]:
            yield np.ones(8192, np.float32)
            yield np.zeros(8192, np.float32)
            raise AssertionError("nobody asked for more")

        assert next(speech_regions(blocks(), activity)).start == 0

    def test_options_count(self, activity: VoiceActivity) -> None:
        options = SpeechRegionOptions(threshold=0.9, min_speech=0, padding=0)
        samples = np.append(np.full(512, 0.7), np.zeros(9000)).astype(np.float32)
        assert list(speech_regions([samples], activity, options)) == []

    def test_no_sound_has_no_region(self, activity: VoiceActivity) -> None:
        assert list(speech_regions([], activity)) == []


class TestFiles:
    def test_a_folder_with_one_model(self, tmp_path: Path) -> None:
        require_engine("ort")
        onnx.save(loudness_step(), tmp_path / "any-name.onnx")
        with VoiceActivity(tmp_path) as activity:
            assert (activity.name, len(activity.probabilities(np.zeros(512)))) == (tmp_path.name, 1)

    def test_a_folder_without_a_model(self, tmp_path: Path) -> None:
        with pytest.raises(WinMLError, match="no ONNX file"):
            VoiceActivity(tmp_path)

    def test_a_folder_with_two_models(self, tmp_path: Path) -> None:
        onnx.save(loudness_step(), tmp_path / "a.onnx")
        onnx.save(loudness_step(), tmp_path / "b.onnx")
        with pytest.raises(WinMLError, match="name one of them"):
            VoiceActivity(tmp_path)

    def test_another_model(self, tmp_path: Path) -> None:
        onnx.save(add(), tmp_path / "add.onnx")
        with pytest.raises(genai.NotSupportedError, match=r"add\.onnx .* FLOAT32\[2\], FLOAT32\[2\]"):
            VoiceActivity(tmp_path / "add.onnx")

    def test_a_name_of_another_kind(self) -> None:
        with pytest.raises(WinMLError, match=r"genai\.load"):
            VoiceActivity("smollm2")

    def test_an_unreadable_file(self, tmp_path: Path) -> None:
        (tmp_path / "broken.onnx").write_bytes(b"\x08\x08garbage")
        with failing(0x80070570):
            VoiceActivity(tmp_path / "broken.onnx")


@pytest.fixture(scope="module")
def speech() -> Floats:
    """Two utterances with silence around them."""
    pause = np.zeros(16000, np.float32)
    return np.concatenate([pause, spoken("Hello world."), pause, spoken("This is a test of the system."), pause])


def test_the_voice_of_the_tests_says_a_text_the_same_way_each_time() -> None:
    first = spoken("One, two.")
    spoken("Something else.")
    _utterance.cache_clear()
    assert np.array_equal(spoken("One, two."), first)


class TestSilero:
    """The model of the catalog."""

    def test_probabilities_equal_those_of_onnx_runtime(self, speech: Floats) -> None:
        onnxruntime = pytest.importorskip("onnxruntime")
        path = catalog_model("silero-vad")
        session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
        padded = np.concatenate([np.zeros(64, np.float32), speech, np.zeros(-len(speech) % 512, np.float32)])
        state = {"h": np.zeros((1, 1, 128), np.float32), "c": np.zeros((1, 1, 128), np.float32)}
        expected = []
        for start in range(0, len(padded) - 64, 512):
            answer, state["h"], state["c"] = session.run(None, {"input": padded[None, start : start + 576], **state})
            expected.append(float(answer[0]))
        with VoiceActivity(path) as activity:
            whole = activity.probabilities(speech, last=True).tolist()
            pieces = [activity.probabilities(speech[k : k + 7777]) for k in range(0, len(speech), 7777)]
        assert whole == expected
        assert np.concatenate(pieces).tolist() == expected[: len(speech) // 512]

    def test_it_finds_the_two_utterances(self, speech: Floats) -> None:
        with VoiceActivity(catalog_model("silero-vad")) as activity:
            options = SpeechRegionOptions(min_silence=0.5)
            regions = list(speech_regions(audio_blocks((speech, 16000), block_seconds=1), activity, options))
        assert len(regions) == 2
        for region, text in zip(regions, ("Hello world.", "This is a test of the system."), strict=True):
            assert region.end_time - region.start_time == pytest.approx(len(spoken(text)) / 16000, abs=0.3)
        assert regions[0].start_time == pytest.approx(1, abs=0.15)

    @pytest.mark.parametrize("seconds", [0.2, 5])
    def test_silence_and_noise_are_no_speech(self, seconds: float) -> None:
        frames = round(seconds * 16000)
        hiss = np.random.default_rng(3).normal(0, 0.01, frames).astype(np.float32)
        with VoiceActivity(catalog_model("silero-vad")) as activity:
            assert activity.probabilities(np.zeros(frames), last=True).max() < 0.3
            assert list(speech_regions([hiss], activity)) == []
