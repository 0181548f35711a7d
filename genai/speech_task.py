"""Where speech recognition sessions come from (genai §10)."""

from __future__ import annotations

from copy import copy

from winml_lite import Runtime, Tensor

from .cancellation import CancellationSource
from .checks import instance_of
from .drivers import check_undriven, drive
from .factory import Factory
from .speech_configuration import AutomaticSpeechRecognitionConfiguration
from .speech_core import SpeechCore
from .speech_results import AutomaticSpeechRecognitionResult, AutomaticSpeechRecognitionWaveformMetadata
from .speech_session import AutomaticSpeechRecognitionSession
from .speech_stream import AutomaticSpeechRecognitionStream
from .tokenizer import Tokenizer


class AutomaticSpeechRecognitionTask(Factory):
    """Makes speech recognition sessions for one tokenizer. Make it with
    `Tasks.create_automatic_speech_recognition_task`.

    Its `stream` and `transcribe` are those of a session over the default configuration.
    """

    def __init__(self, runtime: Runtime, tokenizer: Tokenizer) -> None:
        self._runtime = runtime
        self._tokenizer = instance_of(tokenizer, Tokenizer, "tokenizer")
        tokenizer._check_open()
        self._default_configuration: AutomaticSpeechRecognitionConfiguration | None = None
        self._default_session: AutomaticSpeechRecognitionSession | None = None

    @property
    def runtime(self) -> Runtime:
        """The Runtime that everything given to it must come from."""
        self._check_open()
        return self._runtime

    @property
    def tokenizer(self) -> Tokenizer:
        """The tokenizer of every session."""
        self._check_open()
        return self._tokenizer

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

    @property
    def default_session(self) -> AutomaticSpeechRecognitionSession:
        """The session of the default configuration, made at the first use. RuntimeError when the task has none."""
        self._check_open()
        if self._default_session is None:
            if self._default_configuration is None:
                raise RuntimeError("the task has no default_configuration: set it first")
            self._default_session = self.create_session(self._default_configuration)
        return self._default_session

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

    def close(self) -> None:
        """Close the default session, then the task. 0x8007139F while a stream of that session is open."""
        if self._default_session is not None:
            self._default_session.close()
        super().close()
