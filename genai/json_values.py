"""JSON values that become Python values: what a value must be, and what is wrong with one.

Types that hold no others, and those that belong to Pydantic: it is never imported here, only found where the program
has imported it. Types that are made of others are `json_types.py`.
"""

from __future__ import annotations

import math
import sys
import types
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import date, datetime, time
from pathlib import Path
from typing import Annotated, Any, Literal, TypeAlias, get_args, get_origin
from uuid import UUID

Schema: TypeAlias = dict[str, Any]


class WrongValueError(ValueError):
    """A JSON value does not fit its type. `place` is where in the value, `""` for the value itself."""

    def __init__(self, place: str, problem: str) -> None:
        super().__init__(f"{place} {problem}" if place else problem)
        self.place = place
        self.problem = problem


@dataclass(frozen=True, slots=True)
class JsonType:
    """A type: its JSON schema, and the function that makes a Python value of a JSON value (WrongValueError)."""

    schema: Schema
    read: Callable[[Any], Any]


def read_at(place: str, kind: JsonType, value: Any) -> Any:
    """Read a part of a value; `place` says where it is."""
    try:
        return kind.read(value)
    except WrongValueError as error:
        raise WrongValueError(place + error.place, error.problem) from None


def read_array(value: Any) -> list[Any]:
    """Return a JSON array."""
    if not isinstance(value, list):
        raise WrongValueError("", f"must be an array, not {shown(value)}")
    return value


def shown(value: Any) -> str:
    """Return a value as a message shows it."""
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def spelled(annotation: Any) -> str:
    """Return an annotation as a program has it."""
    return annotation.__qualname__ if isinstance(annotation, type) else str(annotation)


# --- simple types -----------------------------------------------------------------------------------------------------


def _read_integer(value: Any) -> int:
    if isinstance(value, float) and value.is_integer():
        return int(value)  # JSON knows only one kind of number
    if isinstance(value, bool) or not isinstance(value, int):
        raise WrongValueError("", f"must be an integer, not {shown(value)}")
    return value


def _read_number(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise WrongValueError("", f"must be a number, not {shown(value)}")
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if not math.isfinite(number):
        raise WrongValueError("", "must be a number below 1e308 in size")
    return number


def read_text(value: Any) -> str:
    """Return a JSON string."""
    if not isinstance(value, str):
        raise WrongValueError("", f"must be a string, not {shown(value)}")
    return value


def _read_bool(value: Any) -> bool:
    if not isinstance(value, bool):
        raise WrongValueError("", f"must be true or false, not {shown(value)}")
    return value


def _read_null(value: Any) -> None:
    if value is not None:
        raise WrongValueError("", f"must be null, not {shown(value)}")


def _read_anything(value: Any) -> Any:
    return value


def _text_form(make: Callable[[str], Any], form: str | None = None) -> JsonType:
    def read(value: Any) -> Any:
        text = read_text(value)
        try:
            return make(text)
        except ValueError as error:
            raise WrongValueError("", f"is no {form or 'such text'}: {error}") from error

    return JsonType({"type": "string"} if form is None else {"type": "string", "format": form}, read)


NULL = JsonType({"type": "null"}, _read_null)
SIMPLE_TYPES: dict[Any, JsonType] = {
    str: JsonType({"type": "string"}, read_text),
    int: JsonType({"type": "integer"}, _read_integer),
    float: JsonType({"type": "number"}, _read_number),
    bool: JsonType({"type": "boolean"}, _read_bool),
    None: NULL,
    types.NoneType: NULL,
    Any: JsonType({}, _read_anything),
    object: JsonType({}, _read_anything),
    date: _text_form(date.fromisoformat, "date"),
    datetime: _text_form(datetime.fromisoformat, "date-time"),
    time: _text_form(time.fromisoformat, "time"),
    UUID: _text_form(UUID, "uuid"),
    Path: _text_form(Path),
}


# --- one of several values --------------------------------------------------------------------------------------------


def exact(value: Any) -> tuple[type, Any]:
    """Return what tells JSON values apart: True and 1 are equal."""
    return type(value), value


def choice_type(choices: Mapping[tuple[type, Any], Any]) -> JsonType:
    """Return the type of some JSON values, each by its `exact` form, and what they stand for."""
    values = [value for _, value in choices]
    schema: Schema = {"enum": values}
    if all(isinstance(value, str) for value in values):
        schema = {"type": "string", **schema}

    def read(value: Any) -> Any:
        if not isinstance(value, str | int | None) or exact(value) not in choices:
            raise WrongValueError("", f"must be one of {', '.join(map(repr, values))}, not {shown(value)}")
        return choices[exact(value)]

    return JsonType(schema, read)


# --- Pydantic ---------------------------------------------------------------------------------------------------------

_CHECKED_BY_PYDANTIC = ("pydantic", "annotated_types")


def is_pydantic(annotation: Any) -> bool:
    """Whether a class of Pydantic, or a limit that it checks, is anywhere in the annotation."""
    if hasattr(annotation, "__pydantic_validator__"):
        return True
    if get_origin(annotation) is Annotated:
        inner, *notes = get_args(annotation)
        modules = {type(note).__module__.partition(".")[0] for note in notes}
        return not modules.isdisjoint(_CHECKED_BY_PYDANTIC) or is_pydantic(inner)
    return get_origin(annotation) is not Literal and any(map(is_pydantic, get_args(annotation)))


def pydantic_type(annotation: Any) -> JsonType:
    """Return the type as Pydantic describes and reads it; TypeError for one that it has no schema for."""
    pydantic: Any = sys.modules.get("pydantic")
    if pydantic is None:
        raise TypeError(f"the limits of {spelled(annotation)} are checked by pydantic, which is not imported")
    try:
        adapter = pydantic.TypeAdapter(annotation)
        schema = adapter.json_schema()
    except pydantic.errors.PydanticUserError as error:
        raise TypeError(f"{spelled(annotation)} is no type that JSON can hold: {error}") from error

    def read(value: Any) -> Any:
        try:
            return adapter.validate_python(value)
        except pydantic.ValidationError as error:
            problems = [_pydantic_problem(detail["loc"], detail["msg"]) for detail in error.errors()]
            raise WrongValueError("", f"is wrong: {'; '.join(problems)}") from error

    return JsonType(schema, read)


def _pydantic_problem(place: tuple[str | int, ...], message: str) -> str:
    return f"{'.'.join(map(str, place))}: {message}" if place else message
