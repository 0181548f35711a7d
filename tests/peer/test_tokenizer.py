"""Our decoding next to that of `tokenizers`, and `tokenizer.json` next to llama.cpp, through the public class."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import pytest
import tokenizers

from fakes.real_models import smollm2_gguf
from fakes.strings import HARD_STRINGS
from fakes.tokenizer_twins import json_twin
from fakes.vocabularies import byte_level, metaspace, sentence_piece
from genai.tokenizer import Tokenizer
from models import recipes

pytestmark = pytest.mark.peer
CONVERSATION = [
    ("system", "Be <|im_end|> kind."),
    ("user", "Hi <|im_start|> 你好"),
    ("assistant", "a"),
    ("user", "b <"),
]


@pytest.mark.parametrize("build", [byte_level, sentence_piece, metaspace])
def test_decode_equals_tokenizers_on_texts(tmp_path: Path, build: Callable[[Path], Path]) -> None:
    folder = build(tmp_path)
    ours, theirs = Tokenizer.from_file(folder), tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))
    rows = [theirs.encode(text).ids for text in HARD_STRINGS]
    assert [ours.encode(text) for text in HARD_STRINGS] == rows
    assert [ours.decode(ids) for ids in rows] == [theirs.decode(ids, skip_special_tokens=False) for ids in rows]


def test_decode_equals_tokenizers_on_random_byte_level_ids(tmp_path: Path) -> None:
    folder = byte_level(tmp_path)
    ours, theirs = Tokenizer.from_file(folder), tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))
    rng = random.Random(11)
    rows = [rng.choices(range(262), k=20) for _ in range(300)]
    assert [ours.decode(ids) for ids in rows] == [theirs.decode(ids) for ids in rows]


def check_twins(gguf: Path, folder: Path) -> None:
    """One vocabulary through `tokenizers` and through llama.cpp: equal ids, equal texts."""
    pytest.importorskip("llama_cpp", reason="llama-cpp-python is not installed")
    ours, theirs = Tokenizer.from_file(json_twin(gguf, folder)), Tokenizer.from_file(gguf)
    rows = [ours.encode(text) for text in HARD_STRINGS]
    assert rows == [theirs.encode(text) for text in HARD_STRINGS]
    assert [ours.decode(ids) for ids in rows] == [theirs.decode(ids) for ids in rows]
    assert [ours.token_bytes(i) for i in range(ours.token_count)] == [
        theirs.token_bytes(i) for i in range(theirs.token_count)
    ]
    assert ours.special_token_ids == theirs.special_token_ids
    assert ours.vocabulary_identity == theirs.vocabulary_identity


@pytest.mark.parametrize("kind", ["smollm", "llama-bpe", "qwen2", "spm", "spm-no-prefix"])
def test_both_forms_of_a_small_vocabulary_agree(tmp_path: Path, kind: str) -> None:
    check_twins(recipes.vocabulary_gguf(tmp_path, kind), tmp_path / "json")


def test_both_forms_of_smollm2_agree(tmp_path: Path) -> None:
    check_twins(smollm2_gguf(), tmp_path)


def test_both_forms_of_smollm2_format_alike(tmp_path: Path) -> None:
    pytest.importorskip("llama_cpp", reason="llama-cpp-python is not installed")
    gguf = smollm2_gguf()
    ours, theirs = Tokenizer.from_file(json_twin(gguf, tmp_path)), Tokenizer.from_file(gguf)
    assert ours.encode_conversation(CONVERSATION) == theirs.encode_conversation(CONVERSATION)


def test_a_marker_changes_nothing_but_spellings(tmp_path: Path) -> None:
    tokenizer = Tokenizer.from_file(json_twin(smollm2_gguf(), tmp_path))
    vocabulary = tokenizer.underlying_object.vocabulary
    texts = [text for text in HARD_STRINGS if "\ufdd2" not in text]
    plain = [vocabulary.encode("<|im_start|>" + text, False) for text in texts]
    marked = [vocabulary.encode_marked("<|im_start|>" + text + "\ufdd2", "\ufdd2") for text in texts]
    assert marked == plain
