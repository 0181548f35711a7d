"""Converted Whisper models run with ONNX Runtime: agreement with a forward pass written in NumPy."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
import onnx
import onnxruntime
import pytest

from fakes.ort_whisper import OrtWhisper
from fakes.real_models import catalog_model
from fakes.reference_whisper import ReferenceWhisper
from fakes.spoken import spoken
from genai import catalog
from genai.convert import convert_whisper
from genai.convert.ctranslate2 import CTranslate2File
from genai.convert.whisper import Weights
from genai.log_mel import log_mel
from models.whisper_weights import (
    KINDS,
    SHAPE,
    WeightShape,
    ct2_whisper,
    meant_values,
    model_bytes,
    whisper_model,
)

pytestmark = pytest.mark.real

FEATURES = np.random.default_rng(0).standard_normal((1, 80, 3000)).astype(np.float32)
IDS = np.random.default_rng(1).integers(0, 1000, 20).tolist()
PIECES = (1, 3, 1, 1, 5, 9)
FORMS: tuple[Weights, Weights] = ("f16", "q8")


def converted(folder: Path, kind: str, weights: Weights = "f32", shape: WeightShape = SHAPE) -> OrtWhisper:
    source = ct2_whisper(folder / "source", kind, shape)
    return OrtWhisper(convert_whisper(source, folder / "made", weights=weights).folder)


def reference(kind: str, shape: WeightShape = SHAPE) -> ReferenceWhisper:
    return ReferenceWhisper(meant_values(whisper_model(shape, kind)[0]))


def in_pieces(model: OrtWhisper) -> npt.NDArray[np.float32]:
    """The logits behind each of `PIECES`."""
    stops = np.cumsum(PIECES).tolist()
    starts = [0, *stops[:-1]]
    return np.concatenate([model.feed(IDS[start:stop]) for start, stop in zip(starts, stops, strict=True)])


@pytest.mark.parametrize("kind", KINDS)
def test_every_element_type_gives_what_the_variables_mean(tmp_path: Path, kind: str) -> None:
    model, second = converted(tmp_path, kind), reference(kind)
    hidden = model.hear(FEATURES)[0]
    expected = second.encode(FEATURES[0].astype(np.float64))
    assert np.abs(hidden - expected).max() < 1e-4  # of values up to 5
    rows = second.logits(expected, IDS)[np.cumsum(PIECES) - 1]
    assert np.abs(in_pieces(model) - rows).max() < 1e-4  # of values up to 33


def test_a_prompt_in_pieces_gives_the_same(tmp_path: Path) -> None:
    model = converted(tmp_path, "float16")
    model.hear(FEATURES)
    whole = model.feed(IDS)
    model.hear(FEATURES)
    assert np.abs(whole[0] - in_pieces(model)[-1]).max() < 1e-4


def test_what_was_heard_is_what_the_decoder_goes_by(tmp_path: Path) -> None:
    model = converted(tmp_path, "float16")
    model.hear(FEATURES)
    first = model.feed(IDS)
    model.hear(-FEATURES)
    assert np.abs(first - model.feed(IDS)).max() > 0.1


def test_sequences_of_a_batch_do_not_touch(tmp_path: Path) -> None:
    model = converted(tmp_path, "float16")
    alone = []
    for features, ids in ((FEATURES, IDS[:7]), (-FEATURES, IDS[7:14])):
        model.hear(features)
        alone.append(model.feed(ids)[0])
    model.hear(np.concatenate([FEATURES, -FEATURES]))
    together = model.feed(IDS[:7], IDS[7:14])
    assert np.abs(np.stack(alone) - together).max() < 1e-4


@pytest.mark.parametrize(
    "shape",
    [
        replace(SHAPE, mel_count=128, position_count=24),
        replace(SHAPE, encoder_layers=1, decoder_layers=1, encoder_heads=8, decoder_heads=1),
        replace(SHAPE, vocabulary_size=SHAPE.vocabulary_size + 5),
    ],
)
def test_other_shapes(tmp_path: Path, shape: WeightShape) -> None:
    features = np.random.default_rng(2).standard_normal((1, shape.mel_count, 3000)).astype(np.float32)
    model, second = converted(tmp_path, "float16", "f32", shape), reference("float16", shape)
    model.hear(features)
    expected = second.logits(second.encode(features[0].astype(np.float64)), IDS)[-1]
    assert np.abs(model.feed(IDS)[0] - expected[: SHAPE.vocabulary_size]).max() < 1e-4


def test_an_output_matrix_of_its_own(tmp_path: Path) -> None:
    source = ct2_whisper(tmp_path / "source")
    stored, _ = whisper_model()
    noise = np.random.default_rng(3).standard_normal((SHAPE.vocabulary_size, SHAPE.width))
    stored["decoder/projection/weight"] = noise.astype(np.float16)
    (source / "model.bin").write_bytes(model_bytes(stored, {}))
    model = OrtWhisper(convert_whisper(source, tmp_path / "made").folder)
    second = ReferenceWhisper(meant_values(stored))
    model.hear(FEATURES)
    expected = second.logits(second.encode(FEATURES[0].astype(np.float64)), IDS)[-1]
    assert np.abs(model.feed(IDS)[0] - expected).max() < 1e-4


def test_float16_weights_of_a_float16_model_are_exact(tmp_path: Path) -> None:
    wide, narrow = converted(tmp_path / "a", "float16", "f32"), converted(tmp_path / "b", "float16", "f16")
    assert np.array_equal(wide.hear(FEATURES), narrow.hear(FEATURES))
    assert np.array_equal(wide.feed(IDS), narrow.feed(IDS))


def test_float16_weights_of_a_float32_model_are_close(tmp_path: Path) -> None:
    wide, narrow = converted(tmp_path / "a", "float32", "f32"), converted(tmp_path / "b", "float32", "f16")
    for model in (wide, narrow):
        model.hear(FEATURES)
    assert 0 < np.abs(wide.feed(IDS) - narrow.feed(IDS)).max() < 0.05


def test_a_sequence_beyond_the_positions_is_an_error(tmp_path: Path) -> None:
    model = converted(tmp_path, "float16")
    model.hear(FEATURES)
    model.feed(IDS * 2)  # 40 positions are all there are
    with pytest.raises(onnxruntime.capi.onnxruntime_pybind11_state.InvalidArgument, match="indices element out of"):
        model.feed([1])


@pytest.mark.parametrize("projects", [False, True])
def test_eight_bit_weights_of_the_decoder_are_close(tmp_path: Path, projects: bool) -> None:
    source = ct2_whisper(tmp_path / "source")
    if projects:
        stored, _ = whisper_model()
        noise = np.random.default_rng(3).standard_normal((SHAPE.vocabulary_size, SHAPE.width))
        stored["decoder/projection/weight"] = noise.astype(np.float16)
        (source / "model.bin").write_bytes(model_bytes(stored, {}))
    exact, rounded = (OrtWhisper(convert_whisper(source, tmp_path / kind, weights=kind).folder) for kind in FORMS)
    assert np.array_equal(exact.hear(FEATURES), rounded.hear(FEATURES))
    differences = exact.feed(IDS) - rounded.feed(IDS)
    assert 0 < np.abs(differences).max() < 1.0  # of values up to 30
    assert differences.std() < 0.2


def test_whole_numbers_up_to_127_are_themselves_in_8_bits(tmp_path: Path) -> None:
    stored, _ = whisper_model()
    whole = np.random.default_rng(4).integers(-126, 127, (SHAPE.vocabulary_size, SHAPE.width))
    whole[:, 0] = 127
    stored["decoder/embeddings/weight"] = whole.astype(np.float16)
    source = ct2_whisper(tmp_path / "source")
    (source / "model.bin").write_bytes(model_bytes(stored, {}))
    folder = convert_whisper(source, tmp_path / "made", weights="q8").folder
    model = onnx.load(folder / "decoder.onnx")
    table = next(tensor for tensor in model.graph.initializer if tensor.name == "decoder/embeddings/weight.q8")
    assert np.array_equal(onnx.numpy_helper.to_array(table).astype(int) - 128, whole)


@pytest.mark.parametrize("weights", ["f16", "f32", "q8"])
@pytest.mark.parametrize("name", ["encoder.onnx", "decoder.onnx"])
def test_every_initializer_and_input_is_used(tmp_path: Path, name: str, weights: Weights) -> None:
    folder = convert_whisper(ct2_whisper(tmp_path / "source"), tmp_path / "made", weights=weights).folder
    graph = onnx.load(folder / name, load_external_data=False).graph
    used = {value for node in graph.node for value in node.input}
    assert [tensor.name for tensor in graph.initializer if tensor.name not in used] == []
    assert [port.name for port in graph.input if port.name not in used] == []


def test_the_same_bytes_every_time(tmp_path: Path) -> None:
    source = ct2_whisper(tmp_path / "source")
    first, second = (convert_whisper(source, tmp_path / name).folder for name in ("a", "b"))
    assert {path.name: path.read_bytes() for path in first.iterdir()} == {
        path.name: path.read_bytes() for path in second.iterdir()
    }


def tiny_en_source(folder: Path) -> Path:
    """The files that a folder of the catalog was made of."""
    entry = catalog.find("whisper-tiny.en")
    assert entry is not None
    return folder.parents[2] / "models" / entry.name / entry.digest[:8]


def test_whisper_tiny_en_in_8_bits_says_the_same(tmp_path: Path) -> None:
    """Logits of up to 31 differ by less than 1.5; over sixteen sentences of this voice it is 0.6."""
    folder = catalog_model("whisper-tiny.en")
    tokens = json.loads((folder / "whisper.json").read_text(encoding="utf-8"))["tokens"]
    eight = convert_whisper(tiny_en_source(folder), tmp_path / "made", weights="q8").folder
    exact, rounded = OrtWhisper(folder), OrtWhisper(eight)
    features = log_mel(spoken("The doctor said that plenty of sleep is the best medicine.", words_per_minute=140))
    exact.hear(features)
    said = exact.say([tokens["start"], tokens["no_timestamps"]], tokens)
    rounded.hear(features)
    assert rounded.say([tokens["start"], tokens["no_timestamps"]], tokens) == said
    exact.hear(features)
    rounded.hear(features)
    differences = [
        np.abs(exact.feed([token]) - rounded.feed([token])).max()
        for token in (tokens["start"], tokens["no_timestamps"], *said)
    ]
    assert 0 < max(differences) < 1.5


def test_the_decoder_of_whisper_tiny_en(tmp_path: Path) -> None:
    """Its logits for a sentence are those of NumPy over the same hidden state, to 1e-4 of values up to 31."""
    folder = catalog_model("whisper-tiny.en")
    model = OrtWhisper(folder)
    silence = np.full((1, 80, 3000), -1.5, np.float32)
    hidden = model.hear(silence)[0]
    with CTranslate2File(tiny_en_source(folder) / "model.bin") as file:
        decoder = [name for name, variable in file.variables.items() if name.startswith("decoder/") and variable.shape]
        heads = {name: np.array(file.scalar(name)) for name in ("encoder/num_heads", "decoder/num_heads")}
        second = ReferenceWhisper({name: file.floats(name).astype(np.float64) for name in decoder} | heads)
    ids = [50257, 50362, 18435, 995, 13]  # " Hello world."
    expected = second.logits(hidden.astype(np.float64), ids)
    found = np.concatenate([model.feed(ids[:2]), *(model.feed([token]) for token in ids[2:])])
    assert np.abs(found - expected[1:]).max() < 1e-4
