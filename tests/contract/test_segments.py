"""Embedding rows between token runs: statements 147 and 148 of the object model, and its section 11.

The encoder is an ONNX graph that looks rows up in the embedding table of the decoder, so that its rows must do what the
tokens do.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from fakes.backend import FakeBackend
from fakes.engines import Sample, hold, spoil
from fakes.model_files import ModelFiles
from fakes.rig import built, failing, floats, integers, running
from models import onnx_models
from winml_lite import (
    GgufFile,
    MediaEncoder,
    NotSupportedError,
    Pipeline,
    Runtime,
    SegmentedSequenceCapabilities,
    SequenceSegmentLayout,
    Stage,
    Tensor,
    TensorDataType,
)
from winml_lite.native.backend import replaced_backend

F32 = TensorDataType.FLOAT32
WIDTH = 96
Pair = tuple[Tensor, SequenceSegmentLayout]
NOTHING = SegmentedSequenceCapabilities(False, False, False, False, 0, TensorDataType.UNDEFINED)


@dataclass(frozen=True)
class Rig:
    """A decoder with its output requested, and an encoder pipeline of one stage."""

    runtime: Runtime
    stage: Stage
    pipeline: Pipeline
    encoder_stage: Stage
    encoder_pipeline: Pipeline

    def encoder(self) -> MediaEncoder:
        ends = self.encoder_stage, 0, self.encoder_stage, 0
        return self.stage.create_media_encoder_from_pipeline(self.encoder_pipeline, *ends)

    def encode(self, *ids: int) -> Pair:
        return self.encoder().encode(integers(self.runtime, *ids))

    def select(self, *ids: int) -> None:
        self.stage.bind_embedding_segment(0, *self.encode(*ids))

    def feed(self, *ids: int) -> npt.NDArray[np.float32]:
        self.stage.bind_input(0, self.runtime.tensor_from_tokens(ids))
        self.pipeline.run()
        row: npt.NDArray[np.float32] = self.stage.output(0).to_numpy()[0]
        return row


@pytest.fixture(scope="session")
def lookup(tmp_path_factory: pytest.TempPathFactory, files: ModelFiles) -> str:
    """The encoder graph: ids to rows of the scripted model's embedding table."""
    with GgufFile(files.scripted_gguf) as file:
        model = onnx_models.lookup(file.dequantize("token_embd.weight"))
    return str(onnx_models.save(model, tmp_path_factory.mktemp("encoders") / "lookup.onnx"))


@pytest.fixture
def rig(runtime: Runtime, files: ModelFiles, lookup: str, both_engines: str) -> Rig:
    stage, pipeline = decoder(runtime, files)
    return Rig(runtime, stage, pipeline, *built(runtime, lookup))


def decoder(runtime: Runtime, files: ModelFiles, hint: int = 64) -> tuple[Stage, Pipeline]:
    builder = runtime.create_pipeline_builder()
    stage = builder.add_model_stage(runtime.load_model(files.scripted_gguf))
    stage.set_sequence_capacity_hint(hint)
    options = stage.llama_options()
    options.thread_count = 1
    options.batch_size = 4
    options.key_type = options.value_type = "f32"
    stage.request_output(0)
    return stage, builder.build()


# Capabilities


def test_r147_a_graph_takes_no_rows(runtime: Runtime, files: ModelFiles, onnx_engine: str) -> None:
    builder = runtime.create_pipeline_builder()
    stage = builder.add_model_stage(runtime.load_model(files.onnx("add")))
    with failing(0x8007139F):
        _ = stage.segmented_capabilities
    builder.build()
    assert stage.segmented_capabilities == NOTHING


def test_r147_a_decoder_takes_rows(runtime: Runtime, files: ModelFiles, gguf_engine: str) -> None:
    builder = runtime.create_pipeline_builder()
    stage = builder.add_model_stage(runtime.load_model(files.scripted_gguf))
    with failing(0x8007139F):
        _ = stage.segmented_capabilities
    builder.build()
    assert stage.segmented_capabilities == SegmentedSequenceCapabilities(True, True, True, True, WIDTH, F32)


