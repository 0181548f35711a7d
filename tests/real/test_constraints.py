"""Constraints with SmolLM2 on both engines: JSON of bounded schemas, masks, and a large vocabulary."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import genai
from benchmarks.bounded_schemas import SCHEMAS
from genai import constraint_engine
from genai.options import TextGenerationOptions
from genai.sampling import TokenSelector

pytest.importorskip("llguidance")
jsonschema = pytest.importorskip("jsonschema")
pytestmark = pytest.mark.real


@pytest.fixture(params=["gguf", "q8"])
def smollm2(request: pytest.FixtureRequest) -> Iterator[genai.LanguageModel]:
    path: Path = request.getfixturevalue(f"smollm2_{request.param}")
    if request.param == "gguf":
        request.getfixturevalue("llama")
    with genai.load(path, context_length=1024) as model:
        yield model


def test_bounded_schemas_finish_and_validate(smollm2: genai.LanguageModel) -> None:
    for seed, (question, schema) in enumerate(SCHEMAS[::7], 1):
        prompt = f"{question}\nAnswer in JSON:\n"
        result = smollm2.generate(prompt, json_schema=schema, temperature=1, seed=seed, max_new_tokens=256)
        assert result.constraint_complete, result.text
        jsonschema.Draft202012Validator(schema).validate(json.loads(result.text))


def test_a_chat_chooses(smollm2: genai.LanguageModel) -> None:
    answer = smollm2.chat().send("Is the sky blue or green?", choices=["blue", "green"])
    assert answer.parsed == "blue"
    assert answer.finish_reason is genai.TextGenerationFinishReason.EOS_TOKEN


def test_both_engines_spell_with_one_table(smollm2_gguf: Path, smollm2_q8: Path, llama: object) -> None:
    with genai.Tokenizer.from_file(smollm2_gguf) as gguf, genai.Tokenizer.from_file(smollm2_q8) as folder:
        for tokenizer in (gguf, folder):
            constraint = tokenizer.create_constraint_from_regex("[0-9]{4}-[0-9]{2}")
            for token_id in tokenizer.encode("2024-05", add_special_tokens=False):
                constraint.accept_token(token_id)
            assert constraint.state.state_flags == 2


def test_s_con_05_random_logits_of_a_large_vocabulary(smollm2_q8: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    masks = 0
    compute = constraint_engine.GrammarMatcher.mask

    def counted(matcher: constraint_engine.GrammarMatcher) -> constraint_engine.Mask:
        nonlocal masks
        masks += 1
        return compute(matcher)

    with genai.Tokenizer.from_file(smollm2_q8) as tokenizer:
        core = tokenizer.create_constraint_from_json_schema({"type": "array", "minItems": 200})._open()
        matcher = core._matcher
        assert matcher is not None
        monkeypatch.setattr(constraint_engine.GrammarMatcher, "mask", counted)
        size = tokenizer.token_count
        selector = TokenSelector(TextGenerationOptions(), size)
        random = np.random.default_rng(5)
        for _ in range(100):
            row = random.standard_normal(size).astype(np.float32)
            bits = np.unpackbits(compute(matcher), count=size, bitorder="little")
            best = int(np.where(bits == 1, row, -np.inf).argmax())
            before = masks
            token_id = selector.select(row, core)
            assert token_id == best
            assert masks - before == (0 if token_id == int(row.argmax()) else 1)
            core.accept(token_id)
    assert masks <= 100
