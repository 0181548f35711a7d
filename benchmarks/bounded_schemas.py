"""Twenty JSON schemas whose answers have a longest length, each with a question that it answers."""

from __future__ import annotations

from typing import Any, TypeAlias

Schema: TypeAlias = dict[str, Any]


def record(**properties: Schema) -> Schema:
    """An object of exactly these properties."""
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


def text(longest: int, **more: Any) -> Schema:
    """A string of at most `longest` characters."""
    return {"type": "string", "maxLength": longest, **more}


def whole(lowest: int, highest: int) -> Schema:
    """An integer in a range."""
    return {"type": "integer", "minimum": lowest, "maximum": highest}


def several(items: Schema, fewest: int, most: int) -> Schema:
    """A list of bounded length."""
    return {"type": "array", "items": items, "minItems": fewest, "maxItems": most}


def one_of(*values: Any) -> Schema:
    """One of some values."""
    return {"enum": list(values)}


POINT = record(x=whole(-100, 100), y=whole(-100, 100))

SCHEMAS: tuple[tuple[str, Schema], ...] = (
    ("Describe a person.", record(name=text(20), age=whole(0, 120))),
    ("Describe a city.", record(city=text(20), country=text(20), is_capital={"type": "boolean"})),
    ("How is the weather?", record(sky=one_of("clear", "cloudy", "rain", "snow"), degrees=whole(-40, 50))),
    ("Name some fruits.", several(text(15), 1, 5)),
    ("Rate this film.", record(title=text(30), stars=whole(1, 5), review=text(60))),
    ("Give me a date.", record(date=text(10, format="date"))),
    ("When does the train leave?", record(time=text(8, pattern="^[0-2][0-9]:[0-5][0-9]$"), track=whole(1, 24))),
    ("Draw a triangle.", several(POINT, 3, 3)),
    ("Describe a book.", record(title=text(40), authors=several(text(25), 1, 3), year=whole(1450, 2030))),
    ("Is the earth round?", record(answer=one_of("yes", "no"), reason=text(80))),
    ("Describe a colour.", record(name=text(15), red=whole(0, 255), green=whole(0, 255), blue=whole(0, 255))),
    ("What do I buy?", several(record(item=text(20), count=whole(1, 12)), 1, 3)),
    ("Classify: I love it!", record(label=one_of("positive", "negative", "neutral"))),
    ("Throw three dice.", several(whole(1, 6), 3, 3)),
    ("Describe an animal.", record(name=text(20), legs=one_of(0, 2, 4, 6, 8), wild={"type": ["boolean", "null"]})),
    ("Where is the shop?", record(street=text(30), number=whole(1, 999), zip=text(5, pattern="^[0-9]{5}$"))),
    ("Pick a number or a word.", {"anyOf": [whole(0, 9), text(12)]}),
    ("Describe a team.", record(name=text(20), players=several(record(name=text(15), goals=whole(0, 40)), 2, 3))),
    ("Set the light.", {"oneOf": [record(on=one_of(False)), record(on=one_of(True), level=whole(1, 100))]}),
    (
        "Describe a family.",
        {
            "$defs": {"person": record(name=text(12), age=whole(0, 99))},
            **record(mother={"$ref": "#/$defs/person"}, child={"$ref": "#/$defs/person"}),
        },
    ),
)
