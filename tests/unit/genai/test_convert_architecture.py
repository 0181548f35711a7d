"""What the conversion reads from metadata, and that nothing it does not understand is ignored."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from genai.convert.architecture import DecoderArchitecture, read_architecture
from genai.convert.source import ModelSource
from models import gguf_models
from models.gguf_writer import Tensors, write_gguf
from winml_lite import WinMLError

NOT_SUPPORTED, INVALID_DATA = 0x80070032, 0x8007000D


def architecture_of(
    folder: Path,
    model: tuple[dict[str, object], Tensors],
    changes: dict[str, object] | None = None,
    tensors: Tensors | None = None,
    context_length: int | None = None,
) -> DecoderArchitecture:
    metadata = {key: value for key, value in {**model[0], **(changes or {})}.items() if value is not None}
    path = write_gguf(folder / "m.gguf", metadata, model[1] if tensors is None else tensors)
    with ModelSource(path) as source:
        return read_architecture(source, context_length)


def refusal_of(
    folder: Path, changes: dict[str, object] | None = None, tensors: Tensors | None = None
) -> tuple[int, str]:
    with pytest.raises(WinMLError) as caught:
        architecture_of(folder, gguf_models.random_model(), changes, tensors)
    assert "m.gguf" in str(caught.value)
    return caught.value.hresult, str(caught.value)


def test_a_llama_record(tmp_path: Path) -> None:
    record = architecture_of(tmp_path, gguf_models.random_model())
    assert (record.name, record.layer_count, record.width, record.hidden_width) == ("llama", 2, 64, 128)
    assert (record.head_count, record.kv_head_count, record.head_size) == (4, 2, 16)
    assert (record.query_width, record.kv_width) == (64, 32)
    assert (record.context_length, record.vocabulary_size) == (512, 303)
    assert record.attention_scale == 0.25
    assert record.norm_epsilon == pytest.approx(1e-5)
    assert not record.is_local(0)


def test_a_gemma3_record_has_local_layers_and_two_rotary_bases(tmp_path: Path) -> None:
    record = architecture_of(tmp_path, gguf_models.gemma3_model())
    assert record.window == 8
    assert [record.is_local(layer) for layer in range(7)] == [True, True, True, True, True, False, True]
    assert (record.rope_of(0), record.rope_of(5)) == ((10000.0, 1.0), (1000000.0, 1.0))
    assert not record.has_output_matrix


@pytest.mark.parametrize(
    ("changes", "divisor"),
    [
        ({"rope.scaling.type": "linear", "rope.scaling.factor": 8.0}, 8.0),
        ({"rope.scaling.factor": 8.0, "rope.scaling.original_context_length": 64}, 8.0),
        ({"rope.scaling.type": "none", "rope.scaling.factor": 8.0}, 1.0),
        ({"rope.scale_linear": 2.0}, 2.0),
    ],
)
def test_linear_scaling_is_of_global_layers(tmp_path: Path, changes: dict[str, object], divisor: float) -> None:
    scaled = {f"gemma3.{key}": value for key, value in changes.items()}
    record = architecture_of(tmp_path, gguf_models.gemma3_model(), scaled)
    assert (record.rope_of(0), record.rope_of(5)) == ((10000.0, 1.0), (1000000.0, divisor))


def test_the_head_size_defaults_to_the_width_per_head(tmp_path: Path) -> None:
    changes: dict[str, object] = {"llama.attention.key_length": None, "llama.attention.value_length": None}
    assert architecture_of(tmp_path, gguf_models.random_model(), changes).head_size == 16


def test_the_context_length_can_be_lowered(tmp_path: Path) -> None:
    assert architecture_of(tmp_path, gguf_models.random_model(), context_length=100).context_length == 100


def test_the_context_length_cannot_be_raised(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"1\.\.512"):
        architecture_of(tmp_path, gguf_models.random_model(), context_length=513)


def test_a_giant_context_must_be_lowered(tmp_path: Path) -> None:
    giant: dict[str, object] = {"llama.context_length": (1 << 31) - 1}
    code, message = refusal_of(tmp_path, giant)
    assert code == NOT_SUPPORTED and "context_length" in message
    assert architecture_of(tmp_path, gguf_models.random_model(), giant, context_length=64).context_length == 64


def test_an_unknown_architecture_is_refused_by_name(tmp_path: Path) -> None:
    code, message = refusal_of(tmp_path, {"general.architecture": "mamba"})
    assert code == NOT_SUPPORTED and "'mamba'" in message and "'llama'" in message


def test_a_file_without_an_architecture_is_refused(tmp_path: Path) -> None:
    code, message = refusal_of(tmp_path, {"general.architecture": None})
    assert code == NOT_SUPPORTED and "None" in message


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("llama.rope.scaling.type", "yarn"),
        ("llama.rope.scaling.attn_factor", 0.5),
        ("llama.rope.dimension_count", 8),
        ("llama.attention.value_length", 8),
        ("llama.expert_count", 8),
        ("llama.attention.sliding_window", 4096),
        ("llama.attn_logit_softcapping", 50.0),
        ("llama.use_parallel_residual", True),
        ("llama.attention.head_count_kv", np.array([2, 2], np.int32)),
        ("llama.feed_forward_length", np.array([128, 64], np.int32)),
    ],
)
def test_a_key_that_changes_the_result_is_refused_by_name(tmp_path: Path, key: str, value: object) -> None:
    code, message = refusal_of(tmp_path, {key: value})
    assert code == NOT_SUPPORTED and key in message


@pytest.mark.parametrize(
    ("key", "value"),
    [("llama.rope.scaling.type", "none"), ("llama.expert_count", 0), ("llama.attention.causal", True)],
)
def test_a_key_that_means_off_is_accepted(tmp_path: Path, key: str, value: object) -> None:
    assert architecture_of(tmp_path, gguf_models.random_model(), {key: value}).layer_count == 2


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("llama.embedding_length", None),
        ("llama.block_count", None),
        ("llama.attention.layer_norm_rms_epsilon", None),
        ("llama.attention.head_count", 0),
        ("llama.attention.head_count_kv", 3),
        ("llama.block_count", 1 << 30),
        ("llama.rope.freq_base", float("nan")),
    ],
)
def test_a_missing_or_senseless_key_is_invalid_data(tmp_path: Path, key: str, value: object) -> None:
    assert refusal_of(tmp_path, {key: value})[0] == INVALID_DATA


def test_a_bias_is_refused_by_name(tmp_path: Path) -> None:
    tensors = {**gguf_models.random_model()[1], "blk.0.attn_q.bias": np.zeros(64, np.float32)}
    code, message = refusal_of(tmp_path, tensors=tensors)
    assert code == NOT_SUPPORTED and "blk.0.attn_q.bias" in message


def test_a_missing_tensor_is_named(tmp_path: Path) -> None:
    tensors = dict(gguf_models.random_model()[1])
    del tensors["blk.1.ffn_up.weight"]
    code, message = refusal_of(tmp_path, tensors=tensors)
    assert code == INVALID_DATA and "blk.1.ffn_up.weight" in message


def test_a_tensor_of_another_shape_is_named(tmp_path: Path) -> None:
    tensors = {**gguf_models.random_model()[1], "blk.1.ffn_up.weight": np.zeros((128, 32), np.float32)}
    code, message = refusal_of(tmp_path, tensors=tensors)
    assert code == INVALID_DATA and "blk.1.ffn_up.weight" in message and "(128, 64)" in message


def test_a_file_with_a_vocabulary_only_is_invalid_data(tmp_path: Path) -> None:
    code, message = refusal_of(tmp_path, tensors={})
    assert code == INVALID_DATA and "token_embd.weight" in message


def test_rotary_factors_are_part_of_a_llama(tmp_path: Path) -> None:
    tensors = {**gguf_models.random_model()[1], "rope_freqs.weight": np.ones(8, np.float32)}
    assert architecture_of(tmp_path, gguf_models.random_model(), tensors=tensors).has_rope_factors
