"""The public session of speech recognition (genai §10): one transcription at a time, on one thread."""

from __future__ import annotations

from winml_lite import NotSupportedError, Runtime, Tensor

from .affinity import ThreadAffinity
from .cancellation import CancellationSource
from .checks import index_value, instance_of
from .closing import Closing
from .codes import E_NOINTERFACE
from .operation_stream import run_to_end
from .speech_configuration import AutomaticSpeechRecognitionConfiguration
from .speech_core import SpeechCore
from .speech_inputs import checked_features, valid_samples
from .speech_live import AutomaticSpeechRecognitionLiveTranscription
from .speech_results import (
    AutomaticSpeechRecognitionResult,
    AutomaticSpeechRecognitionSessionState,
    AutomaticSpeechRecognitionWaveformMetadata,
)
from .speech_stream import AutomaticSpeechRecognitionStream

Metadata = AutomaticSpeechRecognitionWaveformMetadata


class AutomaticSpeechRecognitionSession(Closing):
    """Writes down speech. Make it with `AutomaticSpeechRecognitionTask.create_session`.

    Only the creating thread may use it. Starting a transcription runs no model: reading its stream does. After
    `close()` only `state`, `runtime` and `configuration` can be read.
    """

    def __init__(self, core: SpeechCore, configuration: AutomaticSpeechRecognitionConfiguration) -> None:
        self._core = core
        self._configuration = configuration
        self._runtime = configuration.runtime
        self._affinity = ThreadAffinity()

    def __repr__(self) -> str:
        state = "(closed)" if self._core.is_closed else self._core.state.name
        return f"<AutomaticSpeechRecognitionSession {state}>"

    def _check_thread(self) -> None:
        self._affinity.check("AutomaticSpeechRecognitionSession")

    def _check_not_closed(self) -> None:
        if self._core.is_closed:
            raise RuntimeError("AutomaticSpeechRecognitionSession is closed")

    def _open(self) -> SpeechCore:
        self._check_thread()
        self._check_not_closed()
        return self._core

    def _check_open(self) -> SpeechCore:
        return self._open()

    @property
    def state(self) -> AutomaticSpeechRecognitionSessionState:
        """What the session can do next; readable after `close()`."""
        self._check_thread()
        return self._core.state

    @property
    def runtime(self) -> Runtime:
        """The Runtime of the configuration; readable after `close()`."""
        self._check_thread()
        return self._runtime

    @property
    def configuration(self) -> AutomaticSpeechRecognitionConfiguration:
        """The configuration that was consumed; readable after `close()`."""
        self._check_thread()
        return self._configuration

    @property
    def underlying_object(self) -> object:
        """The object behind this wrapper; opaque, only good for comparing."""
        return self._open()

    @property
    def supports_whisper_log_mel(self) -> bool:
        """Whether `transcribe_whisper_log_mel` is there: yes for a Whisper model. Any thread may ask."""
        self._check_not_closed()
        return True

    @property
    def supports_live_input(self) -> bool:
        """Whether `begin_live_input` is there: no for a Whisper model. Any thread may ask."""
        self._check_not_closed()
        return False

    def transcribe_waveform(
        self, waveform: Tensor, metadata: Metadata, *, cancellation: CancellationSource | None = None
    ) -> AutomaticSpeechRecognitionStream:
        """Start writing down a waveform of at most 30 seconds; the model runs when the stream is read.

        waveform: FLOAT32 (samples,) or (1, samples) in [-1, 1], 16 kHz, mono; the valid samples are copied now.

        WinMLError 0x80070057 for another waveform, 0x8007139F while a stream is open and after one that failed.
        """
        core = self._open()
        instance_of(waveform, Tensor, "waveform")
        instance_of(metadata, AutomaticSpeechRecognitionWaveformMetadata, "metadata")
        source = _cancellation(cancellation)
        core.check_startable()
        samples = valid_samples(core.runtime, waveform, metadata)
        return AutomaticSpeechRecognitionStream.opened(
            lambda: core.start(lambda decoder: decoder.encode_samples(samples), source)
        )

    stream = transcribe_waveform

    def transcribe(
        self, waveform: Tensor, metadata: Metadata, *, cancellation: CancellationSource | None = None
    ) -> AutomaticSpeechRecognitionResult:
        """`transcribe_waveform` to the end; returns the result. A failing model is its `error_code`, no exception."""
        return run_to_end(self.transcribe_waveform(waveform, metadata, cancellation=cancellation))

    def transcribe_whisper_log_mel(
        self, features: Tensor, *, cancellation: CancellationSource | None = None
    ) -> AutomaticSpeechRecognitionStream:
        """`transcribe_waveform` for features that the caller has computed: FLOAT32 (1, 80, 3000), batch, mel, time.

        They are copied now. A model that was made for another number of mel bands takes that many.
        """
        core = self._open()
        instance_of(features, Tensor, "features")
        source = _cancellation(cancellation)
        core.check_startable()
        numbers = checked_features(core.runtime, features, core.decoder.mel_count)
        return AutomaticSpeechRecognitionStream.opened(
            lambda: core.start(lambda decoder: decoder.encode(numbers), source)
        )

    def begin_live_input(
        self, metadata: Metadata, maximum_pending_chunks: int, *, cancellation: CancellationSource | None = None
    ) -> AutomaticSpeechRecognitionLiveTranscription:
        """Raise NotSupportedError 0x80004002: a Whisper model hears whole windows, see `supports_live_input`."""
        self._open()
        instance_of(metadata, AutomaticSpeechRecognitionWaveformMetadata, "metadata")
        index_value(maximum_pending_chunks, "maximum_pending_chunks", minimum=1)
        _cancellation(cancellation)
        text = "a Whisper model hears windows of up to 30 seconds, not live input: use transcribe_waveform for each"
        raise NotSupportedError(E_NOINTERFACE, "begin_live_input", text)

    def reset(self) -> None:
        """Be READY again, also after an error. 0x8007139F while a stream is open."""
        self._open().reset()

    def close(self) -> None:
        """End the session. 0x8007139F while a stream is open; again is fine."""
        self._check_thread()
        self._core.close()


def _cancellation(source: CancellationSource | None) -> CancellationSource:
    """The given source, or a private one."""
    return CancellationSource() if source is None else instance_of(source, CancellationSource, "cancellation")
