"""Readers of tool calls, one for each way in which model families write them (genai §3.8).

Which family writes how, and with which marks, is the table in `tool_dialects.py`. A reader starts after the mark that
opens a call. It raises ValueError for text that is no call, and TextEndError for a call that is cut off.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeAlias

from .text_source import MarkSearch, Reading, TextSource

Schemas: TypeAlias = Mapping[str, Any]
"""Tool names to the JSON schemas of their parameters."""

_HEADER_LIMIT = 512  # characters before the arguments; names of tools are shorter


class CallSink(Protocol):
    """Takes the parts of tool calls."""

    def start(self, name: str, call_id: str | None) -> None:
        """A call of `name` begins; without an id of the model's own it is numbered."""

    def arguments(self, text: str) -> None:
        """More of the JSON object of its arguments."""

    def end(self) -> None:
        """The call is complete."""


class CallReader(Protocol):
    """One way to write a call."""

    def read(self, source: TextSource, sink: CallSink, schemas: Schemas) -> Reading[None]:
        """Read a call, or several where there is a list of them."""


@dataclass(frozen=True, slots=True)
class JsonCalls:
    """`{"name": …, "arguments": {…}}`, or a list of such objects; `ids` are the members that hold an id."""

    names: tuple[str, ...] = ("name",)
    arguments: tuple[str, ...] = ("arguments", "parameters")
    ids: tuple[str, ...] = ()

    def read(self, source: TextSource, sink: CallSink, schemas: Schemas) -> Reading[None]:
        """Read a call, or a list of them."""
        if (yield from source.skip_blanks()) != "[":
            yield from self._read_call(source, sink)
            return
        source.skip()
        yield from self.read_list(source, sink)

    def read_list(self, source: TextSource, sink: CallSink) -> Reading[None]:
        """Read the calls of a list after its bracket."""
        while True:
            yield from self._read_call(source, sink)
            if (yield from source.one_of(",]")) == "]":
                return

    def _read_call(self, source: TextSource, sink: CallSink) -> Reading[None]:
        yield from source.one_of("{")
        call = _JsonCall(sink, waits_for_id=bool(self.ids))
        while True:
            yield from source.next_of('"')
            key = json.loads((yield from source.json_text()))
            yield from source.one_of(":")
            first = yield from source.skip_blanks()
            if key in self.arguments:
                call.begin_arguments()
                if first == "{":
                    yield from source.json_value(call.add_arguments)
                else:
                    call.add_arguments(_quoted_object((yield from source.json_text())))
            else:
                value = yield from source.json_text()
                if key in self.names:
                    call.set_name(_text(value, key))
                elif key in self.ids:
                    call.set_id(_text(value, key))
            if (yield from source.one_of(",}")) == "}":
                call.end()
                return


@dataclass(slots=True)
class _JsonCall:
    """A call whose members come in any order: arguments wait for the name, and for the id where there is one."""

    sink: CallSink
    waits_for_id: bool
    name: str | None = None
    call_id: str | None = None
    waiting: list[str] = field(default_factory=list)
    is_started: bool = False
    has_arguments: bool = False

    def set_name(self, name: str) -> None:
        _require(self.name is None, "the call has two names")
        self.name = name
        self._start()

    def set_id(self, call_id: str) -> None:
        _require(self.call_id is None, "the call has two ids")
        self.call_id = call_id
        self._start()

    def begin_arguments(self) -> None:
        _require(not self.has_arguments, "the call has its arguments twice")
        self.has_arguments = True

    def add_arguments(self, text: str) -> None:
        if self.is_started:
            self.sink.arguments(text)
        else:
            self.waiting.append(text)

    def end(self) -> None:
        self.waits_for_id = False
        self._start()
        _require(self.is_started, "the call has no name")
        if not self.has_arguments:
            self.sink.arguments("{}")
        self.sink.end()

    def _start(self) -> None:
        if self.is_started or self.name is None or (self.waits_for_id and self.call_id is None):
            return
        self.is_started = True
        self.sink.start(self.name, self.call_id)
        for text in self.waiting:
            self.sink.arguments(text)


