"""Text generation behind images, sound and rows of the embedding table, on the real llama.cpp and libmtmd."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

from fakes.rig import built
from genai import TextGenerationOptions, Tokenizer
from genai.tasks import (
    Tasks,
    TextGenerationFinishReason,
    TextGenerationOutputKind,
    TextGenerationSegment,
    TextGenerationSequenceDisclosure,
    TextGenerationSession,
    TextGenerationStream,
)
from models import onnx_models, recipes
from winml_lite import GgufFile, Runtime, Stage

pytestmark = [pytest.mark.real, pytest.mark.usefixtures("llama", "ort")]

Segment = TextGenerationSegment
Open = Callable[..., tuple[TextGenerationSession, Stage]]
rng = np.random.default_rng(1)
IMAGE = rng.integers(0, 256, (1, 24, 40, 3), np.uint8)
SOUND = (0.1 * rng.standard_normal((1, 1600))).astype(np.float32)
IDS = [5, 9, 200, 31, 7, 250, 12, 77, 130, 3]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("media")


@pytest.fixture
def open_session(runtime: Runtime) -> Iterator[Open]:
    """Opens sessions over decoders of exact keys and values."""
    tokenizers: list[Tokenizer] = []

    def open_session(path: Path, capacity: int = 1024) -> tuple[TextGenerationSession, Stage]:
        builder = runtime.create_pipeline_builder()
        stage = builder.add_model_stage(runtime.load_model(path), runtime.create_cpu_target())
        stage.set_sequence_capacity_hint(capacity)
        options = stage.llama_options()
        options.thread_count, options.key_type, options.value_type = 1, "f32", "f32"
        tokenizers.append(Tokenizer.from_file(path))
        configuration = (
            Tasks(runtime)
            .create_text_generation_configuration()
            .configure_unified(
                pipeline=builder.build(),
                token_input_stage=stage,
                token_input_index=0,
                output_stage=stage,
                output_index=0,
                output_kind=TextGenerationOutputKind.LOGITS,
                state_owner_stage=stage,
                token_target=runtime.create_cpu_target(),
            )
        )
        task = Tasks(runtime).create_text_generation_task(tokenizers[-1], ())
        return task.create_session(configuration), stage

    yield open_session
    for tokenizer in tokenizers:
        tokenizer.close()


def ids(stream: TextGenerationStream) -> list[int | None]:
    return [update.token_id for update in stream]


def media(
    session: TextGenerationSession, runtime: Runtime, projector: Path, array: npt.NDArray[np.generic]
) -> TextGenerationSegment:
    """The segment that the encoder in a projector file makes."""
    encoder = session.create_media_encoder_from_file(projector)
    return Segment.from_embeddings(*encoder.encode(runtime.tensor_from_numpy(array)))


def test_rows_of_the_table_continue_like_their_tokens(runtime: Runtime, folder: Path, open_session: Open) -> None:
    path = recipes.random_gguf(folder)
    with GgufFile(path) as file:
        table = file.dequantize("token_embd.weight")
    session, stage = open_session(path)
    expected = ids(session.generate_tokens([1, 2, *IDS, 30], TextGenerationOptions(8)))
    graph = onnx_models.identity(onnx_models.FLOAT, ["rows", table.shape[1]])
    source, pipeline = built(runtime, str(onnx_models.save(graph, folder / "identity.onnx")))
    encoder = stage.create_media_encoder_from_pipeline(pipeline, source, 0, source, 0)
    rows = Segment.from_embeddings(*encoder.encode(runtime.tensor_from_numpy(table[IDS])))
    segments = [Segment.from_tokens([1, 2]), rows, Segment.from_tokens([30])]
    for _ in range(2):
        stream = session.generate_segments(segments, TextGenerationOptions(8))
        assert ids(stream) == expected
        assert stream.result.prompt_token_count == 13


@pytest.mark.parametrize(("kind", "positions", "cells"), [("gemma3", 34, 34), ("qwen2vl", 7, 17), ("qwen2a", 776, 776)])
def test_a_prompt_with_media_is_charged_with_cells(
    runtime: Runtime,
    folder: Path,
    open_session: Open,
    kind: str,
    positions: int,
    cells: int,
) -> None:
    path = recipes.qwen2vl_gguf(folder) if kind == "qwen2vl" else recipes.random_gguf(folder)
    session, stage = open_session(path, 3 + cells + 4)
    segment = media(session, runtime, recipes.projector_gguf(folder, kind), SOUND if kind == "qwen2a" else IMAGE)
    segments = [Segment.from_tokens([1, 2]), segment, Segment.from_tokens([3])]
    stream = session.generate_segments(segments, TextGenerationOptions(9))
    first = ids(stream)
    assert len(first) == 4
    assert stream.result.finish_reason is TextGenerationFinishReason.SEQUENCE_CAPACITY
    assert stream.result.prompt_token_count == 3 + cells
    assert stage.sequence_position == 3 + positions + 3
    assert session.sequence_state.disclosure is TextGenerationSequenceDisclosure.UNUSABLE
    assert ids(session.generate_segments(segments, TextGenerationOptions(9))) == first


def test_what_the_image_shows_counts(runtime: Runtime, folder: Path, open_session: Open) -> None:
    session, _ = open_session(recipes.random_gguf(folder))
    encoder = session.create_media_encoder_from_file(recipes.projector_gguf(folder))
    seen = []
    for image in (IMAGE, 255 - IMAGE):
        rows = Segment.from_embeddings(*encoder.encode(runtime.tensor_from_numpy(image)))
        stream = session.generate_segments([rows, Segment.from_tokens([3])], TextGenerationOptions(8, top_logprobs=0))
        ids(stream)
        seen.append(stream.result.logprobs)
    assert seen[0] is not None
    assert seen[0] != seen[1]


def test_a_media_prompt_that_is_stopped_leaves_the_session_usable(
    runtime: Runtime, folder: Path, open_session: Open
) -> None:
    session, _ = open_session(recipes.qwen2vl_gguf(folder))
    image = media(session, runtime, recipes.projector_gguf(folder, "qwen2vl"), IMAGE)
    segments = [Segment.from_tokens([1, 2]), image, Segment.from_tokens([3])]
    expected = ids(session.generate_segments(segments, TextGenerationOptions(5)))
    stream = session.generate_segments(segments, TextGenerationOptions(5))
    stream.read_next()
    stream.close()
    assert ids(session.generate_segments(segments, TextGenerationOptions(5))) == expected
    assert ids(session.generate_tokens([1, 2, 3], TextGenerationOptions(1))) != []