def test_r148_the_path_of_a_projector(runtime: Runtime, engine: Sample) -> None:
    stage, _ = engine.built(runtime)
    with pytest.raises(ValueError):
        stage.create_media_encoder_from_file("")
    with pytest.raises(TypeError):
        stage.create_media_encoder_from_file(5)  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        stage.create_media_encoder_from_file("x", "cpu")  # type: ignore[arg-type]


def test_r148_a_graph_has_no_projectors(runtime: Runtime, files: ModelFiles, onnx_engine: str) -> None:
    builder = runtime.create_pipeline_builder()
    stage = builder.add_model_stage(runtime.load_model(files.onnx("add")))
    with failing(0x8007139F):
        stage.create_media_encoder_from_file("x")
    builder.build()
    with failing(0x80070032, NotSupportedError):
        stage.create_media_encoder_from_file("x")


def test_a_projector_that_is_none(runtime: Runtime, files: ModelFiles, gguf_engine: str, tmp_path: Path) -> None:
    stage, _ = decoder(runtime, files)
    with failing(0x80070002):
        stage.create_media_encoder_from_file(tmp_path / "absent.gguf")
    with failing(0x80070003):
        stage.create_media_encoder_from_file(tmp_path / "absent" / "file.gguf")
    with failing(0x80070057):
        stage.create_media_encoder_from_file(tmp_path)
    (tmp_path / "text.gguf").write_text("no model at all")
    with failing(0x80070570):
        stage.create_media_encoder_from_file(tmp_path / "text.gguf")
    with failing(0x80070570):
        stage.create_media_encoder_from_file(files.gguf)  # a decoder
    with failing(0x8007139F):
        _ = stage.embedding_length


def test_a_projector_on_another_target(runtime: Runtime, files: ModelFiles, gguf_engine: str) -> None:
    stage, _ = decoder(runtime, files)
    with Runtime() as other, failing(0x80070032, NotSupportedError):
        stage.create_media_encoder_from_file(files.gguf, other.create_cpu_target())
    pinned = runtime.create_ort_execution_target("CPUExecutionProvider", 1)
    with failing(0x80070032, NotSupportedError):
        stage.create_media_encoder_from_file(files.gguf, pinned)


Member = Callable[[Stage, Rig, Pair], object]
MEMBERS: list[Member] = [
    lambda stage, rig, pair: stage.embedding_length,
    lambda stage, rig, pair: stage.embedding_data_type,
    lambda stage, rig, pair: stage.create_media_encoder_from_file("x"),
    lambda stage, rig, pair: stage.create_media_encoder_from_pipeline(
        rig.encoder_pipeline, rig.encoder_stage, 0, rig.encoder_stage, 0
    ),
    lambda stage, rig, pair: stage.bind_embedding_segment(0, *pair),
    lambda stage, rig, pair: stage.clear_embedding_segment(0),
]


@pytest.mark.parametrize("member", MEMBERS)
def test_before_build_there_are_no_segments(rig: Rig, files: ModelFiles, member: Member) -> None:
    builder = rig.runtime.create_pipeline_builder()
    stage = builder.add_model_stage(rig.runtime.load_model(files.scripted_gguf))
    with failing(0x8007139F):
        member(stage, rig, rig.encode(1))


@pytest.mark.parametrize("member", MEMBERS)
def test_a_graph_has_no_segments(rig: Rig, files: ModelFiles, member: Member) -> None:
    with failing(0x80070032, NotSupportedError):
        member(built(rig.runtime, files.onnx("add"))[0], rig, rig.encode(1))


@pytest.mark.parametrize("member", [lambda stage, rig, pair: stage.segmented_capabilities, *MEMBERS])
def test_a_running_pipeline_is_busy(rig: Rig, monkeypatch: pytest.MonkeyPatch, member: Member) -> None:
    pair = rig.encode(1)
    rig.stage.bind_input(0, rig.runtime.tensor_from_tokens([1]))
    with running(rig.pipeline, hold(rig.stage, monkeypatch)), failing(0x800700AA):
        member(rig.stage, rig, pair)


def test_what_an_encoder_of_a_pipeline_says(rig: Rig) -> None:
    with failing(0x8007139F):
        _ = rig.stage.embedding_data_type
    encoder = rig.encoder()
    assert encoder.media_tensor_desc == (TensorDataType.INT64, (2**64 - 1,))
    assert encoder.embedding_length == rig.stage.embedding_length == WIDTH
    assert encoder.embedding_data_type is rig.stage.embedding_data_type is F32


