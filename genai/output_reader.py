"""Tells content, reasoning and tool calls of a model's output apart (genai §3.8).

Blanks next to a mark belong to the mark: the line ends inside reasoning marks and after them, all blanks before and
after tool calls. Not here: output in channels (`output_channels.py`), how calls are written (`call_readers.py`).
"""

from __future__ import annotations

import re
from typing import Protocol

from .call_readers import CallSink
from .output_syntax import OutputSyntax
from .text_source import BLANKS, MarkSearch, Reading, Sink, TextEndError, TextSource
from .tool_dialects import ToolDialect

_LINE_ENDS = "\r\n"
_BARE_CALL = re.compile(r'\[?\s*\{\s*(?:"type"\s*:\s*"function"\s*,\s*)?"name"\s*:\s*"(?P<name>[^"\\]*)"')


class OutputSink(CallSink, Protocol):
    """Takes what is found in the output."""

    def content(self, text: str) -> None:
        """More of the answer."""

    def reasoning(self, text: str) -> None:
        """More of the reasoning."""

    def error(self, message: str) -> None:
        """A tool call is malformed."""


class TrimmedText:
    """Passes a text on without the blanks at its start, and holds those at its end back until more text follows."""

    def __init__(self, sink: Sink, held: str) -> None:
        self._sink = sink
        self._held_characters = held
        self._skipped = ""
        self._held: list[str] = []

    def begin(self, skipped: str) -> None:
        """A mark was read: what is held back is no text, nor are the `skipped` characters that follow."""
        self._held = []
        self._skipped = skipped

    def push(self, text: str) -> None:
        """Take more text."""
        if self._skipped:
            text = text.lstrip(self._skipped)
            if not text:
                return
            self._skipped = ""
        body = text.rstrip(self._held_characters)
        if body:
            self._held.append(body)
            self.release()
        if len(body) < len(text):
            self._held.append(text[len(body) :])

    def release(self) -> None:
        """Pass on what is held back."""
        text = "".join(self._held)
        self._held = []
        if text:
            self._sink(text)


class OutputReader:
    """Reads one output. `read` is the reader; it ends with the text."""

    def __init__(self, syntax: OutputSyntax, source: TextSource, sink: OutputSink) -> None:
        self._syntax = syntax
        self._source = source
        self._sink = sink
        self._content = TrimmedText(sink.content, BLANKS)
        self._dialect = syntax.dialect
        self._schemas = syntax.schemas()
        marks = set(syntax.frames)
        if syntax.reasoning is not None:
            marks.add(syntax.reasoning.opening)
        if self._dialect is not None:
            marks |= {self._dialect.opener, self._dialect.closer, *self._dialect.frames} - {""}
        self._marks = MarkSearch(marks)

    def read(self) -> Reading[None]:
        """Read to the end of the text."""
        if self._syntax.starts_in_reasoning:
            yield from self._read_reasoning("" if self._syntax.is_continuation else _LINE_ENDS)
        yield from self._read_bare_calls()
        while (mark := (yield from self._source.until(self._marks, self._content.push))) is not None:
            if self._syntax.reasoning is not None and mark == self._syntax.reasoning.opening:
                yield from self._read_reasoning(_LINE_ENDS)
                yield from self._read_bare_calls()
                continue
            self._content.begin(BLANKS)
            if self._dialect is not None and mark == self._dialect.opener:
                yield from self._read_call(self._dialect, self._source)
        self._content.release()

    def _read_reasoning(self, skipped: str) -> Reading[None]:
        assert self._syntax.reasoning is not None
        reasoning = TrimmedText(self._sink.reasoning, _LINE_ENDS)
        reasoning.begin(skipped)
        mark = yield from self._source.until(MarkSearch((self._syntax.reasoning.closing,)), reasoning.push)
        if mark is None:  # cut off: what was held back is text
            reasoning.release()
        self._content.begin(_LINE_ENDS)

    def _read_call(self, dialect: ToolDialect, source: TextSource) -> Reading[None]:
        try:
            yield from dialect.reader.read(source, self._sink, self._schemas)
        except TextEndError:
            return
        except (ValueError, RecursionError) as error:
            self._sink.error(f"malformed tool call: {error}")
            if dialect.closer:
                yield from source.until(MarkSearch((dialect.closer,)), _drop)

    def _read_bare_calls(self) -> Reading[None]:
        """Read calls that nothing announces; JSON that is no call of a known tool is content."""
        while self._dialect is not None and self._dialect.is_bare:
            written: list[str] = []
            is_cut = False
            problem: str | None = None
            if (yield from self._source.skip_blanks(written.append)) in ("{", "["):
                try:
                    yield from self._source.json_value(written.append)
                except TextEndError:
                    is_cut = True
                except ValueError as error:
                    problem = str(error)
            text = "".join(written)
            match = _BARE_CALL.match(text.lstrip())
            if match is None or match["name"] not in self._schemas:
                self._content.push(text)
                return
            if is_cut:
                return
            self._content.begin(BLANKS)
            if problem is not None:
                self._sink.error(f"malformed tool call: {problem}")
                return
            for _ in self._read_call(self._dialect, TextSource(text)):
                pass  # all of it is there
            if (yield from self._source.skip_blanks()) == ";":  # between the calls of Llama
                self._source.skip()


def _drop(text: str) -> None:
    """Leave malformed text out."""
