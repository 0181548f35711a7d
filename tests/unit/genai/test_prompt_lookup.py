"""What followed the last time: the lookup rule, and what is learned about it."""

from __future__ import annotations

from typing import Any

import pytest

from genai.prompt_lookup import PromptLookup


def lookup(*sequence: int) -> tuple[PromptLookup, list[int]]:
    source = PromptLookup()
    source.begin(sequence)
    return source, list(sequence)


def draft(*sequence: int, most: int = 16) -> list[int]:
    source, ids = lookup(*sequence)
    return source.propose(ids, len(source.outlook(ids, most)))


@pytest.mark.parametrize(
    ("sequence", "expected"),
    [
        ((), []),
        ((1,), []),
        ((1, 1), []),  # one equal token is not enough
        ((1, 2, 3, 1), []),
        ((1, 2, 3, 1, 2), [3, 1, 2]),
        ((1, 1, 1), [1]),
        ((1, 2, 3, 4, 1, 2), [3, 4, 1, 2]),
        ((1, 2, 7, 1, 2, 8, 1, 2), [8, 1, 2]),  # the later occurrence
        ((9, 1, 2, 7, 5, 1, 2, 8, 9, 1, 2), [7, 5, 1, 2, 8, 9, 1, 2]),  # the longer one, though it is earlier
        ((0, 0, 5, 0, 0), [5, 0, 0]),
        ((0, 5, 6, 0, 0, 5), [6, 0, 0, 5]),
    ],
)
def test_the_tokens_after_the_longest_latest_match(sequence: tuple[int, ...], expected: list[int]) -> None:
    assert draft(*sequence) == expected


def test_eight_tokens_are_compared_and_no_more() -> None:
    same = [1, 2, 3, 4, 5, 6, 7, 8]
    assert draft(99, *same, 50, 77, *same, 51, 99, *same) == [51, 99, *same]


def test_as_many_as_are_wanted() -> None:
    assert draft(1, 2, 3, 4, 5, 1, 2, most=2) == [3, 4]


def test_tokens_are_added_one_by_one() -> None:
    source, ids = lookup(1, 2, 3)
    assert source.outlook(ids, 4) == ()
    ids += [1, 2]
    assert len(source.outlook(ids, 4)) == 3
    assert source.propose(ids, 3) == [3, 1, 2]
    ids += [9]
    assert source.outlook(ids, 4) == ()
    assert source.propose(ids, 3) == []


def test_another_operation_starts_over() -> None:
    source, ids = lookup(1, 2, 3, 1, 2)
    assert source.outlook(ids, 4)
    source.begin([5, 1, 2])
    assert source.outlook([5, 1, 2], 4) == ()


def test_the_chance_grows_with_the_match() -> None:
    source, ids = lookup(1, 2, 3, 4, 5, 1, 2)
    assert source.outlook(ids, 4) == [0.35, 0.5, 0.6, 0.7]


def test_right_guesses_raise_the_chance_without_any_draft() -> None:
    source, ids = lookup(1, 2, 3, 4, 5, 1, 2)
    source.outlook(ids, 1)
    ids.append(3)  # what was guessed
    source.outlook(ids, 1)
    ids += [7, 1, 2]  # 7 was not
    source.outlook(ids, 1)
    assert source.outlook(ids, 2) == [0.35 + 0.65 / 8, 0.5 - 0.5 / 8]


def test_the_prompt_teaches_nothing() -> None:
    source, ids = lookup(*[1, 2, 3, 4] * 5)
    assert source.outlook(ids, 1) == [0.85]


class Counted(list[int]):
    """A list that counts how often it is read."""

    reads = 0

    def __getitem__(self, key: Any) -> Any:
        self.reads += 1
        return super().__getitem__(key)


def reads_of_a_token(length: int) -> int:
    """How often a sequence of this length is read for one more token and a draft."""
    sequence = Counted([1, 2, 3, 4] * (length // 4))
    source = PromptLookup()
    source.begin(sequence)
    sequence.append(1)
    sequence.reads = 0
    source.outlook(sequence, 8)
    source.propose(sequence, 8)
    return sequence.reads


def test_a_token_costs_the_same_in_a_long_sequence() -> None:
    assert reads_of_a_token(40) == reads_of_a_token(40_000) == 4


def test_the_tables_hold_one_entry_for_each_length_of_a_token() -> None:
    source, _ = lookup(*range(1000))
    assert [len(table) for table in source._ends] == [0, 0, *range(999, 992, -1)]
