"""Python types as JSON: the schema that describes a type, and how its values are read from JSON.

For the parameters of tools (`tool_functions.py`): types that are made of others, and classes. Types without parts are
in `json_values.py`. Not here: the schemas of whole answers (`answer_form.py`).
"""

from __future__ import annotations

import dataclasses
import math
import types
import typing
from collections.abc import Callable, Collection, Iterable, Mapping, MutableMapping, MutableSequence, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from enum import Enum
from typing import Annotated, Any, Literal, NotRequired, Required, Union, get_args, get_origin

from .json_values import (
    NULL,
    SIMPLE_TYPES,
    JsonType,
    Schema,
    WrongValueError,
    choice_type,
    exact,
    is_pydantic,
    pydantic_type,
    read_array,
    read_at,
    read_text,
    shown,
    spelled,
)


@dataclass(frozen=True, slots=True)
class JsonField:
    """A field of an object. A `default` that JSON has is shown in the schema."""

    name: str
    annotation: Any
    is_required: bool = True
    default: Any = None
    description: str | None = None


def json_type(annotation: Any) -> JsonType:
    """Return how values of a type look in JSON; TypeError for a type that has no such form, RecursionError for a class
    that contains itself.
    """
    if isinstance(annotation, typing.NewType):
        return json_type(annotation.__supertype__)
    if hasattr(annotation, "__value__"):  # type X = ...
        return json_type(annotation.__value__)
    if is_pydantic(annotation):
        return pydantic_type(annotation)
    origin, parts = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        inner, *notes = parts
        return _described(json_type(inner), next((note for note in notes if isinstance(note, str)), None))
    if origin in (Union, types.UnionType):
        return _union_type(parts)
    if origin is Literal:
        return _literal_type(parts)
    kind = annotation if origin is None else origin
    try:
        simple = SIMPLE_TYPES.get(kind)
    except TypeError:  # cannot be hashed
        simple = None
    if simple is not None:
        return simple
    if isinstance(kind, type):
        found = _container_type(kind, parts) or _class_type(kind)
        if found is not None:
            return found
    raise TypeError(f"{spelled(annotation)} is no type that JSON can hold")


def object_type(fields: Sequence[JsonField], make: Callable[..., Any] = dict) -> JsonType:
    """Return the type of JSON objects with exactly these fields; a value is what `make` makes of them.

    TypeError names the field whose type has no JSON form.
    """
    known: dict[str, JsonType] = {}
    for field in fields:
        try:
            known[field.name] = _field_type(field)
        except TypeError as error:
            raise TypeError(f"{field.name!r}: {error}") from error
    required = [field.name for field in fields if field.is_required]
    schema: Schema = {"type": "object", "properties": {name: kind.schema for name, kind in known.items()}}
    if required:
        schema["required"] = required
    schema["additionalProperties"] = False
    _lift_definitions(schema)

    def read(value: Any) -> Any:
        if not isinstance(value, Mapping):
            raise WrongValueError("", f"must be an object, not {shown(value)}")
        for name in value:
            if name not in known:
                raise WrongValueError(f".{name}", f"is unknown; known are {', '.join(known) or 'none'}")
        for name in required:
            if name not in value:
                raise WrongValueError(f".{name}", "is missing")
        return _made(make, {name: read_at(f".{name}", known[name], item) for name, item in value.items()})

    return JsonType(schema, read)


def _field_type(field: JsonField) -> JsonType:
    annotation = field.annotation
    found = json_type(annotation)
    if not field.is_required and field.default is None and get_origin(annotation) in (Union, types.UnionType):
        # Leaving the field out says the same as null: the model need not know that there are two ways.
        others = tuple(part for part in get_args(annotation) if part is not types.NoneType)
        if not is_pydantic(annotation):
            found = JsonType(_union_type(others).schema, found.read)
    found = _described(found, field.description if "description" not in found.schema else None)
    if not field.is_required and _is_plain(field.default):
        found = JsonType({**found.schema, "default": field.default}, found.read)
    return found


def _is_plain(value: Any) -> bool:
    """Whether JSON has a value as it is; it has no NaN and no infinity."""
    if isinstance(value, float):
        return math.isfinite(value)
    return isinstance(value, str | int) and not isinstance(value, Enum)


def _described(kind: JsonType, text: str | None) -> JsonType:
    return kind if text is None else JsonType({**kind.schema, "description": text}, kind.read)


def _lift_definitions(schema: Schema) -> None:
    """Move the definitions of the properties to the object: references begin at the root."""
    definitions: Schema = {}
    for name, inner in schema["properties"].items():
        if "$defs" not in inner:
            continue
        inner = dict(inner)
        schema["properties"][name] = inner
        for key, value in inner.pop("$defs").items():
            if definitions.setdefault(key, value) != value:
                raise TypeError(f"two different types have the name {key}")
    if definitions:
        schema["$defs"] = definitions


def _made(make: Callable[..., Any], fields: dict[str, Any]) -> Any:
    try:
        return make(**fields)
    except Exception as error:  # what a class checks is its own affair
        raise WrongValueError("", f"is refused: {error}") from error


