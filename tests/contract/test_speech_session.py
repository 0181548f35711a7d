"""Speech recognition sessions over a tiny Whisper model: what they accept, what they say, states, cancelling, closing.

Statements 126 to 128 of genai 13. They run on the fake and on ONNX Runtime.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator

import numpy as np
import pytest

from fakes.engines import hold, spoil
from fakes.model_files import ModelFiles
from fakes.rig import failing
from fakes.speech import Recognizer, fragments, recognizing
from genai.log_mel import log_mel
from genai.tasks import (
    AutomaticSpeechRecognitionFinishReason,
    AutomaticSpeechRecognitionReadStatus,
    AutomaticSpeechRecognitionSessionState,
    AutomaticSpeechRecognitionWaveformMetadata,
    CancellationSource,
)
from models.whisper_models import tones
from winml_lite import NotSupportedError, Runtime, WinMLError

Reason = AutomaticSpeechRecognitionFinishReason
State = AutomaticSpeechRecognitionSessionState
Metadata = AutomaticSpeechRecognitionWaveformMetadata

E_INVALIDARG = 0x80070057
E_NOINTERFACE = 0x80004002
E_NOT_VALID_STATE = 0x8007139F
E_FAIL = 0x80004005
WRONG_THREAD = 0x8001010E


@pytest.fixture
def recognizer(onnx_engine: str, files: ModelFiles) -> Iterator[Recognizer]:
    """A model that knows English only."""
    with recognizing(files.folder) as recognizer:
        yield recognizer


@pytest.fixture
def multilingual(onnx_engine: str, files: ModelFiles) -> Iterator[Recognizer]:
    with recognizing(files.folder, multilingual=True) as recognizer:
        yield recognizer


# --- what is accepted -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("metadata", [{"sample_rate": 8000}, {"channel_count": 2}])
def test_g126_another_rate_or_more_channels_are_refused(recognizer: Recognizer, metadata: dict[str, int]) -> None:
    with failing(E_INVALIDARG):
        recognizer.session().transcribe_waveform(*recognizer.waveform(np.zeros(160, np.float32), **metadata))


def test_g126_more_than_30_seconds_are_refused(recognizer: Recognizer) -> None:
    with failing(E_INVALIDARG):
        recognizer.session().transcribe_waveform(*recognizer.waveform(np.zeros(480_001, np.float32)))


@pytest.mark.parametrize("sample", [1.5, -1.0001, float("nan"), float("inf")])
def test_g126_a_sample_outside_of_the_range_is_refused(recognizer: Recognizer, sample: float) -> None:
    samples = np.zeros(160, np.float32)
    samples[159] = sample
    with failing(E_INVALIDARG):
        recognizer.session().transcribe_waveform(*recognizer.waveform(samples))


def test_g126_samples_that_do_not_count_may_be_anything(recognizer: Recognizer) -> None:
    samples = np.append(tones([0]), np.float32(7))
    session = recognizer.session()
    assert session.transcribe(*recognizer.waveform(samples, valid_sample_count=16000)).transcript == "one"


@pytest.mark.parametrize("field", ["sample_rate", "valid_sample_count", "channel_count"])
def test_g126_numbers_of_the_metadata_are_positive(field: str) -> None:
    with pytest.raises(ValueError, match=field):
        Metadata(**{"sample_rate": 16000, "valid_sample_count": 1, field: 0})


def test_the_metadata_has_its_widths() -> None:
    assert Metadata(16000, 2**64 - 1).channel_count == 1
    with pytest.raises(ValueError, match="valid_sample_count"):
        Metadata(16000, 2**64)
    with pytest.raises(ValueError, match="sample_rate"):
        Metadata(2**32, 1)
    with pytest.raises(TypeError, match="sample_rate"):
        Metadata(True, 1)


@pytest.mark.parametrize(
    "samples",
    [
        np.zeros((2, 80), np.float32),
        np.zeros((1, 1, 80), np.float32),
        np.zeros(160, np.float64),
        np.zeros(160, np.int16),
    ],
    ids=["two rows", "rank 3", "float64", "int16"],
)
def test_another_shape_or_type_is_refused(recognizer: Recognizer, samples: np.ndarray) -> None:
    with failing(E_INVALIDARG):
        recognizer.session().transcribe_waveform(*recognizer.waveform(samples, valid_sample_count=80))


def test_a_tensor_with_fewer_samples_than_count_is_refused(recognizer: Recognizer) -> None:
    with failing(E_INVALIDARG):
        recognizer.session().transcribe_waveform(
            *recognizer.waveform(np.zeros(160, np.float32), valid_sample_count=161)
        )


def test_a_tensor_of_another_runtime_is_refused(recognizer: Recognizer) -> None:
    with Runtime() as other, failing(E_INVALIDARG):
        waveform = other.tensor_from_numpy(np.zeros(160, np.float32))
        recognizer.session().transcribe_waveform(waveform, Metadata(16000, 160))


def test_wrong_classes_are_type_errors(recognizer: Recognizer) -> None:
    session = recognizer.session()
    waveform, metadata = recognizer.sound(0)
    with pytest.raises(TypeError, match="waveform"):
        session.transcribe_waveform(np.zeros(9), metadata)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="metadata"):
        session.transcribe_waveform(waveform, 16000)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="cancellation"):
        session.transcribe_waveform(waveform, metadata, cancellation=1)  # type: ignore[arg-type]
    assert session.state is State.READY


def test_the_samples_are_copied_at_the_call(recognizer: Recognizer) -> None:
    waveform, metadata = recognizer.sound(0)
    stream = recognizer.session().transcribe_waveform(waveform, metadata)
    waveform.fill(0.0)
    assert "".join(fragments(stream)) == "one"


# --- features of the caller -------------------------------------------------------------------------------------------


def test_g127_features_of_the_caller_are_taken_as_they_are(recognizer: Recognizer) -> None:
    features = recognizer.runtime.tensor_from_numpy(log_mel(tones([1])))
    session = recognizer.session()
    assert session.supports_whisper_log_mel is True
    stream = session.transcribe_whisper_log_mel(features)
    features.fill(0.0)
    assert "".join(fragments(stream)) == "two"


@pytest.mark.parametrize("shape", [(1, 80, 2999), (80, 3000), (1, 128, 3000), (2, 80, 3000)])
def test_g127_features_of_another_shape_are_refused(recognizer: Recognizer, shape: tuple[int, ...]) -> None:
    features = recognizer.runtime.tensor_from_numpy(np.zeros(shape, np.float32))
    with failing(E_INVALIDARG):
        recognizer.session().transcribe_whisper_log_mel(features)


def test_g127_features_of_another_type_are_refused(recognizer: Recognizer) -> None:
    features = recognizer.runtime.tensor_from_numpy(np.zeros((1, 80, 3000), np.float16))
    with failing(E_INVALIDARG):
        recognizer.session().transcribe_whisper_log_mel(features)


def test_a_model_with_128_mel_bands_takes_that_many(onnx_engine: str, files: ModelFiles) -> None:
    with recognizing(files.folder, mel_count=128) as recognizer:
        session = recognizer.session()
        features = recognizer.runtime.tensor_from_numpy(log_mel(tones([6]), 128))
        assert "".join(fragments(session.transcribe_whisper_log_mel(features))) == "café"
        assert session.transcribe(*recognizer.sound(5)).transcript == "six"


# --- live input -------------------------------------------------------------------------------------------------------


def test_g127_a_whisper_session_has_no_live_input(recognizer: Recognizer) -> None:
    session = recognizer.session()
    assert session.supports_live_input is False
    with failing(E_NOINTERFACE, NotSupportedError):
        session.begin_live_input(Metadata(16000, 1600), 4)
    assert session.state is State.READY


def test_arguments_of_live_input_are_checked_first(recognizer: Recognizer) -> None:
    session = recognizer.session()
    with pytest.raises(TypeError, match="metadata"):
        session.begin_live_input(None, 4)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="maximum_pending_chunks"):
        session.begin_live_input(Metadata(16000, 1600), 0)


def test_any_thread_may_ask_what_is_supported(recognizer: Recognizer) -> None:
    session, seen = recognizer.session(), []
    thread = threading.Thread(target=lambda: seen.append((session.supports_live_input, session.supports_whisper_log_mel)))
    thread.start()
    thread.join()
    assert seen == [(False, True)]
    session.close()
    with pytest.raises(RuntimeError, match="AutomaticSpeechRecognitionSession is closed"):
        session.supports_live_input  # noqa: B018


# --- transcripts ------------------------------------------------------------------------------------------------------


def test_g128_the_joined_fragments_are_the_transcript(recognizer: Recognizer) -> None:
    stream = recognizer.session().transcribe_waveform(*recognizer.sound(0, None, 6))
    updates = list(stream)
    result = stream.result
    assert [update.fragment for update in updates] == ["o", "n", "e", " caf", "", "é"]
    assert {update.status for update in updates} == {AutomaticSpeechRecognitionReadStatus.UPDATE}
    assert result.transcript == "one café"
    assert result.finish_reason is Reason.INPUT_COMPLETE
    assert (result.error_code, result.language) == (0, "en")
    assert stream.read_next() is None
    result.raise_for_error()


def test_silence_is_an_empty_transcript_but_for_what_the_model_makes_up(recognizer: Recognizer) -> None:
    result = recognizer.session().transcribe(*recognizer.sound(None))
    assert (result.transcript, result.finish_reason) == (".", Reason.INPUT_COMPLETE)


def test_a_multilingual_model_finds_the_language(multilingual: Recognizer) -> None:
    session = multilingual.session()
    english, german = session.transcribe(*multilingual.sound(1, 4)), session.transcribe(*multilingual.sound(4, 1))
    assert (english.language, english.transcript) == ("en", "two five")
    assert (german.language, german.transcript) == ("de", "fünf zwei")


def test_a_second_transcription_starts_over(recognizer: Recognizer) -> None:
    session = recognizer.session()
    assert [session.transcribe(*recognizer.sound(word)).transcript for word in (0, 1, 0)] == ["one", "two", "one"]


def test_copies_of_what_the_encoder_gives_say_the_same(recognizer: Recognizer) -> None:
    session = recognizer.session(force_encoder_output_copy=True)
    assert session.transcribe(*recognizer.sound(2, 3)).transcript == "three four"


def test_the_last_position_of_the_decoder_is_the_capacity(onnx_engine: str, files: ModelFiles) -> None:
    with recognizing(files.folder) as recognizer:
        model = files.folder / "whisper-False-80" / "decoder.onnx"
        recognizer.decoder = small_decoder(recognizer, model, 6)
        result = recognizer.session().transcribe(*recognizer.sound(0, 1))
        assert (result.transcript, result.finish_reason) == ("one t", Reason.CAPACITY)


def small_decoder(recognizer: Recognizer, path: object, capacity: int) -> tuple[object, object]:
    """A decoder with room for `capacity` tokens, the two of the prompt included."""
    from genai.whisper_stages import declare_whisper_state

    runtime = recognizer.runtime
    model = runtime.load_model(path)
    builder = runtime.create_pipeline_builder()
    stage = builder.add_model_stage(model, recognizer.target, "decoder")
    declare_whisper_state(model, stage)
    stage.set_sequence_capacity_hint(capacity)
    return builder.build(), stage
