"""Projector files on the real libmtmd: tiny projectors with random weights, one for each kind of placing rows."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

from fakes.rig import failing
from models import recipes
from winml_lite import (
    MediaEncoder,
    NotSupportedError,
    Pipeline,
    Runtime,
    SequenceSegmentLayout,
    Stage,
    Tensor,
    TensorDataType,
)

pytestmark = [pytest.mark.real, pytest.mark.usefixtures("llama")]

ANY = 2**64 - 1
rng = np.random.default_rng(1)
IMAGE = rng.integers(0, 256, (24, 40, 3), np.uint8)
SOUND = (0.1 * rng.standard_normal(1600)).astype(np.float32)
DECODERS: dict[str, Callable[[Path], Path]] = {
    "gemma3": recipes.random_gguf,
    "qwen2vl": recipes.qwen2vl_gguf,
    "qwen2a": recipes.random_gguf,
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("projectors")


def decoder(runtime: Runtime, path: Path, batch_size: int = 0) -> tuple[Stage, Pipeline]:
    """A decoder of 1024 positions with exact keys and values."""
    builder = runtime.create_pipeline_builder()
    stage = builder.add_model_stage(runtime.load_model(path))
    stage.set_sequence_capacity_hint(1024)
    options = stage.llama_options()
    options.key_type = options.value_type = "f32"
    options.thread_count = 1
    options.batch_size = batch_size
    stage.request_output(0)
    return stage, builder.build()


def encoded(runtime: Runtime, encoder: MediaEncoder, kind: str) -> tuple[Tensor, SequenceSegmentLayout]:
    return encoder.encode(runtime.tensor_from_numpy((SOUND if kind == "qwen2a" else IMAGE)[None]))


def feed(runtime: Runtime, stage: Stage, pipeline: Pipeline, tokens: list[int]) -> npt.NDArray[np.float32]:
    stage.bind_input(0, runtime.tensor_from_tokens(tokens))
    pipeline.run()
    row: npt.NDArray[np.float32] = stage.output(0).to_numpy()[0]
    return row


@pytest.mark.parametrize(
    ("kind", "counts"), [("gemma3", (4, 34, 34)), ("qwen2vl", (15, 7, 17)), ("qwen2a", (750, 776, 776))]
)
def test_the_three_counts_of_a_layout(runtime: Runtime, folder: Path, kind: str, counts: tuple[int, int, int]) -> None:
    # qwen2vl: 5 x 3 rows take 5 positions, and there are two framing tokens
    stage, _ = decoder(runtime, DECODERS[kind](folder))
    rows, layout = encoded(runtime, stage.create_media_encoder_from_file(recipes.projector_gguf(folder, kind)), kind)
    assert (layout.embedding_row_count, layout.position_count, layout.sequence_cell_count) == counts
    assert rows.desc() == (TensorDataType.FLOAT32, (counts[0], 64))


@pytest.mark.parametrize(
    ("kind", "media"),
    [
        ("gemma3", (TensorDataType.UINT8, (1, ANY, ANY, 3))),
        ("qwen2a", (TensorDataType.FLOAT32, (1, ANY))),
    ],
)
def test_what_an_encoder_takes(runtime: Runtime, folder: Path, kind: str, media: object) -> None:
    stage, _ = decoder(runtime, DECODERS[kind](folder))
    with failing(0x8007139F):
        _ = stage.embedding_length
    encoder = stage.create_media_encoder_from_file(recipes.projector_gguf(folder, kind), stage.execution_target)
    assert encoder.media_tensor_desc == media
    assert encoder.embedding_length == stage.embedding_length == 64
    assert encoder.embedding_data_type is stage.embedding_data_type is TensorDataType.FLOAT32


@pytest.mark.parametrize("shape", [(1, 4, 4, 4), (4, 4, 3), (1, 0, 4, 3), (2, 4, 4, 3)])
def test_an_image_of_another_shape(runtime: Runtime, folder: Path, shape: tuple[int, ...]) -> None:
    stage, _ = decoder(runtime, recipes.random_gguf(folder))
    encoder = stage.create_media_encoder_from_file(recipes.projector_gguf(folder))
    with failing(0x80070057):
        encoder.encode(runtime.create_tensor(TensorDataType.UINT8, shape))


def test_a_single_sample_is_no_sound(runtime: Runtime, folder: Path) -> None:
    stage, _ = decoder(runtime, recipes.random_gguf(folder))
    encoder = stage.create_media_encoder_from_file(recipes.projector_gguf(folder, "qwen2a"))
    with failing(0x80070057):
        encoder.encode(runtime.create_tensor(TensorDataType.FLOAT32, (1, 1)))


def test_an_encoding_is_stopped_between_two_pieces(runtime: Runtime, folder: Path) -> None:
    stage, _ = decoder(runtime, recipes.random_gguf(folder))
    encoder = stage.create_media_encoder_from_file(recipes.projector_gguf(folder, "qwen2a"))
    sound = runtime.tensor_from_numpy(np.tile(SOUND, 650)[None])  # 65 seconds: three pieces of 30
    answers = iter([False, False, False, True])
    with failing(0x800704C7):
        encoder.encode(sound, should_stop=lambda: next(answers))
    assert next(answers, None) is None
    assert encoder.encode(sound, should_stop=lambda: False)[1].embedding_row_count == 2250


def test_a_projector_for_images_and_sound(runtime: Runtime, folder: Path) -> None:
    stage, _ = decoder(runtime, recipes.media_gguf(folder))
    encoder = stage.create_media_encoder_from_file(recipes.media_projector_gguf(folder, "both"))
    image, sound = (TensorDataType.UINT8, (1, ANY, ANY, 3)), (TensorDataType.FLOAT32, (1, ANY))
    assert encoder.media_tensor_descs == (image, sound)
    assert encoder.media_tensor_desc == image
    assert encoder.sample_rate == 16000
    assert encoder.encode(runtime.tensor_from_numpy(IMAGE[None]))[1].embedding_row_count == 4
    assert encoder.encode(runtime.tensor_from_numpy(SOUND[None]))[1].embedding_row_count == 750
    with failing(0x80070057) as caught:
        encoder.encode(runtime.tensor_from_numpy(IMAGE))
    assert "UINT8 [1, any, any, 3] or FLOAT32 [1, any]" in str(caught.value)


def test_only_sound_has_a_rate(runtime: Runtime, folder: Path) -> None:
    stage, _ = decoder(runtime, recipes.random_gguf(folder))
    rates = [
        stage.create_media_encoder_from_file(recipes.projector_gguf(folder, kind)).sample_rate
        for kind in ("gemma3", "qwen2a")
    ]
    assert rates == [None, 16000]


def test_the_capacity_is_charged_by_cells(runtime: Runtime, folder: Path) -> None:
    stage, pipeline = decoder(runtime, recipes.qwen2vl_gguf(folder))
    rows, layout = encoded(runtime, stage.create_media_encoder_from_file(recipes.projector_gguf(folder, "qwen2vl")), "")
    stage.set_sequence_capacity(20)
    stage.bind_embedding_segment(0, rows, layout)
    pipeline.run()  # 17 cells, 7 positions: room for 3 tokens
    with failing(0x8000000B):
        feed(runtime, stage, pipeline, [1, 2, 3, 4])
    assert stage.sequence_position == 7
    feed(runtime, stage, pipeline, [1, 2, 3])
    assert stage.sequence_position == 10
    with failing(0x8000000B):
        feed(runtime, stage, pipeline, [4])
    stage.rewind(0)
    feed(runtime, stage, pipeline, [1] * 20)
    assert stage.sequence_position == 20


def test_no_rewind_into_media(runtime: Runtime, folder: Path) -> None:
    stage, pipeline = decoder(runtime, recipes.qwen2vl_gguf(folder))
    rows, layout = encoded(runtime, stage.create_media_encoder_from_file(recipes.projector_gguf(folder, "qwen2vl")), "")
    feed(runtime, stage, pipeline, [1, 2])
    stage.bind_embedding_segment(0, rows, layout)
    pipeline.run()
    first = feed(runtime, stage, pipeline, [3])
    with failing(0x80070057):
        stage.rewind(4)
    assert stage.sequence_position == 10
    stage.rewind(9)
    assert np.allclose(feed(runtime, stage, pipeline, [3]), first, atol=1e-4)
    stage.rewind(2)
    stage.bind_embedding_segment(0, rows, layout)
    pipeline.run()
    assert np.allclose(feed(runtime, stage, pipeline, [3]), first, atol=1e-4)


def test_rows_that_see_each_other_need_one_batch(runtime: Runtime, folder: Path) -> None:
    stage, _ = decoder(runtime, recipes.random_gguf(folder), batch_size=3)
    rows, layout = encoded(runtime, stage.create_media_encoder_from_file(recipes.projector_gguf(folder)), "gemma3")
    with failing(0x80070032, NotSupportedError) as caught:
        stage.bind_embedding_segment(0, rows, layout)
    assert "batch_size = 4" in str(caught.value)


def test_a_projector_for_rows_of_another_width(runtime: Runtime, folder: Path) -> None:
    stage, _ = decoder(runtime, recipes.scripted_gguf(folder))
    with failing(0x80070032, NotSupportedError) as caught:
        stage.create_media_encoder_from_file(recipes.projector_gguf(folder))
    assert "n_embd = 96" in str(caught.value)


def test_a_projector_with_another_placement(runtime: Runtime, folder: Path) -> None:
    stage, _ = decoder(runtime, recipes.random_gguf(folder))
    rows, layout = encoded(runtime, stage.create_media_encoder_from_file(recipes.projector_gguf(folder, "qwen2vl")), "")
    assert layout.position_count == layout.sequence_cell_count  # a model with one axis takes the rows one by one
    assert rows.desc()[1] == (15, 64)


def test_an_encoder_outlives_stage_and_runtime(folder: Path) -> None:
    with Runtime() as runtime:
        stage, pipeline = decoder(runtime, recipes.random_gguf(folder))
        encoder = stage.create_media_encoder_from_file(recipes.projector_gguf(folder))
        image = runtime.tensor_from_numpy(IMAGE[None])
        stage.close()
        pipeline.close()
    del stage, pipeline, runtime
    assert encoder.encode(image)[1].embedding_row_count == 4


def test_without_libmtmd_it_is_not_supported(runtime: Runtime, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stage, _ = decoder(runtime, recipes.random_gguf(folder))
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name.endswith("mtmd_cpp") else find(name))
    assert not stage.segmented_capabilities.supports_encoder_from_file
    with failing(0x80070032, NotSupportedError):
        stage.create_media_encoder_from_file(recipes.projector_gguf(folder))
