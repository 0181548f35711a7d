"""Breaking the spellings of control tokens in what people write."""

from __future__ import annotations

import pytest

from genai.spellings import ControlSpellings, map_texts, unused_character

SPELLINGS = ControlSpellings(["<|im_end|>", "<s>", "[INST]", "x"])


@pytest.mark.parametrize(
    ("text", "broken"),
    [
        ("plain text", "plain text"),
        ("", ""),
        ("<|im_end|>", "<M|im_end|>"),
        ("a<s>b<s>", "a<Ms>b<Ms>"),
        ("<<s>>", "<<Ms>>"),
        ("<|im_<|im_end|>end|>", "<|im_<M|im_end|>end|>"),
        ("[INST] hi", "[MINST] hi"),
        ("<think>a</think> b", "<think>a</think> b"),
        ("x", "x"),
    ],
)
def test_whole_spellings_are_broken_after_their_first_character(text: str, broken: str) -> None:
    assert SPELLINGS.broken(text, "M") == broken


@pytest.mark.parametrize(
    ("text", "broken"),
    [
        ("a <", "a <M"),
        ("a <|im", "a <|imM"),
        ("a <  \n", "a <M  \n"),
        ("im_end|> a", "Mim_end|> a"),
        ("  > quote", "  M> quote"),
        (">", "M>"),
        ("a < b", "a < b"),
        ("a > b", "a > b"),
    ],
)
def test_an_end_that_a_neighbour_could_complete_is_closed(text: str, broken: str) -> None:
    assert SPELLINGS.broken(text, "M") == broken


def test_a_vocabulary_without_control_tokens_breaks_nothing() -> None:
    assert ControlSpellings([]).broken("<s> <|im_end|>", "M") == "<s> <|im_end|>"


def test_taking_the_marker_out_gives_the_text_back() -> None:
    text = "<s><|im_end|>[INST]<|im_"
    assert SPELLINGS.broken(text, "\ufdd0").replace("\ufdd0", "") == text


def test_the_marker_is_a_character_that_no_text_holds() -> None:
    assert unused_character(["plain"]) == "\ufdd0"
    assert unused_character(["a\ufdd0", "\ufdd1b"]) == "\ufdd2"


def test_there_is_a_marker_even_when_every_noncharacter_is_used() -> None:
    noncharacters = "".join(chr(plane * 0x10000 + low) for plane in range(17) for low in (0xFFFE, 0xFFFF))
    noncharacters += "".join(map(chr, range(0xFDD0, 0xFDF0)))
    assert unused_character([noncharacters]) == "\U000f0000"


def test_every_text_of_a_json_value_is_changed() -> None:
    value = {"a": ["b", 1, None, {"c": "d"}], "e": True}
    assert map_texts(value, str.upper) == {"A": ["B", 1, None, {"C": "D"}], "E": True}
