"""From the text a model writes to events: content, reasoning, tool calls (genai §3.8).

The parser queues events and numbers calls; what the text says is read by `output_reader.py`.
"""

from __future__ import annotations

from collections import deque
from typing import TypeAlias

from winml_lite import WinMLError

from .closing import Closing
from .codes import E_NOT_VALID_STATE, INVALID_DATA
from .messages import ChatCompletionEventType
from .output_channels import read_channels
from .output_event import ConversationOutputEvent
from .output_reader import OutputReader
from .output_syntax import OutputSyntax
from .stopping import StopText
from .text_source import Reading, TextSource

_Type = ChatCompletionEventType
LocatedEvent: TypeAlias = tuple[ConversationOutputEvent, int, int]


class ConversationOutputParser(Closing):
    """Turns one output of the model into events. Made by `ConversationFormatResult.create_output_parser`.

    What may still become a mark (a reasoning tag, the opener of a tool call, a stop text) is held back; how the text is
    split into pieces makes no difference to content, reasoning and calls. For one thread at a time.
    """

    def __init__(self, syntax: OutputSyntax) -> None:
        self._syntax = syntax
        self._is_closed = False
        self.reset()

    def __repr__(self) -> str:
        if self._is_closed:
            return "<ConversationOutputParser (closed)>"
        state = "flushed" if self._source.is_ended else "unfinished"
        return f"<ConversationOutputParser {state}, {len(self._events)} events to read>"

    def append(self, text: str) -> None:
        """Take the next piece of the output; 0x8007139F after `flush`."""
        if not isinstance(text, str):
            raise TypeError(f"text must be a str, not {type(text).__name__}")
        self._check_open()
        if self._source.is_ended:
            raise WinMLError(E_NOT_VALID_STATE, "append", "the output was flushed: reset the parser first")
        self._advance(self._stops.push(text))

    def flush(self) -> None:
        """End the output: what was held back is content after all, and COMPLETED follows. Again does nothing."""
        self._check_open()
        if self._source.is_ended:
            return
        rest = self._stops.flush()
        self._source.is_ended = True
        self._advance(rest)
        self._sink.completed()

    def read_event(self) -> ConversationOutputEvent | None:
        """Return the next event; None when there is none yet, or no more after COMPLETED."""
        self._check_open()
        return self._events.popleft()[0] if self._events else None

    def read_located_event(self) -> LocatedEvent | None:
        """Return what `read_event` does, and the part of the output that it came from: where that begins and ends, in
        characters. The parts follow each other; marks around a text are left out of it.
        """
        return self._events.popleft() if self._events else None

    @property
    def stop_match(self) -> str | None:
        """The stop text that has ended the output; what comes after it is ignored."""
        return self._stops.matched

    def reset(self) -> None:
        """Forget the output and its events; the parser is as new."""
        self._check_open()
        self._events: deque[LocatedEvent] = deque()
        self._source = TextSource()
        self._stops = StopText(self._syntax.stops)
        self._sink = _EventSink(self._events, self._source)
        self._reader = self._read()

    def close(self) -> None:
        """End the use of the parser. Again is fine."""
        self._is_closed = True

    def _check_open(self) -> None:
        if self._is_closed:
            raise RuntimeError("ConversationOutputParser is closed")

    def _read(self) -> Reading[None]:
        syntax = self._syntax
        if not syntax.has_channels:
            return OutputReader(syntax, self._source, self._sink).read()
        body = None
        if syntax.is_continuation:
            body = self._sink.reasoning if syntax.starts_in_reasoning else self._sink.content
        return read_channels(self._source, self._sink, syntax.dialect is not None, body)

    def _advance(self, text: str) -> None:
        self._source.append(text)
        next(self._reader, None)


class _EventSink:
    """Makes events of what the reader finds, each with its part of the source."""

    def __init__(self, events: deque[LocatedEvent], source: TextSource) -> None:
        self._events = events
        self._source = source
        self._end = 0
        self._index = -1
        self._call_id = ""
        self._name = ""

    @property
    def call_count(self) -> int:
        return self._index + 1

    def content(self, text: str) -> None:
        self._add_text(ConversationOutputEvent(_Type.CONTENT_DELTA, text))

    def reasoning(self, text: str) -> None:
        self._add_text(ConversationOutputEvent(_Type.REASONING_DELTA, text))

    def start(self, name: str, call_id: str | None) -> None:
        self._index += 1
        self._name, self._call_id = name, call_id or f"call_{self._index}"
        self._add_call(_Type.TOOL_CALL_START)

    def arguments(self, text: str) -> None:
        self._add_call(_Type.TOOL_ARGUMENTS_DELTA, text)

    def end(self) -> None:
        self._add_call(_Type.TOOL_CALL_END)

    def error(self, message: str) -> None:
        self._add(ConversationOutputEvent(_Type.ERROR, error_code=INVALID_DATA, error_message=message))

    def completed(self) -> None:
        self._add(ConversationOutputEvent(_Type.COMPLETED))

    def _add_call(self, kind: ChatCompletionEventType, text: str | None = None) -> None:
        self._add(ConversationOutputEvent(kind, text, self._index, self._call_id, self._name))

    def _add_text(self, event: ConversationOutputEvent) -> None:
        self._end = max(self._end, self._source.mark_end)
        self._add(event)

    def _add(self, event: ConversationOutputEvent) -> None:
        begin, self._end = self._end, self._source.consumed
        self._events.append((event, begin, self._end))
