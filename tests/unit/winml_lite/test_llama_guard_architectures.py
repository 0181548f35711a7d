"""Values that llama.cpp asserts in the graphs of single architectures: refused before it sees the file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from models.gguf_models import random_model
from models.gguf_writer import write_gguf
from winml_lite.errors import FILE_CORRUPT, NOT_SUPPORTED, WinMLError
from winml_lite.files.artifact import GgufArtifact
from winml_lite.files.gguf import read_gguf
from winml_lite.native.llama.guard import check_model, lacks_frame


def model_of(folder: Path, architecture: str, **values: Any) -> GgufArtifact:
    """The random model (2 layers, 4 heads of 16) as another architecture; two underscores in a name are a dot."""
    metadata, tensors = random_model()
    renamed = {key.replace("llama.", f"{architecture}.", 1): value for key, value in metadata.items()}
    renamed["general.architecture"] = architecture
    for name, value in values.items():
        renamed[f"{architecture}.{name.replace('__', '.')}"] = value
    return read_gguf(str(write_gguf(folder / "model.gguf", renamed, tensors)))


@pytest.mark.parametrize("architecture", ["llama", "qwen2", "gemma3", "phi2", "never-heard-of"])
def test_ordinary_values_pass(tmp_path: Path, architecture: str) -> None:
    check_model(model_of(tmp_path, architecture))


@pytest.mark.parametrize(
    ("architecture", "values", "problem"),
    [
        ("smallthinker", {}, "smallthinker needs experts"),
        ("llada-moe", {}, "llada-moe needs experts"),
        ("paddleocr", {}, "rope.dimension_sections is [], no axis"),
        ("qwen2vl", {"rope__dimension_sections": np.zeros(4, np.int32)}, "[0, 0, 0, 0], no axis"),
        ("qwen3vl", {"rope__dimension_sections": np.array([-1, 1, 0, 0], np.int32)}, "dimension_sections is -1"),
        ("qwen2", {"attention__value_length": 8}, "key_length is 16, value_length 8"),
        ("qwen3", {"attention__key_length_swa": 8}, "key_length_swa is 8, value_length_swa 16"),
        ("qwen2", {"rope__dimension_count": 8}, "rope.dimension_count is 8, not the size of a head, 16"),
        ("minicpm", {"rope__dimension_count": 8}, "rope.dimension_count is 8"),
        ("gemma3", {"rope__dimension_count": 0}, "rope.dimension_count is 0"),
        ("gemma2", {"attention__sliding_window_pattern": 1}, "gives no layer a window"),
        ("gemma4", {"attention__sliding_window_pattern": np.array([False, False])}, "gives no layer a window"),
        ("cohere2moe", {"block_count": 1}, "gives no layer a window"),
        ("mamba2", {"ssm__group_count": 0, "ssm__time_step_rank": 4, "ssm__inner_size": 128}, "in 0 groups"),
        ("qwen3next", {"ssm__group_count": 3, "ssm__time_step_rank": 4, "ssm__inner_size": 12}, "4 heads in 3 groups"),
        ("jamba", {"ssm__inner_size": 64}, "not twice embedding_length"),
        ("nanbeige", {"num_loops": 0}, "num_loops is 0"),
        ("deepseek2", {"attention__key_length_mla": 16}, "rope.dimension_count is 16, not less"),
    ],
)
def test_what_the_graph_asserts(tmp_path: Path, architecture: str, values: dict[str, Any], problem: str) -> None:
    artifact = model_of(tmp_path, architecture, **values)
    with pytest.raises(WinMLError) as caught:
        check_model(artifact)
    assert caught.value.hresult == FILE_CORRUPT
    assert problem in str(caught.value)
    assert artifact.path in str(caught.value)


def test_an_architecture_without_the_assertion_may_have_such_values(tmp_path: Path) -> None:
    check_model(model_of(tmp_path, "phi2", rope__dimension_count=8))


def test_a_window_is_asked_for_only_where_there_is_one(tmp_path: Path) -> None:
    check_model(model_of(tmp_path, "olmo2", attention__sliding_window_pattern=1))
    with pytest.raises(WinMLError, match="gives no layer a window"):
        check_model(model_of(tmp_path, "olmo2", attention__sliding_window_pattern=1, attention__sliding_window=8))


@pytest.mark.parametrize("architecture", ["eagle3", "dflash", "gemma4-assistant"])
def test_draft_models_do_not_run_alone(tmp_path: Path, architecture: str) -> None:
    with pytest.raises(WinMLError, match="it runs only beside") as caught:
        check_model(model_of(tmp_path, architecture))
    assert caught.value.hresult == NOT_SUPPORTED


@pytest.mark.parametrize(
    ("values", "lacks"),
    [
        ({"model": "gpt2", "add_bos_token": True}, False),
        ({"model": "gpt2", "add_bos_token": True, "bos_token_id": 999}, False),  # its default, 11, is there
        ({"model": "gpt2", "pre": "glm4", "add_bos_token": True}, True),
        ({"model": "gpt2", "pre": "glm4", "add_bos_token": True, "bos_token_id": 2}, False),
        ({"model": "gpt2", "pre": "glm4"}, False),
        ({"model": "t5", "add_bos_token": True}, True),
        ({"model": "llama"}, False),
        ({"model": "rwkv", "add_eos_token": True}, True),
    ],
)
def test_tokens_around_a_text(tmp_path: Path, values: dict[str, Any], lacks: bool) -> None:
    metadata, tensors = random_model()
    kept = {key: value for key, value in metadata.items() if "os_token" not in key}
    kept |= {f"tokenizer.ggml.{name}": value for name, value in values.items()}
    file = read_gguf(str(write_gguf(tmp_path / "model.gguf", kept, tensors))).file
    assert lacks_frame(file, 303) is lacks


def test_word_pieces_need_both_tokens_of_the_frame(tmp_path: Path) -> None:
    metadata, tensors = random_model()
    kept = {key: value for key, value in metadata.items() if "_token_id" not in key}
    kept["tokenizer.ggml.model"] = "bert"
    file = read_gguf(str(write_gguf(tmp_path / "model.gguf", kept, tensors))).file
    assert [lacks_frame(file, count) for count in (101, 102, 103)] == [True, True, False]
