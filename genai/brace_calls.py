"""Tool calls as the Gemma family writes them: `name{key:value,…}`, with texts between marks (genai §3.8)."""

from __future__ import annotations

import json
from dataclasses import dataclass

from .call_readers import CallSink, Schemas, refuse_constant
from .text_source import MarkSearch, Reading, TextSource

_DEPTH_LIMIT = 64
_SCALAR_END = MarkSearch(",}]")


@dataclass(frozen=True, slots=True)
class BraceCalls:
    """`quote` stands before and after a text; numbers, `true`, `false` and `null` are as in JSON."""

    quote: str

    def read(self, source: TextSource, sink: CallSink, schemas: Schemas) -> Reading[None]:
        """Read a call after the mark that opens it."""
        name, _ = yield from source.text_until(MarkSearch("{"))
        if not name.strip():
            raise ValueError("the call has no name")
        sink.start(name.strip(), None)
        sink.arguments((yield from self._members(source, "}", _DEPTH_LIMIT)))
        sink.end()

    def _members(self, source: TextSource, end: str, depth: int) -> Reading[str]:
        """Read the members of an object, or the items of a list, after its bracket; return it as JSON."""
        if depth == 0:
            raise ValueError(f"the arguments are nested deeper than {_DEPTH_LIMIT} levels")
        begin = "{" if end == "}" else "["
        if (yield from source.skip_blanks()) == end:
            source.skip()
            return begin + end
        shown: list[str] = []
        while True:
            key = ""
            if end == "}":
                written, _ = yield from source.text_until(MarkSearch(":"))
                key = json.dumps(written.strip().replace(self.quote, ""), ensure_ascii=False) + ": "
            shown.append(key + (yield from self._value(source, depth)))
            if (yield from source.one_of("," + end)) == end:
                return begin + ", ".join(shown) + end

    def _value(self, source: TextSource, depth: int) -> Reading[str]:
        character = yield from source.skip_blanks()
        if character in ("{", "["):
            source.skip()
            return (yield from self._members(source, "}" if character == "{" else "]", depth - 1))
        if character == self.quote[0]:
            quote = MarkSearch((self.quote,))
            before, _ = yield from source.text_until(quote)
            if before:
                raise ValueError(f"{before[:40]!r} is no value")
            text, _ = yield from source.text_until(quote)
            return json.dumps(text, ensure_ascii=False)
        written = yield from source.text_before(_SCALAR_END)
        json.loads(written, parse_constant=refuse_constant)
        return written.strip()
