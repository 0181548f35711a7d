"""Options of a transcription, and its keyword arguments."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from genai import TranscriptionOptions
from genai.transcription_options import transcription_options
from genai.whisper_folder import WhisperTokens

ENGLISH = WhisperTokens(1, 2, 3, 4, 5, 6, 7, 8, 9, {"en": 10, "de": 11})


def test_defaults_are_those_of_the_published_decoding() -> None:
    options = TranscriptionOptions()
    assert options.temperatures == (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)
    assert options.compression_ratio_threshold == 2.4
    assert options.log_probability_threshold == -1.0
    assert options.no_speech_threshold == 0.6
    assert not options.condition_on_previous_text


def test_one_temperature_is_a_tuple_of_it() -> None:
    assert TranscriptionOptions(temperatures=0.5).temperatures == (0.5,)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("name", "value", "kind"),
    [
        ("language", 5, TypeError),
        ("prompt", b"a", TypeError),
        ("translate", 1, TypeError),
        ("timestamps", None, TypeError),
        ("condition_on_previous_text", "yes", TypeError),
        ("temperatures", (), ValueError),
        ("temperatures", -0.1, ValueError),
        ("temperatures", "0", TypeError),
        ("temperatures", (0, float("inf")), ValueError),
        ("compression_ratio_threshold", "2", TypeError),
        ("log_probability_threshold", float("nan"), ValueError),
        ("no_speech_threshold", True, TypeError),
        ("seed", -1, ValueError),
        ("seed", 1.5, TypeError),
    ],
)
def test_values_that_cannot_be(name: str, value: Any, kind: type[Exception]) -> None:
    with pytest.raises(kind):
        TranscriptionOptions(**{name: value})


@pytest.mark.parametrize("options", [TranscriptionOptions(language="de"), TranscriptionOptions(translate=True)])
def test_what_an_english_model_cannot_do(options: TranscriptionOptions) -> None:
    with pytest.raises(ValueError, match="English only"):
        options.check(ENGLISH)


def test_what_a_multilingual_model_cannot_do() -> None:
    model = replace(ENGLISH, is_multilingual=True)
    TranscriptionOptions(translate=True).check(model)
    TranscriptionOptions(language="de").check(model)
    with pytest.raises(ValueError, match="one of en, de, not 'xx'"):
        TranscriptionOptions(language="xx").check(model)


def test_options_among_keyword_arguments() -> None:
    found = transcription_options({"language": "en", "seed": 3, "sample_rate": 8000, "timeout": None})
    assert found == TranscriptionOptions(language="en", seed=3)


def test_a_whole_record() -> None:
    options = TranscriptionOptions(seed=9)
    assert transcription_options({"options": options, "progress": None}) is options


def test_a_record_and_single_options() -> None:
    with pytest.raises(TypeError, match="not both: seed"):
        transcription_options({"options": TranscriptionOptions(), "seed": 1})


@pytest.mark.parametrize(
    ("name", "meant"),
    [("langauge", "language"), ("vad_filter", "voice_activity"), ("initial_prompt", "prompt"), ("timeouts", "timeout")],
)
def test_names_that_do_not_exist(name: str, meant: str) -> None:
    with pytest.raises(TypeError, match=f"no option '{name}'; did you mean '{meant}'"):
        transcription_options({name: 1})  # type: ignore[misc]


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("word_timestamps", "times are those of segments"),
        ("beam_size", "decoding is greedy"),
        ("without_timestamps", "timestamps=False"),
        ("clip_timestamps", "give the samples of that part"),
    ],
)
def test_what_other_libraries_have(name: str, reason: str) -> None:
    with pytest.raises(TypeError, match=f"no option '{name}': {reason}"):
        transcription_options({name: 1})  # type: ignore[misc]
