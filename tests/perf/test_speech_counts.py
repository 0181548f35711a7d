"""What a recording costs: an encoder run for each window, a decoder run for each token and two more."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import onnx
import pytest

import genai
from fakes.model_files import require_engine
from models.voice_models import loudness_sequence
from models.whisper_models import tiny_whisper, tones
from winml_lite import Pipeline

pytestmark = pytest.mark.perf


@pytest.fixture
def model(tmp_path: Path) -> Iterator[genai.SpeechModel]:
    require_engine("ort")
    with genai.load_speech(tiny_whisper(tmp_path / "tiny")) as loaded:
        yield loaded


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> list[Pipeline]:
    """The pipelines that were run."""
    found: list[Pipeline] = []
    run = Pipeline.run

    def counted(pipeline: Pipeline) -> None:
        found.append(pipeline)
        run(pipeline)

    monkeypatch.setattr(Pipeline, "run", counted)
    return found


def test_a_window(model: genai.SpeechModel, runs: list[Pipeline]) -> None:
    model.transcribe(tones([0, None, 2]))
    # Two words of three tokens in two times each; the end; what the model finds of the window before it writes.
    assert len(runs) == 1 + 2 * 5 + 1 + 1


def test_windows_are_encoded_once(model: genai.SpeechModel, runs: list[Pipeline]) -> None:
    result = model.transcribe(tones([None] * 95), voice_activity=False)
    assert result.timings.window_count == 4
    assert sum(pipeline is runs[0] for pipeline in runs) == 4


def test_live_each_sentence_is_encoded_once(model: genai.SpeechModel, runs: list[Pipeline], tmp_path: Path) -> None:
    onnx.save(loudness_sequence(), tmp_path / "voice.onnx")
    with genai.VoiceActivity(tmp_path / "voice.onnx") as activity:
        sound = tones([0, None, 1, None, 2, *[None] * 60], amplitude=0.9)
        result = model.transcribe(sound, live=True, voice_activity=activity, timestamps=False)
    assert [segment.text for segment in result.segments] == ["one", "two", "three"]
    assert result.timings.window_count == 3
    # A word of three tokens each, the end, and what the model finds of the window before it writes; nothing in silence.
    hearing = [pipeline for pipeline in runs if pipeline is not runs[0]]
    assert len(hearing) == 3 * (1 + 3 + 1 + 1)


def test_no_sound_runs_nothing(model: genai.SpeechModel, runs: list[Pipeline]) -> None:
    assert model.transcribe([]).segments == ()
    assert runs == []