# Encoding


def test_the_counts_of_plain_rows(rig: Rig) -> None:
    rows, layout = rig.encode(5, 6, 7)
    assert rows.desc() == (F32, (3, WIDTH))
    assert (layout.embedding_row_count, layout.position_count, layout.sequence_cell_count) == (3, 3, 3)


def test_each_encode_gives_rows_of_its_own(rig: Rig) -> None:
    encoder = rig.encoder()
    first, _ = encoder.encode(integers(rig.runtime, 5))
    before = first.to_numpy()
    second, _ = encoder.encode(integers(rig.runtime, 6))
    assert np.array_equal(first.to_numpy(), before)
    assert not np.array_equal(second.to_numpy(), before)


@pytest.mark.parametrize("shape", [(2, WIDTH), (1, 2, WIDTH)])
def test_rows_go_into_the_callers_tensor(rig: Rig, shape: tuple[int, ...]) -> None:
    mine = rig.runtime.create_tensor(F32, shape)
    encoder = rig.encoder()
    rows, _ = encoder.encode(integers(rig.runtime, 5, 6), mine)
    assert rows is mine
    assert np.array_equal(mine.to_numpy().reshape(2, WIDTH), encoder.encode(integers(rig.runtime, 5, 6))[0].to_numpy())


@pytest.mark.parametrize("shape", [(3, WIDTH), (2, WIDTH + 1), (2 * WIDTH,)])
def test_a_tensor_that_the_rows_do_not_fit(rig: Rig, shape: tuple[int, ...]) -> None:
    mine = rig.runtime.create_tensor(F32, shape)
    with failing(0x80070057):
        rig.encoder().encode(integers(rig.runtime, 5, 6), mine)
    assert not mine.to_numpy().any()


def test_media_that_do_not_fit(rig: Rig) -> None:
    encoder = rig.encoder()
    for media in (floats(rig.runtime, 1), rig.runtime.create_tensor(TensorDataType.INT64, (1, 1))):
        with failing(0x80070057):
            encoder.encode(media)
    with failing(0x80070057):
        encoder.encode(rig.runtime.create_tensor(TensorDataType.INT64, (0,)))
    for wrong in (None, [1]):
        with pytest.raises(TypeError):
            encoder.encode(wrong)  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        encoder.encode(integers(rig.runtime, 1), np.zeros((1, WIDTH), np.float32))  # type: ignore[arg-type]


def test_a_closed_encoder(rig: Rig) -> None:
    encoder = rig.encoder()
    rows, layout = encoder.encode(integers(rig.runtime, 1))
    encoder.close()
    encoder.close()
    for use in (lambda: encoder.media_tensor_desc, lambda: encoder.encode(rows), lambda: encoder.embedding_data_type):
        with pytest.raises(RuntimeError):
            use()
    rig.stage.bind_embedding_segment(0, rows, layout)
    layout.close()
    with pytest.raises(RuntimeError):
        _ = layout.position_count
    rig.pipeline.run()
    assert rig.stage.sequence_position == 1


def test_an_encoder_keeps_its_pipeline_and_its_stage(rig: Rig) -> None:
    encoder = rig.encoder()
    rig.encoder_pipeline.close()
    rig.encoder_stage.close()
    rows, layout = encoder.encode(integers(rig.runtime, 1))
    rig.stage.bind_embedding_segment(0, rows, layout)
    rig.pipeline.run()
    assert rig.stage.sequence_position == 1


# Pipelines that are no encoders


def test_wrong_classes(rig: Rig) -> None:
    stage, pipeline = rig.encoder_stage, rig.encoder_pipeline
    wrong: list[tuple[Any, ...]] = [
        (stage, stage, 0, stage, 0),
        (pipeline, pipeline, 0, stage, 0),
        (pipeline, stage, 0, None, 0),
        (pipeline, stage, True, stage, 0),
        (pipeline, stage, 0, stage, 0.5),
    ]
    for arguments in wrong:
        with pytest.raises(TypeError):
            rig.stage.create_media_encoder_from_pipeline(*arguments)
    with pytest.raises(ValueError):
        rig.stage.create_media_encoder_from_pipeline(pipeline, stage, -1, stage, 0)


