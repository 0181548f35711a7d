"""Every option of sampling gives the same with drafts and without, on the fake, on ONNX Runtime and on llama.cpp."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fakes.scripted import EOS, VOCABULARY_SIZE, A, B, C, Compose, Composed, D, X, one_hot
from genai import TextGenerationOptions, TextGenerationResult
from genai.tasks import Tasks, TextGenerationSpeculativeMethod
from models.table_decoders import TableDecoder

PERIODIC = [A, B, C, D] * 3
NOISY = TableDecoder(VOCABULARY_SIZE, following=np.array([one_hot((t + 1) % 4) / 2 for t in range(VOCABULARY_SIZE)]))
"""Scripts the next of a, b, c, d with a probability of 0.86, else one of the other tokens."""


@pytest.fixture(autouse=True)
def _no_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without times what is drafted depends on the text alone."""
    monkeypatch.setattr("genai.speculative_evaluation.perf_counter", lambda: 0.0)


@pytest.fixture
def stage(tmp_path: Path, compose: Compose) -> Iterator[Composed]:
    with compose(tmp_path, NOISY) as stage:
        yield stage


def generated(stage: Composed, has_drafts: bool, options: TextGenerationOptions) -> TextGenerationResult:
    """Generate in a session of its own."""
    configuration = stage.configuration()
    if has_drafts:
        configuration.set_speculative_decoding(TextGenerationSpeculativeMethod.PROMPT_LOOKUP, 8)
    task = Tasks(stage.runtime).create_text_generation_task(stage.tokenizer)
    with task.create_session(configuration) as session, session.generate_tokens(PERIODIC, options) as stream:
        for _ in stream:
            pass
        return stream.result


def only_letters(ids: tuple[int, ...], row: Any) -> Any:
    row[X:] = -np.inf
    row[len(ids) % 4] += 1
    return row


OPTIONS: list[dict[str, Any]] = [
    {"top_logprobs": 3},
    {"temperature": 1.0, "top_logprobs": 1, "logit_bias": {X: 2.0, D: -np.inf}},
    {"temperature": 1.0, "min_new_tokens": 20},
    {"temperature": 1.0, "ignore_eos": True, "logit_bias": {EOS: 6}},
    {"temperature": 1.0, "no_repeat_ngram_size": 6},
    {"temperature": 1.0, "dry_multiplier": 0.5, "dry_allowed_length": 3},
    {"temperature": 1.5, "typical_p": 0.9},
    {"temperature": 1.5, "top_n_sigma": 2.0},
    {"temperature": 1.5, "xtc_probability": 0.5, "xtc_threshold": 0.05},
    {"temperature": 1.0, "logits_processors": only_letters},
    {"temperature": 1.0, "stopping": lambda token_ids, text: text.endswith("da")},
    {"temperature": 1.0, "stop": ["cd", "dd"], "include_stop": True},
]


@pytest.mark.parametrize("fields", OPTIONS, ids=lambda fields: " ".join(fields))
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_g112_drafts_change_nothing(stage: Composed, fields: dict[str, Any], seed: int) -> None:
    options = TextGenerationOptions(40, seed=seed, **fields)
    plain, drafted = (generated(stage, has_drafts, options) for has_drafts in (False, True))
    assert drafted.token_ids == plain.token_ids
    assert (drafted.text, drafted.finish_reason) == (plain.text, plain.finish_reason)
    assert (drafted.stop_match, drafted.stop_offset) == (plain.stop_match, plain.stop_offset)
    assert drafted.logprobs == plain.logprobs


def test_g112_there_were_drafts(stage: Composed) -> None:
    statistics = generated(stage, True, TextGenerationOptions(40, top_logprobs=0)).speculative_statistics
    assert statistics is not None
    assert statistics.accepted_draft_token_count > 10
