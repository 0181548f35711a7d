"""StopText: what is released, what is held, which stop wins."""

from __future__ import annotations

import itertools

import pytest

from genai.stopping import StopText


def run(stops: tuple[str, ...], fragments: list[str]) -> tuple[list[str], str, str | None]:
    text = StopText(stops)
    released = [text.push(fragment) for fragment in fragments]
    return released, text.flush(), text.matched


def splits(text: str) -> list[list[str]]:
    """All ways to cut `text` into pieces."""
    cuts = itertools.product([False, True], repeat=len(text) - 1)
    return [
        "".join(a + ("\0" if cut else "") for a, cut in zip(text, [*row, False], strict=True)).split("\0")
        for row in cuts
    ]


def test_s_stp_01_a_stop_over_several_tokens() -> None:
    assert run(("</s>",), ["a", "<", "/", "s", ">", "b"]) == (["a", "", "", "", "", ""], "", "</s>")


@pytest.mark.parametrize("fragments", splits("xa</s>bc"))
def test_s_stp_01_every_split_gives_the_same_text(fragments: list[str]) -> None:
    released, rest, matched = run(("</s>", "User:"), fragments)
    assert ("".join(released) + rest, matched) == ("xa", "</s>")


def test_s_stp_02_a_near_miss_is_released_with_the_character_that_misses() -> None:
    assert run(("abcd",), ["ab", "cx"]) == (["", "abcx"], "", None)


def test_s_stp_02_the_end_releases_what_is_held() -> None:
    assert run(("abcd",), ["ab"]) == ([""], "ab", None)


def test_s_stp_02_a_second_beginning_inside_the_first() -> None:
    assert run(("abcd",), ["ababcd"]) == (["ab"], "", "abcd")


def test_s_stp_02_nothing_is_held_that_cannot_begin_a_stop() -> None:
    assert run(("abcd",), ["zz"]) == (["zz"], "", None)


def test_s_stp_02_no_more_is_held_than_the_beginning() -> None:
    assert run(("abcd",), ["xyzab", "a", "b"]) == (["xyz", "ab", ""], "ab", None)


def test_the_hold_falls_back_to_another_stop() -> None:
    # "abc" holds all for "abcd"; after "x" only the "x" of "xy" is held.
    assert run(("abcd", "xy"), ["abc", "x", "y"]) == (["", "abc", ""], "", "xy")


def test_s_stp_04_one_letter() -> None:
    assert run(("b",), ["abc"]) == (["a"], "", "b")


def test_s_stp_04_an_empty_stop_is_refused() -> None:
    with pytest.raises(ValueError, match="empty stop"):
        StopText(("",))


def test_of_two_matches_that_start_together_the_shorter_wins() -> None:
    assert run(("abc", "ab"), ["xabc"]) == (["x"], "", "ab")


def test_of_two_stops_the_one_that_starts_first_wins() -> None:
    assert run(("cd", "bc"), ["abcd"]) == (["a"], "", "bc")


@pytest.mark.parametrize("fragments", splits("xabcdy"))
def test_an_outer_stop_wins_over_the_one_inside_it(fragments: list[str]) -> None:
    released, rest, matched = run(("bc", "abcd"), fragments)
    assert ("".join(released) + rest, matched) == ("x", "abcd")


@pytest.mark.parametrize("fragments", splits("xabcey"))
def test_an_inner_stop_counts_when_the_outer_one_fails(fragments: list[str]) -> None:
    released, rest, matched = run(("bc", "abcd"), fragments)
    assert ("".join(released) + rest, matched) == ("xa", "bc")


def test_an_inner_stop_counts_when_the_text_ends() -> None:
    assert run(("bc", "abcd"), ["xabc"]) == (["x"], "a", "bc")


def test_a_stop_that_ends_another_is_found_through_the_fallback() -> None:
    # "b" is complete inside "ab", which still may become "abx"; "y" decides.
    assert run(("abx", "b"), ["ab", "y"]) == (["", "a"], "", "b")


def test_nothing_comes_after_a_match() -> None:
    text = StopText(("b",))
    assert [text.push("ab"), text.push("cd"), text.flush(), text.push("e")] == ["a", "", "", ""]


def test_empty_fragments() -> None:
    assert run(("ab",), ["", "a", "", "c"]) == (["", "", "", "ac"], "", None)


def test_no_stops() -> None:
    assert run((), ["ab", "c"]) == (["ab", "c"], "", None)


def test_characters_outside_the_basic_plane() -> None:
    assert run(("🦙é",), ["a🦙", "éb"]) == (["a", ""], "", "🦙é")


def test_a_repeated_pattern_holds_its_longest_beginning() -> None:
    # "aab" after "aaa": the last two characters may begin the stop.
    assert run(("aab",), ["aaa", "a", "b"]) == (["a", "a", ""], "", "aab")
