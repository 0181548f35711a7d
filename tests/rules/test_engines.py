"""Contract tests run on every engine on which their statement makes sense; the others are listed with a reason."""

from __future__ import annotations

from itertools import chain

from rules.engines import ALL, groups, listed, run_on
from rules.statements import PARTS


def test_statements_run_everywhere_or_are_listed() -> None:
    actual, exceptions = run_on(), listed()
    statements = [f"{letter}{number}" for letter, numbers in PARTS["object-model"].items() for number in numbers]
    wrong = {
        statement: f"runs on {sorted(actual.get(statement, ()))}, expected {sorted(exceptions.get(statement, ALL))}"
        for statement in statements
        if actual.get(statement, frozenset()) != exceptions.get(statement, ALL)
    }
    assert wrong == {}


def test_the_list_names_each_statement_once_and_says_why() -> None:
    named = list(chain.from_iterable(group["statements"] for group in groups()))
    assert sorted(named) == sorted(set(named))
    assert set(named) <= {f"{letter}{n}" for letter, numbers in PARTS["object-model"].items() for n in numbers}
    assert all(group["reason"] and set(group["engines"]) < ALL for group in groups())