# --- types made of others ---------------------------------------------------------------------------------------------


def _union_type(parts: tuple[Any, ...]) -> JsonType:
    kinds = [json_type(part) for part in parts]
    if len(kinds) == 1:
        return kinds[0]

    def read(value: Any) -> Any:
        problems: list[WrongValueError] = []
        for kind in kinds:
            try:
                return kind.read(value)
            except WrongValueError as error:
                problems.append(error)
        if value is not None and NULL in kinds and len(kinds) == 2:
            problems = [error for kind, error in zip(kinds, problems, strict=True) if kind is not NULL]
            raise problems[0]
        raise WrongValueError("", f"fits no alternative: {'; '.join(map(str, problems))}")

    return JsonType({"anyOf": [kind.schema for kind in kinds]}, read)


def _literal_type(values: tuple[Any, ...]) -> JsonType:
    if not all(isinstance(value, str | int | None) and not isinstance(value, Enum) for value in values):
        raise TypeError(f"Literal{list(values)} holds what JSON has no value for")
    return choice_type({exact(value): value for value in values})


def _enum_type(kind: type[Enum]) -> JsonType:
    """Members are known by their values if these are texts, otherwise by their names."""
    by_value = all(isinstance(member.value, str) for member in kind)
    return choice_type({exact(member.value if by_value else member.name): member for member in kind})


_ARRAYS: dict[Any, Callable[[Iterable[Any]], Any]] = {
    list: list,
    Sequence: list,
    MutableSequence: list,
    Iterable: list,
    Collection: list,
    set: set,
    AbstractSet: set,
    frozenset: frozenset,
}


def _container_type(kind: type, parts: tuple[Any, ...]) -> JsonType | None:
    if kind in _ARRAYS:
        return _array_type(json_type(parts[0] if parts else Any), _ARRAYS[kind])
    if kind is tuple:
        if not parts or parts[-1] is Ellipsis:
            return _array_type(json_type(parts[0] if parts else Any), tuple)
        return _tuple_type([json_type(part) for part in parts])
    if kind in (dict, Mapping, MutableMapping):
        key, value = parts or (str, Any)
        if json_type(key).read is not read_text:
            raise TypeError(f"{spelled(kind)} with keys of {spelled(key)}: the keys of JSON objects are str")
        return _mapping_type(json_type(value))
    return None


def _array_type(item: JsonType, make: Callable[[Iterable[Any]], Any]) -> JsonType:
    def read(value: Any) -> Any:
        items = [read_at(f"[{index}]", item, part) for index, part in enumerate(read_array(value))]
        try:
            return make(items)
        except TypeError as error:  # a set of what cannot be hashed
            raise WrongValueError("", f"is refused: {error}") from error

    return JsonType({"type": "array", "items": item.schema}, read)


def _tuple_type(items: list[JsonType]) -> JsonType:
    count = len(items)
    schema = {"type": "array", "prefixItems": [item.schema for item in items], "minItems": count, "maxItems": count}

    def read(value: Any) -> Any:
        if len(read_array(value)) != count:
            raise WrongValueError("", f"must have {count} items, not {len(value)}")
        pairs = enumerate(zip(items, value, strict=True))
        return tuple(read_at(f"[{index}]", item, part) for index, (item, part) in pairs)

    return JsonType(schema, read)


def _mapping_type(item: JsonType) -> JsonType:
    def read(value: Any) -> Any:
        if not isinstance(value, Mapping):
            raise WrongValueError("", f"must be an object, not {shown(value)}")
        return {name: read_at(f".{name}", item, part) for name, part in value.items()}

    return JsonType({"type": "object", "additionalProperties": item.schema}, read)


# --- classes ----------------------------------------------------------------------------------------------------------


def _class_type(kind: type) -> JsonType | None:
    if issubclass(kind, Enum):
        return _enum_type(kind)
    if not dataclasses.is_dataclass(kind) and not typing.is_typeddict(kind):
        return None
    if dataclasses.is_dataclass(kind):
        return object_type(_dataclass_fields(kind), kind)
    return object_type(_typed_dict_fields(kind))


def _dataclass_fields(kind: type) -> list[JsonField]:
    hints = _hints(kind)
    fields = [field for field in dataclasses.fields(kind) if field.init]
    missing = dataclasses.MISSING
    return [
        JsonField(
            field.name,
            hints[field.name],
            field.default is missing and field.default_factory is missing,
            None if field.default is missing else field.default,
        )
        for field in fields
    ]


def _typed_dict_fields(kind: type) -> list[JsonField]:
    required: frozenset[str] = kind.__required_keys__  # type: ignore[attr-defined]
    fields = []
    for name, hint in _hints(kind).items():
        mark = get_origin(hint)
        is_required = mark is Required or (name in required and mark is not NotRequired)
        fields.append(JsonField(name, get_args(hint)[0] if mark in (Required, NotRequired) else hint, is_required))
    return fields


def _hints(kind: type) -> dict[str, Any]:
    try:
        return typing.get_type_hints(kind, include_extras=True)
    except NameError as error:
        raise TypeError(f"{kind.__qualname__} has an annotation that cannot be resolved: {error}") from error
