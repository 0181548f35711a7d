"""Log probabilities of 100 tokens next to NumPy's, from logits of a loop that knows nothing of text generation.

GGUF rows come from a stage that is fed by hand, ONNX rows from the `onnxruntime` package itself.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

import genai
from fakes.model_files import ModelFiles, require_engine
from models.recipes import random_gguf, random_onnx
from winml_lite import Runtime

pytestmark = pytest.mark.real

COUNT = 100
Rows = npt.NDArray[np.float64]


def gguf_rows(path: Path, prompt: Sequence[int], chosen: Sequence[int]) -> Iterator[npt.NDArray[np.float32]]:
    """Yield the last row after the prompt and after each chosen token."""
    with Runtime() as runtime, runtime.load_model(path) as model:
        builder = runtime.create_pipeline_builder()
        stage = builder.add_model_stage(model, runtime.create_cpu_target())
        stage.set_sequence_capacity_hint(512)
        stage.llama_options().thread_count = 1
        stage.request_output(0)
        with builder.build() as pipeline:
            for ids in (list(prompt), *([token_id] for token_id in chosen)):
                stage.bind_input(0, runtime.tensor_from_tokens(ids))
                pipeline.run()
                yield stage.output(0).to_numpy().reshape(-1, stage.schema().output_desc(0)[1][-1])[-1].copy()


def onnx_rows(path: Path, prompt: Sequence[int], chosen: Sequence[int]) -> Iterator[npt.NDArray[np.float32]]:
    """Yield the last row after the prompt and after each chosen token."""
    from fakes.ort_decoder import OrtDecoder

    decoder = OrtDecoder(path)
    for ids in (list(prompt), *([token_id] for token_id in chosen)):
        yield decoder.feed(ids)[-1]


def check(path: Path, prompt: str, **sampling: float) -> None:
    """Generate and compare every reported log probability."""
    options = genai.TextGenerationOptions(COUNT, ignore_eos=True, top_logprobs=5, **sampling)  # type: ignore[arg-type]
    with genai.load(path, threads=1, context_length=512) as model:
        result = model.generate(prompt, options=options)
        ids = model.tokenizer.encode(prompt)
    rows_of = gguf_rows if path.suffix == ".gguf" else onnx_rows
    rows = np.array(list(rows_of(path, ids, result.token_ids[:-1])), np.float64)
    peaks = rows.max(axis=1, keepdims=True)
    expected: Rows = rows - peaks - np.log(np.exp(rows - peaks).sum(axis=1, keepdims=True))
    records = result.logprobs
    assert records is not None
    assert [record.token_id for record in records] == list(result.token_ids)
    places = np.arange(COUNT)
    emitted = [record.logprob for record in records]
    assert emitted == pytest.approx(expected[places, list(result.token_ids)].tolist(), abs=1e-5)
    order = np.argsort(-expected, axis=1, kind="stable")[:, :5]
    assert [[token_id for token_id, _ in record.top] for record in records] == order.tolist()
    top = np.array([[value for _, value in record.top] for record in records])
    assert np.abs(top - np.take_along_axis(expected, order, axis=1)).max() < 1e-5


@pytest.mark.parametrize("sampling", [{}, {"temperature": 1.5, "top_k": 20, "seed": 3}], ids=["greedy", "sampled"])
@pytest.mark.parametrize("form", ["gguf", "plain", "std", "gqa"])
def test_of_a_tiny_model(files: ModelFiles, form: str, sampling: dict[str, float]) -> None:
    require_engine("llama" if form == "gguf" else "ort")
    check(random_gguf(files.folder) if form == "gguf" else random_onnx(files.folder, form), "a b", **sampling)


def test_of_smollm2_as_gguf(smollm2_gguf: Path, llama: None) -> None:
    check(smollm2_gguf, "The sea is", temperature=0.8, top_p=0.95, seed=1)


def test_of_smollm2_as_onnx(smollm2_q8: Path, ort: None) -> None:
    check(smollm2_q8, "The sea is", temperature=0.8, top_p=0.95, seed=1)