@pytest.mark.parametrize("which", ["consumer", "pipeline", "stage"])
def test_closed_objects(rig: Rig, which: str) -> None:
    stage, pipeline, consumer = rig.encoder_stage, rig.encoder_pipeline, rig.stage
    closers = {"consumer": consumer.close, "pipeline": pipeline.close, "stage": stage.close}
    closers[which]()
    with pytest.raises(RuntimeError):
        consumer.create_media_encoder_from_pipeline(pipeline, stage, 0, stage, 0)


def test_ends_that_do_not_exist(rig: Rig, lookup: str) -> None:
    stage, pipeline = rig.encoder_stage, rig.encoder_pipeline
    for indices in ((1, 0), (0, 1)):
        with failing(0x80070057):
            rig.stage.create_media_encoder_from_pipeline(pipeline, stage, indices[0], stage, indices[1])
    foreign, _ = built(rig.runtime, lookup)
    for ends in ((foreign, 0, stage, 0), (stage, 0, foreign, 0), (rig.stage, 0, stage, 0)):
        with failing(0x80070057):
            rig.stage.create_media_encoder_from_pipeline(pipeline, *ends)


def test_a_pipeline_of_another_runtime(rig: Rig, lookup: str) -> None:
    with Runtime() as other:
        stage, pipeline = built(other, lookup)
        with failing(0x80070057):
            rig.stage.create_media_encoder_from_pipeline(pipeline, stage, 0, stage, 0)


def two_stages(rig: Rig, first: str, second: str, *, connected: bool, feedback: bool = False) -> tuple[Any, ...]:
    """A pipeline of two graphs, 0 -> 0 connected or not; returns it with both stages."""
    builder = rig.runtime.create_pipeline_builder()
    stages = [builder.add_model_stage(rig.runtime.load_model(path)) for path in (first, second)]
    if connected:
        builder.connect(stages[0], 0, stages[1], 0)
    if feedback:
        builder.connect_next_iteration(stages[1], 0, stages[1], 0)
    return builder.build(), *stages


def rows_graph(folder: Path) -> str:
    graph = onnx_models.identity(onnx_models.FLOAT, ["rows", WIDTH])
    return str(onnx_models.save(graph, folder / "rows.onnx"))


def test_an_encoder_of_two_stages(rig: Rig, lookup: str, tmp_path: Path) -> None:
    pipeline, first, second = two_stages(rig, lookup, rows_graph(tmp_path), connected=True)
    with failing(0x80070057):  # fed by the first stage
        rig.stage.create_media_encoder_from_pipeline(pipeline, second, 0, second, 0)
    encoder = rig.stage.create_media_encoder_from_pipeline(pipeline, first, 0, second, 0)
    rows, _ = encoder.encode(integers(rig.runtime, 5, 6))
    assert np.array_equal(rows.to_numpy(), rig.encode(5, 6)[0].to_numpy())


def test_an_output_that_does_not_depend_on_the_input(rig: Rig, lookup: str, tmp_path: Path) -> None:
    pipeline, first, second = two_stages(rig, lookup, rows_graph(tmp_path), connected=False)
    with failing(0x80070057):
        rig.stage.create_media_encoder_from_pipeline(pipeline, first, 0, second, 0)


def test_feedback_in_an_encoder(rig: Rig, lookup: str, tmp_path: Path) -> None:
    pipeline, first, _ = two_stages(rig, lookup, rows_graph(tmp_path), connected=False, feedback=True)
    with failing(0x80070032, NotSupportedError):
        rig.stage.create_media_encoder_from_pipeline(pipeline, first, 0, first, 0)


def test_state_in_an_encoder(rig: Rig, files: ModelFiles) -> None:
    stage, pipeline = built(rig.runtime, files.onnx("grow"), (1, 1))
    with failing(0x80070032, NotSupportedError):
        rig.stage.create_media_encoder_from_pipeline(pipeline, stage, 0, stage, 0)
    with failing(0x80070032, NotSupportedError):
        rig.stage.create_media_encoder_from_pipeline(rig.pipeline, rig.stage, 0, rig.stage, 0)


