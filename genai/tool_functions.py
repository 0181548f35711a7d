"""Python functions as tools: signature and docstring become what the model is shown, and its arguments become a call.

Types are `json_types.py`, docstrings `docstrings.py`; when tools are called is `chat_turn.py`.
"""

from __future__ import annotations

import dataclasses
import inspect
import json
import re
import typing
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import date, time
from decimal import Decimal
from enum import Enum
from pathlib import PurePath
from typing import Any, TypeAlias
from uuid import UUID

from .conversation_checks import parse_schema
from .docstrings import read_docstring
from .json_types import JsonField, object_type
from .json_values import WrongValueError
from .messages import ChatCompletionTool

ToolFunction: TypeAlias = Callable[..., Any] | tuple[ChatCompletionTool, Callable[..., Any]]
"""A function whose signature and docstring say all, or a declaration and the function behind it."""

_NAME = re.compile(r"[\w-]{1,64}")


@dataclass(frozen=True, slots=True)
class Tool:
    """A function that a model may call."""

    declaration: ChatCompletionTool
    function: Callable[..., Any]
    bind: Callable[[dict[str, Any]], inspect.BoundArguments]
    """Makes the arguments of a call from JSON values; WrongValueError says what is wrong with them."""

    @property
    def name(self) -> str:
        """The name that the model knows it by."""
        return self.declaration.name

    @property
    def is_coroutine(self) -> bool:
        """Whether the function has to be awaited."""
        return inspect.iscoroutinefunction(self.function)


def tools_by_name(given: Iterable[ToolFunction]) -> dict[str, Tool]:
    """Return tools by their names. TypeError for what cannot be a tool, ValueError for a name that occurs twice."""
    if callable(given) or isinstance(given, str | bytes | Mapping) or not isinstance(given, Iterable):
        raise TypeError(f"tools must be several functions, as in tools=[weather], not {given!r}")
    tools: dict[str, Tool] = {}
    for item in given:
        tool = as_tool(item)
        if tool.name in tools:
            raise ValueError(f"two tools have the name {tool.name!r}")
        tools[tool.name] = tool
    return tools


def as_tool(given: Any) -> Tool:
    """Return a function, or a pair of a `ChatCompletionTool` and a function, as a tool; a tool stays what it is."""
    if isinstance(given, Tool):
        return given
    if isinstance(given, tuple) and len(given) == 2:
        declaration, function = given
        if isinstance(declaration, ChatCompletionTool) and callable(function):
            return _declared(declaration, function)
    if isinstance(given, ChatCompletionTool):
        raise TypeError(f"the tool {given.name!r} needs its function: give the pair (declaration, function)")
    if not callable(given) or isinstance(given, type):
        raise TypeError(f"a tool is a function, or a pair (ChatCompletionTool, function), not {given!r}")
    return _described(given)


def _declared(declaration: ChatCompletionTool, function: Callable[..., Any]) -> Tool:
    parse_schema(declaration.parameters_json, f"parameters_json of the tool {declaration.name!r}")
    signature = inspect.signature(function)

    def bind(arguments: dict[str, Any]) -> inspect.BoundArguments:
        try:
            return signature.bind(**arguments)
        except TypeError as error:
            raise WrongValueError("", str(error)) from None

    return Tool(declaration, function, bind)


def _described(function: Callable[..., Any]) -> Tool:
    name = getattr(function, "__name__", "")
    if not _NAME.fullmatch(name):
        raise TypeError(f"{function!r} has no name that a model could call it by: give a function made with def")
    try:
        signature = inspect.signature(function)
    except (ValueError, NameError) as error:
        raise TypeError(f"tool {name}(): its parameters cannot be known: {error}") from error
    text, descriptions = read_docstring(inspect.getdoc(function) or "")
    try:
        fields = [_field(function, parameter, descriptions) for parameter in signature.parameters.values()]
        kind = object_type(fields)
    except TypeError as error:
        raise TypeError(f"tool {name}(): parameter {error}") from error
    except RecursionError as error:
        raise TypeError(f"tool {name}(): the type of a parameter contains itself") from error

    def bind(arguments: dict[str, Any]) -> inspect.BoundArguments:
        return inspect.BoundArguments(signature, kind.read(arguments))

    return Tool(ChatCompletionTool(name, json.dumps(kind.schema, ensure_ascii=False), text or None), function, bind)


def _field(function: Callable[..., Any], parameter: inspect.Parameter, descriptions: Mapping[str, str]) -> JsonField:
    name, default = parameter.name, parameter.default
    if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
        raise TypeError(f"{name!r} takes any number: a model can only give parameters that have a name each")
    if parameter.annotation is parameter.empty:
        raise TypeError(f"{name!r} has no annotation: the model has to know what it may give")
    is_required = default is parameter.empty
    annotation = _resolved(function, parameter)
    return JsonField(name, annotation, is_required, None if is_required else default, descriptions.get(name))


def _resolved(function: Callable[..., Any], parameter: inspect.Parameter) -> Any:
    """The annotation of one parameter with the names in it looked up; the others may not be resolvable at all."""

    def holder() -> None: ...

    plain = inspect.unwrap(function)
    plain = getattr(plain, "__func__", plain)
    holder.__annotations__ = {parameter.name: parameter.annotation}
    try:
        hints = typing.get_type_hints(holder, getattr(plain, "__globals__", {}), include_extras=True)
    except (NameError, AttributeError, SyntaxError, TypeError) as error:
        raise TypeError(f"{parameter.name!r}: its annotation cannot be resolved: {error}") from error
    return hints[parameter.name]


def result_text(value: Any) -> str:
    """Return what the model is told of a result: texts as they are, everything else as JSON. TypeError for what has no
    JSON form.
    """
    return str(value) if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=_plain)


def _plain(value: Any) -> Any:
    """What stands for a value in JSON."""
    if callable(dump := getattr(value, "model_dump", None)):  # a Pydantic model
        return dump(mode="json")
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, date | time):
        return value.isoformat()
    if isinstance(value, UUID | PurePath | Decimal):
        return str(value)
    if isinstance(value, set | frozenset):
        return list(value)
    if callable(as_list := getattr(value, "tolist", None)):  # numbers and arrays of NumPy
        return as_list()
    raise TypeError(f"a result of the type {type(value).__name__} has no form in JSON; return text, numbers or lists")
