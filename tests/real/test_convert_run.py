"""Converted models run with ONNX Runtime: the exact sentence, and agreement of all dialects and formats."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from tokenizers import Tokenizer

from fakes.ort_decoder import Floats, OrtDecoder
from fakes.real_models import smollm2_gguf
from genai.convert import convert_gguf
from models import gguf_models, recipes
from models.gguf_writer import Tensors, write_gguf

pytestmark = pytest.mark.real

DIALECTS = ("plain", "std", "gqa")
PROMPT = "<|im_start|>user\nWhat is the capital of France?<|im_end|>\n<|im_start|>assistant\n"
IDS = np.random.default_rng(1).integers(0, 290, 200).tolist()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("converted")


def answer(folder: Path, prompt: str, count: int) -> str:
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    ids = OrtDecoder(folder).greedy(tokenizer.encode(prompt).ids, count)
    return str(tokenizer.decode(ids, skip_special_tokens=False))


def fed_in_pieces(decoder: OrtDecoder, *lengths: int) -> Floats:
    cuts = np.cumsum(lengths).tolist()
    starts = [0, *cuts[:-1]]
    return np.concatenate([decoder.feed(IDS[start:stop]) for start, stop in zip(starts, cuts, strict=True)])


@pytest.mark.parametrize("operators", DIALECTS)
@pytest.mark.parametrize("weights", ["f32", "f16", "q8"])
def test_the_scripted_model_says_its_sentence(folder: Path, operators: str, weights: str) -> None:
    model = recipes.scripted_onnx(folder, operators, weights)
    assert answer(model, PROMPT, 40) == recipes.SENTENCE + "<|im_end|>"


@pytest.mark.parametrize("operators", DIALECTS)
def test_weights_inside_the_model_give_the_same(folder: Path, operators: str) -> None:
    model = recipes.scripted_onnx(folder, operators, "q8", external_data=False)
    assert answer(model, PROMPT, 40) == recipes.SENTENCE + "<|im_end|>"


@pytest.mark.parametrize("build", [recipes.random_onnx, recipes.gemma3_onnx])
@pytest.mark.parametrize("operators", ["std", "gqa"])
def test_dialects_agree(folder: Path, build: Any, operators: str) -> None:
    plain = OrtDecoder(build(folder, "plain", "f32", all_logits=True)).feed(IDS)
    other = OrtDecoder(build(folder, operators, "f32", all_logits=True)).feed(IDS)
    assert plain.shape[0] == 200
    assert np.abs(plain - other).max() < 1e-4


@pytest.mark.parametrize("build", [recipes.random_onnx, recipes.gemma3_onnx])
@pytest.mark.parametrize("operators", DIALECTS)
def test_a_prompt_in_pieces_gives_the_same(folder: Path, build: Any, operators: str) -> None:
    decoder = OrtDecoder(build(folder, operators, "f32", all_logits=True))
    whole = decoder.feed(IDS)
    decoder.reset()
    assert np.abs(whole - fed_in_pieces(decoder, 7, 64, 1, 1, 127)).max() < 1e-4


@pytest.mark.parametrize("operators", DIALECTS)
def test_the_last_row_alone_is_the_last_of_all_rows(folder: Path, operators: str) -> None:
    every = OrtDecoder(recipes.random_onnx(folder, operators, "f32", all_logits=True)).feed(IDS)
    last = OrtDecoder(recipes.random_onnx(folder, operators, "f32")).feed(IDS)
    assert last.shape == (1, every.shape[1])
    assert np.abs(last[0] - every[-1]).max() < 1e-4


@pytest.mark.parametrize(("weights", "error"), [("f16", 0.05), ("q8", 1.0)])
@pytest.mark.parametrize("build", [recipes.random_onnx, recipes.gemma3_onnx])
def test_smaller_weights_stay_close(folder: Path, build: Any, weights: str, error: float) -> None:
    # Logits spread over about +-10; rounding to float16 costs 1e-3 of that, 8 bits (weights and activations) about 3 %.
    exact = OrtDecoder(build(folder, "gqa", "f32", all_logits=True)).feed(IDS)
    close = OrtDecoder(build(folder, "gqa", weights, all_logits=True)).feed(IDS)
    assert 0 < np.abs(exact - close).max() < error


@pytest.mark.parametrize("operators", DIALECTS)
@pytest.mark.parametrize("weights", ["f32", "f16", "q8"])
@pytest.mark.parametrize("build", [recipes.random_onnx, recipes.gemma3_onnx])
def test_every_initializer_is_used(folder: Path, build: Any, operators: str, weights: str) -> None:
    graph = onnx.load(build(folder, operators, weights) / "model.onnx", load_external_data=False).graph
    used = {name for node in graph.node for name in node.input}
    assert [tensor.name for tensor in graph.initializer if tensor.name not in used] == []
    assert [value.name for value in graph.input if value.name not in used] == []


@pytest.mark.parametrize("operators", ["plain", "std"])
def test_padding_on_the_left_changes_nothing(folder: Path, operators: str) -> None:
    model = OrtDecoder(recipes.random_onnx(folder, operators, "f32"))
    alone = model.feed(IDS[:5])
    model.reset()
    padded = model.feed([0, 0, 0, *IDS[:5]], padding=3)
    assert np.abs(alone - padded).max() < 1e-4


def with_factors(folder: Path, factor: float) -> Path:
    metadata, tensors = gguf_models.random_model()
    factors: Tensors = {**tensors, "rope_freqs.weight": np.full(8, factor, np.float32)}
    source = write_gguf(folder / f"factor-{factor:g}.gguf", metadata, factors)
    return convert_gguf(source, folder / f"factor-{factor:g}", weights="f32").folder


def test_rotary_factors_divide_the_frequencies(tmp_path: Path) -> None:
    plain = OrtDecoder(recipes.random_onnx(tmp_path, "gqa", "f32")).feed(IDS)
    assert np.abs(plain - OrtDecoder(with_factors(tmp_path, 1.0)).feed(IDS)).max() == 0
    assert np.abs(plain - OrtDecoder(with_factors(tmp_path, 8.0)).feed(IDS)).max() > 0.1


QUESTION = (
    "<|im_start|>system\nAnswer in one short sentence.<|im_end|>\n"
    "<|im_start|>user\nWhat is the capital of France?<|im_end|>\n<|im_start|>assistant\n"
)


def test_smollm2_answers(tmp_path: Path) -> None:
    model = convert_gguf(smollm2_gguf(), tmp_path / "smollm2")
    assert 150e6 < model.size_in_bytes < 170e6
    assert answer(model.folder, QUESTION, 30) == "The capital of France is Paris.<|im_end|>"