@pytest.mark.parametrize(
    ("element_type", "shape"),
    [(onnx_models.FLOAT, ["n", WIDTH + 1]), (onnx_models.FLOAT, [WIDTH]), (onnx_models.INT64, ["n", WIDTH])],
)
def test_an_output_that_is_no_rows(rig: Rig, tmp_path: Path, element_type: int, shape: list[int | str]) -> None:
    path = onnx_models.save(onnx_models.identity(element_type, shape), tmp_path / "other.onnx")
    stage, pipeline = built(rig.runtime, str(path))
    with failing(0x80070032, NotSupportedError):
        rig.stage.create_media_encoder_from_pipeline(pipeline, stage, 0, stage, 0)


def test_rows_of_a_width_that_only_a_run_tells(rig: Rig, tmp_path: Path) -> None:
    path = onnx_models.save(onnx_models.identity(onnx_models.FLOAT, ["n", "m"]), tmp_path / "free.onnx")
    stage, pipeline = built(rig.runtime, str(path))
    encoder = rig.stage.create_media_encoder_from_pipeline(pipeline, stage, 0, stage, 0)
    assert encoder.encode(rig.runtime.create_tensor(F32, (2, WIDTH)))[1].embedding_row_count == 2
    with failing(0x80070057):
        encoder.encode(rig.runtime.create_tensor(F32, (2, WIDTH - 1)))


def test_an_encoder_on_another_device(runtime: Runtime, files: ModelFiles, lookup: str) -> None:
    fakes = FakeBackend(gpu=True), FakeBackend(logits=lambda ids: [1])
    with replaced_backend("ort", fakes[0]), replaced_backend("llama", fakes[1]):
        stage, _ = decoder(runtime, files)
        encoder_stage, encoder_pipeline = built(runtime, lookup)
        with failing(0x80070032, NotSupportedError):
            stage.create_media_encoder_from_pipeline(encoder_pipeline, encoder_stage, 0, encoder_stage, 0)


# Running


def test_rows_do_what_their_tokens_do(rig: Rig) -> None:
    rig.feed(1, 2, 3, 4, 5, 6)
    expected = rig.feed(10)
    rig.pipeline.reset()
    rig.feed(1, 2)
    rig.select(3, 4, 5, 6)
    rig.pipeline.run()
    assert rig.stage.sequence_position == 6
    assert np.allclose(rig.feed(10), expected, atol=1e-3)


def test_rows_without_tokens_before_and_in_several_batches(rig: Rig) -> None:
    ids = list(range(20, 31))
    rig.feed(*ids)
    expected = rig.feed(10)
    rig.pipeline.reset()
    rig.select(*ids)
    rig.pipeline.run()
    assert rig.stage.sequence_position == 11
    assert np.allclose(rig.feed(10), expected, atol=1e-3)


def test_a_selection_lasts_for_one_run(rig: Rig) -> None:
    expected = rig.feed(1, 2, 3)
    rig.pipeline.reset()
    rig.stage.bind_input(0, rig.runtime.tensor_from_tokens([3]))
    rig.select(1, 2)
    rig.pipeline.run()
    assert rig.stage.sequence_position == 2
    rig.pipeline.run()  # what is bound is used again
    assert rig.stage.sequence_position == 3
    assert np.allclose(rig.stage.output(0).to_numpy()[0], expected, atol=1e-3)


def test_a_tensor_bound_after_the_selection_is_for_the_run_after(rig: Rig) -> None:
    rig.select(1, 2)
    rig.stage.bind_input(0, rig.runtime.tensor_from_tokens([3, 4, 5]))
    rig.pipeline.run()
    assert rig.stage.sequence_position == 2
    rig.pipeline.run()
    assert rig.stage.sequence_position == 5


def test_nothing_need_be_bound(rig: Rig) -> None:
    rig.select(1, 2)
    rig.pipeline.run()
    with failing(0x80070057):
        rig.pipeline.run()
    assert rig.stage.sequence_position == 2


def test_rows_give_no_output(rig: Rig) -> None:
    before = rig.feed(1)
    kept = rig.stage.output(0)
    rig.select(2)
    rig.pipeline.run()
    with failing(0x8007139F):
        rig.stage.output(0)
    assert np.array_equal(kept.to_numpy()[0], before)
    rig.feed(3)


