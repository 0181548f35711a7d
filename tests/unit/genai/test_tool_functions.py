"""Functions as tools: their declarations, their arguments, their results."""

from __future__ import annotations

import dataclasses
import enum
import functools
import json
from collections.abc import Callable
from datetime import date
from decimal import Decimal
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from genai.json_values import WrongValueError
from genai.messages import ChatCompletionTool
from genai.tool_functions import as_tool, result_text, tools_by_name

if TYPE_CHECKING:
    from nowhere import Absent  # type: ignore[import-not-found]


def weather(city: str, /, days: int = 1, *, metric: bool = True) -> Absent:
    """Say how the weather will be.

    Args:
        city: The name of the city.
    """
    return city, days, metric


class Shop:
    def price(self, item: str) -> float:
        """Say what an item costs."""
        return 1.5


@dataclasses.dataclass
class Point:
    x: int


class Colour(enum.Enum):
    RED = "red"


def test_a_function_declares_itself() -> None:
    declaration = as_tool(weather).declaration
    assert (declaration.name, declaration.description) == ("weather", "Say how the weather will be.")
    assert json.loads(declaration.parameters_json) == {
        "type": "object",
        "properties": {
            "city": {"type": "string", "description": "The name of the city."},
            "days": {"type": "integer", "default": 1},
            "metric": {"type": "boolean", "default": True},
        },
        "required": ["city"],
        "additionalProperties": False,
    }


def test_a_function_without_docstring_has_no_description() -> None:
    def tool() -> None: ...

    assert as_tool(tool).declaration == ChatCompletionTool(
        "tool", '{"type": "object", "properties": {}, "additionalProperties": false}'
    )


def test_arguments_of_every_kind_are_bound() -> None:
    bound = as_tool(weather).bind({"metric": False, "city": "Łódź"})
    assert (bound.args, bound.kwargs) == (("Łódź",), {"metric": False})


def test_a_method_is_a_tool() -> None:
    tool = as_tool(Shop().price)
    bound = tool.bind({"item": "pen"})
    assert (tool.name, tool.function(*bound.args, **bound.kwargs)) == ("price", 1.5)


def test_a_decorated_function_has_the_signature_of_the_inner_one() -> None:
    @functools.wraps(weather)
    def outer(*arguments: Any, **fields: Any) -> Any:
        return weather(*arguments, **fields)

    assert as_tool(outer).declaration == as_tool(weather).declaration


def no_annotation(a) -> None: ...  # type: ignore[no-untyped-def]
def no_form(a: bytes) -> None: ...
def unknown(a: Absent) -> None: ...
def several(*a: int) -> None: ...
def any_name(**a: int) -> None: ...


@pytest.mark.parametrize(
    ("function", "problem"),
    [
        (no_annotation, r"tool no_annotation\(\): parameter 'a' has no annotation: the model has to know"),
        (no_form, r"tool no_form\(\): parameter 'a': bytes is no type that JSON can hold"),
        (unknown, r"tool unknown\(\): parameter 'a': its annotation cannot be resolved: name 'Absent' is not defined"),
        (several, r"tool several\(\): parameter 'a' takes any number"),
        (any_name, r"tool any_name\(\): parameter 'a' takes any number"),
        (lambda: 1, "no name that a model could call it by"),
        (functools.partial(weather, "a"), "no name that a model could call it by"),
        (Point, "a tool is a function"),
        ("weather", "a tool is a function"),
        ((weather, weather), "a tool is a function"),
        (ChatCompletionTool("a", "{}"), "the tool 'a' needs its function"),
    ],
)
def test_what_cannot_be_a_tool(function: Any, problem: str) -> None:
    with pytest.raises(TypeError, match=problem):
        as_tool(function)


def test_a_declaration_goes_with_any_function() -> None:
    declaration = ChatCompletionTool("shout", '{"type": "object"}', "Say it loud.")
    tool = as_tool((declaration, lambda text: text.upper()))
    assert (tool.declaration, tool.bind({"text": "a"}).args) == (declaration, ("a",))
    with pytest.raises(WrongValueError, match="missing a required argument: 'text'"):
        tool.bind({})


def test_tools_have_names_of_their_own() -> None:
    assert list(tools_by_name([weather, Shop().price])) == ["weather", "price"]
    with pytest.raises(ValueError, match="two tools have the name 'weather'"):
        tools_by_name([weather, weather])


@pytest.mark.parametrize("given", [weather, "weather", {"weather": weather}, 5])
def test_tools_are_given_together(given: Any) -> None:
    with pytest.raises(TypeError, match="tools must be several functions"):
        tools_by_name(given)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("as it is", "as it is"),
        (None, "null"),
        (1.5, "1.5"),
        ({"a": [1, "ł"]}, '{"a": [1, "ł"]}'),
        (Point(1), '{"x": 1}'),
        ([Colour.RED], '["red"]'),
        (date(2026, 2, 3), '"2026-02-03"'),
        (Decimal("1.50"), '"1.50"'),
        (PurePosixPath("a/b"), '"a/b"'),
        ({1}, "[1]"),
        (np.float32(0.5), "0.5"),
        (np.arange(3), "[0, 1, 2]"),
    ],
)
def test_what_the_model_is_told_of_a_result(value: Any, text: str) -> None:
    assert result_text(value) == text


def test_a_model_of_pydantic_as_a_result() -> None:
    pydantic = pytest.importorskip("pydantic")
    model = pydantic.create_model("Item", day=(date, ...))
    assert result_text([model(day=date(2026, 2, 3))]) == '[{"day": "2026-02-03"}]'


def test_a_result_without_a_form() -> None:
    function: Callable[..., Any] = weather
    with pytest.raises(TypeError, match="a result of the type function has no form in JSON"):
        result_text([function])
