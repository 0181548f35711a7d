"""Ids of 1,000 generated strings next to those of llama.cpp (GGUF) and `tokenizers` (folders); random ids back."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
import tokenizers

from fakes.real_models import smollm2_gguf
from fakes.strings import generated_strings
from fakes.tokenizer_twins import json_twin
from genai.tokenizer import Tokenizer
from models import recipes

pytestmark = pytest.mark.peer
STRINGS = generated_strings(1000)
RUNS = ["a" * 100_000, " " * 100_000, "\n" * 100_000]


def check_gguf(path: Path) -> None:
    """The ids of llama.cpp itself, and one text of random ids whether decoded at once or token by token."""
    pytest.importorskip("llama_cpp", reason="llama-cpp-python is not installed")
    from fakes.llama_peer import tokenize

    tokenizer = Tokenizer.from_file(path)
    assert [tokenizer.encode(text) for text in STRINGS] == tokenize(path, STRINGS)
    check_random_ids(tokenizer)


def check_folder(folder: Path) -> None:
    """The ids of `tokenizers`, and random ids as in `check_gguf`."""
    tokenizer = Tokenizer.from_file(folder)
    peer = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))
    assert [tokenizer.encode(text) for text in STRINGS] == [peer.encode(text).ids for text in STRINGS]
    check_random_ids(tokenizer)


def check_random_ids(tokenizer: Tokenizer) -> None:
    rng = random.Random(1130)
    end = tokenizer.encode("a", False)  # no character is left open
    rows = [rng.choices(range(tokenizer.token_count), k=30) + end for _ in range(200)]
    whole = [tokenizer.decode(ids) for ids in rows]
    streamed = []
    for ids in rows:
        decoder = tokenizer.create_decoder()
        streamed.append("".join(map(decoder.decode_token, ids)))
    assert streamed == whole


@pytest.mark.parametrize("kind", ["smollm", "llama-bpe", "qwen2", "spm", "spm-no-prefix", "bert", "t5", "rwkv"])
def test_a_small_gguf_gives_the_ids_of_llama_cpp(tmp_path: Path, kind: str) -> None:
    check_gguf(recipes.vocabulary_gguf(tmp_path, kind))


def test_smollm2_gives_the_ids_of_llama_cpp() -> None:
    check_gguf(smollm2_gguf())


@pytest.mark.parametrize("kind", ["smollm", "llama-bpe", "qwen2", "spm", "spm-no-prefix"])
def test_a_small_folder_gives_the_ids_of_tokenizers(tmp_path: Path, kind: str) -> None:
    check_folder(json_twin(recipes.vocabulary_gguf(tmp_path, kind), tmp_path / "json"))


def test_smollm2_as_a_folder_gives_the_ids_of_tokenizers(tmp_path: Path) -> None:
    check_folder(json_twin(smollm2_gguf(), tmp_path))


@pytest.mark.parametrize("kind", ["smollm", "spm"])
def test_very_long_runs_of_one_character_in_both_forms(tmp_path: Path, kind: str) -> None:
    pytest.importorskip("llama_cpp", reason="llama-cpp-python is not installed")
    gguf = recipes.vocabulary_gguf(tmp_path, kind)
    ours, theirs = Tokenizer.from_file(json_twin(gguf, tmp_path / "json")), Tokenizer.from_file(gguf)
    rows = [ours.encode(text, False) for text in RUNS]
    assert rows == [theirs.encode(text, False) for text in RUNS]
    assert [ours.decode(ids) for ids in rows] == RUNS
