"""What is found in a model folder, and how the ports of a decoder are told apart."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import onnx
import pytest
from onnx import TensorProto, helper

from fakes.rig import failing
from genai.model_folder import (
    DecoderSettings,
    DecoderWiring,
    declare_state,
    find_model_file,
    read_settings,
    wire_decoder,
)
from winml_lite import Model, Runtime

FILE_NOT_FOUND = 0x80070002
INVALID_DATA = 0x8007000D
NOT_SUPPORTED = 0x80070032


def write_config(folder: Path, content: Any, name: str = "genai_config.json") -> Path:
    (folder / name).write_text(json.dumps(content), encoding="utf-8")
    return folder


def touch(folder: Path, *names: str) -> None:
    for name in names:
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).touch()


# --- the decoder file -------------------------------------------------------------------------------------------------


def test_the_configuration_names_the_decoder(tmp_path: Path) -> None:
    touch(tmp_path, "text.onnx", "other.onnx")
    write_config(tmp_path, {"model": {"decoder": {"filename": "text.onnx"}}})
    assert find_model_file(tmp_path) == tmp_path / "text.onnx"


def test_a_decoder_that_is_named_but_missing_is_file_not_found(tmp_path: Path) -> None:
    write_config(tmp_path, {"model": {"decoder": {"filename": "text.onnx"}}})
    with failing(FILE_NOT_FOUND) as caught:
        find_model_file(tmp_path)
    assert "names text.onnx" in str(caught.value)


@pytest.mark.parametrize("decoder", [{}, {"filename": ""}, {"filename": 5}, {"pipeline": [{"embeddings": {}}]}])
def test_a_decoder_without_a_single_file_is_not_supported(tmp_path: Path, decoder: Any) -> None:
    write_config(tmp_path, {"model": {"decoder": decoder}})
    with failing(NOT_SUPPORTED):
        find_model_file(tmp_path)


@pytest.mark.parametrize("content", [[], {}, {"model": 5}, {"model": {"decoder": "model.onnx"}}])
def test_a_configuration_of_another_shape_is_invalid(tmp_path: Path, content: Any) -> None:
    write_config(tmp_path, content)
    with failing(INVALID_DATA) as caught:
        find_model_file(tmp_path)
    assert str(tmp_path) in str(caught.value)


@pytest.mark.parametrize("content", [b"", b"{", b"\xff\xfe{}", b"[" * 100000])
def test_a_configuration_that_is_no_json_is_invalid(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "genai_config.json").write_bytes(content)
    with failing(INVALID_DATA) as caught:
        find_model_file(tmp_path)
    assert "genai_config.json" in str(caught.value)


@pytest.mark.parametrize("name", ["model.onnx", "decoder_model_merged.onnx", "onnx/model.onnx", "anything.onnx"])
def test_a_plain_folder_has_one_decoder(tmp_path: Path, name: str) -> None:
    touch(tmp_path, name)
    assert find_model_file(tmp_path) == tmp_path / name


def test_usual_names_win_over_others(tmp_path: Path) -> None:
    touch(tmp_path, "encoder.onnx", "model.onnx")
    assert find_model_file(tmp_path) == tmp_path / "model.onnx"


def test_several_unnamed_graphs_are_listed(tmp_path: Path) -> None:
    touch(tmp_path, "one.onnx", "two.onnx")
    with failing(NOT_SUPPORTED) as caught:
        find_model_file(tmp_path)
    assert "one.onnx, two.onnx" in str(caught.value)


def test_an_empty_folder_says_what_is_missing(tmp_path: Path) -> None:
    with failing(FILE_NOT_FOUND) as caught:
        find_model_file(tmp_path)
    assert "neither genai_config.json nor an ONNX file" in str(caught.value)


# --- settings ---------------------------------------------------------------------------------------------------------


def test_settings_of_a_generation_configuration(tmp_path: Path) -> None:
    write_config(tmp_path, {"model": {"context_length": 2048, "decoder": {"head_size": 64}}})
    assert read_settings(tmp_path) == DecoderSettings(2048, 64)


@pytest.mark.parametrize(
    ("content", "settings"),
    [
        ({"max_position_embeddings": 512, "head_dim": 32}, DecoderSettings(512, 32)),
        ({"hidden_size": 96, "num_attention_heads": 6}, DecoderSettings(None, 16)),
        ({"max_position_embeddings": True, "head_dim": -1}, DecoderSettings(None, None)),
        ({"max_position_embeddings": 2**63, "head_dim": 2**64}, DecoderSettings(None, None)),
        ({}, DecoderSettings(None, None)),
    ],
)
def test_settings_of_a_plain_configuration(tmp_path: Path, content: Any, settings: DecoderSettings) -> None:
    write_config(tmp_path, content, "config.json")
    assert read_settings(tmp_path) == settings


def test_without_configuration_nothing_is_known(tmp_path: Path) -> None:
    assert read_settings(tmp_path) == DecoderSettings(None, None)


# --- wiring -----------------------------------------------------------------------------------------------------------


def decoder(folder: Path, inputs: Sequence[str], outputs: Sequence[str]) -> Model:
    """Load a graph with these ports; its nodes only pass values on."""
    types = {name: TensorProto.INT64 if "id" in name or "mask" in name else TensorProto.FLOAT for name in inputs}
    source = next(name for name in inputs if types[name] == TensorProto.FLOAT)
    graph = helper.make_graph(
        [helper.make_node("Identity", [source], [name]) for name in outputs],
        "decoder",
        [helper.make_tensor_value_info(name, types[name], ["b", "n"]) for name in inputs],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["b", "n"]) for name in outputs],
    )
    path = folder / "decoder.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), path)
    return Runtime().load_model(path)


def test_the_names_of_hugging_face_exports_are_paired(tmp_path: Path) -> None:
    model = decoder(
        tmp_path,
        ["input_ids", "attention_mask", "past_key_values.0.key", "past_key_values.0.value"],
        ["logits", "present.0.key", "present.0.value"],
    )
    assert wire_decoder(model, tmp_path) == DecoderWiring(0, 0, ((2, 1), (3, 2)))


def test_other_ways_to_name_the_cache_are_paired(tmp_path: Path) -> None:
    model = decoder(tmp_path, ["past_0", "input_ids", "past_1"], ["present_1", "logits", "present_0"])
    assert wire_decoder(model, tmp_path) == DecoderWiring(1, 1, ((0, 2), (2, 0)))


def test_without_input_ids_the_first_integer_input_takes_the_tokens(tmp_path: Path) -> None:
    model = decoder(tmp_path, ["past_0", "token_id"], ["logits", "present_0"])
    assert wire_decoder(model, tmp_path).token_input == 1


@pytest.mark.parametrize(
    ("inputs", "outputs", "message"),
    [
        (["input_ids", "x"], ["logits"], "no decoder with a cache"),
        (["input_ids", "past_0"], ["logits"], "'past_0' has no matching present output"),
        (["input_ids", "past_0"], ["scores", "present_0"], "no output 'logits'"),
        (["past_0"], ["logits", "present_0"], "no integer input"),
    ],
)
def test_a_graph_that_is_no_decoder_says_what_is_missing(
    tmp_path: Path, inputs: list[str], outputs: list[str], message: str
) -> None:
    model = decoder(tmp_path, inputs, outputs)
    with failing(NOT_SUPPORTED) as caught:
        wire_decoder(model, tmp_path)
    assert message in str(caught.value)


def test_declaring_the_state_names_pairs_and_the_cache_symbol(tmp_path: Path) -> None:
    model = decoder(tmp_path, ["input_ids", "past_0"], ["logits", "present_0"])
    with Runtime() as runtime:
        builder = runtime.create_pipeline_builder()
        stage = builder.add_model_stage(runtime.load_model(tmp_path / "decoder.onnx"))
        declare_state(stage, wire_decoder(model, tmp_path), 16)
    assert stage.state_tensor_pairs == ((1, 1),)
    assert stage.symbolic_dimensions["kv_cache_dim"] == 16
