"""Where speech recognition sessions come from (genai §10)."""

from __future__ import annotations

from copy import copy

from winml_lite import Runtime, Tensor

from .cancellation import CancellationSource
from .checks import instance_of
from .drivers import check_undriven, drive
from .factory import SessionFactory
from .speech_configuration import AutomaticSpeechRecognitionConfiguration
from .speech_core import SpeechCore
from .speech_results import AutomaticSpeechRecognitionResult, AutomaticSpeechRecognitionWaveformMetadata
from .speech_session import AutomaticSpeechRecognitionSession
from .speech_stream import AutomaticSpeechRecognitionStream
from .tokenizer import Tokenizer


class AutomaticSpeechRecognitionTask(SessionFactory[AutomaticSpeechRecognitionSession]):
    """Makes speech recognition sessions for one tokenizer. Make it with
    `Tasks.create_automatic_speech_recognition_task`.

    Its `stream` and `transcribe` are those of a session over the default configuration.
    """

    def __init__(self, runtime: Runtime, tokenizer: Tokenizer) -> None:
        super().__init__(runtime, tokenizer)
        tokenizer._check_open()
        self._default_configuration: AutomaticSpeechRecognitionConfiguration | None = None

    def create_configuration(self) -> AutomaticSpeechRecognitionConfiguration:
        """An empty configuration, for sessions of this task."""
        self._check_open()
        return AutomaticSpeechRecognitionConfiguration(self._runtime, copy(self._tokenizer), self)

    def create_session(
        self, configuration: AutomaticSpeechRecognitionConfiguration
    ) -> AutomaticSpeechRecognitionSession:
        """Make a session on this thread and consume the configuration; a failing call leaves it unconsumed.

        ValueError for a configuration of another task, the errors of `validate`, and 0x800700AA while another session
        drives one of the pipelines.
        """
        self._check_open()
        instance_of(configuration, AutomaticSpeechRecognitionConfiguration, "configuration")
        if configuration._owner is not self:
            raise ValueError("the configuration is another task's: make it with create_configuration() of this one")
        configuration._check_open()
        decoder = configuration._compose()
        check_undriven(decoder.pipelines)
        core = SpeechCore(copy(self._runtime), decoder, copy(self._tokenizer))
        drive(decoder.pipelines, core)
        configuration._mark_consumed()
        return AutomaticSpeechRecognitionSession(core, configuration)

    @property
    def default_configuration(self) -> AutomaticSpeechRecognitionConfiguration | None:
        """What the default session is made of; None before it is set.

        Setting it when there is a default session is RuntimeError.
        """
        self._check_open()
        return self._default_configuration

    @default_configuration.setter
    def default_configuration(self, configuration: AutomaticSpeechRecognitionConfiguration | None) -> None:
        self._check_open()
        if configuration is not None:
            instance_of(configuration, AutomaticSpeechRecognitionConfiguration, "default_configuration")
        if self._default_session is not None:
            raise RuntimeError("the default session exists already: its configuration cannot be changed any more")
        self._default_configuration = configuration

    def _make_default_session(self) -> AutomaticSpeechRecognitionSession:
        if self._default_configuration is None:
            raise RuntimeError("the task has no default_configuration: set it first")
        return self.create_session(self._default_configuration)

    def stream(
        self,
        waveform: Tensor,
        metadata: AutomaticSpeechRecognitionWaveformMetadata,
        *,
        cancellation: CancellationSource | None = None,
    ) -> AutomaticSpeechRecognitionStream:
        """`transcribe_waveform` of the default session."""
        return self.default_session.transcribe_waveform(waveform, metadata, cancellation=cancellation)

    def transcribe(
        self,
        waveform: Tensor,
        metadata: AutomaticSpeechRecognitionWaveformMetadata,
        *,
        cancellation: CancellationSource | None = None,
    ) -> AutomaticSpeechRecognitionResult:
        """`transcribe` of the default session."""
        return self.default_session.transcribe(waveform, metadata, cancellation=cancellation)
