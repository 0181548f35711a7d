"""Conversion of Whisper models: what is taken from the shapes, what is refused, and that a folder appears whole."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from genai.convert import convert_whisper
from genai.whisper_folder import WhisperFolder
from models.whisper_models import tokenizer_json, whisper_vocabulary
from models.whisper_weights import SHAPE, Stored, ct2_whisper, model_bytes, whisper_model
from winml_lite import NotSupportedError, WinMLError

SMALL = replace(SHAPE, width=8, hidden=8, encoder_layers=1, decoder_layers=1, encoder_heads=1, decoder_heads=2)


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return ct2_whisper(tmp_path / "source", shape=SMALL)


def rewrite(
    source: Path, changes: dict[str, Stored | None], head: tuple[int, str, int] = (6, "WhisperSpec", 3)
) -> None:
    stored, aliases = whisper_model(SMALL)
    for name, values in changes.items():
        stored.pop(name, None)
        if values is not None:
            stored[name] = values
    (source / "model.bin").write_bytes(model_bytes(stored, aliases, head))


def change_json(path: Path, **values: Any) -> None:
    path.write_text(json.dumps(json.loads(path.read_text(encoding="utf-8")) | values), encoding="utf-8")


def ports(path: Path) -> dict[str, list[Any]]:
    graph = onnx.load(path, load_external_data=False).graph
    return {
        port.name: [dim.dim_param or dim.dim_value for dim in port.type.tensor_type.shape.dim]
        for port in (*graph.input, *graph.output)
    }


def test_the_result(source: Path, tmp_path: Path) -> None:
    made = convert_whisper(source, tmp_path / "made")
    assert (made.folder, made.weights, made.mel_count) == (tmp_path / "made", "f16", 80)
    assert (made.encoder_layers, made.decoder_layers, made.is_multilingual) == (1, 1, True)
    assert made.size_in_bytes == sum(path.stat().st_size for path in made.folder.iterdir())
    assert sorted(path.name for path in made.folder.iterdir()) == [
        "decoder.onnx",
        "decoder.onnx.data",
        "encoder.onnx",
        "encoder.onnx.data",
        "tokenizer.json",
        "whisper.json",
    ]


def test_the_ports(source: Path, tmp_path: Path) -> None:
    folder = convert_whisper(source, tmp_path / "made").folder
    assert ports(folder / "encoder.onnx") == {
        "input_features": ["batch", 80, 3000],
        "last_hidden_state": ["batch", 1500, 8],
        "present.0.encoder.key": ["batch", 2, 1500, 4],
        "present.0.encoder.value": ["batch", 2, 1500, 4],
    }
    count = len(whisper_vocabulary().tokens)
    assert ports(folder / "decoder.onnx") == {
        "input_ids": ["batch", "tokens"],
        "past_key_values.0.decoder.key": ["batch", 2, "past", 4],
        "past_key_values.0.decoder.value": ["batch", 2, "past", 4],
        "past_key_values.0.encoder.key": ["batch", 2, 1500, 4],
        "past_key_values.0.encoder.value": ["batch", 2, 1500, 4],
        "logits": ["batch", 1, count],
        "present.0.decoder.key": ["batch", 2, "total", 4],
        "present.0.decoder.value": ["batch", 2, "total", 4],
    }


def test_shapes_of_large_models(tmp_path: Path) -> None:
    shape = replace(SMALL, mel_count=128, encoder_layers=3, decoder_layers=2, decoder_heads=4, position_count=448)
    made = convert_whisper(ct2_whisper(tmp_path / "source", shape=shape), tmp_path / "made")
    found = WhisperFolder.open(made.folder).shape
    assert (found.mel_count, found.layer_count, found.head_count, found.head_size) == (128, 2, 4, 2)
    assert (found.position_count, made.encoder_layers) == (448, 3)


def test_special_tokens(source: Path, tmp_path: Path) -> None:
    tokens = WhisperFolder.open(convert_whisper(source, tmp_path / "made").folder).tokens
    vocabulary = whisper_vocabulary()
    assert tokens.start == vocabulary.id("<|startoftranscript|>")
    assert tokens.timestamp_begin == vocabulary.id("<|0.00|>")
    assert tokens.languages == {code: vocabulary.id(f"<|{code}|>") for code in ("en", "zh", "de", "es")}
    assert vocabulary.id("[") in tokens.suppress
    assert tokens.suppress_at_begin == (vocabulary.id("Ġ"), vocabulary.id("<|endoftext|>"))


def test_missing_timestamps_are_added_to_the_tokenizer(source: Path, tmp_path: Path) -> None:
    made = convert_whisper(source, tmp_path / "made").folder
    added = json.loads((made / "tokenizer.json").read_text(encoding="utf-8"))["added_tokens"]
    assert (added[-1]["content"], added[-1]["id"]) == ("<|30.00|>", len(whisper_vocabulary().tokens) - 1)
    assert not added[-1]["special"]


def test_a_tokenizer_with_timestamps_stays(source: Path, tmp_path: Path) -> None:
    whole = tokenizer_json(whisper_vocabulary())
    (source / "tokenizer.json").write_text(json.dumps(whole), encoding="utf-8")
    made = convert_whisper(source, tmp_path / "made").folder
    assert json.loads((made / "tokenizer.json").read_text(encoding="utf-8")) == whole


def test_an_older_name_of_no_speech(source: Path, tmp_path: Path) -> None:
    older = tokenizer_json(whisper_vocabulary(no_speech="<|nocaptions|>"), with_times=False)
    (source / "tokenizer.json").write_text(json.dumps(older), encoding="utf-8")
    tokens = WhisperFolder.open(convert_whisper(source, tmp_path / "made").folder).tokens
    assert tokens.no_speech == tokens.no_timestamps - 1


def test_the_configuration_may_say_that_a_model_is_english_only(source: Path, tmp_path: Path) -> None:
    change_json(source / "config.json", is_multilingual=False)
    assert not convert_whisper(source, tmp_path / "made").is_multilingual


def test_without_a_configuration_the_usual_tokens_are_suppressed(source: Path, tmp_path: Path) -> None:
    (source / "config.json").unlink()
    tokens = WhisperFolder.open(convert_whisper(source, tmp_path / "made").folder).tokens
    assert {whisper_vocabulary().id(mark) for mark in "#[("} < set(tokens.suppress)
    assert tokens.suppress_at_begin == (whisper_vocabulary().id("Ġ"), tokens.end)


def test_rows_beyond_the_tokens_are_left_out(tmp_path: Path) -> None:
    count = len(whisper_vocabulary().tokens)
    source = ct2_whisper(tmp_path / "source", shape=replace(SMALL, vocabulary_size=count + 7))
    folder = WhisperFolder.open(convert_whisper(source, tmp_path / "made").folder)
    assert folder.shape.vocabulary_size == count
    assert ports(folder.decoder_path)["logits"] == ["batch", 1, count]


def test_progress_ends_at_the_whole(source: Path, tmp_path: Path) -> None:
    calls: list[tuple[int, int]] = []
    convert_whisper(source, tmp_path / "made", progress=lambda done, total: calls.append((done, total)))
    done = [done for done, _ in calls]
    assert done == sorted(done)
    # Numbers of heads and switches, 2 x 2 + 5 x 1 + 2 x 2 bytes, are no weights.
    assert (calls[-1][1] - calls[-1][0], len({total for _, total in calls})) == (13, 1)


def test_a_folder_that_is_not_empty_is_left_alone(source: Path, tmp_path: Path) -> None:
    (tmp_path / "made").mkdir()
    (tmp_path / "made" / "mine").write_text("x")
    with pytest.raises(FileExistsError, match="made exists and is not an empty folder"):
        convert_whisper(source, tmp_path / "made")
    assert [path.name for path in (tmp_path / "made").iterdir()] == ["mine"]


def test_nothing_is_left_of_a_conversion_that_fails(source: Path, tmp_path: Path) -> None:
    rewrite(source, {"decoder/layer_norm/beta": np.full(8, np.inf, np.float32)})
    with pytest.raises(WinMLError, match="not finite"):
        convert_whisper(source, tmp_path / "made")
    assert [path.name for path in tmp_path.iterdir()] == ["source"]


def test_values_beyond_float16_need_float32(source: Path, tmp_path: Path) -> None:
    rewrite(source, {"encoder/conv1/weight": np.full((8, 80, 3), 1e6, np.float32)})
    with pytest.raises(NotSupportedError, match=r"encoder/conv1/weight has values beyond float16; use weights='f32'"):
        convert_whisper(source, tmp_path / "made")
    assert convert_whisper(source, tmp_path / "made", weights="f32").weights == "f32"


def test_unknown_weights() -> None:
    with pytest.raises(ValueError, match="weights must be one of f32, f16, q8, not 'q4'"):
        convert_whisper("a", "b", weights="q4")  # type: ignore[arg-type]


def kinds(path: Path) -> Counter[str]:
    return Counter(node.op_type for node in onnx.load(path, load_external_data=False).graph.node)


def test_eight_bits_are_for_the_products_of_the_decoder(tmp_path: Path) -> None:
    shape = replace(SMALL, width=32, hidden=64)
    folder = convert_whisper(ct2_whisper(tmp_path / "source", shape=shape), tmp_path / "made", weights="q8").folder
    decoder, encoder = kinds(folder / "decoder.onnx"), kinds(folder / "encoder.onnx")
    # queries, keys, values, their output; the query for the encoder and its output; two of the feed-forward; logits
    assert (decoder["MatMulNBits"], decoder["MatMul"], decoder["Gemm"]) == (9, 0, 0)
    assert (decoder["GatherBlockQuantized"], decoder["Cast"]) == (1, 0)
    assert (encoder["MatMulNBits"], encoder["MatMul"]) == (0, 8)


def test_the_look_up_and_the_logits_share_8_bit_values(tmp_path: Path) -> None:
    source = ct2_whisper(tmp_path / "source", shape=replace(SMALL, width=32, hidden=64))
    folder = convert_whisper(source, tmp_path / "made", weights="q8").folder
    tensors = onnx.load(folder / "decoder.onnx", load_external_data=False).graph.initializer
    places = {
        tensor.name.removeprefix("decoder/embeddings/"): {pair.key: pair.value for pair in tensor.external_data}
        for tensor in tensors
        if tensor.name.startswith("decoder/embeddings/")
    }
    assert sorted(places) == ["weight.q8", "weight.q8.factor", "weight.scale", "weight.scale.factor"]
    assert places["weight.q8"] == places["weight.q8.factor"]
    assert places["weight.scale"] == places["weight.scale.factor"]


def test_blocks_that_a_matrix_does_not_fill_are_refused(source: Path, tmp_path: Path) -> None:
    with pytest.raises(NotSupportedError, match="has 8 columns, not a multiple of 32; use weights='f16'"):
        convert_whisper(source, tmp_path / "made", weights="q8")
    assert not (tmp_path / "made").exists()


@pytest.mark.parametrize(
    ("head", "found"), [((6, "TransformerSpec", 3), "TransformerSpec"), ((6, "WhisperSpec", 2), "revision 2")]
)
def test_another_model_is_refused_by_name(source: Path, tmp_path: Path, head: Any, found: str) -> None:
    rewrite(source, {}, head)
    with pytest.raises(NotSupportedError, match=f"{found}.*; only WhisperSpec revision 3"):
        convert_whisper(source, tmp_path / "made")


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"encoder/layer_0/self_attention/q_norm/gamma": np.ones(8, np.float32)}, "q_norm/gamma"),
        ({"decoder/projection_in/weight": np.ones((8, 8), np.float32)}, "projection_in/weight"),
        ({"decoder/activation": np.array(0, np.int8)}, "decoder/activation is 0; only 3"),
        ({"decoder/pre_norm": np.array(0, np.int8)}, "decoder/pre_norm is 0; only 1"),
        ({"decoder/scale_embeddings": np.array(1, np.int8)}, "decoder/scale_embeddings is 1; only 0"),
    ],
)
def test_what_is_not_known_is_refused_by_name(
    source: Path, tmp_path: Path, changes: dict[str, Stored | None], reason: str
) -> None:
    rewrite(source, changes)
    with pytest.raises(NotSupportedError, match=reason):
        convert_whisper(source, tmp_path / "made")


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"encoder/conv2/bias": None}, "variables are missing: encoder/conv2/bias"),
        ({"encoder/conv2/bias": np.ones(9, np.float32)}, r"encoder/conv2/bias has the shape \(9,\), not \(8,\)"),
        ({"encoder/num_heads": np.array(3, np.int16)}, "3 heads cannot share a width of 8"),
        ({"decoder/num_heads": np.array(0, np.int16)}, "0 heads cannot share a width of 8"),
        ({"decoder/num_heads": None}, "there is no number decoder/num_heads"),
        ({"decoder/embeddings/weight": np.ones(8, np.float32)}, "no variable decoder/embeddings/weight of 2 dim"),
        ({"encoder/layer_0/ffn/linear_0/weight": np.ones((8, 8), np.int8)}, "no scale for all or for each row"),
        (
            {"encoder/layer_2/ffn/linear_0/weight": np.ones((8, 8), np.float32)},
            "layers of the encoder are not numbered from 0 on: 0, 2",
        ),
    ],
)
def test_a_model_that_contradicts_itself(
    source: Path, tmp_path: Path, changes: dict[str, Stored | None], reason: str
) -> None:
    rewrite(source, changes)
    with pytest.raises(WinMLError, match=rf"0x8007000D.*model\.bin: .*{reason}"):
        convert_whisper(source, tmp_path / "made")


def test_an_output_matrix_of_its_own(source: Path, tmp_path: Path) -> None:
    stored, _ = whisper_model(SMALL)
    stored["decoder/projection/weight"] = np.ones((SMALL.vocabulary_size, 8), np.float16)
    (source / "model.bin").write_bytes(model_bytes(stored, {}))
    folder = convert_whisper(source, tmp_path / "made").folder
    names = {tensor.name for tensor in onnx.load(folder / "decoder.onnx", load_external_data=False).graph.initializer}
    assert {"decoder/projection/weight", "decoder/embeddings/weight"} < names


@pytest.mark.parametrize("part", ["keep_in_float32"])
def test_switches_of_newer_files_that_change_nothing(source: Path, tmp_path: Path, part: str) -> None:
    rewrite(source, {f"encoder/layer_0/ffn/linear_0/{part}": np.array(1, np.int8)})
    assert convert_whisper(source, tmp_path / "made").encoder_layers == 1


@pytest.mark.parametrize("name", ["model.bin", "tokenizer.json"])
def test_a_missing_file_is_named(source: Path, tmp_path: Path, name: str) -> None:
    (source / name).unlink()
    with pytest.raises(WinMLError, match=f"0x80070002.*holds no {name}"):
        convert_whisper(source, tmp_path / "made")


def test_a_missing_folder(tmp_path: Path) -> None:
    with pytest.raises(WinMLError, match=r"0x80070002.*there is no folder .*absent"):
        convert_whisper(tmp_path / "absent", tmp_path / "made")


def test_a_file_instead_of_a_folder(source: Path, tmp_path: Path) -> None:
    with pytest.raises(WinMLError, match=r"0x80070057.*is a file; name the folder that holds model\.bin"):
        convert_whisper(source / "model.bin", tmp_path / "made")


def test_other_formats_are_refused_by_name(tmp_path: Path) -> None:
    (tmp_path / "model.safetensors").write_bytes(b"x")
    with pytest.raises(NotSupportedError, match=r"holds model\.safetensors; only CTranslate2"):
        convert_whisper(tmp_path, tmp_path / "made")


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"\xff", "cannot be read as JSON"),
        (b"[]", "no JSON object"),
        (b"{}", "no list of added tokens"),
        (b'{"added_tokens": []}', r"it has no <\|notimestamps\|>"),
        (b'{"added_tokens": [{"content": "<|notimestamps|>", "id": 5000}]}', "6502 tokens with timestamps, the model"),
        (b'{"added_tokens": [{"content": "<|notimestamps|>", "id": 5}, {"id": 99999}]}', "a token has the id 99999"),
        (b'{"added_tokens": [{"content": "<|notimestamps|>", "id": 5}], "model": {"vocab": {"a": -1}}}', "the id -1"),
        (
            b'{"added_tokens": [{"content": "<|notimestamps|>", "id": 9}, {"content": "<|0.02|>", "id": 8}]}',
            r"<\|0\.02\|> has the id 8, not 11",
        ),
    ],
)
def test_a_tokenizer_that_does_not_fit(source: Path, tmp_path: Path, content: bytes, reason: str) -> None:
    (source / "tokenizer.json").write_bytes(content)
    with pytest.raises(WinMLError, match=rf"0x8007000D.*{reason}"):
        convert_whisper(source, tmp_path / "made")


def test_a_tokenizer_that_cannot_be_opened_is_named_where_it_is(source: Path, tmp_path: Path) -> None:
    (source / "tokenizer.json").write_bytes(b'{"added_tokens": [{"content": "<|notimestamps|>", "id": 5}]}')
    with pytest.raises(WinMLError, match=r"0x8007000D.*source.tokenizer\.json") as caught:
        convert_whisper(source, tmp_path / "made")
    assert "partial" not in str(caught.value)


@pytest.mark.parametrize("ids", [[99999], [-2], ["a"], [True]])
def test_suppressed_tokens_that_are_not_there(source: Path, tmp_path: Path, ids: list[Any]) -> None:
    change_json(source / "config.json", suppress_ids=ids)
    with pytest.raises(WinMLError, match=r"0x8007000D.*config\.json.*suppress_ids names tokens"):
        convert_whisper(source, tmp_path / "made")
