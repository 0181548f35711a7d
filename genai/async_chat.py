"""The stream of a chat's turn for asyncio: the model writes in a thread, tools that are coroutines are awaited.

Imported at the first asynchronous turn. What the rounds of a turn have in common is `chat_turn.py`.
"""

from __future__ import annotations

import inspect
import weakref
from collections.abc import Callable
from functools import partial
from time import monotonic
from typing import Any

from winml_lite import WinMLError

from .async_pieces import AsyncPieces
from .async_stream import AsyncTextStream, AsyncTurn
from .chat_reply import ChatReply, ToolCall
from .chat_turn import ChatTurn
from .codes import E_NOT_VALID_STATE
from .thread_calls import in_thread
from .tool_calls import TurnSettings, bound_arguments, done, failed, refusal
from .turnstile import LOOK_AGAIN, Turnstile, busy, inside

StartRound = Callable[[ChatTurn], AsyncTextStream]


class _AsyncTurnWork:
    """Drives a turn for one task at a time; any thread may end it."""

    def __init__(self, turn: ChatTurn, start: StartRound, turnstile: Turnstile, timeout: float | None) -> None:
        self.turn = turn
        self._start = start
        self._turnstile = turnstile
        self._timeout = timeout
        self._place: AsyncTurn | None = None
        self._is_cancelled = False
        self.is_ended = False
        self._round: AsyncTextStream | None = None

    async def next_piece(self) -> str | None:
        """Return the next piece of the answer, None at the end of the turn."""
        if self._place is None:
            await self._begin()
        while True:
            stream = self._round
            if stream is None:
                if self.turn.is_over or not await self._answer_calls():
                    return None
                self._begin_round()
                continue
            piece = await anext(stream, None)
            if piece is not None:
                text = self.turn.push(piece)
            else:
                text = self.turn.flush()
                self._round = None
            if text:
                return text

    async def _begin(self) -> None:
        """Wait for the turn at the chat."""
        self._place = place = AsyncTurn()
        place.stop = self.end
        deadline = None if self._timeout is None else monotonic() + self._timeout
        self._turnstile.join(place)
        while not self.is_ended and not self._turnstile.has_come(place):
            rest = LOOK_AGAIN if deadline is None else min(deadline - monotonic(), LOOK_AGAIN)
            if rest <= 0:
                raise busy(self._timeout)
            await place.look(rest)
        if self.is_ended:  # before it was in the queue
            self._turnstile.leave(place)
        else:
            self._begin_round()

    def _begin_round(self) -> None:
        self._round = stream = self._start(self.turn)
        if self._is_cancelled:
            stream.cancel()

    async def _answer_calls(self) -> bool:
        """Answer the calls of the round; False when the turn was ended meanwhile."""
        while not self._has_stopped and (pending := self.turn.pending):
            with inside(self._place):
                answered = await _answered(self.turn.settings, pending[0])
            self.turn.answered(answered)
        return not self._has_stopped

    @property
    def _has_stopped(self) -> bool:
        return self.is_ended or self._is_cancelled or self.turn.is_cancelled

    def cancel(self) -> None:
        self._is_cancelled = True
        stream = self._round
        if stream is not None:
            stream.cancel()

    async def aend(self) -> None:
        """End the turn, and wait until the model is free again."""
        self.is_ended = True
        stream = self._round
        try:
            if stream is not None:
                await stream.aclose()
        finally:
            self.end()

    def end(self) -> None:
        """End the turn as soon as possible without waiting for it."""
        self.is_ended = True
        self.cancel()
        self._round = None  # dropped, it ends
        if self._place is not None:
            self._turnstile.leave(self._place)


class AsyncChatStream(AsyncPieces[_AsyncTurnWork, str]):
    """An asynchronous iterator of the pieces of an answer; afterwards `result` holds the whole turn.

    As `ChatStream`, and as `AsyncTextStream` in what concerns the event loop: it stays free while the model writes and
    while a tool runs. Tools and `approve` may be coroutine functions. Cancelling the task that reads, leaving the loop
    and dropping the stream, or `aclose()` ends the turn as CANCELED. One task at a time may read.
    """

    def __init__(self, turn: ChatTurn, start: StartRound, turnstile: Turnstile, timeout: float | None) -> None:
        self._work = _AsyncTurnWork(turn, start, turnstile, timeout)
        self._is_reading = False
        self._finalizer = weakref.finalize(self, self._work.end)
        self._finalizer.atexit = False

    async def __anext__(self) -> str:
        if self._is_reading:
            raise RuntimeError("another task is reading this stream")
        self._is_reading = True
        try:
            piece = await self._work.next_piece()
        except WinMLError as error:
            self._work.turn.fail(error)
            self._work.end()
            raise
        except StopAsyncIteration as error:  # it would pass for the end of the answer
            self._work.end()
            raise RuntimeError("a tool or a function of the chat raised StopAsyncIteration") from error
        except BaseException:
            self._work.end()
            raise
        finally:
            self._is_reading = False
        if piece is not None:
            return piece
        await self.aclose()
        self.result.raise_for_error()
        raise StopAsyncIteration

    @property
    def result(self) -> ChatReply:
        """The reply of the finished turn; 0x8007139F before its end."""
        if not self._work.is_ended and not self._work.turn.is_over:
            raise WinMLError(E_NOT_VALID_STATE, "result", "the stream is not at its end: read it or close it")
        return self._work.turn.reply

    async def read(self) -> ChatReply:
        """Go on to the end of the turn and return the reply."""
        async for _ in self:
            pass
        return self.result

    async def aclose(self) -> None:
        """End the turn, and wait until the model is free again."""
        await self._work.aend()


async def _answered(settings: TurnSettings, call: ToolCall) -> ToolCall:
    """Do as `answer_call` without blocking the event loop: coroutines are awaited, other tools run in a thread."""
    bound = bound_arguments(settings, call)
    if isinstance(bound, ToolCall):
        return bound
    if settings.approve is not None:
        refused = refusal(call, await _awaited(settings.approve(call)))
        if refused is not None:
            return refused
    tool = settings.tools[call.name]
    try:
        if tool.is_coroutine:
            return done(call, await tool.function(*bound.args, **bound.kwargs))
        # The program does not wait for this thread when it ends, as it would for that of `asyncio.to_thread`.
        return done(call, await _awaited(await in_thread(partial(tool.function, *bound.args, **bound.kwargs))))
    except Exception as error:
        return failed(settings, call, error)


async def _awaited(value: Any) -> Any:
    return await value if inspect.isawaitable(value) else value
