"""What a recording costs: an encoder run for each window, a decoder run for each token and two more."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import genai
from fakes.model_files import require_engine
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


def test_no_sound_runs_nothing(model: genai.SpeechModel, runs: list[Pipeline]) -> None:
    assert model.transcribe([]).segments == ()
    assert runs == []
