"""The stream of a chat's turn: text pieces through all rounds, with the tools called between them."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator

from winml_lite import WinMLError

from .chat_reply import ChatReply
from .chat_turn import ChatTurn
from .closing import Closing
from .codes import E_NOT_VALID_STATE
from .text_stream import TextStream
from .tool_calls import answer_call
from .turnstile import Turn, Turnstile, inside

StartRound = Callable[[ChatTurn], TextStream]


class TurnWork:
    """Drives a turn from whichever thread reads; any thread may end it."""

    def __init__(self, turn: ChatTurn, start: StartRound, turnstile: Turnstile, place: Turn) -> None:
        """`place` is the turn's place at the turnstile of its chat, which is given back at the end."""
        self.turn = turn
        self._start = start
        self._turnstile = turnstile
        self._place = place
        self._is_ended = False
        self._is_cancelled = False
        self.reused_token_count = 0
        self._round: TextStream | None = None

    def begin_round(self) -> None:
        """Have the model write."""
        try:
            stream = self._start(self.turn)
        except WinMLError as error:
            self.turn.fail(error)
            raise
        self._round = stream
        self.reused_token_count = stream.reused_token_count
        if self._is_cancelled:
            stream.cancel()
        if self._is_ended:
            stream.close()

    def next_piece(self) -> str | None:
        """Return the next piece of the answer, None at the end of the turn."""
        while True:
            stream = self._round
            if stream is None:
                if self.turn.is_over or not self._answer_calls():
                    return None
                self.begin_round()
                continue
            piece = next(stream, None)
            if piece is not None:
                text = self.turn.push(piece)
            else:
                text = self.turn.flush()
                self._round = None
            if text:
                return text

    def _answer_calls(self) -> bool:
        """Answer the calls of the round; False when the turn was ended meanwhile."""
        while not self._has_stopped and (pending := self.turn.pending):
            with inside(self._place):
                answered = answer_call(self.turn.settings, pending[0])
            self.turn.answered(answered)
        return not self._has_stopped

    @property
    def _has_stopped(self) -> bool:
        return self._is_ended or self._is_cancelled or self.turn.is_cancelled

    @property
    def reply(self) -> ChatReply:
        """The reply; 0x8007139F before the end of the turn."""
        if not self._is_ended and not self.turn.is_over:
            raise WinMLError(E_NOT_VALID_STATE, "result", "the stream is not at its end: read it or close it")
        return self.turn.reply

    def cancel(self) -> None:
        """Stop the model soon; a tool that is running comes to its end."""
        self._is_cancelled = True
        stream = self._round
        if stream is not None:
            stream.cancel()

    def end(self) -> None:
        """End the turn now. Again is fine."""
        self._is_ended = True
        try:
            stream = self._round
            if stream is not None:
                stream.close()
        finally:
            self._turnstile.leave(self._place)


class ChatStream(Closing):
    """An iterator of the pieces of an answer; afterwards `result` holds the whole turn.

    It yields what the model says to the user, through all rounds of a turn with tools; reasoning and calls are not
    among it. Leaving the loop early and dropping the stream, or `close()`, ends the turn as CANCELED. A failing model
    raises its WinMLError from the iteration, and so do calls beyond `max_tool_rounds`; `result` then holds the turn so
    far. Any thread may read or close it.
    """

    def __init__(self, work: TurnWork) -> None:
        self._work = work
        self._finalizer = weakref.finalize(self, work.end)
        self._finalizer.atexit = False

    def __repr__(self) -> str:
        try:
            state = self.result.finish_reason.name
        except WinMLError:
            state = "unfinished"
        return f"<ChatStream {state}>"

    def __iter__(self) -> Iterator[str]:
        return self

    def __next__(self) -> str:
        try:
            piece = self._work.next_piece()
        except StopIteration as error:  # it would pass for the end of the answer
            self.close()
            raise RuntimeError("a tool or a function of the chat raised StopIteration") from error
        except BaseException:  # KeyboardInterrupt: model and chat stay usable
            self.close()
            raise
        if piece is not None:
            return piece
        self.close()
        self.result.raise_for_error()
        raise StopIteration

    @property
    def result(self) -> ChatReply:
        """The reply of the finished turn; 0x8007139F before its end."""
        return self._work.reply

    @property
    def reused_token_count(self) -> int:
        """Tokens of the last round's prompt that the model still knew."""
        return self._work.reused_token_count

    def read(self) -> ChatReply:
        """Go on to the end of the turn and return the reply."""
        with self:
            for _ in self:
                pass
        return self.result

    def cancel(self) -> None:
        """Ask the turn to stop; any thread may."""
        self._work.cancel()

    def close(self) -> None:
        """End the turn now; what was not read is never generated, and no further tool is called."""
        self._work.end()
        self._finalizer.detach()

    def _check_open(self) -> None:
        """A stream may be entered at any time: closing it keeps its result."""