def test_rows_give_no_output_to_the_callers_tensor(rig: Rig) -> None:
    mine = rig.runtime.create_tensor(F32, rig.stage.schema().output_desc(0)[1])
    rig.stage.bind_output(0, mine)
    rig.feed(1)
    before = mine.to_numpy()
    rig.select(2)
    rig.pipeline.run()
    with failing(0x8007139F):
        rig.stage.output(0)
    assert np.array_equal(mine.to_numpy(), before)
    assert np.array_equal(rig.feed(3), mine.to_numpy()[0])


def test_a_cleared_selection(rig: Rig) -> None:
    rig.stage.clear_embedding_segment(0)
    rig.select(1, 2)
    rig.stage.clear_embedding_segment(0)
    rig.feed(3)
    assert rig.stage.sequence_position == 1


def test_the_last_selection_counts(rig: Rig) -> None:
    rig.select(1, 2)
    rig.select(1, 2, 3)
    rig.pipeline.run()
    assert rig.stage.sequence_position == 3


def test_reset_drops_the_selection(rig: Rig) -> None:
    rig.select(1, 2)
    rig.pipeline.reset()
    rig.feed(3)
    assert rig.stage.sequence_position == 1


def test_input_0_is_the_only_one(rig: Rig) -> None:
    pair = rig.encode(1)
    with failing(0x80070057):
        rig.stage.bind_embedding_segment(1, *pair)
    with failing(0x80070057):
        rig.stage.clear_embedding_segment(1)
    with pytest.raises(TypeError):
        rig.stage.bind_embedding_segment(True, *pair)
    with pytest.raises(ValueError):
        rig.stage.clear_embedding_segment(-1)


def test_tensor_and_layout_belong_together(rig: Rig, files: ModelFiles) -> None:
    encoder = rig.encoder()
    rows, layout = encoder.encode(integers(rig.runtime, 1))
    others, other = encoder.encode(integers(rig.runtime, 2))
    for pair in ((rows, other), (others, layout), (rig.runtime.tensor_from_numpy(rows.to_numpy()), layout)):
        with failing(0x80070057):
            rig.stage.bind_embedding_segment(0, *pair)
    second, _ = decoder(rig.runtime, files)
    with failing(0x80070057):
        second.bind_embedding_segment(0, rows, layout)
    for wrong in ((layout, rows), (rows, None), (rows.to_numpy(), layout)):
        with pytest.raises(TypeError):
            rig.stage.bind_embedding_segment(0, *wrong)


def test_rows_that_a_later_encode_wrote_over(rig: Rig) -> None:
    encoder, mine = rig.encoder(), rig.runtime.create_tensor(F32, (1, WIDTH))
    _, old = encoder.encode(integers(rig.runtime, 1), mine)
    _, new = encoder.encode(integers(rig.runtime, 2), mine)
    with failing(0x80070057):
        rig.stage.bind_embedding_segment(0, mine, old)
    rig.stage.bind_embedding_segment(0, mine, new)


def test_a_tensor_may_be_closed_while_it_is_selected(rig: Rig) -> None:
    rows, layout = rig.encode(1, 2)
    rig.stage.bind_embedding_segment(0, rows, layout)
    rows.close()
    layout.close()
    rig.pipeline.run()
    assert rig.stage.sequence_position == 2


def test_selected_rows_that_are_locked_for_writing(rig: Rig) -> None:
    rows, layout = rig.encode(1, 2)
    rig.stage.bind_embedding_segment(0, rows, layout)
    with rows.lock(3), failing(0x800700D4):
        rig.pipeline.run()
    rig.pipeline.run()
    assert rig.stage.sequence_position == 2


def test_rows_beyond_the_capacity(rig: Rig) -> None:
    rig.stage.set_sequence_capacity(4)
    rig.feed(1, 2)
    rig.select(3, 4, 5)
    with failing(0x8000000B):
        rig.pipeline.run()
    assert rig.stage.sequence_position == 2
    rig.select(3, 4)
    rig.pipeline.run()
    assert rig.stage.sequence_position == 4


