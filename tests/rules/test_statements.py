"""The statement numbers in test names are real ones, and the parts that are built have a test for each of theirs."""

from __future__ import annotations

import pytest

from rules.statements import PARTS, STATEMENTS, covered, missing


def test_no_test_names_a_statement_that_does_not_exist() -> None:
    known = {letter: set(range(1, count + 1)) for letter, (_, count) in STATEMENTS.items()}
    assert {letter: numbers - known[letter] for letter, numbers in covered().items()} == {
        "r": set(),
        "t": set(),
        "g": set(),
    }


@pytest.mark.parametrize("part", ["object-model", "text", "generation", "engine-options"])
def test_every_statement_of_a_part_has_a_test(part: str) -> None:
    assert not any(missing(part).values()), missing(part)


def test_each_statement_is_in_one_part() -> None:
    listed = [f"{letter}{number}" for part in PARTS.values() for letter in part for number in part[letter]]
    assert sorted(listed) == sorted(
        f"{letter}{n}" for letter, (_, count) in STATEMENTS.items() for n in range(1, count + 1)
    )
