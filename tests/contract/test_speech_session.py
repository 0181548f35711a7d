"""Speech recognition sessions over a tiny Whisper model: what they accept, what they say, states, cancelling, closing.

Statements 126 to 128 of genai 13. They run on the fake and on ONNX Runtime.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator

import numpy as np
import numpy.typing as npt
import pytest

from fakes.engines import hold, spoil
from fakes.model_files import ModelFiles
from fakes.rig import failing
from fakes.speech import Recognizer, fragments, recognizing
from fakes.strikes import Strike
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


@pytest.mark.parametrize(
    ("metadata", "mend"),
    [({"sample_rate": 8000}, "has 8000: resample it"), ({"channel_count": 2}, "has 2: mix them")],
)
def test_g126_another_rate_or_more_channels_are_refused(
    recognizer: Recognizer, metadata: dict[str, int], mend: str
) -> None:
    session = recognizer.session()
    with failing(E_INVALIDARG) as caught:
        session.transcribe_waveform(*recognizer.waveform(np.zeros(160, np.float32), **metadata))
    assert mend in str(caught.value)
    assert session.state is State.READY


def test_g126_more_than_30_seconds_are_refused(recognizer: Recognizer) -> None:
    with failing(E_INVALIDARG) as caught:
        recognizer.session().transcribe_waveform(*recognizer.waveform(np.zeros(480_001, np.float32)))
    assert "not 480001: give a longer one in windows" in str(caught.value)


def test_g126_30_seconds_at_full_scale_are_taken(recognizer: Recognizer) -> None:
    samples = np.tile(np.array([1, -1], np.float32), 240_000)
    session = recognizer.session()
    with session.transcribe_waveform(*recognizer.waveform(samples)):
        assert session.state is State.ACTIVE


@pytest.mark.parametrize("sample", [1.5, -1.0001, float("nan"), float("inf")])
def test_g126_a_sample_outside_of_the_range_is_refused(recognizer: Recognizer, sample: float) -> None:
    samples = np.zeros(160, np.float32)
    samples[159] = sample
    with failing(E_INVALIDARG) as caught:
        recognizer.session().transcribe_waveform(*recognizer.waveform(samples))
    assert "finite numbers in [-1, 1]" in str(caught.value)


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
def test_another_shape_or_type_is_refused(recognizer: Recognizer, samples: npt.NDArray[np.generic]) -> None:
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
    with failing(E_INVALIDARG) as caught:
        recognizer.session().transcribe_whisper_log_mel(features)
    assert f"FLOAT32(1, 80, 3000) (batch, mel, time), not FLOAT32{shape}" in str(caught.value)


def test_g127_features_of_another_type_are_refused(recognizer: Recognizer) -> None:
    features = recognizer.runtime.tensor_from_numpy(np.zeros((1, 80, 3000), np.float16))
    with failing(E_INVALIDARG) as caught:
        recognizer.session().transcribe_whisper_log_mel(features)
    assert "not FLOAT16(1, 80, 3000)" in str(caught.value)


@pytest.mark.parametrize("number", [float("nan"), float("inf")])
def test_features_that_are_no_numbers_are_refused(recognizer: Recognizer, number: float) -> None:
    features = log_mel(tones([1]))
    features[0, 7, 2000] = number
    with failing(E_INVALIDARG):
        recognizer.session().transcribe_whisper_log_mel(recognizer.runtime.tensor_from_numpy(features))


def test_an_interrupt_at_any_place_of_a_start_leaves_the_session_usable(recognizer: Recognizer) -> None:
    session, sound = recognizer.session(), recognizer.sound(1)
    whole = Strike(10**9)
    whole.during(lambda: session.transcribe_waveform(*sound)).close()
    assert whole.places > 20
    for number in range(1, whole.places + 1):
        strike = Strike(number)
        with pytest.raises(KeyboardInterrupt):
            strike.during(lambda: session.transcribe_waveform(*sound))
        session.reset()
        session.transcribe_waveform(*sound).close()
    assert session.transcribe(*sound).transcript == "two"


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
    session = recognizer.session()
    seen: list[tuple[bool, bool]] = []

    def ask() -> None:
        seen.append((session.supports_live_input, session.supports_whisper_log_mel))

    thread = threading.Thread(target=ask)
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


@pytest.mark.parametrize("copies", [False, True])
def test_the_decoder_gets_what_the_encoder_gives_or_a_copy(recognizer: Recognizer, copies: bool) -> None:
    session = recognizer.session(force_encoder_output_copy=copies)
    assert session.transcribe(*recognizer.sound(2, 3)).transcript == "three four"
    (_, encoder), (_, decoder) = recognizer.encoder, recognizer.decoder
    output = encoder.ort_bindings().output_names.index("present.1.encoder.value")
    place = decoder.ort_bindings().input_names.index("past_key_values.1.encoder.value")
    bound = decoder.underlying_object.inputs[place].array()
    assert np.shares_memory(np.asarray(encoder.output(output)), bound) is not copies


def test_the_last_position_of_the_decoder_is_the_capacity(recognizer: Recognizer) -> None:
    recognizer.decoder = recognizer.stage("decoder", capacity=6)  # two of them are the prompt
    result = recognizer.session().transcribe(*recognizer.sound(0, 1))
    assert (result.transcript, result.finish_reason) == ("one t", Reason.CAPACITY)


def test_nothing_runs_before_the_first_read(recognizer: Recognizer) -> None:
    encoder, decoder = recognizer.encoder[0], recognizer.decoder[0]
    stream = recognizer.session().transcribe_waveform(*recognizer.sound(0))
    assert (encoder.run_count, decoder.run_count) == (0, 0)
    stream.read_next()
    assert (encoder.run_count, decoder.run_count) == (1, 1)
    stream.read_next()
    assert (encoder.run_count, decoder.run_count) == (1, 2)


# --- states -----------------------------------------------------------------------------------------------------------


def test_a_new_session_is_ready(recognizer: Recognizer) -> None:
    session = recognizer.session()
    assert session.state is State.READY
    assert session.runtime is recognizer.runtime


def test_while_a_stream_is_open_nothing_else_starts(recognizer: Recognizer) -> None:
    session = recognizer.session()
    stream = session.transcribe_waveform(*recognizer.sound(0))
    assert session.state is State.ACTIVE
    for call in (lambda: session.transcribe_waveform(*recognizer.sound(0)), session.reset, session.close):
        with failing(E_NOT_VALID_STATE):
            call()
    assert "".join(fragments(stream)) == "one"
    assert session.state is State.READY


def test_the_session_is_free_at_the_end_of_the_stream(recognizer: Recognizer) -> None:
    session = recognizer.session()
    stream = session.transcribe_waveform(*recognizer.sound(0))
    fragments(stream)
    assert session.transcribe(*recognizer.sound(1)).transcript == "two"
    assert stream.result.transcript == "one"


def test_a_failing_model_ends_the_stream_with_error(recognizer: Recognizer, monkeypatch: pytest.MonkeyPatch) -> None:
    session = recognizer.session()
    stream = session.transcribe_waveform(*recognizer.sound(0))
    stream.read_next()
    spoil(recognizer.decoder[1], monkeypatch, WinMLError(E_FAIL, "the test", "spoilt"))
    assert stream.read_next() is None
    result = stream.result
    assert (result.transcript, result.finish_reason, result.error_code) == ("o", Reason.ERROR, E_FAIL)
    assert "spoilt" in str(result.error_message)
    with failing(E_FAIL):
        result.raise_for_error()
    assert session.state is State.RESET_REQUIRED
    with failing(E_NOT_VALID_STATE):
        session.transcribe_waveform(*recognizer.sound(0))
    session.reset()
    assert session.state is State.READY
    assert session.transcribe(*recognizer.sound(1)).transcript == "two"


def test_a_failing_encoder_ends_the_stream_with_error(recognizer: Recognizer, monkeypatch: pytest.MonkeyPatch) -> None:
    session = recognizer.session()
    spoil(recognizer.encoder[1], monkeypatch, WinMLError(E_FAIL, "the test", "spoilt"))
    result = session.transcribe(*recognizer.sound(0))
    assert (result.transcript, result.finish_reason, result.language) == ("", Reason.ERROR, None)


# --- cancelling -------------------------------------------------------------------------------------------------------


def test_g128_cancelled_before_the_first_read(recognizer: Recognizer) -> None:
    session, source = recognizer.session(), CancellationSource()
    source.cancel()
    result = session.transcribe(*recognizer.sound(0), cancellation=source)
    assert (result.transcript, result.finish_reason, result.error_code) == ("", Reason.CANCELED, 0)
    assert recognizer.encoder[0].run_count == 0
    assert session.state is State.READY


def test_g128_cancelled_in_the_middle_keeps_what_was_said(recognizer: Recognizer) -> None:
    session, source = recognizer.session(), CancellationSource()
    stream = session.transcribe_waveform(*recognizer.sound(0, 1), cancellation=source)
    stream.read_next()
    source.cancel()
    assert stream.read_next() is None
    result = stream.result
    assert (result.transcript, result.finish_reason) == ("o", Reason.CANCELED)
    result.raise_for_error()
    assert session.transcribe(*recognizer.sound(1)).transcript == "two"


@pytest.mark.parametrize("part", ["encoder", "decoder"])
def test_g128_a_cancel_from_another_thread_stops_a_run(
    recognizer: Recognizer, part: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = recognizer.session()
    block = hold(getattr(recognizer, part)[1], monkeypatch)
    stream = session.transcribe_waveform(*recognizer.sound(0))

    def cancel() -> None:
        assert block.entered.wait(100)
        stream.cancel()

    thread = threading.Thread(target=cancel)
    thread.start()
    assert stream.read_next() is None
    thread.join()
    assert stream.result.finish_reason is Reason.CANCELED
    assert session.transcribe(*recognizer.sound(1)).transcript == "two"


def test_a_late_cancel_does_not_stop_the_next_transcription(recognizer: Recognizer) -> None:
    session, source = recognizer.session(), CancellationSource()
    first = session.transcribe(*recognizer.sound(0), cancellation=source)
    source.cancel()
    assert first.finish_reason is Reason.INPUT_COMPLETE
    assert session.transcribe(*recognizer.sound(1)).transcript == "two"


# --- closing and threads ----------------------------------------------------------------------------------------------


def test_g128_the_result_is_readable_after_close(recognizer: Recognizer) -> None:
    stream = recognizer.session().transcribe_waveform(*recognizer.sound(0))
    fragments(stream)
    stream.close()
    assert stream.result.transcript == "one"


def test_g128_closing_an_unfinished_stream_cancels_it(recognizer: Recognizer) -> None:
    session = recognizer.session()
    stream = session.transcribe_waveform(*recognizer.sound(0))
    stream.read_next()
    stream.close()
    stream.close()
    assert stream.read_next() is None
    assert list(stream) == []
    assert (stream.result.transcript, stream.result.finish_reason) == ("o", Reason.CANCELED)
    assert session.state is State.READY
    assert recognizer.decoder[0].run_count == 1


def test_the_result_before_the_end_is_refused(recognizer: Recognizer) -> None:
    stream = recognizer.session().transcribe_waveform(*recognizer.sound(0))
    with failing(E_NOT_VALID_STATE):
        stream.result  # noqa: B018


def test_a_dropped_stream_gives_the_session_free(recognizer: Recognizer) -> None:
    session = recognizer.session()
    session.transcribe_waveform(*recognizer.sound(0)).read_next()
    assert session.transcribe(*recognizer.sound(1)).transcript == "two"


def test_a_closed_session_tells_what_it_was(recognizer: Recognizer) -> None:
    session = recognizer.session()
    session.close()
    session.close()
    assert (session.state, session.runtime) == (State.CLOSED, recognizer.runtime)
    assert session.configuration.runtime is recognizer.runtime
    for call in (session.reset, lambda: session.transcribe_waveform(*recognizer.sound(0))):
        with pytest.raises(RuntimeError, match="AutomaticSpeechRecognitionSession is closed"):
            call()


def test_other_threads_are_refused(recognizer: Recognizer) -> None:
    session = recognizer.session()
    stream = session.transcribe_waveform(*recognizer.sound(0))
    calls = [
        lambda: session.state,
        lambda: session.runtime,
        session.reset,
        session.close,
        session.__enter__,
        stream.read_next,
        lambda: stream.result,
        stream.close,
        stream.__enter__,
    ]
    assert codes_on_another_thread(calls) == [WRONG_THREAD] * 9
    assert "".join(fragments(stream)) == "one"


def codes_on_another_thread(calls: list[Callable[[], object]]) -> list[int]:
    """Make calls on another thread; return the codes of their errors."""
    codes: list[int] = []

    def run() -> None:
        for call in calls:
            try:
                call()
            except WinMLError as error:
                codes.append(error.hresult)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    return codes


def test_any_thread_may_cancel_a_stream(recognizer: Recognizer) -> None:
    stream = recognizer.session().transcribe_waveform(*recognizer.sound(0))
    assert codes_on_another_thread([stream.cancel]) == []
    assert stream.read_next() is None
    assert stream.result.finish_reason is Reason.CANCELED


# --- interrupts -------------------------------------------------------------------------------------------------------


def test_an_interrupt_in_the_decoder_loses_nothing(recognizer: Recognizer, monkeypatch: pytest.MonkeyPatch) -> None:
    session = recognizer.session()
    stream = session.transcribe_waveform(*recognizer.sound(0, 6))
    said = [stream.read_next()]
    spoil(recognizer.decoder[1], monkeypatch, KeyboardInterrupt())
    with pytest.raises(KeyboardInterrupt):
        stream.read_next()
    said += list(stream)
    assert [update.fragment for update in said if update] == ["o", "n", "e", " caf", "", "é"]
    assert stream.result.transcript == "one café"


def test_an_interrupt_in_the_encoder_loses_nothing(recognizer: Recognizer, monkeypatch: pytest.MonkeyPatch) -> None:
    stream = recognizer.session().transcribe_waveform(*recognizer.sound(0))
    spoil(recognizer.encoder[1], monkeypatch, KeyboardInterrupt())
    with pytest.raises(KeyboardInterrupt):
        stream.read_next()
    assert "".join(fragments(stream)) == "one"


def test_a_stream_closed_after_an_interrupt_has_what_was_said(
    recognizer: Recognizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = recognizer.session()
    stream = session.transcribe_waveform(*recognizer.sound(0))
    stream.read_next()
    spoil(recognizer.decoder[1], monkeypatch, KeyboardInterrupt())
    with pytest.raises(KeyboardInterrupt):
        stream.read_next()
    stream.close()
    assert (stream.result.transcript, stream.result.finish_reason) == ("o", Reason.CANCELED)
    assert session.transcribe(*recognizer.sound(1)).transcript == "two"
