"""SmolLM2 on both engines: it answers, and both engines mean the same text by it."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

import genai
from genai.language_model import LanguageModel

pytestmark = pytest.mark.real

# A fixed text, written for this test.
PROSE = (
    "The harbour of the old town lies at the mouth of a short river. For many "
    "centuries fishing boats left it before sunrise "
    "and came back in the afternoon, when the women of the quarter sorted "
    "the catch on the stone quay. The first railway "
    "reached the town in 1871. It carried salted fish to the cities of the plain "
    "and brought back coal, glass and newspapers. "
    "With the trains came the first visitors, who wanted to see the sea and to "
    "walk along the cliffs. Small hotels were built "
    "on the hill, and a theatre was opened near the station. Today the harbour "
    "is quiet. Only a few boats still go out, and the "
    "quay is used for a market on Saturdays. The town lives from the university, "
    "which was founded in 1962, and from people "
    "who come for a weekend. The theatre still stands, and in summer an orchestra plays there in the evening."
)


def perplexity(model: LanguageModel) -> float:
    """Perplexity of `PROSE` after its first token, fed token by token."""
    feed = model._open().feed
    ids = model.tokenizer.encode(PROSE)
    losses = []
    for position, (token_id, following) in enumerate(pairwise(ids)):
        row = feed.step(token_id, position).astype(np.float64)
        peak = row.max()
        losses.append(peak + np.log(np.exp(row - peak).sum()) - row[following])
    return float(np.exp(np.mean(losses)))


@pytest.fixture(params=["gguf", "q8", "f16"])
def smollm2(request: pytest.FixtureRequest) -> Path:
    path: Path = request.getfixturevalue(f"smollm2_{request.param}")
    if request.param == "gguf":
        request.getfixturevalue("llama")
    return path


def test_it_names_the_capital_of_france(smollm2: Path) -> None:
    with genai.load(smollm2) as model:
        chat = model.chat(system="Answer in one short sentence.")
        assert chat.send("What is the capital of France?", max_new_tokens=32).text == "The capital of France is Paris."


def test_a_second_turn_evaluates_only_what_is_new(smollm2: Path) -> None:
    with genai.load(smollm2) as model:
        chat = model.chat(system="Answer in one short sentence.")
        first = chat.send("What is the capital of France?", max_new_tokens=32)
        stream = chat.stream("And of Italy?", max_new_tokens=16)
        second = stream.read()
        # Everything of the first turn is still there: its prompt and its answer.
        assert stream.reused_token_count == first.prompt_token_count + first.generated_token_count
        assert second.timings.evaluated_prompt_token_count == second.prompt_token_count - stream.reused_token_count


def test_the_engines_find_a_text_equally_likely(smollm2_gguf: Path, smollm2_f16: Path, llama: None) -> None:
    # One thread each: threads that wait by spinning stand still for seconds beside other work.
    with genai.load(smollm2_gguf, threads=1) as model:
        on_llama = perplexity(model)
    with genai.load(smollm2_f16, threads=1) as model:
        on_ort = perplexity(model)
    print(f"perplexity: llama.cpp {on_llama:.3f}, ONNX Runtime {on_ort:.3f}")
    assert on_llama < 30
    assert abs(on_llama / on_ort - 1) < 0.02