@dataclass(frozen=True, slots=True)
class NamedCalls:
    """A name, a mark, and the JSON object of the arguments; `header` finds `name` and perhaps `id` before the mark."""

    mark: str
    header: str = "(?P<name>.+)"
    end: str = ""
    """What may follow the object, as part of the call."""

    def read(self, source: TextSource, sink: CallSink, schemas: Schemas) -> Reading[None]:
        """Read a call after the mark that opens it."""
        header, _ = yield from source.text_until(MarkSearch((self.mark,)))
        header = header.strip()
        match = re.fullmatch(self.header, header, re.DOTALL) if len(header) <= _HEADER_LIMIT else None
        if match is None:
            raise ValueError(f"{header[:80]!r} does not name a tool")
        yield from source.next_of("{")
        sink.start(match["name"], match.groupdict().get("id"))
        yield from source.json_value(sink.arguments)
        sink.end()
        for character in self.end:
            if (yield from source.skip_blanks()) == character:
                source.skip()


@dataclass(frozen=True, slots=True)
class ParameterCalls:
    """A name, and each parameter between marks of its own; what a value means is up to the tool's schema."""

    name_end: str
    key_begin: str
    key_end: str
    value_begin: str
    value_end: str
    end: str

    def read(self, source: TextSource, sink: CallSink, schemas: Schemas) -> Reading[None]:
        """Read a call after the mark that opens it."""
        following = MarkSearch((self.key_begin, self.end))
        name, mark = yield from source.text_until(MarkSearch({self.name_end, self.key_begin, self.end} - {""}))
        name = name.strip()
        if not name:
            raise ValueError("the call has no name")
        sink.start(name, None)
        separator = "{"
        while True:
            if mark not in (self.key_begin, self.end):
                _, mark = yield from source.text_until(following)
            if mark == self.end:
                break
            key, _ = yield from source.text_until(MarkSearch((self.key_end,)))
            if self.value_begin:
                yield from source.text_until(MarkSearch((self.value_begin,)))
            value, mark = yield from source.text_until(MarkSearch((self.value_end,)))
            shown = _parameter(schemas.get(name), key.strip(), value)
            sink.arguments(f"{separator}{_quoted(key.strip())}: {shown}")
            separator = ", "
        sink.arguments("{}" if separator == "{" else "}")
        sink.end()


def _parameter(schema: Any, key: str, text: str) -> str:
    """The value of a parameter as JSON: a text where the schema wants one, else as it stands if it is JSON."""
    text = text.removeprefix("\n").removesuffix("\n")
    properties = schema.get("properties") if isinstance(schema, dict) else None
    wanted = properties.get(key) if isinstance(properties, dict) else None
    if isinstance(wanted, dict) and wanted.get("type") == "string":
        return _quoted(text)
    try:
        json.loads(text, parse_constant=refuse_constant)
    except (ValueError, RecursionError):
        return _quoted(text)
    return text.strip()


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def refuse_constant(name: str) -> None:
    """Python reads NaN and Infinity as JSON; they are none."""
    raise ValueError(f"{name} is not a JSON number")


def _require(holds: bool, problem: str) -> None:
    if not holds:
        raise ValueError(problem)


def _text(written: str, key: str) -> str:
    value = json.loads(written)
    if not isinstance(value, str) or not value:
        raise ValueError(f"{key} of the call is no text")
    return value


def _quoted_object(written: str) -> str:
    """Arguments that are a JSON text inside of a string."""
    text = json.loads(written)
    if not isinstance(text, str) or not isinstance(json.loads(text, parse_constant=refuse_constant), dict):
        raise ValueError("the arguments of the call are no object")
    return text.strip()
