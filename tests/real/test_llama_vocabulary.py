"""The vocabulary of GGUF files through libllama (the public class `Vocabulary`)."""

from __future__ import annotations

import gc
import threading
from pathlib import Path

import numpy as np
import pytest

from fakes.llama_stages import build
from fakes.model_files import ModelFiles
from fakes.strings import HARD_STRINGS
from models import recipes
from models.gguf_models import random_model
from models.gguf_writer import write_gguf
from winml_lite import Vocabulary, WinMLError
from winml_lite.errors import FILE_NOT_FOUND, INVALID_DATA, NOT_SUPPORTED

pytestmark = [pytest.mark.real, pytest.mark.usefixtures("llama")]

SPACES = ["", " ", "  a", "a ", "\t\tx", "a  b", "\n\n", "é", "🦙"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("vocabularies")


@pytest.fixture
def vocabulary(files: ModelFiles) -> Vocabulary:
    return Vocabulary.from_file(files.gguf)


def decode(vocabulary: Vocabulary, text: str) -> bytes:
    """Encode, and put the pieces together again."""
    return b"".join(vocabulary.piece(token) for token in vocabulary.encode(text.encode(), False, False))


def test_facts_of_the_file(vocabulary: Vocabulary) -> None:
    assert vocabulary.token_count == 303
    assert (vocabulary.bos_token_id, vocabulary.eos_token_id) == (301, 302)
    assert (vocabulary.adds_bos, vocabulary.adds_eos) == (False, False)
    assert (vocabulary.model, vocabulary.pre) == ("gpt2", "smollm")
    assert vocabulary.end_of_generation_ids == (300, 302)
    assert vocabulary.metadata["general.architecture"] == "llama"


def test_special_tokens(vocabulary: Vocabulary) -> None:
    assert vocabulary.piece(302) == b"<|im_end|>"
    assert vocabulary.token_text(302) == "<|im_end|>"
    assert vocabulary.find("<|im_end|>") == 302
    assert vocabulary.find("<|im_fin|>") is None
    assert vocabulary.encode(b"<|im_start|>", False) == [301]
    assert len(vocabulary.encode(b"<|im_start|>", False, False)) > 1
    assert vocabulary.is_control(302)
    assert not vocabulary.is_control(65)


def test_user_defined_tokens(folder: Path) -> None:
    vocabulary = Vocabulary.from_file(recipes.vocabulary_gguf(folder))
    think = vocabulary.find("<think>")
    assert think is not None
    assert vocabulary.is_user_defined(think)
    assert not vocabulary.is_control(think)


def test_pieces_are_those_of_the_single_calls(vocabulary: Vocabulary) -> None:
    assert vocabulary.pieces() == [vocabulary.piece(token) for token in range(303)]


def test_a_space_is_kept_in_a_piece(vocabulary: Vocabulary) -> None:
    space = vocabulary.find("Ġ")
    assert space is not None
    assert vocabulary.piece(space) == b" "


def test_a_piece_longer_than_the_first_buffer(tmp_path: Path) -> None:
    metadata, tensors = random_model()
    tokens = [*metadata["tokenizer.ggml.tokens"]]  # type: ignore[misc]
    tokens[299] = "long" * 50
    metadata["tokenizer.ggml.tokens"] = tokens
    vocabulary = Vocabulary.from_file(write_gguf(tmp_path / "long.gguf", metadata, tensors))
    assert vocabulary.piece(299) == b"long" * 50


def test_chat_template(vocabulary: Vocabulary) -> None:
    template = vocabulary.chat_template()
    assert template is not None
    assert "<|im_start|>" in template
    assert vocabulary.chat_template("tool_use") is None


@pytest.mark.parametrize("kind", ["smollm", "gpt-2", "llama-bpe", "qwen2"])
def test_s_tok_01_byte_level_text_survives(folder: Path, kind: str) -> None:
    vocabulary = Vocabulary.from_file(recipes.vocabulary_gguf(folder, kind))
    texts = [*SPACES, *HARD_STRINGS]
    assert [decode(vocabulary, text) for text in texts] == [text.encode() for text in texts]


def test_s_tok_01_sentencepiece_text_survives(folder: Path) -> None:
    vocabulary = Vocabulary.from_file(recipes.vocabulary_gguf(folder, "spm-no-prefix"))
    texts = [text for text in (*SPACES, *HARD_STRINGS) if "\u2581" not in text]  # the mark of a space in these files
    assert [decode(vocabulary, text) for text in texts] == [text.encode() for text in texts]


def test_s_tok_01_sentencepiece_adds_one_space_in_front(folder: Path) -> None:
    vocabulary = Vocabulary.from_file(recipes.vocabulary_gguf(folder, "spm"))
    texts = [text for text in SPACES if text]
    assert [decode(vocabulary, text) for text in texts] == [b" " + text.encode() for text in texts]


@pytest.mark.parametrize("count", [1, 63, 64, 65, 1024, 5000])
def test_s_tok_02_long_runs_of_blanks(vocabulary: Vocabulary, count: int) -> None:
    text = " " * count + "x"
    assert decode(vocabulary, text) == text.encode()


def test_nul_is_a_character_like_others(vocabulary: Vocabulary) -> None:
    assert decode(vocabulary, "a\0b\0\0") == b"a\0b\0\0"


def test_what_is_not_utf8_becomes_the_replacement_character(vocabulary: Vocabulary) -> None:
    assert vocabulary.encode(b"\xffa", False) == vocabulary.encode("\ufffda".encode(), False)


@pytest.mark.parametrize("character", ["a", " ", "1", "!", "\n", "é"])
def test_very_long_words(vocabulary: Vocabulary, character: str) -> None:
    text = character * 200_000
    assert decode(vocabulary, text) == text.encode()


@pytest.mark.parametrize("kind", ["tekken", "deepseek-llm", "gpt-4o"])
def test_very_long_words_where_splitting_recurses(folder: Path, kind: str) -> None:
    vocabulary = Vocabulary.from_file(recipes.vocabulary_gguf(folder, kind))
    text = "a" * 60_000 + " " * 60_000 + "!" * 60_000
    assert decode(vocabulary, text) == text.encode()


def test_more_tokens_than_bytes(tmp_path: Path) -> None:
    """Where no token holds the mark of a space, each space becomes its three bytes: the first buffer is too small."""
    metadata = dict(Vocabulary.from_file(recipes.vocabulary_gguf(tmp_path, "spm-no-prefix")).metadata)
    tokens = metadata["tokenizer.ggml.tokens"]
    metadata = {key: np.uint32(value) if type(value) is int else value for key, value in metadata.items()}
    metadata["tokenizer.ggml.tokens"] = [token.replace("\u2581", "_\a") for token in tokens]  # type: ignore[attr-defined]
    vocabulary = Vocabulary.from_file(write_gguf(tmp_path / "spelled.gguf", metadata, {}))
    assert len(vocabulary.encode(b" " * 100, False)) == 300


def test_a_vocabulary_that_cannot_spell_every_byte(tmp_path: Path) -> None:
    metadata, tensors = random_model()
    metadata["tokenizer.ggml.model"] = "llama"
    vocabulary = Vocabulary.from_file(write_gguf(tmp_path / "incomplete.gguf", metadata, tensors))
    with pytest.raises(WinMLError, match="cannot spell every byte") as caught:
        vocabulary.encode("é".encode(), False)
    assert caught.value.hresult == INVALID_DATA


def test_s_tok_05_unknown_text_splitting_is_named(tmp_path: Path) -> None:
    metadata, tensors = random_model()
    metadata["tokenizer.ggml.pre"] = "no-such-pre"
    path = write_gguf(tmp_path / "unknown.gguf", metadata, tensors)
    with pytest.raises(WinMLError, match="no-such-pre") as caught:
        Vocabulary.from_file(path)
    assert str(path) in str(caught.value)


def test_a_model_without_a_vocabulary(tmp_path: Path) -> None:
    metadata, tensors = random_model()
    metadata["tokenizer.ggml.model"] = "no_vocab"
    with pytest.raises(WinMLError, match="holds no vocabulary") as caught:
        Vocabulary.from_file(write_gguf(tmp_path / "none.gguf", metadata, tensors))
    assert caught.value.hresult == NOT_SUPPORTED


def test_a_missing_file(tmp_path: Path) -> None:
    with pytest.raises(WinMLError) as caught:
        Vocabulary.from_file(tmp_path / "absent.gguf")
    assert caught.value.hresult == FILE_NOT_FOUND


@pytest.mark.parametrize("token", [-1, 303, 2**31])
def test_ids_outside_the_vocabulary(vocabulary: Vocabulary, token: int) -> None:
    for method in (vocabulary.piece, vocabulary.token_text, vocabulary.is_control, vocabulary.is_user_defined):
        with pytest.raises(ValueError, match="token_id"):
            method(token)


def test_wrong_argument_types(vocabulary: Vocabulary) -> None:
    with pytest.raises(TypeError, match="bytes"):
        vocabulary.encode("text", True)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="token_id"):
        vocabulary.piece(True)
    with pytest.raises(ValueError, match="add_special"):
        vocabulary.encode(b"text", 1)  # type: ignore[arg-type]


def test_closing(files: ModelFiles) -> None:
    with Vocabulary.from_file(files.gguf) as vocabulary:
        metadata = vocabulary.metadata
    vocabulary.close()
    with pytest.raises(RuntimeError, match="Vocabulary is closed"):
        vocabulary.piece(0)
    assert metadata["tokenizer.ggml.model"] == "gpt2"


def test_a_loaded_model_is_used_again(files: ModelFiles) -> None:
    gc.collect()
    stage = build(files.gguf)
    assert Vocabulary.from_file(files.gguf)._core._model is stage._sequence.model


def test_calls_from_several_threads(vocabulary: Vocabulary) -> None:
    text = " ".join(HARD_STRINGS).encode()
    expected = vocabulary.encode(text, True)
    results: list[bool] = []

    def work() -> None:
        results.extend(vocabulary.encode(text, True) == expected for _ in range(20))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(100)
    assert results == [True] * 80
