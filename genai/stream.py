"""The public stream of the long road (genai §6.7): an iterator of updates, bound to the thread that made it."""

from __future__ import annotations

from winml_lite import WinMLError

from .codes import E_NOT_VALID_STATE
from .loop import GenerationLoop
from .operation_stream import OperationStream
from .results import TextGenerationResult, TextGenerationUpdate


class TextGenerationStream(OperationStream[GenerationLoop, TextGenerationUpdate]):
    """A running generation. Iterate it, or call `read_next` until it returns None, then read `result`.

    Only the creating thread may use it, apart from `cancel()`. Closing an unfinished stream ends it as CANCELED and
    leaves the session usable; a stream that is dropped is closed by garbage collection.
    """

    def __init__(self, loop: GenerationLoop) -> None:
        super().__init__(loop)
        self._result: TextGenerationResult | None = None

    def read_next(self) -> TextGenerationUpdate | None:
        """Run the model once and return the next update; None at the end. Failures of the model end the stream with
        ERROR.
        """
        return self._open().read_next()

    @property
    def result(self) -> TextGenerationResult:
        """The result. Before the end 0x8007139F; once read it stays readable after `close()`."""
        self._check_thread()
        if self._result is None:
            result = self._open().result
            if result is None:
                raise WinMLError(E_NOT_VALID_STATE, "TextGenerationStream.result", "the stream is not at its end")
            self._result = result
        return self._result
