"""The state machine of a speech recognition session (genai §6.1 and 10): one transcription at a time.

It has no thread rule of its own: its users see to it that one thread at a time drives it. Not here: the public session
(`speech_session.py`), running a transcription (`transcription.py`).
"""

from __future__ import annotations

from winml_lite import Runtime, WinMLError

from .cancellation import CancellationSource
from .codes import E_NOT_VALID_STATE
from .speech_results import AutomaticSpeechRecognitionSessionState
from .tokenizer import Tokenizer
from .transcription import Hear, Transcription, TranscriptText
from .whisper_decoding import WhisperDecoder

State = AutomaticSpeechRecognitionSessionState


class SpeechCore:
    """What may happen next on a speech model. The core is its only user, and closes what it is given."""

    def __init__(self, runtime: Runtime, decoder: WhisperDecoder, tokenizer: Tokenizer) -> None:
        self.runtime = runtime
        self.decoder = decoder
        self.state = State.READY
        self._tokenizer = tokenizer
        self._operation: Transcription | None = None

    @property
    def is_closed(self) -> bool:
        """Whether the pipelines were given back."""
        return self.state is State.CLOSED

    def new_text(self) -> TranscriptText:
        """Return what makes the text of a transcription."""
        return TranscriptText(self._tokenizer, self.decoder.tokens)

    def check_startable(self) -> None:
        """Raise 0x8007139F while a transcription is open, and after one that failed."""
        if self.state is State.ACTIVE:
            text = "a transcription is open: read its stream to the end or close it"
            raise WinMLError(E_NOT_VALID_STATE, "transcribe", text)
        if self.state is State.RESET_REQUIRED:
            raise WinMLError(E_NOT_VALID_STATE, "transcribe", "the transcription before has failed: call reset() first")

    def start(self, hear: Hear, cancellation: CancellationSource) -> Transcription:
        """Begin a transcription; no model runs before the first read."""
        self.check_startable()
        operation = Transcription(self, hear, cancellation)
        self._operation, self.state = operation, State.ACTIVE
        return operation

    def finished(self, operation: Transcription, failed: bool) -> None:
        """Leave ACTIVE, unless `operation` has left it before."""
        if self._operation is not operation:
            return
        self.state = State.RESET_REQUIRED if failed else State.READY
        self._operation = None
        self.decoder.release_threads()  # the next transcription may be another thread's

    def reset(self) -> None:
        """Be READY again, also after an error. 0x8007139F while a transcription is open."""
        if self.state is State.ACTIVE:
            raise WinMLError(E_NOT_VALID_STATE, "reset", "a transcription is open: read it to its end or close it")
        if self.state is not State.CLOSED:
            self.state = State.RESET_REQUIRED  # should a pipeline refuse
            self.decoder.reset()
            self.state = State.READY

    def close(self) -> None:
        """End for good. 0x8007139F while a transcription is open; again is fine."""
        if self.state is State.ACTIVE:
            raise WinMLError(E_NOT_VALID_STATE, "close", "a transcription is open: read it to its end or close it")
        if self.state is not State.CLOSED:
            self.state = State.CLOSED
            self.decoder.close()
            self._tokenizer.close()
