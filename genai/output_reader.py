"""Tells content, reasoning and tool calls of a model's output apart (genai §3.8).

Reasoning and calls are cut out of the content with the blanks after them, and before them where no content follows. An
output that ends before a call has its name has no call there: that is content, too, for else nobody would see it. Not
here: output in channels (`output_channels.py`), how calls are written (`call_readers.py`).
"""

from __future__ import annotations

import json
import re
from typing import Protocol

from .call_readers import CallSink
from .output_syntax import OutputSyntax
from .text_source import BLANKS, MarkSearch, Reading, Sink, TextEndError, TextSource
from .tool_dialects import ToolDialect

_LINE_ENDS = "\r\n"
_CALL_BEGIN = re.compile(r'\[?\s*\{\s*(?:"type"\s*:\s*"function"\s*,\s*)?"name"\s*:\s*"(?P<name>[^"\\]*)"')


class OutputSink(CallSink, Protocol):
    """Takes what is found in the output."""

    @property
    def call_count(self) -> int:
        """How many calls have begun."""

    def content(self, text: str) -> None:
        """More of the answer."""

    def reasoning(self, text: str) -> None:
        """More of the reasoning."""

    def error(self, message: str) -> None:
        """A tool call is malformed."""


class TrimmedText:
    """Passes a text on with marks cut out of it, and with each mark the blanks after it.

    Blanks at the end are held back: they are text only if more text follows, or no mark.
    """

    def __init__(self, sink: Sink, blanks: str, is_after_mark: bool) -> None:
        self._sink = sink
        self._blanks = blanks
        self._held: list[str] = []
        self._is_after_mark = is_after_mark
        self._has_text = False

    def cut(self) -> None:
        """A mark was read here."""
        self._is_after_mark = True

    def push(self, text: str) -> None:
        """Take more text."""
        if self._is_after_mark:
            text = text.lstrip(self._blanks)
            if not text:
                return
            self._is_after_mark = False
            if not self._has_text:
                self._held = []
        body = text.rstrip(self._blanks)
        if body:
            self._sink("".join([*self._held, body]))
            self._held = []
            self._has_text = True
        if len(body) < len(text):
            self._held.append(text[len(body) :])

    def end(self) -> None:
        """The text is over."""
        text = "".join(self._held)
        if text and not self._is_after_mark:
            self._sink(text)


class OutputReader:
    """Reads one output. `read` is the reader; it ends with the text."""

    def __init__(self, syntax: OutputSyntax, source: TextSource, sink: OutputSink) -> None:
        self._syntax = syntax
        self._source = source
        self._sink = sink
        self._content = TrimmedText(sink.content, BLANKS, is_after_mark=False)
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
            yield from self._read_reasoning(self._syntax.is_continuation)
        elif not self._syntax.is_continuation:
            yield from self._read_bare_calls()
        mark_end = self._source.mark_end
        while (mark := (yield from self._source.until(self._marks, self._content.push))) is not None:
            self._content.cut()
            if self._syntax.reasoning is not None and mark == self._syntax.reasoning.opening:
                yield from self._read_reasoning(False)
            elif self._dialect is not None and mark == self._dialect.opener:
                yield from self._read_marked_call(self._dialect, mark, mark_end)
            elif self._dialect is not None and mark == self._dialect.call_frame:
                yield from self._read_frame(mark, mark_end)
            mark_end = self._source.mark_end
        self._content.end()

    def _read_frame(self, mark: str, mark_end: int) -> Reading[None]:
        """Read the blanks after the mark that comes before calls; where nothing follows, it was none."""
        source = self._source
        source.keep()
        character = yield from source.skip_blanks()
        text = source.kept()
        if not character:
            source.mark_end = mark_end
            self._content.push(mark + text)

    def _read_marked_call(self, dialect: ToolDialect, mark: str, mark_end: int) -> Reading[None]:
        """Read a call after its mark; `mark_end` is where the mark before it ended."""
        source, count = self._source, self._sink.call_count
        source.keep()
        is_whole = yield from self._read_call(dialect, source)
        text = source.kept()
        if not is_whole and self._sink.call_count == count:
            source.mark_end = mark_end
            self._content.push(mark + text)

    def _read_reasoning(self, is_continuation: bool) -> Reading[None]:
        assert self._syntax.reasoning is not None
        reasoning = TrimmedText(self._sink.reasoning, _LINE_ENDS, is_after_mark=not is_continuation)
        mark = yield from self._source.until(MarkSearch((self._syntax.reasoning.closing,)), reasoning.push)
        if mark is None:
            reasoning.end()
        self._content.cut()
        yield from self._read_bare_calls()

    def _read_call(self, dialect: ToolDialect, source: TextSource) -> Reading[bool]:
        """Read a call; return whether it was there to its end, though perhaps malformed."""
        try:
            yield from dialect.reader.read(source, self._sink, self._schemas)
        except TextEndError:
            return False
        except (ValueError, RecursionError) as error:
            self._sink.error(f"malformed tool call: {error}")
            if dialect.closer:
                yield from source.until(MarkSearch((dialect.closer,)), _drop)
        return True

    def _read_bare_calls(self) -> Reading[None]:
        """Read calls that nothing announces; JSON that is no call of a known tool is content."""
        while self._dialect is not None and self._dialect.is_bare:
            written: list[str] = []
            problem: Exception | None = None
            if (yield from self._source.skip_blanks(written.append)) in ("{", "["):
                try:
                    yield from self._source.json_value(written.append)
                except (ValueError, TextEndError) as error:
                    problem = error
            text = "".join(written)
            if not self._is_call(text, problem is None):
                self._content.push(text)
                return
            self._content.cut()
            if problem is not None:
                if isinstance(problem, ValueError):
                    self._sink.error(f"malformed tool call: {problem}")
                return
            for _ in self._read_call(self._dialect, TextSource(text)):
                pass  # all of it is there
            if (yield from self._source.skip_blanks()) == ";":  # between the calls of Llama
                self._source.skip()

    def _is_call(self, text: str, is_whole: bool) -> bool:
        """Whether JSON is a call of a known tool, or the beginning of one."""
        if not is_whole:
            match = _CALL_BEGIN.match(text.lstrip(BLANKS))
            return match is not None and match["name"] in self._schemas
        try:
            value = json.loads(text)
        except ValueError:  # no JSON at all, or a number that Python does not read
            return False
        calls = value if isinstance(value, list) else [value]
        return bool(calls) and all(isinstance(call, dict) and call.get("name") in self._schemas for call in calls)


def _drop(text: str) -> None:
    """Leave malformed text out."""
