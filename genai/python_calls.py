"""Tool calls as a list of Python calls, `[name(key="value", …), …]`, as the LFM family writes them (genai §3.8).

Only names, keywords and literals are read; nothing is evaluated.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

from .call_readers import CallSink, JsonCalls, Schemas, refuse_constant
from .text_source import MarkSearch, Reading, TextSource

_DEPTH_LIMIT = 64
_WORDS = {"True": "true", "False": "false", "None": "null"}
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f", "\\": "\\", "'": "'", '"': '"', "\n": ""}
_WORD_END = MarkSearch(",)]}:")


@dataclass(frozen=True, slots=True)
class PythonCalls:
    """Calls with keywords; a list of JSON objects is taken too, which the family writes when it is asked to."""

    def read(self, source: TextSource, sink: CallSink, schemas: Schemas) -> Reading[None]:
        """Read the list of calls."""
        yield from source.one_of("[")
        if (yield from source.skip_blanks()) == "{":
            yield from JsonCalls(ids=("id",)).read_list(source, sink)
            return
        while True:
            yield from self._read_call(source, sink)
            if (yield from source.one_of(",]")) == "]":
                return

    def _read_call(self, source: TextSource, sink: CallSink) -> Reading[None]:
        name, _ = yield from source.text_until(MarkSearch("("))
        if not name.strip():
            raise ValueError("the call has no name")
        sink.start(name.strip(), None)
        shown = yield from self._items(source, ")", "=", _DEPTH_LIMIT)
        sink.arguments("{" + ", ".join(shown) + "}")
        sink.end()

    def _items(self, source: TextSource, end: str, between: str, depth: int) -> Reading[list[str]]:
        """Read items up to the bracket `end`, each with a key before the mark `between` if there is one; as JSON."""
        if depth == 0:
            raise ValueError(f"the arguments are nested deeper than {_DEPTH_LIMIT} levels")
        shown: list[str] = []
        while (yield from source.skip_blanks()) != end:
            key = ""
            if between == "=":
                written, _ = yield from source.text_until(MarkSearch("="))
                key = json.dumps(written.strip(), ensure_ascii=False) + ": "
            elif between == ":":
                yield from source.next_of("'\"")
                key = (yield from self._value(source, depth)) + ": "
                yield from source.one_of(":")
            shown.append(key + (yield from self._value(source, depth)))
            if (yield from source.next_of("," + end)) == ",":
                source.skip()
        source.skip()
        return shown

    def _value(self, source: TextSource, depth: int) -> Reading[str]:
        """Read a literal; return it as JSON."""
        character = yield from source.skip_blanks()
        if character in ("'", '"'):
            source.skip()
            return json.dumps((yield from self._text(source, character)), ensure_ascii=False)
        if character == "[":
            source.skip()
            return "[" + ", ".join((yield from self._items(source, "]", "", depth - 1))) + "]"
        if character == "{":
            source.skip()
            return "{" + ", ".join((yield from self._items(source, "}", ":", depth - 1))) + "}"
        word = (yield from source.text_before(_WORD_END)).strip()
        word = _WORDS.get(word, word)
        json.loads(word, parse_constant=refuse_constant)
        return word

    def _text(self, source: TextSource, quote: str) -> Reading[str]:
        """Read a text after its quote."""
        pieces: list[str] = []
        stops = MarkSearch((quote, "\\"))
        while True:
            piece, mark = yield from source.text_until(stops)
            pieces.append(piece)
            if mark == quote:
                return "".join(pieces)
            character = yield from source.peek()
            if character:
                source.skip()
            pieces.append(_ESCAPES.get(character, f"\\{character}"))
