"""The vocabulary read from GGUF metadata, and the tokenizer.json made from it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from genai.convert.source import ModelSource
from genai.convert.tokenizer_json import sentencepiece_merges, tokenizer_json
from genai.convert.vocabulary import Vocabulary, read_vocabulary
from models.gguf_models import vocabulary_metadata
from models.gguf_writer import write_gguf
from models.vocabularies import byte_level_vocabulary, sentencepiece_vocabulary
from winml_lite import WinMLError

NOT_SUPPORTED, INVALID_DATA = 0x80070032, 0x8007000D
BPE, SPM = byte_level_vocabulary(), sentencepiece_vocabulary()

SMALL_SPM: dict[str, object] = {
    "general.architecture": "llama",
    "tokenizer.ggml.model": "llama",
    "tokenizer.ggml.tokens": ["<unk>", "<s>", "</s>", "a", "b", "c", "ab", "bc", "abc"],
    "tokenizer.ggml.token_type": np.array([2, 3, 3, 1, 1, 1, 1, 1, 1], np.int32),
    "tokenizer.ggml.scores": np.array([0, 0, 0, -9, -9, -9, -2, -1, -3], np.float32),
    "tokenizer.ggml.bos_token_id": 1,
    "tokenizer.ggml.eos_token_id": 2,
    "tokenizer.ggml.unknown_token_id": 0,
}


def vocabulary_of(folder: Path, metadata: dict[str, object], changes: dict[str, object] | None = None) -> Vocabulary:
    merged = {key: value for key, value in {**metadata, **(changes or {})}.items() if value is not None}
    path = write_gguf(folder / "v.gguf", merged)
    with ModelSource(path) as source:
        tokens = source.metadata.get("tokenizer.ggml.tokens", [])
        assert isinstance(tokens, list)
        return read_vocabulary(source, len(tokens))


def json_of(folder: Path, metadata: dict[str, object], changes: dict[str, object] | None = None) -> dict[str, object]:
    vocabulary = vocabulary_of(folder, metadata, changes)
    with ModelSource(folder / "v.gguf") as source:
        return tokenizer_json(vocabulary, source)


def refusal_of(folder: Path, metadata: dict[str, object], changes: dict[str, object]) -> tuple[int, str]:
    with pytest.raises(WinMLError) as caught:
        json_of(folder, metadata, changes)
    return caught.value.hresult, str(caught.value)


def test_merges_follow_the_scores_of_their_results(tmp_path: Path) -> None:
    # bc -1 before ab -2 before abc -3; abc is ab + c or a + bc, the left part with the lower id first.
    merges = sentencepiece_merges(vocabulary_of(tmp_path, SMALL_SPM))
    assert merges == [("b", "c"), ("a", "b"), ("a", "bc"), ("ab", "c")]


def test_end_of_generation_ids_start_with_eos(tmp_path: Path) -> None:
    vocabulary = vocabulary_of(tmp_path, vocabulary_metadata(BPE))
    assert vocabulary.end_of_generation == (BPE.id("<|im_end|>"), BPE.id("<|endoftext|>"))


def test_a_named_end_of_turn_ends_generation(tmp_path: Path) -> None:
    vocabulary = vocabulary_of(tmp_path, SMALL_SPM, {"tokenizer.ggml.eot_token_id": 8})
    assert vocabulary.end_of_generation == (2, 8)


def endings_of(folder: Path, *names: str, **ids: int) -> tuple[int, ...]:
    """Endings of a vocabulary of nine tokens whose first ones, from id 3, have these names; 2 is the EOS token."""
    tokens = ["<unk>", "<s>", "end", *names, *(f"t{index}" for index in range(6 - len(names)))]
    named: dict[str, object] = {f"tokenizer.ggml.{kind}_token_id": token_id for kind, token_id in ids.items()}
    return vocabulary_of(folder, SMALL_SPM, {"tokenizer.ggml.tokens": tokens, **named}).end_of_generation


@pytest.mark.parametrize("name", ["<reponame>", "<|repo_name|>", "<|file_sep|>", "<|fim_pad|>", "[PAD]", "<|im_end|>"])
def test_marks_of_code_models_end_generation(tmp_path: Path, name: str) -> None:
    assert endings_of(tmp_path, name) == (2, 3)


@pytest.mark.parametrize("name", ["<repo_name>", "<file_sep>", "<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>"])
def test_other_marks_do_not(tmp_path: Path, name: str) -> None:
    assert endings_of(tmp_path, name) == (2,)


def test_a_mark_that_the_metadata_names_wins_over_a_spelling(tmp_path: Path) -> None:
    assert endings_of(tmp_path, "<reponame>", "b", fim_rep=4) == (2, 4)


def test_the_end_of_a_channel_is_not_the_end_of_the_turn(tmp_path: Path) -> None:
    assert endings_of(tmp_path, "<|end|>", "<|return|>", "<|call|>") == (2, 4, 5)
    assert endings_of(tmp_path, "<|end|>", "<|flush|>", "<|calls|>") == (2, 4, 5)
    assert endings_of(tmp_path, "<|end|>", "<|return|>") == (2, 3, 4)


def test_a_tool_response_mark_takes_the_end_from_the_sentence_mark(tmp_path: Path) -> None:
    assert endings_of(tmp_path, "</s>", "<|tool_response>") == (2, 4)


def test_sentencepiece_adds_bos_and_a_space_unless_told_otherwise(tmp_path: Path) -> None:
    vocabulary = vocabulary_of(tmp_path, SMALL_SPM)
    assert (vocabulary.adds_bos, vocabulary.adds_eos, vocabulary.adds_space_prefix) == (True, False, True)
    changes: dict[str, object] = {"tokenizer.ggml.add_bos_token": False, "tokenizer.ggml.add_space_prefix": False}
    vocabulary = vocabulary_of(tmp_path, SMALL_SPM, changes)
    assert (vocabulary.adds_bos, vocabulary.adds_space_prefix) == (False, False)


def test_byte_level_adds_bos_for_llama_3_only(tmp_path: Path) -> None:
    unset: dict[str, object] = {"tokenizer.ggml.add_bos_token": None}
    assert not vocabulary_of(tmp_path, vocabulary_metadata(BPE), unset).adds_bos
    llama3 = {**unset, "tokenizer.ggml.pre": "llama-bpe"}
    assert vocabulary_of(tmp_path, vocabulary_metadata(BPE), llama3).adds_bos


def test_special_ids_outside_the_vocabulary_are_absent(tmp_path: Path) -> None:
    vocabulary = vocabulary_of(tmp_path, SMALL_SPM, {"tokenizer.ggml.bos_token_id": 9})
    assert vocabulary.bos is None and not vocabulary.adds_bos


def test_named_chat_templates_are_read(tmp_path: Path) -> None:
    changes: dict[str, object] = {"tokenizer.chat_template": "A", "tokenizer.chat_template.tool_use": "B"}
    assert vocabulary_of(tmp_path, SMALL_SPM, changes).chat_templates == {"default": "A", "tool_use": "B"}


def test_added_tokens_are_the_control_and_user_defined_ones(tmp_path: Path) -> None:
    added = json_of(tmp_path, vocabulary_metadata(SPM))["added_tokens"]
    assert isinstance(added, list)
    assert [(token["content"], token["special"]) for token in added] == [
        ("<pad>", True),
        ("</s>", True),
        ("<s>", True),
        ("<unk>", True),
        ("<think>", False),
    ]


def test_the_post_processor_puts_bos_and_eos_around_a_text(tmp_path: Path) -> None:
    processor = json_of(tmp_path, SMALL_SPM, {"tokenizer.ggml.add_eos_token": True})["post_processor"]
    assert isinstance(processor, dict)
    assert processor["single"] == [
        {"SpecialToken": {"id": "<s>", "type_id": 0}},
        {"Sequence": {"id": "A", "type_id": 0}},
        {"SpecialToken": {"id": "</s>", "type_id": 0}},
    ]


def test_nothing_is_put_around_a_text_of_a_model_that_adds_nothing(tmp_path: Path) -> None:
    assert json_of(tmp_path, vocabulary_metadata(BPE))["post_processor"] is None


def test_an_unknown_tokenizer_model_is_refused_by_name(tmp_path: Path) -> None:
    code, message = refusal_of(tmp_path, SMALL_SPM, {"tokenizer.ggml.model": "t5"})
    assert code == NOT_SUPPORTED and "'t5'" in message


def test_an_unknown_splitting_rule_is_refused_by_name(tmp_path: Path) -> None:
    code, message = refusal_of(tmp_path, vocabulary_metadata(BPE), {"tokenizer.ggml.pre": "viking"})
    assert code == NOT_SUPPORTED and "'viking'" in message and "smollm" in message


@pytest.mark.parametrize(
    ("metadata", "changes"),
    [
        (SMALL_SPM, {"tokenizer.ggml.scores": None}),
        (vocabulary_metadata(BPE), {"tokenizer.ggml.merges": None}),
        (vocabulary_metadata(BPE), {"tokenizer.ggml.merges": ["a"]}),
        (vocabulary_metadata(BPE), {"tokenizer.ggml.merges": ["q x"]}),
        (SMALL_SPM, {"tokenizer.chat_template": "\udcff"}),
        (SMALL_SPM, {"tokenizer.ggml.tokens": [f"{i}\udcff" for i in range(9)]}),
    ],
)
def test_a_vocabulary_that_lacks_something_is_invalid_data(
    tmp_path: Path, metadata: dict[str, object], changes: dict[str, object]
) -> None:
    assert refusal_of(tmp_path, metadata, changes)[0] == INVALID_DATA


def test_a_vocabulary_of_another_size_than_the_embedding_is_invalid_data(tmp_path: Path) -> None:
    path = write_gguf(tmp_path / "v.gguf", SMALL_SPM)
    with ModelSource(path) as source, pytest.raises(WinMLError, match="9 tokens, the embedding 10"):
        read_vocabulary(source, 10)
