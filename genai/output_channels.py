"""Output in channels, as the harmony format of gpt-oss has it (genai §3.5, 3.8).

    <|channel|>analysis<|message|>…<|end|><|start|>assistant<|channel|>commentary to=functions.f<|message|>{…}<|call|>

`analysis` is reasoning; a message to a function is a call, whatever its channel; everything else is content.
"""

from __future__ import annotations

import re

from .output_reader import OutputSink
from .text_source import MarkSearch, Reading, Sink, TextEndError, TextSource

CHANNEL = "<|channel|>"
_START, _MESSAGE = "<|start|>", "<|message|>"
_HEADER = MarkSearch((CHANNEL, _START))
_HEADER_END = MarkSearch((_MESSAGE,))
_BODY_END = MarkSearch(("<|end|>", "<|call|>", "<|return|>", _START, CHANNEL))
_FUNCTION = re.compile(r"to=functions\.([^\s<]+)")
_HEADER_LIMIT = 512  # characters of a header; names of tools are shorter


def read_channels(source: TextSource, sink: OutputSink, has_tools: bool, body: Sink | None) -> Reading[None]:
    """Read to the end of the text. `body` takes a message that the prompt has already opened."""
    if body is not None:
        yield from source.until(_BODY_END, body)
    while True:
        mark = yield from source.until(_HEADER, sink.content)
        if mark is None:
            return
        try:
            header, _ = yield from source.text_until(_HEADER_END)
        except TextEndError:
            return
        function = _FUNCTION.search(header[:_HEADER_LIMIT]) if has_tools else None
        if function is not None:
            yield from _read_call(source, sink, function[1])
        else:
            channel = header.rpartition(CHANNEL)[2].strip()
            is_reasoning = channel.startswith("analysis")
            yield from source.until(_BODY_END, sink.reasoning if is_reasoning else sink.content)


def _read_call(source: TextSource, sink: OutputSink, name: str) -> Reading[None]:
    try:
        yield from source.next_of("{")
        sink.start(name, None)
        yield from source.json_value(sink.arguments)
        sink.end()
    except TextEndError:
        return
    except ValueError as error:
        sink.error(f"malformed tool call: {error}")
    yield from source.until(_BODY_END, lambda text: None)
