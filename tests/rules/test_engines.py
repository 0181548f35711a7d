"""Contract tests run on every engine on which their statement makes sense; the others are listed with a reason."""

from __future__ import annotations

from itertools import chain

from rules.engines import ALL, groups, listed, run_on
from rules.statements import PARTS

CHECKED = {
    f"{letter}{n}"
    for part in ("object-model", "generation", "compilation", "speech")
    for letter in PARTS[part]
    for n in PARTS[part][letter]
}
"""Statements whose tests an engine could change. The others are of values, text and files."""


def test_statements_run_everywhere_or_are_listed() -> None:
    actual, exceptions = run_on(), listed()
    wrong = {
        statement: f"runs on {sorted(actual.get(statement, ()))}, expected {sorted(exceptions.get(statement, ALL))}"
        for statement in sorted(CHECKED)
        if actual.get(statement, frozenset()) != exceptions.get(statement, ALL)
    }
    assert wrong == {}


def test_the_list_names_each_statement_once_and_says_why() -> None:
    named = list(chain.from_iterable(group["statements"] for group in groups()))
    assert sorted(named) == sorted(set(named))
    assert set(named) <= CHECKED
    assert all(group["reason"] and set(group["engines"]) < ALL for group in groups())
