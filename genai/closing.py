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
