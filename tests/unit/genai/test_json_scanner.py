"""Where a JSON value ends, whatever the pieces."""

from __future__ import annotations

import json
import random

import pytest

from genai.json_scanner import JsonScanner


def scanned(pieces: list[str]) -> tuple[str, bool, bool]:
    """The text that was taken, whether the value is complete, whether it has a problem."""
    scanner = JsonScanner()
    taken = ""
    for piece in pieces:
        if not scanner.is_complete and scanner.problem is None:
            taken += piece[: scanner.feed(piece, 0)]
    return taken, scanner.is_complete, scanner.problem is not None


@pytest.mark.parametrize(
    "text",
    [
        "{}",
        "[]",
        ' {"a": [1, -2.5e+3, true, false, null], "b": {"c": {}}}',
        '"a\\"b\\\\ \\u00e9 {[ é"',
        "[[[[]]], 0]",
        '{"": ""}',
    ],
)
def test_a_value_ends_where_it_ends(text: str) -> None:
    assert scanned([f"{text} rest"]) == (text, True, False)
    assert scanned([*text, " ", "rest"]) == (text, True, False)


@pytest.mark.parametrize(
    ("text", "taken"),
    [
        ('{"a": }', '{"a": '),
        ("{a: 1}", "{"),
        ('{"a" 1}', '{"a" '),
        ("[1, ]", "[1, "),
        ("[1 2]", "[1 "),
        ('{"a": 1,}', '{"a": 1,'),
        ("[01]", "[01"),
        ("[tru]", "[tru"),
        ("[NaN]", "[NaN"),
        ("{]", "{"),
        ('"a\nb"', '"a'),
        ('"\\x"', '"\\'),
        ('"\\u12g4"', '"\\u12'),
        ("x", "x"),
        ("}", ""),
    ],
)
def test_a_malformed_value_stops_at_the_same_place_in_any_pieces(text: str, taken: str) -> None:
    assert scanned([f"{text} "]) == (taken, False, True)
    assert scanned([*text, " "]) == (taken, False, True)


def test_a_value_that_is_cut_off_has_no_problem() -> None:
    assert scanned(['{"a": [1, "b']) == ('{"a": [1, "b', False, False)


def test_values_may_not_be_nested_too_deep() -> None:
    assert scanned(["[" * 128 + "]" * 128])[1:] == (True, False)
    assert scanned(["[" * 129])[1:] == (False, True)


def test_pythons_own_parser_agrees_on_damaged_values() -> None:
    rng = random.Random(11)
    sound = json.dumps({"a": [1, -2.5, 'b\\ "c', None, {"d": [[], {}]}], "é": True})
    for _ in range(2000):
        characters = list(sound)
        characters.insert(rng.randrange(len(characters)), rng.choice('{}[]",:0-+.eE tfn\\u'))
        del characters[rng.randrange(len(characters))]
        text = "".join(characters)
        try:
            _, end = json.JSONDecoder(parse_constant=int).raw_decode(text)
            expected = (text[:end], True, False)
        except ValueError:
            expected = (scanned([text])[0], False, scanned([text])[2])
        assert scanned([text]) == expected