def test_a_failed_run_moves_nothing_and_keeps_the_selection(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    rig.feed(1, 2, 3, 4)
    expected = rig.feed(10)
    rig.pipeline.reset()
    rig.feed(1, 2)
    rig.select(3, 4)
    spoil(rig.stage, monkeypatch, KeyboardInterrupt())
    with pytest.raises(KeyboardInterrupt):
        rig.pipeline.run()
    assert rig.stage.sequence_position == 2
    rig.pipeline.run()
    assert rig.stage.sequence_position == 4
    assert np.allclose(rig.feed(10), expected, atol=1e-3)


def test_a_cancelled_run_keeps_the_selection(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    rig.select(3, 4)
    block = hold(rig.stage, monkeypatch)
    with running(rig.pipeline, block) as errors:
        rig.pipeline.cancel_run()
    assert [f"0x{error.hresult:08X}" for error in errors] == ["0x800704C7"]
    assert rig.stage.sequence_position == 0


def test_rewind_over_and_into_rows(rig: Rig) -> None:
    rig.feed(1, 2, 3)
    expected = rig.feed(10)
    rig.pipeline.reset()
    rig.feed(1)
    rig.select(2, 3, 4, 5)
    rig.pipeline.run()
    rig.feed(6)
    rig.stage.rewind(3)  # plain rows can be cut anywhere
    assert np.allclose(rig.feed(10), expected, atol=1e-3)
    rig.stage.rewind(1)
    rig.select(2, 3)
    rig.pipeline.run()
    assert np.allclose(rig.feed(10), expected, atol=1e-3)


def test_a_token_after_a_rewind_into_rows_gives_an_output(rig: Rig) -> None:
    rig.feed(1)
    rig.select(2, 3, 4, 5)
    rig.pipeline.run()
    rig.stage.rewind(3)
    logits = rig.runtime.create_tensor(F32, rig.stage.schema().output_desc(0)[1])
    rig.stage.bind_output(0, logits)
    row = rig.feed(10)
    assert np.array_equal(row, logits.to_numpy()[0])


def test_a_run_of_rows_ends_a_pending_step(rig: Rig) -> None:
    rig.stage.step_all_positions([1, 2])
    rig.select(3)
    rig.pipeline.run()
    with failing(0x8007139F):
        rig.stage.commit_accepted_prefix(1)
    assert rig.stage.sequence_position == 3


def test_a_stage_of_a_graph_takes_rows(rig: Rig, files: ModelFiles) -> None:
    builder = rig.runtime.create_pipeline_builder()
    stage = builder.add_model_stage(rig.runtime.load_model(files.scripted_gguf))
    other = builder.add_model_stage(rig.runtime.load_model(files.onnx("add")))
    other.bind_input(0, floats(rig.runtime, 1, 2))
    other.bind_input(1, floats(rig.runtime, 3, 4))
    pipeline = builder.build()
    ends = rig.encoder_stage, 0, rig.encoder_stage, 0
    encoder = stage.create_media_encoder_from_pipeline(rig.encoder_pipeline, *ends)
    stage.bind_embedding_segment(0, *encoder.encode(integers(rig.runtime, 1, 2)))
    pipeline.run()
    assert stage.sequence_position == 2
    with failing(0x80070057):
        pipeline.run()


def test_rows_give_nothing_to_connected_stages(rig: Rig, files: ModelFiles) -> None:
    builder = rig.runtime.create_pipeline_builder()
    stage = builder.add_model_stage(rig.runtime.load_model(files.scripted_gguf))
    chooser = builder.add_model_stage(rig.runtime.load_model(files.onnx("likeliest")))
    builder.connect(stage, 0, chooser, 0)
    chooser.request_output(0)
    pipeline = builder.build()
    stage.bind_input(0, rig.runtime.tensor_from_tokens([10]))
    for position in (1, 2, 3):
        pipeline.run()
        assert (stage.sequence_position, chooser.output(0).to_numpy().tolist()) == (position, [259])
    encoder = stage.create_media_encoder_from_pipeline(rig.encoder_pipeline, rig.encoder_stage, 0, rig.encoder_stage, 0)
    stage.bind_embedding_segment(0, *encoder.encode(integers(rig.runtime, 1, 2)))
    with failing(0x8007139F):
        pipeline.run()
    assert stage.sequence_position == 3
    stage.clear_embedding_segment(0)
    pipeline.run()
    assert (stage.sequence_position, chooser.output(0).to_numpy().tolist()) == (4, [259])
