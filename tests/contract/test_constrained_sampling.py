"""Options of sampling together with a real constraint, on the fake, on ONNX Runtime and on llama.cpp."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fakes.constraints import IM_END, SIZE, byte_vocabulary
from fakes.scripted import Compose, Composed
from genai import TextGenerationOptions, TextGenerationResult
from genai.tasks import TextGenerationFinishReason
from models.table_decoders import TableDecoder

pytest.importorskip("llguidance")

Reason = TextGenerationFinishReason
NO_LEGAL_TOKEN = 0x80070491
PROMPT = list(b"say: ")

noise = TableDecoder(SIZE, following=np.random.default_rng(5).standard_normal((SIZE, SIZE)).astype(np.float32) * 4)
"""Random logits that depend on the last token."""


def preferring(*token_ids: int) -> TableDecoder:
    """Score these tokens highest, from the first on; then the lower id."""
    row = -np.arange(SIZE).astype(np.float32)
    row[list(token_ids)] = 1000.0 - np.arange(len(token_ids))
    return TableDecoder(SIZE, constant=row)


@pytest.fixture(scope="module")
def vocabulary(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, int]:
    return byte_vocabulary(tmp_path_factory.mktemp("bytes")), SIZE


@pytest.fixture
def stage(tmp_path: Path, vocabulary: tuple[Path, int], compose: Compose) -> Iterator[Composed]:
    with compose(tmp_path, noise, capacity=512, vocabulary=vocabulary) as stage:
        yield stage


def run(stage: Composed, pattern: str, **options: Any) -> TextGenerationResult:
    """Generate a text that matches `pattern`."""
    constraint = stage.tokenizer.create_constraint_from_regex(pattern)
    session = stage.session()
    try:
        with session.generate_tokens_with_constraint(PROMPT, constraint, TextGenerationOptions(**options)) as stream:
            for _ in stream:
                pass
            return stream.result
    finally:
        session.close()


def test_a_minimum_holds_where_the_constraint_could_end(stage: Composed) -> None:
    stage.follow(preferring(IM_END, ord("7")))
    assert run(stage, "[0-9]{1,9}").text == "7"
    assert run(stage, "[0-9]{1,9}", min_new_tokens=4).text == "7777"


@pytest.mark.parametrize("ban", [{"ignore_eos": True}, {"min_new_tokens": 50}], ids=str)
@pytest.mark.parametrize("sampling", [{}, {"temperature": 1.0, "seed": 3}], ids=["greedy", "sampled"])
def test_a_complete_answer_ends_whatever_the_minimum(
    stage: Composed, ban: dict[str, Any], sampling: dict[str, Any]
) -> None:
    result = run(stage, "[0-9]{3}", **ban, **sampling)
    assert re.fullmatch("[0-9]{3}", result.text)
    assert (result.finish_reason, result.constraint_complete) == (Reason.EOS_TOKEN, True)


def test_an_answer_that_could_go_on_does_so_without_ends(stage: Composed) -> None:
    stage.follow(preferring(IM_END, ord("7")))
    result = run(stage, "[0-9]{1,5}", ignore_eos=True)
    assert (result.text, result.finish_reason, result.constraint_complete) == ("77777", Reason.EOS_TOKEN, True)


def test_no_n_gram_comes_twice_among_the_legal_tokens(stage: Composed) -> None:
    stage.follow(preferring(ord("7")))
    assert run(stage, "[0-9]{4}", no_repeat_ngram_size=1).text == "7012"
    assert run(stage, "[0-9]{6}", no_repeat_ngram_size=2).text == "770717"


def test_rules_that_leave_nothing_are_an_error_that_names_both(stage: Composed) -> None:
    result = run(stage, "7{3}", no_repeat_ngram_size=1)
    assert (result.text, result.finish_reason, result.error_code) == ("7", Reason.ERROR, NO_LEGAL_TOKEN)
    assert result.error_message is not None
    assert "after what the options change in it" in result.error_message


def test_a_banned_token_is_replaced_by_another_legal_one(stage: Composed) -> None:
    stage.follow(preferring(ord("7")))
    assert run(stage, "[0-9]{2}", logit_bias={ord("7"): -math.inf}).text == "00"


def test_processors_see_the_row_before_the_constraint(stage: Composed) -> None:
    highest: list[int] = []

    def look(ids: tuple[int, ...], row: Any) -> Any:
        highest.append(int(row.argmax()))
        row[ord("5")] = 2000
        return row

    stage.follow(preferring(ord("x")))
    assert run(stage, "[0-9]{2}", logits_processors=look).text == "55"
    assert set(highest) == {ord("x")}


FILTERS: list[dict[str, Any]] = [
    {"typical_p": 0.5},
    {"top_n_sigma": 0.7},
    {"top_k": 3, "typical_p": 0.7},
    {"xtc_probability": 1.0, "xtc_threshold": 0.05},
    {"xtc_probability": 0.5, "top_p": 0.9, "min_p": 0.01, "top_n_sigma": 2.0},
    {"dry_multiplier": 2.0, "dry_allowed_length": 1},
]


@pytest.mark.parametrize("filters", FILTERS, ids=str)
def test_g77_every_filter_draws_legal_tokens(stage: Composed, filters: dict[str, Any]) -> None:
    for seed in range(1, 9):
        result = run(stage, "([ab][0-9]{2},){4}", temperature=2, seed=seed, **filters)
        assert re.fullmatch("([ab][0-9]{2},){4}", result.text)


def test_log_probabilities_are_those_of_the_legal_tokens(stage: Composed) -> None:
    result = run(stage, "[ab]", top_logprobs=9)
    assert result.logprobs is not None
    (record,) = result.logprobs
    assert {token_id for token_id, _ in record.top} == {ord("a"), ord("b")}
    assert sum(math.exp(logprob) for _, logprob in record.top) == pytest.approx(1, abs=1e-9)
    assert record.logprob == dict(record.top)[record.token_id]
