"""The statement numbers in test names are real ones, and the object model has a test for each of its own."""

from __future__ import annotations

from rules.statements import STATEMENTS, covered, missing


def test_no_test_names_a_statement_that_does_not_exist() -> None:
    known = {letter: set(range(1, count + 1)) for letter, (_, count) in STATEMENTS.items()}
    assert {letter: numbers - known[letter] for letter, numbers in covered().items()} == {
        "r": set(),
        "t": set(),
        "g": set(),
    }


def test_every_statement_of_the_object_model_has_a_test() -> None:
    assert missing("object-model") == {"r": [], "t": []}
