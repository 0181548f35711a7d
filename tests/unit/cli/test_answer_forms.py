"""The options of `winml-lite generate` that say what an answer must look like."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

import genai
from cli.main import main
from fakes.language_model import FakeModel, saying

GRAMMAR = 'root ::= "a" # é\n'


@pytest.fixture
def model(monkeypatch: pytest.MonkeyPatch) -> FakeModel:
    fake = FakeModel([saying("a")])
    monkeypatch.setattr(genai, "load", fake.load)
    return fake


def run(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["generate", *arguments], prog_name="winml-lite")


def test_no_form_without_an_option(model: FakeModel) -> None:
    assert run("Why?").exit_code == 0
    assert model.forms == [{}]


def test_choices_and_a_regular_expression(model: FakeModel) -> None:
    assert run("--choice", "yes", "--choice", "no", "Well?").exit_code == 0
    model.answers = [saying("a")]
    assert run("--raw", "--regex", "[0-9]+", "Well?").exit_code == 0
    assert model.forms == [{"choices": ("yes", "no")}, {"regex": "[0-9]+"}]


def test_a_schema_and_a_grammar_come_from_files(model: FakeModel, tmp_path: Path) -> None:
    schema = tmp_path / "schema.json"
    schema.write_text('{"type": "object"}', encoding="utf-8")
    grammar = tmp_path / "grammar.gbnf"
    grammar.write_text("\ufeff" + GRAMMAR, encoding="utf-8")
    assert run("--json-schema", str(schema), "Well?").exit_code == 0
    model.answers = [saying("a")]
    assert run("--grammar", str(grammar), "Well?").exit_code == 0
    assert model.forms == [{"json_schema": '{"type": "object"}'}, {"grammar": GRAMMAR}]


def test_one_form_at_a_time(model: FakeModel) -> None:
    result = run("--choice", "yes", "--regex", "a", "Well?")
    assert result.exit_code == 2
    assert "give one of --json-schema, --regex, --choice and --grammar" in result.stderr
    assert model.loads == []


def test_a_missing_file_is_named(model: FakeModel, tmp_path: Path) -> None:
    result = run("--grammar", str(tmp_path / "none.gbnf"), "Well?")
    assert result.exit_code == 2
    assert "none.gbnf" in result.stderr


def test_a_file_that_is_no_text(model: FakeModel, tmp_path: Path) -> None:
    (tmp_path / "schema.json").write_bytes(b"\xff\xfe\x00")
    result = run("--json-schema", str(tmp_path / "schema.json"), "Well?")
    assert result.exit_code == 2
    assert "schema.json" in result.stderr


def test_the_record_says_whether_the_answer_is_complete(model: FakeModel) -> None:
    result = run("--json", "--choice", "a", "Well?")
    assert json.loads(result.stdout)["constraint_complete"] is None
