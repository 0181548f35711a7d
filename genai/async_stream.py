"""Streams for asyncio: the model works in one thread of its own, the event loop stays free.

Imported at the first `astream`, since asyncio is of no use to anybody else.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from types import TracebackType
from typing import Self, TypeVar

from winml_lite import WinMLError

from .codes import E_NOT_VALID_STATE
from .results import TextGenerationResult
from .text_stream import TextStream

T = TypeVar("T")


class AsyncTextStream:
    """An asynchronous iterator of text pieces; afterwards `result` holds the whole.

    Waiting for the turn, the prompt and every token happen in one worker thread. Cancelling the task that reads,
    leaving the loop early, or `aclose()` ends the generation as CANCELED after the step that is being computed.
    """

    def __init__(self, start: Callable[[], TextStream]) -> None:
        self._start = start
        self._stream: TextStream | None = None
        self._is_cancelled = False
        self._worker: ThreadPoolExecutor | None = ThreadPoolExecutor(1, "genai")

    def __aiter__(self) -> AsyncIterator[str]:
        return self

    async def __anext__(self) -> str:
        worker = self._worker
        if worker is None:
            raise StopAsyncIteration
        try:
            piece = await _in(worker, self._read)
        except BaseException:  # cancelled, or the model failed
            self._end()
            raise
        if piece is None:
            self._end()
            raise StopAsyncIteration
        return piece

    def _read(self) -> str | None:
        if self._stream is None:
            self._stream = self._start()
            if self._is_cancelled:
                self._stream.cancel()
        return next(self._stream, None)

    def _close(self) -> None:
        if self._stream is not None:
            self._stream.close()

    def _end(self) -> None:
        """Have the worker close the stream when it is done with its step, and then go home."""
        worker, self._worker = self._worker, None
        if worker is not None:
            worker.submit(self._close)
            worker.shutdown(wait=False)

    @property
    def result(self) -> TextGenerationResult:
        """The result of the finished stream; 0x8007139F before its end."""
        if self._stream is None:
            raise WinMLError(E_NOT_VALID_STATE, "AsyncTextStream.result", "the stream has not begun: read it")
        return self._stream.result

    async def read(self) -> TextGenerationResult:
        """Generate to the end and return the result."""
        async with self:
            async for _ in self:
                pass
        return self.result

    def cancel(self) -> None:
        """Ask the generation to stop; the iteration then ends, and `result` says CANCELED."""
        self._is_cancelled = True
        if self._stream is not None:
            self._stream.cancel()

    async def aclose(self) -> None:
        """End the generation and wait until the model is free again."""
        worker, self._worker = self._worker, None
        if worker is not None:
            try:
                await _in(worker, self._close)
            finally:
                worker.shutdown(wait=False)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.aclose()


async def _in(worker: ThreadPoolExecutor, call: Callable[[], T]) -> T:
    return await asyncio.get_running_loop().run_in_executor(worker, call)
