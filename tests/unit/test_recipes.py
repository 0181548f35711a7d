"""The models that tests build for themselves: the same bytes on every run, and what they promise."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from models import recipes
from models.gguf_models import random_model, scripted_model
from models.vocabularies import byte_characters, byte_level_vocabulary, sentencepiece_vocabulary, train_pairs
from winml_lite import GgufFile


@pytest.mark.parametrize("name", ["scripted-gguf", "random-gguf", "gemma3-gguf", "sharded-gguf", "vocabulary-gguf"])
def test_a_recipe_gives_the_same_bytes_every_time(tmp_path: Path, name: str) -> None:
    first, second = (recipes.build(name, tmp_path / folder) for folder in ("a", "b"))
    assert first.read_bytes() == second.read_bytes()


@pytest.mark.parametrize("name", ["scripted-onnx", "random-onnx", "gemma3-onnx"])
def test_a_converted_recipe_gives_the_same_bytes_every_time(tmp_path: Path, name: str) -> None:
    first, second = (recipes.build(name, tmp_path / folder) for folder in ("a", "b"))
    assert {path.name: path.read_bytes() for path in first.iterdir()} == {
        path.name: path.read_bytes() for path in second.iterdir()
    }


def test_a_model_is_built_once_per_folder(tmp_path: Path) -> None:
    path = recipes.scripted_gguf(tmp_path)
    path.write_bytes(b"mine")
    assert recipes.scripted_gguf(tmp_path).read_bytes() == b"mine"


def test_the_sentence_is_the_pieces_of_the_vocabulary(tmp_path: Path) -> None:
    with GgufFile(recipes.scripted_gguf(tmp_path)) as file:
        tokens = file.metadata["tokenizer.ggml.tokens"]
    assert isinstance(tokens, list)
    assert {"Paris", "Ġmuseums", "Ġcaf", "<|im_end|>"} <= set(tokens)
    assert "Ã©" not in tokens  # the two bytes of é are two tokens


def test_control_tokens_of_the_random_model_have_the_logit_zero() -> None:
    output = random_model()[1]["output.weight"]
    assert isinstance(output, np.ndarray)
    assert not output[-3:].any()
    assert output[:-3].any(axis=1).all()


def test_models_do_not_share_names() -> None:
    assert scripted_model()[0]["general.name"] != random_model()[0]["general.name"]


def test_every_byte_has_a_printable_stand_in() -> None:
    characters = byte_characters()
    assert (characters[ord("A")], characters[ord(" ")], characters[ord("\n")]) == ("A", "Ġ", "Ċ")
    assert len(set(characters.values())) == 256 and all(text.isprintable() for text in characters.values())


def test_byte_pair_training_joins_the_most_frequent_pair_first() -> None:
    # "ab" is there three times, then "abc" twice.
    assert train_pairs([list("abc"), list("abc"), list("abd")], 2) == [("a", "b"), ("ab", "c")]


def test_vocabularies_have_distinct_tokens() -> None:
    for vocabulary in (byte_level_vocabulary(), sentencepiece_vocabulary()):
        assert len(set(vocabulary.tokens)) == len(vocabulary.tokens) == len(vocabulary.types)


def test_a_vocabulary_file_has_no_tensors(tmp_path: Path) -> None:
    with GgufFile(recipes.vocabulary_gguf(tmp_path, "spm")) as file:
        assert len(file.tensors) == 0
        assert file.metadata["tokenizer.ggml.model"] == "llama"
