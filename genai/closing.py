"""`with` for the objects of the text layer (genai §0.4): entering a closed one raises, leaving closes."""

from __future__ import annotations

from abc import ABC, abstractmethod
from types import TracebackType
from typing import Self


class Closing(ABC):
    """An object with a `close()` that may be called again."""

    __slots__ = ()

    @abstractmethod
    def close(self) -> None:
        """Close the object. Closing twice is fine."""

    @abstractmethod
    def _check_open(self) -> object:
        """Raise RuntimeError when the object is closed."""

    def __enter__(self) -> Self:
        self._check_open()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


class AsyncClosing(Closing):
    """The same for asyncio: `async with`, and an `aclose()` that does not block the event loop."""

    __slots__ = ()

    async def aclose(self) -> None:
        """Close the object, and wait for that without blocking the event loop."""
        from .thread_calls import in_thread  # brings asyncio

        await in_thread(self.close)

    async def __aenter__(self) -> Self:
        self._check_open()
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is GeneratorExit:  # a coroutine that is thrown away cannot wait
            self.close()
        else:
            await self.aclose()
