"""What the streams for asyncio have in common: `async for`, `async with`, `cancel`, and how they show themselves."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator
from types import TracebackType
from typing import Any, Generic, Protocol, Self, TypeVar

from winml_lite import WinMLError


class Work(Protocol):
    """What a stream waits for."""

    def cancel(self) -> None:
        """Ask it to stop; any thread may."""

    def end(self) -> object:
        """End it without waiting."""


WorkType = TypeVar("WorkType", bound=Work)
Piece = TypeVar("Piece")


class AsyncPieces(ABC, Generic[WorkType, Piece]):
    """An asynchronous iterator of pieces over some work; leaving its `async with` ends the work."""

    _work: WorkType

    @property
    @abstractmethod
    def result(self) -> Any:
        """The whole; 0x8007139F before the end."""

    @abstractmethod
    async def aclose(self) -> None:
        """End the work and wait until the model is free again."""

    @abstractmethod
    async def __anext__(self) -> Piece:
        """Return the next piece."""

    def __repr__(self) -> str:
        try:
            state = self.result.finish_reason.name
        except WinMLError:
            state = "unfinished"
        return f"<{type(self).__name__} {state}>"

    def __aiter__(self) -> AsyncIterator[Piece]:
        return self

    def cancel(self) -> None:
        """Ask for the end; any thread may. The iteration then ends, and `result` says CANCELED."""
        self._work.cancel()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if kind is GeneratorExit:  # a coroutine that is thrown away cannot wait
            self._work.end()
        else:
            await self.aclose()
