"""From emitted tokens to the events of an answer, and to the answer as a whole (genai §9.4).

Only the translation: the generation is driven elsewhere, on any thread; one thread at a time may use a reader.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque

from .chat_results import ChatCompletionEvent
from .messages import ChatCompletionEventType, ChatCompletionToolCall
from .output_event import ConversationOutputEvent
from .output_parser import ConversationOutputParser
from .results import TextGenerationUpdate

_Type = ChatCompletionEventType


class ReplyReader:
    """Reads one answer: `push` each update, then `finish`; meanwhile take the events with `read_event`.

    `content`, `reasoning_content` and `tool_calls` are what the events so far have said. A KeyboardInterrupt in any
    method loses nothing: the next call reads the answer from its beginning again.
    """

    def __init__(self, parser: ConversationOutputParser) -> None:
        """`parser` is a new one, and has no other user."""
        self._parser = parser
        self._updates: list[TextGenerationUpdate] = []
        self._error: tuple[int, str | None] | None = None
        self._is_finished = False
        self._taken = 0
        self._is_torn = False
        self._begin()

    def _begin(self) -> None:
        self._parser.reset()
        self._events: deque[ChatCompletionEvent] = deque()
        self._read = 0  # updates that the parser knows
        self._is_flushed = False
        self._token_ids: list[int] = []
        self._ends: list[int] = []  # for each token how long the text is with it
        self._length = 0
        self._claimed = 0  # tokens that belong to an event
        self._content: list[str] = []
        self._reasoning: list[str] = []
        self._arguments: list[str] = []
        self._calls: list[ChatCompletionToolCall] = []

    @property
    def content(self) -> str:
        """The answer itself."""
        return "".join(self._content)

    @property
    def reasoning_content(self) -> str:
        """The reasoning before or in the answer."""
        return "".join(self._reasoning)

    @property
    def tool_calls(self) -> tuple[ChatCompletionToolCall, ...]:
        """The complete calls; what has begun and not ended is not among them."""
        return tuple(self._calls)

    @property
    def stop_match(self) -> str | None:
        """The stop text of the formatter that has ended the answer; updates after it are of no effect."""
        return self._parser.stop_match

    @property
    def is_finished(self) -> bool:
        """Whether `finish` was called."""
        return self._is_finished

    def push(self, update: TextGenerationUpdate) -> None:
        """Take the next update of the generation."""
        self._updates.append(update)
        self._advance()

    def finish(self, error_code: int = 0, error_message: str | None = None) -> None:
        """End the answer: what was held back comes out, then COMPLETED, or ERROR when the generation failed."""
        if not self._is_finished:
            self._error = (error_code, error_message) if error_code else None
            self._is_finished = True
        self._advance()

    def read_event(self) -> ChatCompletionEvent | None:
        """Return the next event; None when there is none yet, or no more."""
        if self._is_torn:
            self._advance()
        if not self._events:
            return None
        self._taken += 1
        return self._events.popleft()

    def _advance(self) -> None:
        """Read what is new; after an interrupt everything, apart from the events that were taken."""
        was_torn = self._is_torn
        self._is_torn = True
        if was_torn:
            self._begin()
        while self._read < len(self._updates):
            self._take(self._updates[self._read])
            self._read += 1
        if self._is_finished and not self._is_flushed:
            self._parser.flush()
            self._translate()
            self._is_flushed = True
        if was_torn:
            for _ in range(self._taken):
                self._events.popleft()
        self._is_torn = False

    def _take(self, update: TextGenerationUpdate) -> None:
        self._length += len(update.fragment)
        if update.token_id is not None:
            self._token_ids.append(update.token_id)
            self._ends.append(self._length)
        if update.fragment:
            self._parser.append(update.fragment)
            self._translate()

    def _translate(self) -> None:
        while (located := self._parser.read_located_event()) is not None:
            self._add(*located)

    def _add(self, event: ConversationOutputEvent, begin: int, end: int) -> None:
        kind, text = event.type, event.text or ""
        if kind is _Type.CONTENT_DELTA:
            self._content.append(text)
        elif kind is _Type.REASONING_DELTA:
            self._reasoning.append(text)
        elif kind is _Type.TOOL_CALL_START:
            self._arguments = []
        elif kind is _Type.TOOL_ARGUMENTS_DELTA:
            self._arguments.append(text)
        elif kind is _Type.TOOL_CALL_END:
            call = ChatCompletionToolCall(event.call_id or "", event.tool_name or "", "".join(self._arguments))
            self._calls.append(call)
        elif kind is _Type.COMPLETED:
            self._end()
            return
        first, stop = self._tokens(begin, end)
        self._claimed = stop
        self._events.append(
            ChatCompletionEvent(
                kind,
                event.text,
                event.tool_call_index,
                event.call_id,
                event.tool_name,
                event.error_code,
                event.error_message,
                first,
                tuple(self._token_ids[first:stop]),
            )
        )

    def _end(self) -> None:
        count = len(self._token_ids)
        if self._error is None:
            self._events.append(ChatCompletionEvent(_Type.COMPLETED, first_token_index=count))
        else:
            code, message = self._error
            self._events.append(
                ChatCompletionEvent(_Type.ERROR, error_code=code, error_message=message, first_token_index=count)
            )

    def _tokens(self, begin: int, end: int) -> tuple[int, int]:
        """The half-open range of tokens that show the characters from `begin` to `end`, as far as they are unclaimed.

        Tokens without text belong to the character after them, of which they hold a part.
        """
        ends, count = self._ends, len(self._ends)
        first = bisect_left(ends, begin)
        if begin and first < count and ends[first] == begin:
            first += 1  # the last token before `begin`
        first = max(first, self._claimed)
        return first, max(first, min(bisect_left(ends, end) + 1, count))
