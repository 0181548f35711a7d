"""Calls that a thread makes and event loops wait for.

Not here: which calls these are, and the thread of a stream (`async_stream.py`).
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from contextvars import copy_context
from typing import Generic, TypeVar

T = TypeVar("T")


class Call(Generic[T]):
    """A call that a thread makes and event loops wait for; it sees the context variables of its maker."""

    def __init__(self, function: Callable[[], T]) -> None:
        self._run = copy_context().run
        self._function = function
        self._values: list[T] = []
        self._errors: list[BaseException] = []
        self._is_done = False
        self._waiting: deque[tuple[asyncio.AbstractEventLoop, asyncio.Future[None]]] = deque()

    def run(self) -> None:
        """Make the call, and wake who waits."""
        try:
            self._values.append(self._run(self._function))
        except BaseException as error:  # whatever it is, who waits gets it
            self._errors.append(error)
        self._is_done = True
        with suppress(IndexError):
            while True:
                loop, future = self._waiting.popleft()
                with suppress(RuntimeError):  # the loop is closed
                    loop.call_soon_threadsafe(_resolve, future)

    async def result(self) -> T:
        """Wait for what the call returns or raises; any number of tasks may, of any loops."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[None] = loop.create_future()
        self._waiting.append((loop, future))
        if not self._is_done:
            await future
        if self._errors:
            raise self._errors[0]
        return self._values[0]


def _resolve(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


async def in_thread(function: Callable[[], T]) -> T:
    """Return `function()`, called in a daemon thread; a cancelled task leaves it running."""
    call = Call(function)
    threading.Thread(target=call.run, name="genai", daemon=True).start()
    return await call.result()
