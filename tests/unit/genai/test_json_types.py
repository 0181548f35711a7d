"""Types as JSON: their schemas, the values that are read, and what is said of wrong ones."""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Iterable, Mapping, Sequence
from datetime import date, datetime, time
from pathlib import Path
from typing import Annotated, Any, Literal, NewType, NotRequired, Optional, Required, TypedDict
from uuid import UUID

import pytest

from genai.json_types import JsonField, json_type, object_type
from genai.json_values import WrongValueError


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Priority(enum.IntEnum):
    LOW = 1
    HIGH = 3


@dataclasses.dataclass
class Point:
    x: float
    y: float = 0.0

    def __post_init__(self) -> None:
        if self.x < 0:
            raise ValueError("x is negative")


class Order(TypedDict, total=False):
    item: Required[str]
    count: int


class Parcel(TypedDict):
    place: Point
    note: NotRequired[str]


@dataclasses.dataclass
class Knot:
    next: Knot


Metres = NewType("Metres", float)

SCHEMAS: list[tuple[Any, Any]] = [
    (str, {"type": "string"}),
    (int, {"type": "integer"}),
    (float, {"type": "number"}),
    (bool, {"type": "boolean"}),
    (None, {"type": "null"}),
    (Any, {}),
    (object, {}),
    (Metres, {"type": "number"}),
    (date, {"type": "string", "format": "date"}),
    (datetime, {"type": "string", "format": "date-time"}),
    (time, {"type": "string", "format": "time"}),
    (UUID, {"type": "string", "format": "uuid"}),
    (Path, {"type": "string"}),
    (list[int], {"type": "array", "items": {"type": "integer"}}),
    (list, {"type": "array", "items": {}}),
    (Sequence[str], {"type": "array", "items": {"type": "string"}}),
    (Iterable[str], {"type": "array", "items": {"type": "string"}}),
    (set[str], {"type": "array", "items": {"type": "string"}}),
    (tuple[int, ...], {"type": "array", "items": {"type": "integer"}}),
    (
        tuple[int, str],
        {"type": "array", "prefixItems": [{"type": "integer"}, {"type": "string"}], "minItems": 2, "maxItems": 2},
    ),
    (dict[str, int], {"type": "object", "additionalProperties": {"type": "integer"}}),
    (
        Mapping[str, list[int]],
        {"type": "object", "additionalProperties": {"type": "array", "items": {"type": "integer"}}},
    ),
    (dict, {"type": "object", "additionalProperties": {}}),
    (int | str, {"anyOf": [{"type": "integer"}, {"type": "string"}]}),
    (Optional[int], {"anyOf": [{"type": "integer"}, {"type": "null"}]}),  # noqa: UP045
    (Literal["a", "b"], {"type": "string", "enum": ["a", "b"]}),
    (Literal[1, "b", None], {"enum": [1, "b", None]}),
    (Colour, {"type": "string", "enum": ["red", "blue"]}),
    (Priority, {"type": "string", "enum": ["LOW", "HIGH"]}),
    (Annotated[int, "How many."], {"type": "integer", "description": "How many."}),
    (
        Point,
        {
            "type": "object",
            "properties": {"x": {"type": "number"}, "y": {"type": "number", "default": 0.0}},
            "required": ["x"],
            "additionalProperties": False,
        },
    ),
    (
        Order,
        {
            "type": "object",
            "properties": {"item": {"type": "string"}, "count": {"type": "integer"}},
            "required": ["item"],
            "additionalProperties": False,
        },
    ),
]


@pytest.mark.parametrize(("annotation", "schema"), SCHEMAS)
def test_the_schema_of_a_type(annotation: Any, schema: Any) -> None:
    assert json_type(annotation).schema == schema


@pytest.mark.parametrize(
    ("annotation", "value", "read"),
    [
        (int, 3.0, 3),
        (float, 3, 3.0),
        (Any, {"a": [1]}, {"a": [1]}),
        (date, "2026-02-03", date(2026, 2, 3)),
        (datetime, "2026-02-03T04:05:06", datetime(2026, 2, 3, 4, 5, 6)),
        (UUID, "12345678-1234-5678-1234-567812345678", UUID("12345678-1234-5678-1234-567812345678")),
        (Path, "a/b", Path("a/b")),
        (set[str], ["a", "b", "a"], {"a", "b"}),
        (frozenset[int], [1], frozenset({1})),
        (tuple[int, ...], [1, 2], (1, 2)),
        (tuple[int, str], [1, "a"], (1, "a")),
        (dict[str, set[int]], {"a": [1]}, {"a": {1}}),
        (int | str, "5", "5"),
        (str | None, None, None),
        (Literal[1, True], True, True),
        (Colour, "red", Colour.RED),
        (Priority, "HIGH", Priority.HIGH),
        (Point, {"x": 1}, Point(1.0, 0.0)),
        (list[Point | None], [{"x": 1, "y": 2}, None], [Point(1.0, 2.0), None]),
        (Order, {"item": "a"}, {"item": "a"}),
        (Parcel, {"place": {"x": 1}, "note": "n"}, {"place": Point(1.0), "note": "n"}),
    ],
)
def test_a_value_becomes_that_of_its_type(annotation: Any, value: Any, read: Any) -> None:
    found = json_type(annotation).read(value)
    assert (found, type(found)) == (read, type(read))


