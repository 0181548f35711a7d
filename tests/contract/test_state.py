"""Stateful stages: options, position, capacity, rewind. Statements 87-119 of the object model."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import pytest
from onnx import TensorProto, helper

from fakes.decoders import IDS, Decoder
from fakes.engines import Sample, spoil
from fakes.model_files import ModelFiles
from fakes.rig import built, failing, floats, result
from winml_lite import (
    NotSupportedError,
    Pipeline,
    Runtime,
    Stage,
    Tensor,
    TensorAccessMode,
    TensorDataType,
    TensorLockMode,
    WinMLError,
)

F32 = TensorDataType.FLOAT32
PAIR = (1, 1)


def unbuilt(runtime: Runtime, path: str) -> Stage:
    return runtime.create_pipeline_builder().add_model_stage(runtime.load_model(path))


def feed(stage: Stage, pipeline: Pipeline, runtime: Runtime, *ids: int) -> None:
    stage.bind_input(0, runtime.tensor_from_tokens(ids))
    pipeline.run()


def state(runtime: Runtime, *values: float) -> Tensor:
    return runtime.tensor_from_numpy(np.array(values, np.float32).reshape(1, 1, -1, 1))


# Options


def test_r87_a_capacity_is_a_positive_integer(runtime: Runtime, files: ModelFiles) -> None:
    stage = unbuilt(runtime, files.onnx("grow"))
    with pytest.raises(ValueError):
        stage.set_sequence_capacity_hint(0)
    with pytest.raises(TypeError):
        stage.set_sequence_capacity_hint(True)
    with pytest.raises(ValueError):
        stage.set_sequence_capacity(0)
    with pytest.raises(TypeError):
        stage.set_sequence_capacity(True)


def test_r88_the_hint_reads_back(runtime: Runtime, files: ModelFiles) -> None:
    stage = unbuilt(runtime, files.onnx("grow"))
    assert stage.sequence_capacity_hint == 0
    stage.set_sequence_capacity_hint(64)
    assert stage.sequence_capacity_hint == 64
    stage.clear_sequence_capacity_hint()
    assert stage.sequence_capacity_hint == 0


def test_r89_ownership_is_a_bool(runtime: Runtime, files: ModelFiles) -> None:
    stage = unbuilt(runtime, files.onnx("grow"))
    with pytest.raises(ValueError):
        stage.caller_owns_state_tensors = 1  # type: ignore[assignment]
    assert stage.caller_owns_state_tensors is False


def test_r90_a_pair_is_declared_once(runtime: Runtime, files: ModelFiles) -> None:
    stage = unbuilt(runtime, files.onnx("grow"))
    stage.add_state_tensor_pair(1, 1)
    for pair in ((1, 1), (1, 0), (0, 1)):
        with failing(0x80070057):
            stage.add_state_tensor_pair(*pair)
    assert stage.state_tensor_pairs == ((1, 1),)
    stage.clear_state_tensor_pairs()
    assert len(stage.state_tensor_pairs) == 0


def test_r90_pair_members_are_indices(runtime: Runtime, files: ModelFiles) -> None:
    stage = unbuilt(runtime, files.onnx("grow"))
    with pytest.raises(TypeError):
        stage.add_state_tensor_pair(True, 1)
    with pytest.raises(ValueError):
        stage.add_state_tensor_pair(1, -1)


def test_r91_options_are_fixed_by_build(runtime: Runtime, engine: Sample) -> None:
    builder = runtime.create_pipeline_builder()
    stage = engine.add(runtime, builder)
    stage.set_sequence_capacity_hint(3)
    builder.build()
    with failing(0x8007139F):
        stage.set_sequence_capacity_hint(8)
    with failing(0x8007139F):
        stage.clear_sequence_capacity_hint()
    with failing(0x8007139F):
        stage.caller_owns_state_tensors = True
    with failing(0x8007139F):
        stage.add_state_tensor_pair(0, 0)
    with failing(0x8007139F):
        stage.clear_state_tensor_pairs()
    assert stage.sequence_capacity_hint == 3
    assert stage.caller_owns_state_tensors is False
    assert stage.state_tensor_pairs == ()


def test_setters_of_one_stage_do_not_touch_another(runtime: Runtime, files: ModelFiles) -> None:
    builder, model = runtime.create_pipeline_builder(), runtime.load_model(files.onnx("grow"))
    first, second = builder.add_model_stage(model), builder.add_model_stage(model)
    first.add_state_tensor_pair(1, 1)
    first.set_sequence_capacity_hint(4)
    assert (second.state_tensor_pairs, second.sequence_capacity_hint) == ((), 0)


def test_r92_a_hint_for_a_fixed_state_is_ignored(runtime: Runtime, files: ModelFiles, onnx_engine: str) -> None:
    stage, _ = built(runtime, files.onnx("stat"), PAIR, hint=64)
    assert stage.sequence_capacity == 8


@pytest.mark.parametrize("option", ["pair", "ownership"])
def test_r93_llama_cpp_keeps_its_state_itself(
    runtime: Runtime, files: ModelFiles, gguf_engine: str, option: str
) -> None:
    builder = runtime.create_pipeline_builder()
    stage = builder.add_model_stage(runtime.load_model(files.gguf))
    if option == "pair":
        stage.add_state_tensor_pair(1, 1)
    else:
        stage.caller_owns_state_tensors = True
    with failing(0x80070032):
        builder.build()


@pytest.mark.parametrize("pair", [(2, 1), (1, 2), (0, 1), (0, 0)])
def test_pairs_are_checked_by_build(
    runtime: Runtime, files: ModelFiles, onnx_engine: str, pair: tuple[int, int]
) -> None:
    with failing(0x80070057):
        built(runtime, files.onnx("grow"), pair)


# Operations on ONNX state

Member = Callable[[Stage], object]
MEMBERS: list[Member] = [
    lambda stage: stage.sequence_position,
    lambda stage: stage.sequence_capacity,
    lambda stage: stage.declared_sequence_capacity,
    lambda stage: stage.rewind(0),
    lambda stage: stage.set_sequence_capacity(4),
]


@pytest.mark.parametrize("member", MEMBERS)
def test_r97_before_build_there_is_no_sequence(runtime: Runtime, engine: Sample, member: Member) -> None:
    with failing(0x8007139F):
        member(engine.unbuilt(runtime))


@pytest.mark.parametrize("member", MEMBERS)
def test_r98_a_stateless_stage_has_no_sequence(
    runtime: Runtime, files: ModelFiles, onnx_engine: str, member: Member
) -> None:
    with failing(0x80070032, NotSupportedError):
        member(built(runtime, files.onnx("add"))[0])


def test_r99_a_growing_state(runtime: Runtime, files: ModelFiles, onnx_engine: str) -> None:
    stage, pipeline = built(runtime, files.onnx("grow"), PAIR)
    stage.request_output(0)
    stage.request_output(1)
    assert stage.sequence_position == 0
    feed(stage, pipeline, runtime, 1, 2, 3)
    assert stage.sequence_position == 3
    assert stage.output(1).desc() == (F32, (1, 1, 3, 1))
    feed(stage, pipeline, runtime, 4)
    assert stage.sequence_position == 4
    assert stage.output(1).desc() == (F32, (1, 1, 4, 1))
    feed(stage, pipeline, runtime, 5)
    assert stage.sequence_position == 5
    assert stage.output(1).desc() == (F32, (1, 1, 5, 1))
    assert result(stage, 1) == [1, 2, 3, 4, 5]
    assert result(stage, 0) == [15]


def test_r100_r101_a_fixed_state(runtime: Runtime, files: ModelFiles, onnx_engine: str) -> None:
    stage, pipeline = built(runtime, files.onnx("stat"), PAIR)
    assert stage.declared_sequence_capacity == 8
    feed(stage, pipeline, runtime, 1, 2, 3, 4, 5)
    feed(stage, pipeline, runtime, 6, 7, 8)
    assert stage.sequence_position == 8
    with failing(0x8000000B):
        feed(stage, pipeline, runtime, 9)
    assert stage.sequence_position == 8


def test_r101_r102_a_growing_state_declares_no_capacity(runtime: Runtime, files: ModelFiles, onnx_engine: str) -> None:
    stage, _ = built(runtime, files.onnx("grow"), PAIR)
    assert stage.declared_sequence_capacity is None
    assert stage.sequence_capacity == 0


def test_r102_the_hint_is_the_capacity(runtime: Runtime, files: ModelFiles, onnx_engine: str) -> None:
    stage, pipeline = built(runtime, files.onnx("grow"), PAIR, hint=4)
    assert stage.sequence_capacity == 4
    feed(stage, pipeline, runtime, 1, 2, 3, 4)
    with failing(0x8000000B):
        feed(stage, pipeline, runtime, 5)
    assert stage.sequence_position == 4


def test_r103_rewind_and_replay(runtime: Runtime, files: ModelFiles, onnx_engine: str) -> None:
    stage, pipeline = built(runtime, files.onnx("grow"), PAIR)
    stage.request_output(0)
    feed(stage, pipeline, runtime, 1, 2)
    feed(stage, pipeline, runtime, 3, 4, 5)
    first = result(stage)
    stage.rewind(2)
    assert stage.sequence_position == 2
    feed(stage, pipeline, runtime, 3, 4, 5)
    assert result(stage) == first == [15]


def test_r104_rewinding_nowhere_and_too_far(runtime: Runtime, files: ModelFiles, onnx_engine: str) -> None:
    stage, pipeline = built(runtime, files.onnx("grow"), PAIR)
    feed(stage, pipeline, runtime, 1, 2)
    stage.rewind(2)
    assert stage.sequence_position == 2
    with failing(0x80070057):
        stage.rewind(3)
    assert stage.sequence_position == 2


def test_r105_reset_drops_the_state_and_keeps_the_bindings(
    runtime: Runtime, files: ModelFiles, onnx_engine: str
) -> None:
    stage, pipeline = built(runtime, files.onnx("grow"), PAIR)
    stage.request_output(0)
    feed(stage, pipeline, runtime, 1, 2)
    pipeline.reset()
    assert stage.sequence_position == 0
    pipeline.run()
    assert result(stage) == [3]


def test_r106_a_new_capacity_after_a_run_drops_the_state(runtime: Runtime, files: ModelFiles, onnx_engine: str) -> None:
    stage, pipeline = built(runtime, files.onnx("grow"), PAIR, hint=4)
    stage.set_sequence_capacity(6)
    assert stage.sequence_capacity == 6
    feed(stage, pipeline, runtime, 1, 2)
    stage.set_sequence_capacity(6)
    assert stage.sequence_position == 2
    stage.set_sequence_capacity(7)
    assert (stage.sequence_position, stage.sequence_capacity) == (0, 7)


def test_r106_a_fixed_state_has_one_capacity(runtime: Runtime, files: ModelFiles, onnx_engine: str) -> None:
    stage, _ = built(runtime, files.onnx("stat"), PAIR)
    stage.set_sequence_capacity(8)
    with failing(0x80070032, NotSupportedError):
        stage.set_sequence_capacity(9)


def test_r107_a_managed_state_cannot_be_bound(runtime: Runtime, files: ModelFiles, onnx_engine: str) -> None:
    stage, _ = built(runtime, files.onnx("grow"), PAIR)
    with failing(0x80070057):
        stage.bind_input(1, state(runtime, 1))


def test_r107_a_managed_state_bound_before_build_fails_build(
    runtime: Runtime, files: ModelFiles, onnx_engine: str
) -> None:
    builder = runtime.create_pipeline_builder()
    stage = builder.add_model_stage(runtime.load_model(files.onnx("grow")))
    stage.bind_input(1, state(runtime, 1))
    stage.add_state_tensor_pair(1, 1)
    with failing(0x80070057):
        builder.build()


def test_r107_a_managed_state_cannot_be_connected(runtime: Runtime, files: ModelFiles, onnx_engine: str) -> None:
    builder = runtime.create_pipeline_builder()
    source = builder.add_model_stage(runtime.load_model(files.onnx("grow")))
    target = builder.add_model_stage(runtime.load_model(files.onnx("grow")))
    target.add_state_tensor_pair(1, 1)
    builder.connect(source, 1, target, 1)
    with failing(0x80070057):
        builder.build()


def test_r106_a_capacity_below_the_position(runtime: Runtime, files: ModelFiles, onnx_engine: str) -> None:
    stage, pipeline = built(runtime, files.onnx("grow"), PAIR)
    feed(stage, pipeline, runtime, 1, 2, 3)
    with failing(0x80070057):
        stage.set_sequence_capacity(2)
    assert (stage.sequence_position, stage.sequence_capacity) == (3, 0)


def test_a_published_state_is_a_copy(runtime: Runtime, files: ModelFiles, onnx_engine: str) -> None:
    stage, pipeline = built(runtime, files.onnx("grow"), PAIR)
    stage.request_output(0)
    stage.request_output(1)
    feed(stage, pipeline, runtime, 1, 2)
    stage.output(1).fill(100)
    feed(stage, pipeline, runtime, 3)
    assert result(stage) == [6]


def test_a_published_state_that_feeds_a_stage_is_a_copy(runtime: Runtime, files: ModelFiles, onnx_engine: str) -> None:
    builder = runtime.create_pipeline_builder()
    stage = builder.add_model_stage(runtime.load_model(files.onnx("grow")))
    stage.add_state_tensor_pair(*PAIR)
    reader = builder.add_processor_stage(
        runtime.create_processor(lambda present: (), [(F32, (1, 1, None, 1))], []), name="reader"
    )
    builder.connect(stage, 1, reader, 0)
    stage.request_output(0)
    stage.request_output(1)
    pipeline = builder.build()
    feed(stage, pipeline, runtime, 1, 2)
    stage.output(1).fill(100)
    feed(stage, pipeline, runtime, 3)
    assert result(stage) == [6]


@pytest.mark.parametrize(
    "change",
    [
        lambda stage, pipeline: stage.rewind(1),
        lambda stage, pipeline: stage.rewind(0),
        lambda stage, pipeline: stage.set_sequence_capacity(9),
        lambda stage, pipeline: pipeline.reset(),
    ],
    ids=["rewind to 1", "rewind to 0", "capacity", "reset"],
)
def test_a_published_state_stays_as_the_run_left_it(
    change: Callable[[Stage, Pipeline], None], runtime: Runtime, files: ModelFiles, onnx_engine: str
) -> None:
    stage, pipeline = built(runtime, files.onnx("grow"), PAIR)
    stage.request_output(1)
    feed(stage, pipeline, runtime, 1, 2)
    change(stage, pipeline)
    assert result(stage, 1) == [1, 2]


def test_a_state_in_the_callers_tensor_must_be_bound(runtime: Runtime, files: ModelFiles, onnx_engine: str) -> None:
    stage, pipeline = caller_owned(runtime, files.onnx("stat"))
    stage.bind_input(0, runtime.tensor_from_tokens([1]))
    with failing(0x80070057):
        pipeline.run()


def test_a_failed_run_leaves_the_callers_state(
    runtime: Runtime, files: ModelFiles, onnx_engine: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage, pipeline = caller_owned(runtime, files.onnx("stat"))
    mine = state(runtime, *[0] * 8)
    stage.bind_input(1, mine)
    feed(stage, pipeline, runtime, 1, 2)
    spoil(stage, monkeypatch, WinMLError(0x80004005))
    with failing(0x80004005):
        feed(stage, pipeline, runtime, 3)
    assert mine.to_numpy().reshape(-1).tolist() == [0, 0, 0, 0, 0, 0, 1, 2]


def caller_owned(runtime: Runtime, path: str) -> tuple[Stage, Pipeline]:
    builder = runtime.create_pipeline_builder()
    stage = builder.add_model_stage(runtime.load_model(path))
    stage.add_state_tensor_pair(1, 1)
    stage.caller_owns_state_tensors = True
    return stage, builder.build()


def test_r108_state_in_the_callers_tensor(runtime: Runtime, files: ModelFiles, onnx_engine: str) -> None:
    stage, pipeline = caller_owned(runtime, files.onnx("stat"))
    mine = state(runtime, *[0] * 8)
    stage.bind_input(1, mine)
    feed(stage, pipeline, runtime, 1, 2)
    feed(stage, pipeline, runtime, 3)
    assert mine.to_numpy().reshape(-1).tolist() == [0, 0, 0, 0, 0, 1, 2, 3]
    assert stage.output(1).underlying_object is mine.underlying_object


def test_a_requested_state_in_the_callers_tensor_is_not_written_while_it_is_locked(
    runtime: Runtime, files: ModelFiles, onnx_engine: str
) -> None:
    stage, pipeline = caller_owned(runtime, files.onnx("stat"))
    mine = state(runtime, *[0] * 8)
    stage.bind_input(1, mine)
    stage.request_output(1)
    feed(stage, pipeline, runtime, 1)
    with mine.lock(TensorLockMode.READ), failing(0x800700D4):
        pipeline.run()
    assert mine.to_numpy().reshape(-1).tolist() == [0, 0, 0, 0, 0, 0, 0, 1]


def test_r109_state_that_rotates_to_another_tensor(runtime: Runtime, files: ModelFiles, onnx_engine: str) -> None:
    stage, pipeline = caller_owned(runtime, files.onnx("stat"))
    old, new = state(runtime, *[0] * 8), state(runtime, *[9] * 8)
    stage.bind_input(1, old)
    stage.bind_output(1, new)
    feed(stage, pipeline, runtime, 1, 2)
    assert old.to_numpy().reshape(-1).tolist() == [0] * 8
    assert new.to_numpy().reshape(-1).tolist() == [0, 0, 0, 0, 0, 0, 1, 2]


def test_r110_the_caller_keeps_count(runtime: Runtime, files: ModelFiles, onnx_engine: str) -> None:
    stage, pipeline = caller_owned(runtime, files.onnx("stat"))
    mine = state(runtime, *[0] * 8)
    stage.bind_input(1, mine)
    feed(stage, pipeline, runtime, 1)
    with failing(0x80070032, NotSupportedError):
        _ = stage.sequence_position
    pipeline.reset()
    assert mine.to_numpy().reshape(-1).tolist() == [0, 0, 0, 0, 0, 0, 0, 1]


def test_growing_state_does_not_fit_in_place(runtime: Runtime, files: ModelFiles, onnx_engine: str) -> None:
    stage, pipeline = caller_owned(runtime, files.onnx("grow"))
    mine = state(runtime, 5)
    stage.bind_input(1, mine)
    with failing(0x80070057):
        feed(stage, pipeline, runtime, 1)
    assert mine.to_numpy().reshape(-1).tolist() == [5]


def rows_model(second_copies: int) -> bytes:
    """`sum[B,2]` over two states that grow along axis 1: by the rows `x[B,S,2]`, and by `second_copies` times them."""
    rows = {"x": "S", "past_a": "P", "past_b": "P", "present_a": "T", "present_b": "T"}
    ports = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["B", symbol, 2]) for name, symbol in rows.items()]
    total = helper.make_tensor_value_info("sum", TensorProto.FLOAT, ["B", 2])
    axis = helper.make_tensor("axis", TensorProto.INT64, [1], [1])
    nodes = [
        helper.make_node("Concat", ["past_a", "x"], ["present_a"], axis=1),
        helper.make_node("Concat", ["past_b", *["x"] * second_copies], ["present_b"], axis=1),
        helper.make_node("ReduceSum", ["present_a", "axis"], ["sum"], keepdims=0),
    ]
    graph = helper.make_graph(nodes, "graph", ports[:3], [total, *ports[3:]], [axis])
    model = helper.make_model(graph, ir_version=10, opset_imports=[helper.make_opsetid("", 21)])
    return bytes(model.SerializeToString())


def built_rows(runtime: Runtime, second_copies: int) -> tuple[Stage, Pipeline]:
    builder = runtime.create_pipeline_builder()
    stage = builder.add_model_stage(runtime.load_model_from_buffer(rows_model(second_copies)))
    stage.add_state_tensor_pair(1, 1)
    stage.add_state_tensor_pair(2, 2)
    stage.request_output(0)
    return stage, builder.build()


def test_a_state_begins_with_the_extents_of_the_inputs(runtime: Runtime, onnx_engine: str) -> None:
    stage, pipeline = built_rows(runtime, second_copies=1)
    stage.bind_input(0, runtime.tensor_from_numpy(np.ones((3, 4, 2), np.float32)))
    pipeline.run()
    pipeline.run()
    assert stage.sequence_position == 8
    assert stage.output(0).to_numpy().tolist() == [[8, 8], [8, 8], [8, 8]]


def test_a_state_keeps_its_extents_until_reset(runtime: Runtime, onnx_engine: str) -> None:
    stage, pipeline = built_rows(runtime, second_copies=1)
    stage.bind_input(0, runtime.tensor_from_numpy(np.ones((3, 4, 2), np.float32)))
    pipeline.run()
    stage.bind_input(0, runtime.tensor_from_numpy(np.ones((1, 4, 2), np.float32)))
    with failing(0x80070057):
        pipeline.run()
    assert stage.sequence_position == 4
    pipeline.reset()
    pipeline.run()
    assert stage.sequence_position == 4
    assert stage.output(0).to_numpy().tolist() == [[4, 4]]


def test_states_that_grow_apart_fail_the_run(runtime: Runtime, onnx_engine: str) -> None:
    stage, pipeline = built_rows(runtime, second_copies=2)
    stage.bind_input(0, runtime.tensor_from_numpy(np.ones((1, 4, 2), np.float32)))
    with failing(0x80070057):
        pipeline.run()
    assert stage.sequence_position == 0
    with failing(0x8007139F):
        stage.output(0)


# Decoders of every kind


def test_r103_rewind_and_replay_of_any_decoder(decoder: Decoder) -> None:
    decoder.run(*IDS[:2])
    first = decoder.run(*IDS[2:5])
    decoder.stage.rewind(2)
    assert decoder.stage.sequence_position == 2
    assert np.allclose(decoder.run(*IDS[2:5]), first, atol=1e-4)
    assert decoder.stage.sequence_position == 5


def test_r104_rewinding_any_decoder_nowhere_and_too_far(decoder: Decoder) -> None:
    decoder.run(*IDS[:3])
    decoder.stage.rewind(3)
    assert decoder.stage.sequence_position == 3
    with failing(0x80070057):
        decoder.stage.rewind(4)
    assert decoder.stage.sequence_position == 3
    after = decoder.run(IDS[3])
    decoder.stage.rewind(0)
    assert decoder.stage.sequence_position == 0
    assert np.allclose(decoder.run(*IDS[:4]), after, atol=1e-3)


def test_rewind_keeps_outputs_bindings_and_capacity(decoder: Decoder) -> None:
    decoder.run(*IDS[:3])
    before, capacity = decoder.row(), decoder.stage.sequence_capacity
    decoder.stage.rewind(1)
    assert np.array_equal(decoder.row(), before)
    assert decoder.stage.sequence_capacity == capacity
    decoder.bind_rest(3)
    decoder.pipeline.run()
    assert decoder.stage.sequence_position == 4


def test_a_failed_run_moves_no_decoder(decoder: Decoder, monkeypatch: pytest.MonkeyPatch) -> None:
    decoder.run(*IDS[:3])
    spoil(decoder.stage, monkeypatch, WinMLError(0x80004005))
    with failing(0x80004005):
        decoder.run(*IDS[3:6])
    assert decoder.stage.sequence_position == 3
    after = decoder.run(*IDS[3:5])
    assert decoder.stage.sequence_position == 5
    decoder.pipeline.reset()
    assert np.allclose(decoder.run(*IDS[:5]), after, atol=1e-3)


def test_r105_reset_of_any_decoder_keeps_the_bindings(decoder: Decoder) -> None:
    first, capacity = decoder.run(*IDS[:3]), decoder.stage.sequence_capacity
    decoder.pipeline.reset()
    assert (decoder.stage.sequence_position, decoder.stage.sequence_capacity) == (0, capacity)
    decoder.pipeline.run()
    assert decoder.stage.sequence_position == 3
    assert np.allclose(decoder.row(), first, atol=1e-4)


def test_r113_any_decoder_at_once_or_one_by_one(decoder: Decoder) -> None:
    at_once = decoder.run(*IDS)
    assert decoder.stage.sequence_position == 8
    decoder.pipeline.reset()
    assert np.allclose(decoder.one_by_one(*IDS)[-1], at_once, atol=1e-3)
    assert decoder.stage.sequence_position == 8


def test_r118_any_decoder_says_the_same_after_reset(decoder: Decoder) -> None:
    first = decoder.run(*IDS[:4])
    decoder.run(*IDS[4:])
    decoder.pipeline.reset()
    assert np.allclose(decoder.run(*IDS[:4]), first, atol=1e-4)


# llama.cpp


def gguf_decoder(runtime: Runtime, files: ModelFiles, hint: int = 0) -> tuple[Stage, Pipeline]:
    builder = runtime.create_pipeline_builder()
    stage = builder.add_model_stage(runtime.load_model(files.gguf))
    stage.llama_options().thread_count = 1
    if hint:
        stage.set_sequence_capacity_hint(hint)
    stage.request_output(0)
    return stage, builder.build()


def logits(stage: Stage) -> npt.NDArray[np.float32]:
    row: npt.NDArray[np.float32] = stage.output(0).to_numpy()[-1]
    return row


@pytest.mark.parametrize(
    ("dtype", "shape"), [(np.int32, (3,)), (np.int32, (1, 3)), (np.int64, (1, 3)), (np.int64, (3,))]
)
def test_r112_ids_of_both_widths(
    runtime: Runtime, files: ModelFiles, gguf_engine: str, dtype: type[np.int32], shape: tuple[int, ...]
) -> None:
    stage, pipeline = gguf_decoder(runtime, files)
    feed(stage, pipeline, runtime, 1, 2, 3)
    expected = logits(stage)
    pipeline.reset()
    stage.bind_input(0, runtime.tensor_from_numpy(np.array([1, 2, 3], dtype).reshape(shape)))
    pipeline.run()
    assert np.array_equal(logits(stage), expected)


def test_r113_at_once_or_one_by_one(runtime: Runtime, files: ModelFiles, gguf_engine: str) -> None:
    stage, pipeline = gguf_decoder(runtime, files)
    feed(stage, pipeline, runtime, 1, 2, 3)
    at_once = logits(stage)
    pipeline.reset()
    for token in (1, 2, 3):
        feed(stage, pipeline, runtime, token)
    assert np.allclose(logits(stage), at_once, atol=1e-3)


def test_r114_logits_and_position(runtime: Runtime, files: ModelFiles, gguf_engine: str) -> None:
    stage, pipeline = gguf_decoder(runtime, files)
    feed(stage, pipeline, runtime, 1, 2, 3)
    vocabulary_size = stage.schema().output_desc(0)[1][-1]
    assert stage.output(0).desc() == (F32, (1, vocabulary_size))
    assert stage.sequence_position == 3


def test_r115_the_hint_is_the_context_length(runtime: Runtime, files: ModelFiles, gguf_engine: str) -> None:
    stage, pipeline = gguf_decoder(runtime, files, hint=64)
    assert stage.sequence_capacity == 64
    with failing(0x8000000B):
        feed(stage, pipeline, runtime, *[1] * 65)
    assert stage.sequence_position == 0
    feed(stage, pipeline, runtime, *[1] * 64)
    assert stage.sequence_position == 64


def test_a_hint_may_exceed_what_the_file_declares(runtime: Runtime, files: ModelFiles, gguf_engine: str) -> None:
    stage, _ = gguf_decoder(runtime, files, hint=600)
    assert (stage.sequence_capacity, stage.declared_sequence_capacity) == (600, 512)


def test_r101_r116_without_a_hint(runtime: Runtime, files: ModelFiles, gguf_engine: str) -> None:
    stage, _ = gguf_decoder(runtime, files)
    assert stage.declared_sequence_capacity == 512
    assert stage.sequence_capacity == 512


def test_r116_a_long_context_is_not_made_unasked(runtime: Runtime, files: ModelFiles, gguf_engine: str) -> None:
    stage, _ = built(runtime, files.long_gguf)
    assert stage.declared_sequence_capacity == 100_000
    assert stage.sequence_capacity == 4096


@pytest.mark.parametrize("token", ["vocabulary", "negative"])
def test_r117_a_token_that_does_not_exist(runtime: Runtime, files: ModelFiles, gguf_engine: str, token: str) -> None:
    stage, pipeline = gguf_decoder(runtime, files)
    feed(stage, pipeline, runtime, 1)
    wrong = stage.schema().output_desc(0)[1][-1] if token == "vocabulary" else -1
    stage.bind_input(0, runtime.tensor_from_numpy(np.array([2, wrong], np.int64)))
    with failing(0x80070057):
        pipeline.run()
    assert stage.sequence_position == 1


def test_r118_the_same_prompt_after_reset(runtime: Runtime, files: ModelFiles, gguf_engine: str) -> None:
    stage, pipeline = gguf_decoder(runtime, files)
    feed(stage, pipeline, runtime, 1, 2, 3)
    first = logits(stage)
    feed(stage, pipeline, runtime, 4)
    pipeline.reset()
    assert stage.sequence_position == 0
    feed(stage, pipeline, runtime, 1, 2, 3)
    assert np.allclose(logits(stage), first, atol=1e-4)


def test_produced_logits_stay_readable_after_reset(runtime: Runtime, files: ModelFiles, gguf_engine: str) -> None:
    stage, pipeline = gguf_decoder(runtime, files)
    feed(stage, pipeline, runtime, 1, 2, 3)
    kept, before = stage.output(0), logits(stage)
    pipeline.reset()
    assert np.array_equal(logits(stage), before)
    feed(stage, pipeline, runtime, 2)
    assert np.array_equal(kept.to_numpy()[-1], before)


def test_a_failed_run_of_a_decoder_moves_nothing(runtime: Runtime, files: ModelFiles, gguf_engine: str) -> None:
    stage, pipeline = gguf_decoder(runtime, files, hint=4)
    feed(stage, pipeline, runtime, 1, 2)
    with failing(0x8000000B):
        feed(stage, pipeline, runtime, 1, 2, 3)
    with failing(0x8007139F):
        stage.output(0)
    assert stage.sequence_position == 2
    feed(stage, pipeline, runtime, 3, 4)
    assert stage.sequence_position == 4


def test_r119_a_decoder_has_one_output(runtime: Runtime, files: ModelFiles, gguf_engine: str) -> None:
    builder = runtime.create_pipeline_builder()
    stage = builder.add_model_stage(runtime.load_model(files.gguf))
    stage.request_output(1)
    with failing(0x80070057):
        builder.build()


def test_r119_a_decoder_has_one_output_after_build(runtime: Runtime, files: ModelFiles, gguf_engine: str) -> None:
    stage, _ = gguf_decoder(runtime, files)
    with failing(0x80070057):
        stage.request_output(1)


def test_r103_rewind_of_a_decoder(runtime: Runtime, files: ModelFiles, gguf_engine: str) -> None:
    stage, pipeline = gguf_decoder(runtime, files)
    feed(stage, pipeline, runtime, 1, 2, 3, 4)
    first = logits(stage)
    stage.rewind(2)
    feed(stage, pipeline, runtime, 3, 4)
    assert np.allclose(logits(stage), first, atol=1e-4)
    assert stage.sequence_position == 4
    with failing(0x80070057):
        stage.rewind(5)


def test_r106_the_present_context_length_changes_nothing(runtime: Runtime, files: ModelFiles, gguf_engine: str) -> None:
    stage, pipeline = gguf_decoder(runtime, files, hint=8)
    feed(stage, pipeline, runtime, 1, 2)
    stage.set_sequence_capacity(8)
    assert (stage.sequence_position, stage.sequence_capacity) == (2, 8)


def test_r106_a_context_length_before_the_first_run(runtime: Runtime, files: ModelFiles, gguf_engine: str) -> None:
    stage, pipeline = gguf_decoder(runtime, files, hint=8)
    stage.bind_input(0, runtime.tensor_from_tokens([1] * 9))
    stage.set_sequence_capacity(9)
    pipeline.run()
    assert (stage.sequence_position, stage.sequence_capacity) == (9, 9)


def test_r106_a_shorter_context_length(runtime: Runtime, files: ModelFiles, gguf_engine: str) -> None:
    stage, pipeline = gguf_decoder(runtime, files, hint=8)
    feed(stage, pipeline, runtime, 1, 2, 3)
    stage.set_sequence_capacity(2)
    assert (stage.sequence_position, stage.sequence_capacity) == (0, 2)
    with failing(0x8000000B):
        feed(stage, pipeline, runtime, 1, 2, 3)


def test_r106_a_new_context_length(runtime: Runtime, files: ModelFiles, gguf_engine: str) -> None:
    stage, pipeline = gguf_decoder(runtime, files, hint=8)
    feed(stage, pipeline, runtime, 1, 2)
    kept = stage.output(0)
    before = kept.to_numpy()
    stage.set_sequence_capacity(16)
    assert (stage.sequence_position, stage.sequence_capacity) == (0, 16)
    assert np.array_equal(kept.to_numpy(), before)
    feed(stage, pipeline, runtime, 1, 2)
    assert np.allclose(logits(stage), before[-1], atol=1e-4)


def test_the_token_loop_with_the_callers_buffers(runtime: Runtime, files: ModelFiles, gguf_engine: str) -> None:
    stage, pipeline = built(runtime, files.gguf)
    size = stage.schema().output_desc(0)[1][-1]
    token, row = np.array([[1]], np.int32), np.empty((1, size), np.float32)
    access = TensorAccessMode.READWRITE
    stage.bind_input(0, runtime.tensor_from_buffer(token, TensorDataType.INT32, (1, 1), access=access))
    stage.bind_output(0, runtime.tensor_from_buffer(row, F32, (1, size), access=access))
    generated = []
    for _ in range(4):
        pipeline.run()
        generated.append(int(row.argmax()))
        token[0, 0] = generated[-1]
    pipeline.reset()
    stage.request_output(0)
    feed(stage, pipeline, runtime, 1, *generated[:3])
    assert int(logits(stage).argmax()) == generated[3]


def test_wrong_ids(runtime: Runtime, files: ModelFiles, gguf_engine: str) -> None:
    stage, _ = gguf_decoder(runtime, files)
    with failing(0x80070057):
        stage.bind_input(0, floats(runtime, 1))
    with failing(0x80070057):
        stage.bind_input(0, runtime.create_tensor(TensorDataType.INT32, (2, 2)))
