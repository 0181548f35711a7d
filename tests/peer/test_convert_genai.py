"""onnxruntime-genai reads converted folders and generates the same tokens as a plain loop."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import genai
from fakes.ort_decoder import OrtDecoder
from models import recipes

onnxruntime_genai = pytest.importorskip("onnxruntime_genai", reason="onnxruntime-genai is not installed")

pytestmark = pytest.mark.peer

IDS = np.random.default_rng(1).integers(0, 290, 40).tolist()


def generated(folder: Path, *prompt: list[int], count: int) -> list[int]:
    model = onnxruntime_genai.Model(str(folder))
    params = onnxruntime_genai.GeneratorParams(model)
    params.set_search_options(max_length=sum(map(len, prompt)) + count)
    generator = onnxruntime_genai.Generator(model, params)
    for piece in prompt:
        generator.append_tokens(piece)
    ids: list[int] = []
    while not generator.is_done():
        generator.generate_next_token()
        ids.append(int(generator.get_next_tokens()[0]))
    return ids


@pytest.mark.parametrize("operators", ["plain", "std", "gqa"])
@pytest.mark.parametrize("weights", ["f32", "q8"])
@pytest.mark.parametrize("build", [recipes.random_onnx, recipes.gemma3_onnx])
def test_the_same_tokens(tmp_path: Path, build: Any, operators: str, weights: str) -> None:
    folder = build(tmp_path, operators, weights)
    assert generated(folder, IDS, count=40) == OrtDecoder(folder).greedy(IDS, 40)


@pytest.mark.parametrize("operators", ["plain", "std", "gqa"])
def test_a_prompt_in_two_pieces(tmp_path: Path, operators: str) -> None:
    folder = recipes.random_onnx(tmp_path, operators, "f32")
    assert generated(folder, IDS[:11], IDS[11:], count=20) == OrtDecoder(folder).greedy(IDS, 20)


def test_rows_for_the_whole_prompt_are_read_too(tmp_path: Path) -> None:
    folder = recipes.random_onnx(tmp_path, "gqa", "f32", all_logits=True)
    assert generated(folder, IDS, count=20) == OrtDecoder(folder).greedy(IDS, 20)


def test_a_folder_of_three_graphs(tmp_path: Path) -> None:
    folder = recipes.random_pipeline(tmp_path)
    assert generated(folder, IDS, count=20) == OrtDecoder(recipes.random_onnx(tmp_path, "gqa")).greedy(IDS, 20)
    with genai.load(folder, threads=1) as model:
        assert list(model.generate(IDS, max_new_tokens=20).token_ids) == generated(folder, IDS, count=20)


def test_the_chat_template_and_the_tokenizer_are_found(tmp_path: Path) -> None:
    model = onnxruntime_genai.Model(str(recipes.scripted_onnx(tmp_path, "gqa", "f32")))
    tokenizer = onnxruntime_genai.Tokenizer(model)
    text = tokenizer.apply_chat_template('[{"role": "user", "content": "Hi"}]', add_generation_prompt=True)
    assert text == "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"
    assert tokenizer.decode(tokenizer.encode("What is Paris")) == "What is Paris"
