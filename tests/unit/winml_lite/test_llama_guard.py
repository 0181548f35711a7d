"""What is refused before llama.cpp sees a file, because it would end the process (runtime 2.1)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from models.gguf_models import random_model
from models.gguf_writer import write_gguf
from winml_lite.errors import FILE_CORRUPT, WinMLError
from winml_lite.files.artifact import GgufArtifact
from winml_lite.files.gguf import read_gguf
from winml_lite.native.llama.guard import check_model, has_vocabulary, lacks_byte_tokens


def changed(folder: Path, **values: Any) -> GgufArtifact:
    """The random model with other metadata: dots are written as two underscores, None takes a key out."""
    metadata, tensors = random_model()
    for name, value in values.items():
        metadata[name.replace("__", ".")] = value
    kept = {key: value for key, value in metadata.items() if value is not None}
    return read_gguf(str(write_gguf(folder / "changed.gguf", kept, tensors)))


def u32(value: int) -> np.uint32:
    return np.uint32(value)


def test_the_unchanged_model_passes(tmp_path: Path) -> None:
    check_model(changed(tmp_path))


@pytest.mark.parametrize(
    ("values", "problem"),
    [
        ({"llama__block_count": u32(0)}, "llama.block_count is 0"),
        ({"llama__block_count": u32(513)}, "llama.block_count is 513"),
        ({"llama__context_length": u32(0)}, "context_length is 0"),
        ({"llama__nextn_predict_layers": u32(3)}, "nextn_predict_layers is 3"),
        ({"llama__attention__head_count_kv": u32(3)}, "3 key/value heads do not divide 4 attention heads"),
        ({"llama__attention__head_count_kv": np.array([2, 3], np.uint32)}, "3 key/value heads do not divide 4"),
        ({"llama__expert_used_count": u32(2)}, "2 of 0 experts"),
        ({"llama__expert_count": u32(4)}, "0 of 4 experts"),
        ({"llama__expert_count": u32(2000)}, "expert_count is 2000"),
        (
            {"llama__expert_count": u32(4), "llama__expert_used_count": u32(2), "llama__expert_group_count": u32(3)},
            "4 experts do not form 3 groups",
        ),
        (
            {"llama__expert_count": u32(8), "llama__expert_used_count": u32(2), "llama__expert_group_count": u32(4)},
            "0 of 4 expert groups",
        ),
        ({"llama__rope__scaling__type": "sideways"}, "rope.scaling.type is 'sideways'"),
        ({"llama__rope__dimension_count": u32(15)}, "dimension_count is 15, not an even number"),
        ({"llama__rope__dimension_count": u32(64)}, "dimension_count is 64, not in 0..16"),
        ({"llama__attention__layer_norm_rms_epsilon": np.float32("nan")}, "epsilon is nan"),
        ({"llama__attention__layer_norm_rms_epsilon": np.float32(-1)}, "epsilon is -1.0"),
        ({"general__architecture": None}, "general.architecture is missing"),
    ],
)
def test_impossible_hyper_parameters(tmp_path: Path, values: dict[str, Any], problem: str) -> None:
    artifact = changed(tmp_path, **values)
    with pytest.raises(WinMLError) as caught:
        check_model(artifact)
    assert caught.value.hresult == FILE_CORRUPT
    assert problem in str(caught.value)
    assert artifact.path in str(caught.value)


@pytest.mark.parametrize(
    ("first", "second"),
    [("same", "same"), ("cut\0one", "cut\0two"), ("", "[EMPTY_0]")],
    ids=["equal", "equal up to a NUL", "empty"],
)
def test_two_tokens_spelled_alike(tmp_path: Path, first: str, second: str) -> None:
    tokens = list(random_model()[0]["tokenizer.ggml.tokens"])  # type: ignore[call-overload]
    tokens[:2] = first, second
    with pytest.raises(WinMLError, match="twice"):
        check_model(changed(tmp_path, tokenizer__ggml__tokens=tokens))


def test_word_pieces_have_no_byte_tokens(tmp_path: Path) -> None:
    types = np.full(303, 6, np.int32)
    artifact = changed(tmp_path, tokenizer__ggml__model="bert", tokenizer__ggml__token_type=types)
    with pytest.raises(WinMLError, match="WordPiece"):
        check_model(artifact)


def test_rwkv_needs_a_token_for_a_line_feed(tmp_path: Path) -> None:
    artifact = changed(tmp_path, tokenizer__ggml__model="rwkv")
    with pytest.raises(WinMLError, match="line feed"):
        check_model(artifact)


@pytest.mark.parametrize("model", ["no_vocab", "none", "test"])
def test_a_model_without_a_vocabulary(tmp_path: Path, model: str) -> None:
    assert not has_vocabulary(changed(tmp_path, tokenizer__ggml__model=model).file)


def test_sentencepiece_needs_a_token_for_each_byte(tmp_path: Path) -> None:
    assert lacks_byte_tokens(changed(tmp_path, tokenizer__ggml__model="llama").file)


def test_byte_level_vocabulary_needs_no_byte_tokens(tmp_path: Path) -> None:
    assert not lacks_byte_tokens(changed(tmp_path).file)
