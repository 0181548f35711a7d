"""Embedding rows on the real llama.cpp: the rows of a model's own embedding table do what its tokens do."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

from fakes.rig import built, failing
from models import onnx_models, recipes
from winml_lite import GgufFile, NotSupportedError, Pipeline, Runtime, Stage, Tensor
from winml_lite.native.segments import SegmentPart, SegmentPlan

pytestmark = [pytest.mark.real, pytest.mark.usefixtures("llama", "ort")]

IDS = [5, 9, 200, 31, 7, 250, 12, 77, 130, 3, 42, 18, 99, 6, 71, 4, 28, 290, 14, 55]


def decoder(runtime: Runtime, path: Path) -> tuple[Stage, Pipeline]:
    builder = runtime.create_pipeline_builder()
    stage = builder.add_model_stage(runtime.load_model(path))
    stage.set_sequence_capacity_hint(64)
    options = stage.llama_options()
    options.batch_size = 8
    options.key_type = options.value_type = "f32"
    options.thread_count = 1
    stage.request_output(0)
    return stage, builder.build()


def feed(runtime: Runtime, stage: Stage, pipeline: Pipeline, ids: list[int]) -> npt.NDArray[np.float32]:
    stage.bind_input(0, runtime.tensor_from_tokens(ids))
    pipeline.run()
    row: npt.NDArray[np.float32] = stage.output(0).to_numpy()[0]
    return row


def select(runtime: Runtime, stage: Stage, folder: Path, rows: npt.NDArray[np.float32]) -> Tensor:
    """Select rows for the next run, through an encoder that returns what it gets."""
    graph = onnx_models.identity(onnx_models.FLOAT, ["rows", rows.shape[1]])
    encoder_stage, pipeline = built(runtime, str(onnx_models.save(graph, folder / "identity.onnx")))
    encoder = stage.create_media_encoder_from_pipeline(pipeline, encoder_stage, 0, encoder_stage, 0)
    tensor, layout = encoder.encode(runtime.tensor_from_numpy(rows))
    stage.bind_embedding_segment(0, tensor, layout)
    return tensor


def compare(runtime: Runtime, path: Path, folder: Path, scale: float = 1) -> None:
    """Twenty rows in three batches, between two runs of tokens, against twenty tokens."""
    with GgufFile(path) as file:
        table = file.dequantize("token_embd.weight") * np.float32(scale)
    stage, pipeline = decoder(runtime, path)
    feed(runtime, stage, pipeline, [1, 2])
    feed(runtime, stage, pipeline, IDS)
    expected = feed(runtime, stage, pipeline, [30])
    pipeline.reset()
    feed(runtime, stage, pipeline, [1, 2])
    select(runtime, stage, folder, table[IDS])
    pipeline.run()
    assert stage.sequence_position == 22
    assert np.allclose(feed(runtime, stage, pipeline, [30]), expected, atol=1e-3)


@pytest.mark.parametrize(
    ("recipe", "scale"),
    [
        (recipes.random_gguf, 1),
        (recipes.qwen2vl_gguf, 1),
        (recipes.hybrid_gguf, 1),
        (recipes.gemma3_gguf, 8),  # gemma3 scales the embeddings of tokens by the root of their length, not rows
    ],
)
def test_rows_of_the_embedding_table(
    runtime: Runtime, tmp_path: Path, recipe: Callable[[Path], Path], scale: float
) -> None:
    compare(runtime, recipe(tmp_path), tmp_path, scale)


def test_rows_of_the_embedding_table_of_smollm2(runtime: Runtime, tmp_path: Path, smollm2_gguf: Path) -> None:
    compare(runtime, smollm2_gguf, tmp_path)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_rows_that_are_no_numbers_are_refused(runtime: Runtime, tmp_path: Path, value: float) -> None:
    # NaN in the memory of the sequence would outlive a reset
    stage, pipeline = decoder(runtime, recipes.random_gguf(tmp_path))
    rows = np.zeros((3, 64), np.float32)
    rows[1, 5] = value
    select(runtime, stage, tmp_path, rows)
    with failing(0x80070057):
        pipeline.run()
    assert stage.sequence_position == 0
    stage.clear_embedding_segment(0)
    assert np.isfinite(feed(runtime, stage, pipeline, [1, 2])).all()


def test_a_decoder_that_takes_tokens_only(runtime: Runtime, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("winml_lite.native.llama.guard._TOKENS_ONLY", ("llama",))
    stage, _ = decoder(runtime, recipes.random_gguf(tmp_path))
    assert not stage.segmented_capabilities.supports_embedding_input
    with failing(0x80070032, NotSupportedError):
        stage.clear_embedding_segment(0)


@pytest.mark.parametrize("recipe", [recipes.random_gguf, recipes.qwen2vl_gguf])
def test_rows_placed_in_two_dimensions_need_a_token_behind_them(
    runtime: Runtime, tmp_path: Path, recipe: Callable[[Path], Path]
) -> None:
    stage, _ = decoder(runtime, recipe(tmp_path))
    segments = stage.underlying_object.executor.segments
    part = SegmentPart(row_count=2, position_count=1, offsets=np.zeros((3, 2), np.int32))
    with failing(0x80070032):
        segments.select(None, SegmentPlan((part,)))
