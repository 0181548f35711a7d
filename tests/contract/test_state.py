"""Stateful stages: options, position, capacity, rewind. Statements 87-119 of the object model."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np
import numpy.typing as npt
import pytest

from fakes.backend import FakeBackend
from fakes.model_files import ModelFiles, require_engine
from fakes.rig import built, failing, floats, result
from winml_lite import NotSupportedError, Pipeline, Runtime, Stage, Tensor, TensorAccessMode, TensorDataType
from winml_lite.native.backend import replaced_backend

F32 = TensorDataType.FLOAT32
PAIR = (1, 1)
DECLARED = 32


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


def test_r91_options_are_fixed_by_build(runtime: Runtime, files: ModelFiles, onnx_engine: str) -> None:
    stage, _ = built(runtime, files.onnx("add"), hint=3)
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


def test_r92_a_hint_for_a_fixed_state_is_ignored(runtime: Runtime, files: ModelFiles, ort: None) -> None:
    stage, _ = built(runtime, files.onnx("stat"), PAIR, hint=64)
    assert stage.sequence_capacity == 8


@pytest.mark.parametrize("option", ["pair", "ownership"])
def test_r93_llama_cpp_keeps_its_state_itself(runtime: Runtime, files: ModelFiles, option: str) -> None:
    builder = runtime.create_pipeline_builder()
    stage = builder.add_model_stage(runtime.load_model(files.gguf))
    if option == "pair":
        stage.add_state_tensor_pair(1, 1)
    else:
        stage.caller_owns_state_tensors = True
    with replaced_backend("llama", FakeBackend()), failing(0x80070032):
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
def test_r97_before_build_there_is_no_sequence(runtime: Runtime, files: ModelFiles, member: Member) -> None:
    with failing(0x8007139F):
        member(unbuilt(runtime, files.onnx("grow")))


@pytest.mark.parametrize("member", MEMBERS)
def test_r98_a_stateless_stage_has_no_sequence(
    runtime: Runtime, files: ModelFiles, onnx_engine: str, member: Member
) -> None:
    with failing(0x80070032, NotSupportedError):
        member(built(runtime, files.onnx("add"))[0])


def test_r99_a_growing_state(runtime: Runtime, files: ModelFiles, ort: None) -> None:
    stage, pipeline = built(runtime, files.onnx("grow"), PAIR)
    stage.request_output(0)
    stage.request_output(1)
    assert stage.sequence_position == 0
    feed(stage, pipeline, runtime, 1, 2, 3)
    assert stage.sequence_position == 3
    feed(stage, pipeline, runtime, 4)
    assert stage.sequence_position == 4
    feed(stage, pipeline, runtime, 5)
    assert stage.sequence_position == 5
    assert result(stage, 1) == [1, 2, 3, 4, 5]
    assert result(stage, 0) == [15]


def test_r100_r101_a_fixed_state(runtime: Runtime, files: ModelFiles, ort: None) -> None:
    stage, pipeline = built(runtime, files.onnx("stat"), PAIR)
    assert stage.declared_sequence_capacity == 8
    feed(stage, pipeline, runtime, 1, 2, 3, 4, 5)
    feed(stage, pipeline, runtime, 6, 7, 8)
    assert stage.sequence_position == 8
    with failing(0x8000000B):
        feed(stage, pipeline, runtime, 9)
    assert stage.sequence_position == 8


def test_r101_r102_a_growing_state_declares_no_capacity(runtime: Runtime, files: ModelFiles, ort: None) -> None:
    stage, _ = built(runtime, files.onnx("grow"), PAIR)
    assert stage.declared_sequence_capacity is None
    assert stage.sequence_capacity == 0


def test_r102_the_hint_is_the_capacity(runtime: Runtime, files: ModelFiles, ort: None) -> None:
    stage, pipeline = built(runtime, files.onnx("grow"), PAIR, hint=4)
    assert stage.sequence_capacity == 4
    feed(stage, pipeline, runtime, 1, 2, 3, 4)
    with failing(0x8000000B):
        feed(stage, pipeline, runtime, 5)
    assert stage.sequence_position == 4


def test_r103_rewind_and_replay(runtime: Runtime, files: ModelFiles, ort: None) -> None:
    stage, pipeline = built(runtime, files.onnx("grow"), PAIR)
    stage.request_output(0)
    feed(stage, pipeline, runtime, 1, 2)
    feed(stage, pipeline, runtime, 3, 4, 5)
    first = result(stage)
    stage.rewind(2)
    assert stage.sequence_position == 2
    feed(stage, pipeline, runtime, 3, 4, 5)
    assert result(stage) == first == [15]


def test_r104_rewinding_nowhere_and_too_far(runtime: Runtime, files: ModelFiles, ort: None) -> None:
    stage, pipeline = built(runtime, files.onnx("grow"), PAIR)
    feed(stage, pipeline, runtime, 1, 2)
    stage.rewind(2)
    assert stage.sequence_position == 2
    with failing(0x80070057):
        stage.rewind(3)
    assert stage.sequence_position == 2


def test_r105_reset_drops_the_state_and_keeps_the_bindings(runtime: Runtime, files: ModelFiles, ort: None) -> None:
    stage, pipeline = built(runtime, files.onnx("grow"), PAIR)
    stage.request_output(0)
    feed(stage, pipeline, runtime, 1, 2)
    pipeline.reset()
    assert stage.sequence_position == 0
    pipeline.run()
    assert result(stage) == [3]


def test_r106_a_new_capacity_after_a_run_drops_the_state(runtime: Runtime, files: ModelFiles, ort: None) -> None:
    stage, pipeline = built(runtime, files.onnx("grow"), PAIR, hint=4)
    stage.set_sequence_capacity(6)
    assert stage.sequence_capacity == 6
    feed(stage, pipeline, runtime, 1, 2)
    stage.set_sequence_capacity(6)
    assert stage.sequence_position == 2
    stage.set_sequence_capacity(7)
    assert (stage.sequence_position, stage.sequence_capacity) == (0, 7)


def test_r106_a_fixed_state_has_one_capacity(runtime: Runtime, files: ModelFiles, ort: None) -> None:
    stage, _ = built(runtime, files.onnx("stat"), PAIR)
    stage.set_sequence_capacity(8)
    with failing(0x80070032, NotSupportedError):
        stage.set_sequence_capacity(9)


def test_r107_a_managed_state_cannot_be_bound(runtime: Runtime, files: ModelFiles, ort: None) -> None:
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


def caller_owned(runtime: Runtime, path: str) -> tuple[Stage, Pipeline]:
    builder = runtime.create_pipeline_builder()
    stage = builder.add_model_stage(runtime.load_model(path))
    stage.add_state_tensor_pair(1, 1)
    stage.caller_owns_state_tensors = True
    return stage, builder.build()


def test_r108_state_in_the_callers_tensor(runtime: Runtime, files: ModelFiles, ort: None) -> None:
    stage, pipeline = caller_owned(runtime, files.onnx("stat"))
    mine = state(runtime, *[0] * 8)
    stage.bind_input(1, mine)
    feed(stage, pipeline, runtime, 1, 2)
    feed(stage, pipeline, runtime, 3)
    assert mine.to_numpy().reshape(-1).tolist() == [0, 0, 0, 0, 0, 1, 2, 3]
    assert stage.output(1).underlying_object is mine.underlying_object


def test_r109_state_that_rotates_to_another_tensor(runtime: Runtime, files: ModelFiles, ort: None) -> None:
    stage, pipeline = caller_owned(runtime, files.onnx("stat"))
    old, new = state(runtime, *[0] * 8), state(runtime, *[9] * 8)
    stage.bind_input(1, old)
    stage.bind_output(1, new)
    feed(stage, pipeline, runtime, 1, 2)
    assert old.to_numpy().reshape(-1).tolist() == [0] * 8
    assert new.to_numpy().reshape(-1).tolist() == [0, 0, 0, 0, 0, 0, 1, 2]


def test_r110_the_caller_keeps_count(runtime: Runtime, files: ModelFiles, ort: None) -> None:
    stage, pipeline = caller_owned(runtime, files.onnx("stat"))
    mine = state(runtime, *[0] * 8)
    stage.bind_input(1, mine)
    feed(stage, pipeline, runtime, 1)
    with failing(0x80070032, NotSupportedError):
        _ = stage.sequence_position
    pipeline.reset()
    assert mine.to_numpy().reshape(-1).tolist() == [0, 0, 0, 0, 0, 0, 0, 1]


def test_growing_state_does_not_fit_in_place(runtime: Runtime, files: ModelFiles, ort: None) -> None:
    stage, pipeline = caller_owned(runtime, files.onnx("grow"))
    mine = state(runtime, 5)
    stage.bind_input(1, mine)
    with failing(0x80070057):
        feed(stage, pipeline, runtime, 1)
    assert mine.to_numpy().reshape(-1).tolist() == [5]


# llama.cpp


def sum_logits(ids: Sequence[int]) -> npt.ArrayLike:
    row = np.zeros(8, np.float32)
    row[sum(ids) % 8] = 1
    return row


@pytest.fixture(params=["fake", "llama"])
def llama_engine(request: pytest.FixtureRequest) -> Iterator[str]:
    """Run the test once on a scripted decoder and once on llama.cpp."""
    if request.param == "fake":
        fake = FakeBackend(logits=sum_logits, vocabulary_size=8, declared_capacity=DECLARED)
        with replaced_backend("llama", fake):
            yield "fake"
    else:
        require_engine("llama")
        yield "llama"


def decoder(runtime: Runtime, files: ModelFiles, hint: int = 0) -> tuple[Stage, Pipeline]:
    stage, pipeline = built(runtime, files.gguf, hint=hint)
    stage.request_output(0)
    return stage, pipeline


def logits(stage: Stage) -> npt.NDArray[np.float32]:
    row: npt.NDArray[np.float32] = stage.output(0).to_numpy()[-1]
    return row


@pytest.mark.parametrize(
    ("dtype", "shape"), [(np.int32, (3,)), (np.int32, (1, 3)), (np.int64, (1, 3)), (np.int64, (3,))]
)
def test_r112_ids_of_both_widths(
    runtime: Runtime, files: ModelFiles, llama_engine: str, dtype: type[np.int32], shape: tuple[int, ...]
) -> None:
    stage, pipeline = decoder(runtime, files)
    feed(stage, pipeline, runtime, 1, 2, 3)
    expected = logits(stage)
    pipeline.reset()
    stage.bind_input(0, runtime.tensor_from_numpy(np.array([1, 2, 3], dtype).reshape(shape)))
    pipeline.run()
    assert np.array_equal(logits(stage), expected)


def test_r113_at_once_or_one_by_one(runtime: Runtime, files: ModelFiles, llama_engine: str) -> None:
    stage, pipeline = decoder(runtime, files)
    feed(stage, pipeline, runtime, 1, 2, 3)
    at_once = logits(stage)
    pipeline.reset()
    for token in (1, 2, 3):
        feed(stage, pipeline, runtime, token)
    assert np.allclose(logits(stage), at_once, atol=1e-3)


def test_r114_logits_and_position(runtime: Runtime, files: ModelFiles, llama_engine: str) -> None:
    stage, pipeline = decoder(runtime, files)
    feed(stage, pipeline, runtime, 1, 2, 3)
    vocabulary_size = stage.schema().output_desc(0)[1][-1]
    assert stage.output(0).desc() == (F32, (1, vocabulary_size))
    assert stage.sequence_position == 3


def test_r115_the_hint_is_the_context_length(runtime: Runtime, files: ModelFiles, llama_engine: str) -> None:
    stage, pipeline = decoder(runtime, files, hint=20)
    assert stage.sequence_capacity == 20
    with failing(0x8000000B):
        feed(stage, pipeline, runtime, *[1] * 21)
    assert stage.sequence_position == 0
    feed(stage, pipeline, runtime, *[1] * 20)
    assert stage.sequence_position == 20


def test_r101_r116_without_a_hint(runtime: Runtime, files: ModelFiles, llama_engine: str) -> None:
    stage, _ = decoder(runtime, files)
    declared = stage.declared_sequence_capacity
    assert declared is not None
    assert 0 < stage.sequence_capacity <= min(declared, 4096)


@pytest.mark.parametrize("token", ["vocabulary", "negative"])
def test_r117_a_token_that_does_not_exist(runtime: Runtime, files: ModelFiles, llama_engine: str, token: str) -> None:
    stage, pipeline = decoder(runtime, files)
    feed(stage, pipeline, runtime, 1)
    wrong = stage.schema().output_desc(0)[1][-1] if token == "vocabulary" else -1
    stage.bind_input(0, runtime.tensor_from_numpy(np.array([2, wrong], np.int64)))
    with failing(0x80070057):
        pipeline.run()
    assert stage.sequence_position == 1


def test_r118_the_same_prompt_after_reset(runtime: Runtime, files: ModelFiles, llama_engine: str) -> None:
    stage, pipeline = decoder(runtime, files)
    feed(stage, pipeline, runtime, 1, 2, 3)
    first = logits(stage)
    feed(stage, pipeline, runtime, 4)
    pipeline.reset()
    assert stage.sequence_position == 0
    feed(stage, pipeline, runtime, 1, 2, 3)
    assert np.allclose(logits(stage), first, atol=1e-4)


def test_produced_logits_stay_readable_after_reset(runtime: Runtime, files: ModelFiles, llama_engine: str) -> None:
    stage, pipeline = decoder(runtime, files)
    feed(stage, pipeline, runtime, 1, 2, 3)
    kept, before = stage.output(0), logits(stage)
    pipeline.reset()
    assert np.array_equal(logits(stage), before)
    feed(stage, pipeline, runtime, 2)
    assert np.array_equal(kept.to_numpy()[-1], before)


def test_a_failed_run_of_a_decoder_moves_nothing(runtime: Runtime, files: ModelFiles, llama_engine: str) -> None:
    stage, pipeline = decoder(runtime, files, hint=4)
    feed(stage, pipeline, runtime, 1, 2)
    with failing(0x8000000B):
        feed(stage, pipeline, runtime, 1, 2, 3)
    with failing(0x8007139F):
        stage.output(0)
    assert stage.sequence_position == 2
    feed(stage, pipeline, runtime, 3, 4)
    assert stage.sequence_position == 4


def test_r119_a_decoder_has_one_output(runtime: Runtime, files: ModelFiles, llama_engine: str) -> None:
    builder = runtime.create_pipeline_builder()
    stage = builder.add_model_stage(runtime.load_model(files.gguf))
    stage.request_output(1)
    with failing(0x80070057):
        builder.build()


def test_r119_a_decoder_has_one_output_after_build(runtime: Runtime, files: ModelFiles, llama_engine: str) -> None:
    stage, _ = decoder(runtime, files)
    with failing(0x80070057):
        stage.request_output(1)


def test_r103_rewind_of_a_decoder(runtime: Runtime, files: ModelFiles, llama_engine: str) -> None:
    stage, pipeline = decoder(runtime, files)
    feed(stage, pipeline, runtime, 1, 2, 3, 4)
    first = logits(stage)
    stage.rewind(2)
    feed(stage, pipeline, runtime, 3, 4)
    assert np.allclose(logits(stage), first, atol=1e-4)
    assert stage.sequence_position == 4
    with failing(0x80070057):
        stage.rewind(5)


def test_r106_a_new_context_length(runtime: Runtime, files: ModelFiles, llama_engine: str) -> None:
    stage, pipeline = decoder(runtime, files, hint=8)
    feed(stage, pipeline, runtime, 1, 2)
    kept = stage.output(0)
    before = kept.to_numpy()
    stage.set_sequence_capacity(16)
    assert (stage.sequence_position, stage.sequence_capacity) == (0, 16)
    assert np.array_equal(kept.to_numpy(), before)
    feed(stage, pipeline, runtime, 1, 2)
    assert np.allclose(logits(stage), before[-1], atol=1e-4)


def test_the_token_loop_with_the_callers_buffers(runtime: Runtime, files: ModelFiles, llama_engine: str) -> None:
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


def test_wrong_ids(runtime: Runtime, files: ModelFiles, llama_engine: str) -> None:
    stage, _ = decoder(runtime, files)
    with failing(0x80070057):
        stage.bind_input(0, floats(runtime, 1))
    with failing(0x80070057):
        stage.bind_input(0, runtime.create_tensor(TensorDataType.INT32, (2, 2)))
