"""The converted tokenizer gives the ids of llama.cpp on hard strings, for every kind of vocabulary that is
converted."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tokenizers import Tokenizer

from fakes.real_models import smollm2_gguf
from fakes.strings import HARD_STRINGS
from genai.convert.source import ModelSource
from genai.convert.tokenizer_json import tokenizer_json
from genai.convert.vocabulary import read_vocabulary
from models import recipes
from winml_lite import Vocabulary

llama_cpp = pytest.importorskip("llama_cpp", reason="llama-cpp-python is not installed")

from fakes import llama_peer  # noqa: E402  only where llama_cpp is installed

pytestmark = pytest.mark.peer


def converted_tokenizer(path: Path) -> Tokenizer:
    with ModelSource(path) as source:
        tokens = source.metadata["tokenizer.ggml.tokens"]
        assert isinstance(tokens, list)
        return Tokenizer.from_str(json.dumps(tokenizer_json(read_vocabulary(source, len(tokens)), source)))


def differences(path: Path) -> list[tuple[str, list[int], list[int]]]:
    tokenizer = converted_tokenizer(path)
    ours = [tokenizer.encode(text).ids for text in HARD_STRINGS]
    theirs = llama_peer.tokenize(path, HARD_STRINGS)
    return [row for row in zip(HARD_STRINGS, ours, theirs, strict=True) if row[1] != row[2]]


def test_there_are_enough_hard_strings() -> None:
    assert len(HARD_STRINGS) > 500
    assert len(set(HARD_STRINGS)) == len(HARD_STRINGS)


@pytest.mark.parametrize("kind", ["smollm", "gpt-2", "llama-bpe", "qwen2", "spm", "spm-no-prefix"])
def test_small_vocabularies(tmp_path: Path, kind: str) -> None:
    assert differences(recipes.vocabulary_gguf(tmp_path, kind)) == []


def endings(path: Path) -> tuple[set[int], set[int]]:
    """Ids that end generation: ours for a converted model, and those of llama.cpp."""
    with ModelSource(path) as source:
        tokens = source.metadata["tokenizer.ggml.tokens"]
        assert isinstance(tokens, list)
        ours = set(read_vocabulary(source, len(tokens)).end_of_generation)
    with Vocabulary.from_file(path) as vocabulary:
        return ours, set(vocabulary.end_of_generation_ids)


@pytest.mark.parametrize("kind", ["smollm", "gpt-2", "llama-bpe", "qwen2", "spm", "spm-no-prefix"])
def test_the_same_tokens_end_generation(tmp_path: Path, kind: str) -> None:
    ours, theirs = endings(recipes.vocabulary_gguf(tmp_path, kind))
    assert ours == theirs


def test_the_same_tokens_end_generation_of_smollm2() -> None:
    ours, theirs = endings(smollm2_gguf())
    assert ours == theirs == {0, 2, 4}  # <|endoftext|>, <|im_end|>, <reponame>


def test_smollm2() -> None:
    assert differences(smollm2_gguf()) == []
