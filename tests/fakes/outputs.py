"""Runs output parsers: what they report for a text that arrives in pieces, put together."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from genai.continuation import REASONING_TAGS
from genai.messages import ChatCompletionEventType
from genai.output_event import ConversationOutputEvent
from genai.output_parser import ConversationOutputParser
from genai.output_syntax import OutputSyntax
from genai.tool_dialects import DIALECTS, ToolDialect

Type = ChatCompletionEventType
CITY = '{"type": "object", "properties": {"city": {"type": "string"}, "n": {"type": "integer"}}}'
TOOLS = (("get", CITY), ("f", "{}"))


@dataclass
class Output:
    """The content, the reasoning, the complete calls as (id, name, arguments), and the errors of an output."""

    content: str = ""
    reasoning: str = ""
    calls: list[tuple[str, str, str]] = field(default_factory=list)
    errors: int = 0


def dialect(name: str) -> ToolDialect:
    """A row of the table."""
    return next(row for row in DIALECTS if row.name == name)


def parser_of(name: str | None, **fields: object) -> ConversationOutputParser:
    """A parser for a dialect, with the tools `get` and `f` and the reasoning mark `<think>`."""
    row = None if name is None else dialect(name)
    options: dict[str, object] = {
        "reasoning": REASONING_TAGS[0],
        "dialect": row,
        "tools": TOOLS if row else (),
        "frames": row.frames if row else (),
        "has_channels": row is not None and row.has_channels,
    }
    return ConversationOutputParser(OutputSyntax(**{**options, **fields}))  # type: ignore[arg-type]


def events_of(parser: ConversationOutputParser, pieces: Iterable[str]) -> list[ConversationOutputEvent]:
    """Feed the pieces, flush, and return every event."""
    for piece in pieces:
        parser.append(piece)
    parser.flush()
    return list(iter(parser.read_event, None))


def joined(events: Iterable[ConversationOutputEvent]) -> Output:
    """Put the deltas of a whole output together."""
    output = Output()
    arguments = ""
    for event in events:
        if event.type is Type.CONTENT_DELTA:
            output.content += event.text or ""
        elif event.type is Type.REASONING_DELTA:
            output.reasoning += event.text or ""
        elif event.type is Type.TOOL_CALL_START:
            arguments = ""
        elif event.type is Type.TOOL_ARGUMENTS_DELTA:
            arguments += event.text or ""
        elif event.type is Type.TOOL_CALL_END:
            output.calls.append((event.call_id or "", event.tool_name or "", arguments))
        elif event.type is Type.ERROR:
            output.errors += 1
    return output


def output_of(name: str | None, text: str, **fields: object) -> Output:
    """What a parser of the dialect makes of a text; it must be the same for single characters."""
    whole = joined(events_of(parser_of(name, **fields), [text]))
    assert joined(events_of(parser_of(name, **fields), text)) == whole
    return whole
