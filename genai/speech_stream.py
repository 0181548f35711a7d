"""The public stream of speech recognition (genai §10): an iterator of updates, bound to the thread that made it."""

from __future__ import annotations

from typing import Protocol

from winml_lite import WinMLError

from .cancellation import CancellationLatch
from .codes import E_NOT_VALID_STATE
from .operation_stream import OperationStream
from .speech_results import AutomaticSpeechRecognitionResult, AutomaticSpeechRecognitionUpdate


class SpeechOperation(Protocol):
    """A running transcription."""

    @property
    def latch(self) -> CancellationLatch:
        """What cancels it."""

    @property
    def result(self) -> AutomaticSpeechRecognitionResult | None:
        """The result; None before the end."""

    def read_next(self) -> AutomaticSpeechRecognitionUpdate | None:
        """Go on and return the next update; None at the end and ever after."""

    def close(self) -> None:
        """End it without running a model again. Again is fine."""


class AutomaticSpeechRecognitionStream(OperationStream[SpeechOperation, AutomaticSpeechRecognitionUpdate]):
    """A running transcription. Iterate it, or call `read_next` until it returns None, then read `result`.

    Only the creating thread may use it, apart from `cancel()`. Closing an unfinished stream ends it as CANCELED and
    leaves the session usable; a stream that is dropped is closed by garbage collection. After `close()` reads return
    None, and `result` is still there.
    """

    def __init__(self, operation: SpeechOperation) -> None:
        super().__init__(operation)
        self._result: AutomaticSpeechRecognitionResult | None = None

    def read_next(self) -> AutomaticSpeechRecognitionUpdate | None:
        """Run the model and return the next update; None at the end. Failures of the model end the stream with ERROR.

        Updates of live input may have the status NEED_INPUT: write more of it, then read again.
        """
        self._check_thread()
        return None if self._operation is None else self._operation.read_next()

    @property
    def result(self) -> AutomaticSpeechRecognitionResult:
        """The result, also after `close()`; before the end 0x8007139F."""
        self._check_thread()
        result = self._result if self._operation is None else self._operation.result
        if result is None:
            what = "AutomaticSpeechRecognitionStream.result"
            raise WinMLError(E_NOT_VALID_STATE, what, "the stream is not at its end: read it or close it")
        return result

    @property
    def is_at_end(self) -> bool:
        """Whether the transcription has ended, or was closed."""
        self._check_thread()
        return self._operation is None or self._operation.result is not None

    @property
    def underlying_object(self) -> object:
        """The object behind this wrapper; opaque, only good for comparing."""
        return self._open()

    def close(self) -> None:
        """End the transcription; unfinished it counts as CANCELED, and the model is not run again."""
        self._check_thread()
        operation = self._operation
        if operation is not None:
            operation.close()
            self._result = operation.result
        super().close()
