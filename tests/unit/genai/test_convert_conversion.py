"""convert_gguf: the folder it writes, progress, refusals, and that a failure leaves nothing behind."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import genai.convert
from genai.convert import ConvertedModel, convert_gguf
from genai.convert.architecture import DecoderArchitecture
from genai.convert.graph import GraphBuilder
from models import recipes
from models.gguf_models import DecoderShape, llama_metadata, random_model
from models.gguf_writer import Stored, write_gguf
from models.vocabularies import TinyVocabulary, byte_level_vocabulary
from winml_lite import WinMLError


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return recipes.random_gguf(tmp_path_factory.mktemp("source"))


def read_json(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))


def test_the_folder_has_all_files(source: Path, tmp_path: Path) -> None:
    model = convert_gguf(source, tmp_path / "out")
    assert sorted(path.name for path in model.folder.iterdir()) == [
        "chat_template.jinja",
        "genai_config.json",
        "generation_config.json",
        "model.onnx",
        "model.onnx.data",
        "tokenizer.json",
        "tokenizer_config.json",
    ]


def test_the_result_describes_the_model(source: Path, tmp_path: Path) -> None:
    model = convert_gguf(source, tmp_path / "out", operators="std", weights="f16", context_length=256)
    assert model == ConvertedModel(
        folder=tmp_path / "out",
        model_path=tmp_path / "out" / "model.onnx",
        architecture="llama",
        operators="std",
        weights="f16",
        context_length=256,
        size_in_bytes=model.size_in_bytes,
    )
    assert model.size_in_bytes == sum(path.stat().st_size for path in model.folder.iterdir())


def test_the_graph_has_the_usual_inputs_and_outputs(source: Path, tmp_path: Path) -> None:
    graph = onnx.load(convert_gguf(source, tmp_path / "out", operators="plain").model_path).graph
    names = [f"past_key_values.{layer}.{part}" for layer in (0, 1) for part in ("key", "value")]
    assert [value.name for value in graph.input] == ["input_ids", "attention_mask", "position_ids", *names]
    assert [value.name for value in graph.output] == [
        "logits",
        *(n.replace("past_key_values", "present") for n in names),
        "token_logits",
    ]


@pytest.mark.parametrize(("all_logits", "rows"), [(False, 1), (True, "sequence_length")])
def test_rows_of_logits(source: Path, tmp_path: Path, all_logits: bool, rows: int | str) -> None:
    model = onnx.load(convert_gguf(source, tmp_path / "out", all_logits=all_logits).model_path)
    dimension = model.graph.output[0].type.tensor_type.shape.dim[1]
    assert (dimension.dim_param or dimension.dim_value) == rows


def test_the_rows_of_short_inputs_are_an_output_of_their_own(source: Path, tmp_path: Path) -> None:
    outputs = onnx.load(convert_gguf(source, tmp_path / "out").model_path).graph.output
    assert outputs[-1].name == "token_logits"
    assert outputs[-1].type.tensor_type.shape.dim[1].dim_param == "tokens_up_to_17"


def test_with_all_rows_there_is_one_output_of_logits(source: Path, tmp_path: Path) -> None:
    outputs = onnx.load(convert_gguf(source, tmp_path / "out", all_logits=True).model_path).graph.output
    assert [value.name for value in outputs if "logits" in value.name] == ["logits"]


@pytest.mark.parametrize(("operators", "opset"), [("plain", 18), ("std", 23), ("gqa", 21)])
def test_opset_and_domains(source: Path, tmp_path: Path, operators: Any, opset: int) -> None:
    model = onnx.load(convert_gguf(source, tmp_path / "out", operators=operators, weights="f16").model_path)
    versions = {entry.domain: entry.version for entry in model.opset_import}
    assert versions.pop("") == opset
    assert versions == ({"com.microsoft": 1} if operators == "gqa" else {})


@pytest.mark.parametrize("operators", ["plain", "std"])
def test_portable_graphs_pass_the_checker(source: Path, tmp_path: Path, operators: Any) -> None:
    model = convert_gguf(source, tmp_path / "out", operators=operators, weights="f16")
    onnx.checker.check_model(str(model.model_path), full_check=True)


def test_weights_can_be_inside_the_model(source: Path, tmp_path: Path) -> None:
    model = convert_gguf(source, tmp_path / "out", external_data=False)
    assert not (model.folder / "model.onnx.data").exists()
    initializers = onnx.load(model.model_path, load_external_data=False).graph.initializer
    assert {tensor.data_location for tensor in initializers} == {onnx.TensorProto.DEFAULT}


def test_conversion_is_deterministic(source: Path, tmp_path: Path) -> None:
    first, second = (convert_gguf(source, tmp_path / name).folder for name in ("a", "b"))
    assert {path.name: path.read_bytes() for path in first.iterdir()} == {
        path.name: path.read_bytes() for path in second.iterdir()
    }


def test_the_genai_configuration(source: Path, tmp_path: Path) -> None:
    config = read_json(convert_gguf(source, tmp_path / "out", context_length=300).folder / "genai_config.json")
    assert config["model"]["type"] == "llama"
    assert config["model"]["vocab_size"] == 303
    assert config["model"]["context_length"] == 300
    assert config["model"]["eos_token_id"] == [302, 300]
    assert config["model"]["decoder"]["head_size"] == 16
    assert "position_ids" not in config["model"]["decoder"]["inputs"]


@pytest.mark.parametrize(("operators", "shares"), [("plain", False), ("std", False), ("gqa", True)])
def test_only_fused_operators_share_past_and_present(
    source: Path, tmp_path: Path, operators: Any, shares: bool
) -> None:
    folder = convert_gguf(source, tmp_path / "out", operators=operators).folder
    assert read_json(folder / "genai_config.json")["search"]["past_present_share_buffer"] is shares


def test_ids_that_end_generation_are_in_the_generation_configuration(source: Path, tmp_path: Path) -> None:
    folder = convert_gguf(source, tmp_path / "out").folder
    assert read_json(folder / "generation_config.json")["eos_token_id"] == [302, 300]


def test_the_chat_template_is_kept_to_the_letter(source: Path, tmp_path: Path) -> None:
    folder = convert_gguf(source, tmp_path / "out").folder
    template = (folder / "chat_template.jinja").read_bytes().decode("utf-8")
    assert template == read_json(folder / "tokenizer_config.json")["chat_template"]
    assert template.startswith("{% for message in messages %}{{'<|im_start|>'")


def test_progress_counts_every_byte_of_the_tensors(source: Path, tmp_path: Path) -> None:
    calls: list[tuple[int, int]] = []
    convert_gguf(source, tmp_path / "out", progress=lambda done, total: calls.append((done, total)))
    assert calls == sorted(calls)
    assert (
        calls[-1][0]
        == calls[-1][1]
        == 4 * (2 * 303 * 64 + 64 + 2 * (2 * 64 + 2 * 64 * 64 + 2 * 32 * 64 + 3 * 128 * 64))
    )


def test_a_failure_leaves_nothing_behind(source: Path, tmp_path: Path) -> None:
    def stop(done: int, total: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        convert_gguf(source, tmp_path / "out", progress=stop)
    assert list(tmp_path.iterdir()) == []


def test_an_empty_folder_is_taken(source: Path, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    assert convert_gguf(source, tmp_path / "out").model_path.exists()


def test_a_folder_with_content_is_not_touched(source: Path, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "mine").write_text("x", encoding="utf-8")
    with pytest.raises(FileExistsError, match="out"):
        convert_gguf(source, tmp_path / "out")
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["mine"]


@pytest.mark.parametrize("options", [{"operators": "fancy"}, {"weights": "q4"}])
def test_an_unknown_option_is_a_value_error_that_lists_the_known_ones(
    source: Path, tmp_path: Path, options: Any
) -> None:
    with pytest.raises(ValueError, match="must be one of"):
        convert_gguf(source, tmp_path / "out", **options)


def test_a_model_in_shards_gives_the_same_files(tmp_path: Path) -> None:
    whole = convert_gguf(recipes.scripted_gguf(tmp_path), tmp_path / "whole").folder
    parts = convert_gguf(recipes.sharded_gguf(tmp_path), tmp_path / "parts").folder
    assert (whole / "model.onnx.data").read_bytes() == (parts / "model.onnx.data").read_bytes()


def test_a_later_shard_is_an_invalid_argument(tmp_path: Path) -> None:
    first = recipes.sharded_gguf(tmp_path)
    with pytest.raises(WinMLError, match="convert the first one") as caught:
        convert_gguf(first.with_name("scripted-00002-of-00002.gguf"), tmp_path / "out")
    assert caught.value.hresult == 0x80070057


def test_values_beyond_float16_are_refused_for_it(tmp_path: Path) -> None:
    metadata, tensors = random_model()
    large = {**tensors, "blk.0.attn_v.weight": np.full((32, 64), 1e5, np.float32)}
    source = write_gguf(tmp_path / "large.gguf", metadata, large)
    with pytest.raises(WinMLError, match=r"blk\.0\.attn_v\.weight has values beyond float16"):
        convert_gguf(source, tmp_path / "out", weights="f16")
    assert convert_gguf(source, tmp_path / "out", weights="f32").model_path.exists()


def test_a_width_that_is_not_in_blocks_is_refused_for_8_bits(tmp_path: Path) -> None:
    shape = DecoderShape(width=48, layers=1, heads=2, kv_heads=1, head_size=24, hidden=64)
    vocabulary = byte_level_vocabulary()
    tensors = {name: np.zeros(extents, np.float32) for name, extents in shapes_of(shape, vocabulary).items()}
    source = write_gguf(tmp_path / "narrow.gguf", llama_metadata("narrow", shape, vocabulary), tensors)
    with pytest.raises(WinMLError, match="48 columns, not a multiple of 32; use weights='f16'") as caught:
        convert_gguf(source, tmp_path / "out")
    assert caught.value.hresult == 0x80070032
    assert convert_gguf(source, tmp_path / "out", weights="f16").model_path.exists()


def shapes_of(shape: DecoderShape, vocabulary: TinyVocabulary) -> dict[str, tuple[int, ...]]:
    record = DecoderArchitecture(
        name="llama",
        layer_count=shape.layers,
        width=shape.width,
        hidden_width=shape.hidden,
        head_count=shape.heads,
        kv_head_count=shape.kv_heads,
        head_size=shape.head_size,
        vocabulary_size=len(vocabulary.tokens),
        context_length=shape.context_length,
        norm_epsilon=1e-5,
        rope_base=10000.0,
        attention_scale=1.0,
        has_output_matrix=False,
    )
    return record.tensor_shapes()


def test_a_missing_package_for_k_quants_is_said_before_any_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "gguf", None)
    metadata, tensors = random_model()
    # Q4_K packs rows of 256 values in 144 bytes; no matrix of the model is so wide, so a one-layer shape is made up.
    wide = {**tensors, "blk.0.ffn_down.weight": Stored(12, (64, 256), bytes(64 * 144))}
    for name in ("ffn_gate", "ffn_up"):
        wide |= {f"blk.{layer}.{name}.weight": np.zeros((256, 64), np.float32) for layer in (0, 1)}
    wide["blk.1.ffn_down.weight"] = np.zeros((64, 256), np.float32)
    source = write_gguf(tmp_path / "k.gguf", {**metadata, "llama.feed_forward_length": 256}, wide)
    with pytest.raises(WinMLError, match=r"Q4_K.*winml-lite\[kquants\]") as caught:
        convert_gguf(source, tmp_path / "out", progress=lambda done, total: pytest.fail("work was done"))
    assert caught.value.hresult == 0x80070032


def test_a_missing_shard_is_named(tmp_path: Path) -> None:
    first = recipes.sharded_gguf(tmp_path)
    first.with_name("scripted-00002-of-00002.gguf").unlink()
    with pytest.raises(WinMLError, match="scripted-00002-of-00002") as caught:
        convert_gguf(first, tmp_path / "out")
    assert caught.value.hresult == 0x80070002


def test_a_path_with_blanks_and_accents(source: Path, tmp_path: Path) -> None:
    folder = tmp_path / "mödel dir ✓"
    folder.mkdir()
    copy = folder / "x y.gguf"
    copy.write_bytes(source.read_bytes())
    assert convert_gguf(str(copy), str(folder / "out ż")).model_path.exists()


def test_the_package_loads_nothing_until_it_is_used() -> None:
    assert sorted(genai.convert.__all__) == [
        "ConvertedClassifier",
        "ConvertedModel",
        "ConvertedSpeechModel",
        "convert_efficientnet",
        "convert_gguf",
        "convert_whisper",
    ]
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = genai.convert.nothing


def test_a_weight_of_another_size_than_declared_is_a_bug_that_shows() -> None:
    with pytest.raises(AssertionError, match="16 bytes were written for a tensor of 20"):
        GraphBuilder(None).weight("w", (5,), np.float32, [np.zeros(4, np.float32)])
