"""Options of speculative decoding, and what is said of it."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner, Result

import genai
from cli.main import main
from fakes.language_model import Answer, FakeModel, saying
from genai.tasks import TextGenerationSpeculativeMethod, TextGenerationSpeculativeStatistics

LOOKUP = TextGenerationSpeculativeMethod.PROMPT_LOOKUP


@pytest.fixture
def model(monkeypatch: pytest.MonkeyPatch) -> FakeModel:
    fake = FakeModel()
    monkeypatch.setattr(genai, "load", fake.load)
    return fake


def run(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["generate", *arguments], prog_name="winml-lite")


def answer(failure: str | None = None) -> Answer:
    drafts = TextGenerationSpeculativeStatistics(LOOKUP, 3, 8, 6, failure=failure)
    return Answer(("Blue",), drafts=drafts)


def drafting(model: FakeModel) -> tuple[object, ...]:
    given = model.loads[0][1]
    return given["speculation"], given["draft"], given["draft_tokens"]


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ((), (None, None, None)),
        (("--speculate", "lookup"), ("lookup", None, None)),
        (("--speculate", "predictor", "--draft-tokens", "3"), ("predictor", None, 3)),
        (("--draft", "small.gguf"), (None, "small.gguf", None)),
    ],
)
def test_the_options_reach_the_model(
    model: FakeModel, arguments: tuple[str, ...], expected: tuple[object, ...]
) -> None:
    model.answers = [saying("Blue")]
    assert run(*arguments, "Why?").exit_code == 0
    assert drafting(model) == expected


@pytest.mark.parametrize(
    "arguments",
    [
        ("--speculate", "lookup", "--draft", "small.gguf"),
        ("--draft-tokens", "3"),
        ("--speculate", "magic"),
        ("--speculate", "lookup", "--draft-tokens", "0"),
        ("--speculate", "lookup", "--draft-tokens", "17"),
    ],
)
def test_what_makes_no_sense_is_a_mistake_of_usage(model: FakeModel, arguments: tuple[str, ...]) -> None:
    assert run(*arguments, "Why?").exit_code == 2
    assert model.loads == []


def test_what_drafting_came_to_is_said_on_standard_error(model: FakeModel) -> None:
    model.answers = [answer()]
    result = run("--speculate", "lookup", "Why?")
    assert result.stdout == "Blue\n"
    assert result.stderr.splitlines()[1:] == ["(8 tokens drafted, 6 of them right, in 3 steps)"]


def test_why_drafting_ended_is_said(model: FakeModel) -> None:
    model.answers = [answer("the draft model is gone")]
    assert "(drafting ended: the draft model is gone)" in run("--draft", "small.gguf", "Why?").stderr


def test_quiet_says_nothing_of_it(model: FakeModel) -> None:
    model.answers = [answer()]
    assert run("-q", "--speculate", "lookup", "Why?").stderr == ""


def test_json_has_the_statistics(model: FakeModel) -> None:
    model.answers = [answer(), saying("Blue")]
    assert json.loads(run("--json", "--speculate", "lookup", "Why?").stdout)["speculative_statistics"] == {
        "method": "prompt_lookup",
        "verification_step_count": 3,
        "draft_token_count": 8,
        "accepted_draft_token_count": 6,
        "acceptance_rate": 0.75,
        "failure": None,
    }
    assert json.loads(run("--json", "Why?").stdout)["speculative_statistics"] is None
