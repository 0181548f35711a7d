"""What the streams of the long road have in common (genai §0.4 and 6.7): iterators bound to the thread that made them,
each over an operation that goes on when the stream is read.
"""

from __future__ import annotations

import weakref
from abc import abstractmethod
from collections.abc import Callable, Iterator
from enum import IntEnum
from types import TracebackType
from typing import Generic, Protocol, Self, TypeVar

from .affinity import ThreadAffinity
from .cancellation import CancellationLatch
from .closing import Closing


class Outcome(Protocol):
    """What an operation ends with."""

    @property
    def finish_reason(self) -> IntEnum:
        """Why it has ended."""


class Operation(Protocol):
    """A running operation of a session."""

    @property
    def latch(self) -> CancellationLatch:
        """What cancels it."""

    @property
    def result(self) -> Outcome | None:
        """The result; None before the end."""

    def close(self) -> None:
        """End it without running a model again. Again is fine."""


OperationT = TypeVar("OperationT", bound=Operation)
UpdateT = TypeVar("UpdateT")
ResultT = TypeVar("ResultT")
ResultT_co = TypeVar("ResultT_co", covariant=True)


class OperationStream(Closing, Generic[OperationT, UpdateT]):
    """An iterator over the updates of an operation, which garbage collection ends where nobody closes the stream."""

    def __init__(self, operation: OperationT) -> None:
        self._operation: OperationT | None = operation
        self._latch = operation.latch
        self._affinity = ThreadAffinity()
        self._finalizer = weakref.finalize(self, operation.close)
        self._finalizer.atexit = False

    def __repr__(self) -> str:
        if self._operation is None:
            return f"<{type(self).__name__} (closed)>"
        result = self._operation.result
        return f"<{type(self).__name__} {'unfinished' if result is None else result.finish_reason.name}>"

    @classmethod
    def opened(cls, start: Callable[[], OperationT]) -> Self:
        """Return the stream over what `start` begins; it is ended where Ctrl-C strikes before the stream is there."""
        operation = start()
        try:
            return cls(operation)
        except BaseException:
            operation.close()
            raise

    @abstractmethod
    def read_next(self) -> UpdateT | None:
        """Return the next update; None at the end."""

    def __iter__(self) -> Iterator[UpdateT]:
        return self

    def __next__(self) -> UpdateT:
        update = self.read_next()
        if update is None:
            raise StopIteration
        return update

    def cancel(self) -> None:
        """Ask the operation to stop; any thread may."""
        self._latch.cancel()

    def close(self) -> None:
        """End the operation; unfinished it counts as CANCELED, and the model is not run again."""
        self._check_thread()
        if self._operation is not None:
            self._operation.close()
            self._finalizer.detach()
            self._operation = None

    def _check_thread(self) -> None:
        self._affinity.check(type(self).__name__)

    def _open(self) -> OperationT:
        self._check_thread()
        if self._operation is None:
            raise RuntimeError(f"{type(self).__name__} is closed")
        return self._operation

    def _check_open(self) -> OperationT:
        return self._open()


class EndingStream(Protocol[ResultT_co]):
    """A stream of the long road: updates, and then a result."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None, /
    ) -> None: ...

    def __iter__(self) -> Iterator[object]: ...

    @property
    def result(self) -> ResultT_co: ...


def run_to_end(stream: EndingStream[ResultT]) -> ResultT:
    """Read a stream to its end, close it and return its result."""
    with stream:
        for _ in stream:
            pass
        return stream.result