@pytest.mark.parametrize(
    ("annotation", "value", "problem"),
    [
        (int, "3", "must be an integer, not '3'"),
        (int, True, "must be an integer, not True"),
        (int, 3.5, "must be an integer, not 3.5"),
        (float, "3", "must be a number, not '3'"),
        (float, False, "must be a number, not False"),
        (float, 10**400, "must be a number below 1e308 in size"),
        (float, float("inf"), "must be a number below 1e308 in size"),
        (str, 3, "must be a string, not 3"),
        (bool, 1, "must be true or false, not 1"),
        (None, 0, "must be null, not 0"),
        (date, "tomorrow", "is no date: Invalid isoformat string: 'tomorrow'"),
        (list[int], "12", "must be an array, not '12'"),
        (list[int], [1, "a"], "[1] must be an integer, not 'a'"),
        (set[dict[str, int]], [{}], "is refused: unhashable type: 'dict'"),
        (tuple[int, str], [1], "must have 2 items, not 1"),
        (dict[str, int], [], "must be an object, not []"),
        (dict[str, list[int]], {"a": [None]}, ".a[0] must be an integer, not None"),
        (str | None, 5, "must be a string, not 5"),
        (int | bool, "a", "fits no alternative: must be an integer, not 'a'; must be true or false, not 'a'"),
        (Literal["a", "b"], "c", "must be one of 'a', 'b', not 'c'"),
        (Literal[1], True, "must be one of 1, not True"),
        (Colour, "green", "must be one of 'red', 'blue', not 'green'"),
        (Colour, [], "must be one of 'red', 'blue', not []"),
        (Point, {"y": 1}, ".x is missing"),
        (Point, {"x": 1, "z": 1}, ".z is unknown; known are x, y"),
        (Point, {"x": -1}, "is refused: x is negative"),
        (Point, "here", "must be an object, not 'here'"),
        (list[Point], [{"x": "a"}], "[0].x must be a number, not 'a'"),
        (str, list(range(50)), "must be a string, not [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16..."),
    ],
)
def test_what_is_said_of_a_wrong_value(annotation: Any, value: Any, problem: str) -> None:
    with pytest.raises(WrongValueError) as caught:
        json_type(annotation).read(value)
    assert str(caught.value) == problem


@pytest.mark.parametrize(
    ("annotation", "problem"),
    [
        (bytes, "bytes is no type that JSON can hold"),
        (list[bytes], "bytes is no type"),
        (complex | None, "complex is no type"),
        (dict[int, str], "dict with keys of int: the keys of JSON objects are str"),
        (Literal[b"a"], "holds what JSON has no value for"),
        (Literal[Colour.RED], "holds what JSON has no value for"),
        (type, "type is no type"),
        (5, "5 is no type"),
        ([1], "is no type"),
    ],
)
def test_types_without_a_form(annotation: Any, problem: str) -> None:
    with pytest.raises(TypeError, match=problem.replace("[", r"\[")):
        json_type(annotation)


def test_a_class_that_contains_itself() -> None:
    with pytest.raises(RecursionError):
        json_type(Knot)


def test_an_optional_field_shows_neither_null_nor_none() -> None:
    found = object_type([JsonField("a", int | None, False, None), JsonField("b", Colour, False, Colour.RED)])
    assert found.schema["properties"] == {"a": {"type": "integer"}, "b": {"type": "string", "enum": ["red", "blue"]}}
    assert "required" not in found.schema
    assert found.read({"a": None}) == {"a": None}


def test_a_field_has_a_description() -> None:
    found = object_type(
        [JsonField("a", Annotated[int, "first"], description="second"), JsonField("b", int, description="b")]
    )
    assert [kind["description"] for kind in found.schema["properties"].values()] == ["first", "b"]


# --- Pydantic ---------------------------------------------------------------------------------------------------------


def test_a_model_of_pydantic_reads_its_own_values() -> None:
    pydantic = pytest.importorskip("pydantic")
    model = pydantic.create_model("Item", name=(str, ...), count=(int, pydantic.Field(ge=1)))
    found = object_type([JsonField("items", list[model])])  # type: ignore[valid-type]
    assert found.schema["properties"]["items"]["items"] == {"$ref": "#/$defs/Item"}
    assert found.schema["$defs"]["Item"]["properties"]["count"]["minimum"] == 1
    assert found.read({"items": [{"name": "a", "count": 2}]}) == {"items": [model(name="a", count=2)]}
    with pytest.raises(
        WrongValueError, match=r"\.items is wrong: 0\.count: Input should be greater than or equal to 1"
    ):
        found.read({"items": [{"name": "a", "count": 0}]})


def test_limits_of_pydantic_count() -> None:
    pydantic = pytest.importorskip("pydantic")
    found = json_type(Annotated[int, pydantic.Field(ge=1, description="How many.")])
    assert (found.schema["minimum"], found.schema["description"], found.read(1)) == (1, "How many.", 1)
    with pytest.raises(WrongValueError, match="is wrong: Input should be greater than or equal to 1"):
        found.read(0)


def test_two_models_of_one_name_are_refused() -> None:
    pydantic = pytest.importorskip("pydantic")
    first = pydantic.create_model("Item", a=(int, ...))
    second = pydantic.create_model("Item", b=(int, ...))
    with pytest.raises(TypeError, match="two different types have the name Item"):
        object_type([JsonField("a", list[first]), JsonField("b", list[second])])  # type: ignore[valid-type]


def test_a_default_that_json_lacks_is_not_shown() -> None:
    kind = object_type([JsonField("limit", float, is_required=False, default=float("inf"))])
    assert kind.schema["properties"] == {"limit": {"type": "number"}}


def test_what_a_class_refuses_by_any_error_is_a_wrong_value() -> None:
    @dataclasses.dataclass
    class Even:
        n: int

        def __post_init__(self) -> None:
            assert self.n % 2 == 0, "n is odd"

    with pytest.raises(WrongValueError, match="is refused: n is odd"):
        json_type(Even).read({"n": 3})
