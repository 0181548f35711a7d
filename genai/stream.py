"""The public stream of the long road (genai §6.7): an iterator of updates, bound to the thread that made it."""

from __future__ import annotations

import weakref
from collections.abc import Iterator

from winml_lite import WinMLError

from .affinity import ThreadAffinity
from .closing import Closing
from .codes import E_NOT_VALID_STATE
from .loop import GenerationLoop
from .results import TextGenerationResult, TextGenerationUpdate


class TextGenerationStream(Closing):
    """A running generation. Iterate it, or call `read_next` until it returns None, then read `result`.

    Only the creating thread may use it, apart from `cancel()`. Closing an unfinished stream ends it as CANCELED and
    leaves the session usable; a stream that is dropped is closed by garbage collection.
    """

    def __init__(self, loop: GenerationLoop) -> None:
        self._loop: GenerationLoop | None = loop
        self._latch = loop.latch
        self._affinity = ThreadAffinity()
        self._result: TextGenerationResult | None = None
        self._finalizer = weakref.finalize(self, loop.close)
        self._finalizer.atexit = False

    def _open(self) -> GenerationLoop:
        self._affinity.check("TextGenerationStream")
        if self._loop is None:
            raise RuntimeError("TextGenerationStream is closed")
        return self._loop

    def read_next(self) -> TextGenerationUpdate | None:
        """Run the model once and return the next update; None at the end. Failures of the model end the stream with
        ERROR.
        """
        return self._open().read_next()

    def __iter__(self) -> Iterator[TextGenerationUpdate]:
        return self

    def __next__(self) -> TextGenerationUpdate:
        update = self.read_next()
        if update is None:
            raise StopIteration
        return update

    def cancel(self) -> None:
        """Ask the generation to stop; any thread may."""
        self._latch.cancel()

    @property
    def result(self) -> TextGenerationResult:
        """The result. Before the end 0x8007139F; once read it stays readable after `close()`."""
        self._affinity.check("TextGenerationStream")
        if self._result is None:
            result = self._open().result
            if result is None:
                raise WinMLError(E_NOT_VALID_STATE, "TextGenerationStream.result", "the stream is not at its end")
            self._result = result
        return self._result

    def close(self) -> None:
        """End the operation; unfinished it counts as CANCELED, and the model is not run again."""
        self._affinity.check("TextGenerationStream")
        if self._loop is not None:
            self._loop.close()
            self._finalizer.detach()
            self._loop = None

    def _check_open(self) -> GenerationLoop:
        return self._open()
