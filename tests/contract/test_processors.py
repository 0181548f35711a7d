"""The decode processors, alone and as stages. Statements 56-62 of tensors, and the processor rows of the object model.

Processors run on the host, whatever the engine; graphs with a model stage run on the fake and on ONNX Runtime.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pytest

from fakes.backend import FakeBackend, Script
from fakes.engines import SUCCESSORS, VOCABULARY_SIZE
from fakes.model_files import ModelFiles
from fakes.rig import failing
from fakes.staged import DeviceStorage
from models.onnx_models import bigram
from winml_lite import (
    ExecutionTargetKind,
    Model,
    NotSupportedError,
    Pipeline,
    Processor,
    RecordedProcessorOutputs,
    Runtime,
    Stage,
    Tensor,
    TensorAccessMode,
    TensorDataType,
    TensorLockMode,
    WinMLError,
)
from winml_lite.devices import replaced_enumerators
from winml_lite.native.hardware import Device

F16, F32 = TensorDataType.FLOAT16, TensorDataType.FLOAT32
I32, I64 = TensorDataType.INT32, TensorDataType.INT64
VOCABULARY = 8
Kind = tuple[TensorDataType, tuple[int]]
TABLE = np.arange(18, dtype=np.float32).reshape(6, 3)


def int32(runtime: Runtime, *values: int) -> Tensor:
    return runtime.tensor_from_numpy(np.array(values, np.int32))


def values(tensor: Tensor) -> list[float]:
    numbers: list[float] = tensor.to_numpy().reshape(-1).tolist()
    return numbers


def peaks(runtime: Runtime, *tokens: int) -> Tensor:
    """Logits (1, 8) with one value at the given tokens, and less elsewhere."""
    row = np.zeros((1, VOCABULARY), np.float32)
    row[0, list(tokens)] = 5
    return runtime.tensor_from_numpy(row)


@dataclass(frozen=True, slots=True)
class Sampler:
    """A sample processor with its tensors: a ring of four, one tensor each for the rest."""

    processor: Processor
    ring: Tensor
    position: Tensor
    length: Tensor
    observed: Tensor

    def state(self) -> tuple[list[float], ...]:
        """Ring, position, length and observed token."""
        return values(self.ring), values(self.position), values(self.length), values(self.observed)


def sampler(runtime: Runtime, position: int = 0) -> Sampler:
    ring = int32(runtime, 1, 0, 0, 0)
    kept = (int32(runtime, position), runtime.tensor_from_numpy(np.array([position + 1])), int32(runtime, -1))
    processor = runtime.create_decode_sample_processor(VOCABULARY, True, ring, *kept)
    return Sampler(processor, ring, *kept)


def successors(runtime: Runtime) -> Model:
    """A model whose likeliest token is the one after its input."""
    return runtime.load_model_from_buffer(bigram([1, 2, 3, 4, 5, 6, 7, 0]).SerializeToString())


@pytest.fixture
def sample(runtime: Runtime) -> Sampler:
    return sampler(runtime)


@pytest.fixture
def machine_with_gpu() -> Iterator[None]:
    with replaced_enumerators(lambda: [Device(ExecutionTargetKind.GPU, "a GPU")]):
        yield


# The embedding of a token


def test_t56_embed_copies_the_row_of_the_token(runtime: Runtime) -> None:
    hidden = runtime.create_tensor(F32, (1, 1, 3))
    embed = runtime.create_decode_embed_processor(6, 3, 4, hidden)
    ring, table = int32(runtime, 5, 2, 0, 0), runtime.tensor_from_numpy(TABLE)
    embed.execute([ring, int32(runtime, 1), table])
    assert values(hidden) == [6.0, 7.0, 8.0]


@pytest.mark.parametrize(("ring", "position"), [((5, 2, 0, 0), 4), ((5, 2, 0, 0), -1), ((6, 2, 0, 0), 0)])
def test_t56_embed_out_of_range_changes_nothing(runtime: Runtime, ring: tuple[int, ...], position: int) -> None:
    hidden = runtime.tensor_from_numpy(np.array([7, 8, 9], np.float32))
    embed = runtime.create_decode_embed_processor(6, 3, 4, hidden)
    with failing(0x8000000B) as caught:
        embed.execute([int32(runtime, *ring), int32(runtime, position), runtime.tensor_from_numpy(TABLE)])
    assert caught.value.context == "IWinMLProcessor.Execute"
    assert values(hidden) == [7.0, 8.0, 9.0]


def test_embed_refuses_a_negative_token(runtime: Runtime) -> None:
    embed = runtime.create_decode_embed_processor(6, 3, 2, runtime.create_tensor(F32, (3,)))
    with failing(0x8000000B):
        embed.execute([int32(runtime, -1, 0), int32(runtime, 0), runtime.tensor_from_numpy(TABLE)])


def test_embed_of_float16_keeps_the_bits(runtime: Runtime) -> None:
    hidden = runtime.create_tensor(F16, (2,))
    embed = runtime.create_decode_embed_processor(1, 2, 1, hidden)
    table = runtime.create_tensor(F16, (1, 2), b"\x01\x7e\xff\x03")  # a NaN with a payload, a subnormal
    embed.execute([int32(runtime, 0), int32(runtime, 0), table])
    with hidden.lock(TensorLockMode.READ) as lock:
        assert bytes(lock.data()) == b"\x01\x7e\xff\x03"


@pytest.mark.parametrize("hidden", [(F32, (4,)), (I32, (3,))])
def test_embed_refuses_another_hidden_output(runtime: Runtime, hidden: Kind) -> None:
    tensor = runtime.create_tensor(*hidden)
    with failing(0x80070057):
        runtime.create_decode_embed_processor(6, 3, 4, tensor)


# Greedy choice into a ring


def test_t57_sample_takes_the_lowest_of_equal_tokens(runtime: Runtime, sample: Sampler) -> None:
    sample.processor.execute([peaks(runtime, 3, 7)])
    assert sample.state() == ([1, 3, 0, 0], [1], [2], [3])


def test_t57_sample_into_a_full_ring_changes_nothing(runtime: Runtime) -> None:
    full = sampler(runtime, position=3)
    with failing(0x8000000B):
        full.processor.execute([peaks(runtime, 3)])
    assert full.state() == ([1, 0, 0, 0], [3], [4], [-1])


def test_sample_refuses_a_negative_position(runtime: Runtime) -> None:
    negative = sampler(runtime, position=-1)
    with failing(0x8000000B):
        negative.processor.execute([peaks(runtime, 3)])
    assert negative.state() == ([1, 0, 0, 0], [-1], [0], [-1])


def test_sample_takes_nan_for_less_than_any_number(runtime: Runtime, sample: Sampler) -> None:
    row = np.full((1, VOCABULARY), np.nan, np.float32)
    row[0, 5] = -1e30
    sample.processor.execute([runtime.tensor_from_numpy(row)])
    assert values(sample.observed) == [5]


def test_sample_takes_token_0_of_nothing_but_nan(runtime: Runtime, sample: Sampler) -> None:
    sample.processor.execute([runtime.tensor_from_numpy(np.full((1, VOCABULARY), np.nan, np.float32))])
    assert values(sample.observed) == [0]


def test_sample_takes_float16_logits(runtime: Runtime) -> None:
    one = [int32(runtime, 0) for _ in range(3)]
    processor = runtime.create_decode_sample_processor(VOCABULARY, False, int32(runtime, 0, 0), *one)
    row = np.array([[-4, -2, -1, -3, -1, -9, -9, -9]], np.float16)
    (observed, *_) = processor.execute([runtime.tensor_from_numpy(row)])
    assert values(observed) == [2]


def test_logits_of_another_shape_with_as_many_elements_fit(runtime: Runtime, sample: Sampler) -> None:
    row = np.zeros((1, 1, VOCABULARY), np.float32)
    row[0, 0, 6] = 1
    sample.processor.execute([runtime.tensor_from_numpy(row)])
    assert values(sample.observed) == [6]


@pytest.mark.parametrize(("dtype", "count"), [(np.float32, VOCABULARY + 1), (np.float16, VOCABULARY)])
def test_other_logits_are_refused(runtime: Runtime, sample: Sampler, dtype: type, count: int) -> None:
    with failing(0x80070057):
        sample.processor.execute([runtime.tensor_from_numpy(np.zeros((1, count), dtype))])
    assert sample.state() == ([1, 0, 0, 0], [0], [1], [-1])


@pytest.mark.parametrize(
    ("ring", "position", "length", "observed"),
    [
        ((I64, (4,)), (I32, (1,)), (I32, (1,)), (I32, (1,))),
        ((I32, (0,)), (I32, (1,)), (I32, (1,)), (I32, (1,))),
        ((I32, (4,)), (I32, (2,)), (I32, (1,)), (I32, (1,))),
        ((I32, (4,)), (F32, (1,)), (I32, (1,)), (I32, (1,))),
        ((I32, (4,)), (I32, (1,)), (F32, (1,)), (I32, (1,))),
        ((I32, (4,)), (I32, (1,)), (I32, (1,)), (I64, (1,))),
    ],
)
def test_sample_refuses_tensors_of_another_kind(
    runtime: Runtime, ring: Kind, position: Kind, length: Kind, observed: Kind
) -> None:
    kept = [runtime.create_tensor(*kind) for kind in (ring, position, length, observed)]
    with failing(0x80070057):
        runtime.create_decode_sample_processor(VOCABULARY, True, *kept)


def test_a_read_only_tensor_cannot_be_changed(runtime: Runtime) -> None:
    ring = runtime.tensor_from_buffer(bytes(16), I32, (4,), access=TensorAccessMode.READ)
    one = [int32(runtime, 0) for _ in range(3)]
    with failing(0x80070057):
        runtime.create_decode_sample_processor(VOCABULARY, True, ring, *one)


# Greedy choice of the next token


def test_t58_greedy_counts_the_sequence(runtime: Runtime) -> None:
    kept = runtime.create_tensor(I64, (1, 1)), runtime.create_tensor(I64, ()), runtime.create_tensor(I32, (1,))
    observed = int32(runtime, -1)
    processor = runtime.create_decode_greedy_processor(VOCABULARY, True, *kept, observed)
    processor.execute([peaks(runtime, 4)])
    assert [values(tensor) for tensor in (*kept, observed)] == [[4], [1], [2], [4]]


def test_t58_greedy_opens_the_mask_of_the_new_position(runtime: Runtime) -> None:
    mask = runtime.tensor_from_numpy(np.full((1, 4), -np.inf, np.float32))
    position = int32(runtime, 0)
    processor = runtime.create_decode_greedy_processor(
        VOCABULARY, True, int32(runtime, 0), position, mask, int32(runtime, 0)
    )
    processor.execute([peaks(runtime, 4)])
    assert values(mask) == [-np.inf, 0.0, -np.inf, -np.inf]
    assert values(position) == [1]


def test_t58_greedy_beyond_the_mask_changes_nothing(runtime: Runtime) -> None:
    mask, position = runtime.tensor_from_numpy(np.full(4, -9, np.float32)), int32(runtime, 3)
    next_token, observed = int32(runtime, 1), int32(runtime, 1)
    processor = runtime.create_decode_greedy_processor(VOCABULARY, True, next_token, position, mask, observed)
    with failing(0x8000000B):
        processor.execute([peaks(runtime, 4)])
    assert [values(tensor) for tensor in (next_token, position, mask, observed)] == [[1], [3], [-9] * 4, [1]]


def test_t58_a_float16_mask_has_an_even_number_of_elements(runtime: Runtime) -> None:
    one = int32(runtime, 0), int32(runtime, 0)
    with failing(0x80070057):
        runtime.create_decode_greedy_processor(VOCABULARY, True, *one, runtime.create_tensor(F16, (5,)), one[0])
    runtime.create_decode_greedy_processor(VOCABULARY, True, *one, runtime.create_tensor(F16, (6,)), one[0])


@pytest.mark.parametrize(("position", "state"), [(-1, 0), (2**31 - 1, 0), (2**31 - 2, 0)])
def test_greedy_refuses_a_position_that_cannot_be_counted(runtime: Runtime, position: int, state: int) -> None:
    place, length = int32(runtime, position), int32(runtime, state)
    processor = runtime.create_decode_greedy_processor(
        VOCABULARY, True, int32(runtime, 0), place, length, int32(runtime, 0)
    )
    with failing(0x8000000B):
        processor.execute([peaks(runtime, 4)])
    assert values(place) == [position]
    assert values(length) == [state]


# Arguments


def test_t59_arguments_are_checked(runtime: Runtime, sample: Sampler) -> None:
    with pytest.raises(ValueError, match="takes 1 inputs, not 0"):
        sample.processor.execute([])
    with pytest.raises(TypeError, match="tensor must be a Tensor, not object"):
        sample.processor.execute([object()])  # type: ignore[list-item]
    with pytest.raises(TypeError, match="inputs must be a sequence"):
        sample.processor.execute(iter([peaks(runtime, 1)]))  # type: ignore[arg-type]
    kept = sample.ring, sample.position, sample.length, sample.observed
    with pytest.raises(ValueError, match="logits_are_float32 must be a bool"):
        runtime.create_decode_sample_processor(VOCABULARY, 1, *kept)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="vocabulary_size must be in"):
        runtime.create_decode_sample_processor(0, True, *kept)
    with failing(0x80070057):
        runtime.create_decode_sample_processor(2**31, True, *kept)


@pytest.mark.parametrize(
    ("sizes", "wrong"),
    [
        ((0, 3, 4), "vocabulary_size"),
        ((True, 3, 4), "vocabulary_size"),
        ((2**32, 3, 4), "vocabulary_size"),
        ((6, 0, 4), "hidden_size"),
        ((6, 3.0, 4), "hidden_size"),
        ((6, 3, 0), "sequence_capacity"),
    ],
)
def test_t59_sizes_are_positive_integers(runtime: Runtime, sizes: tuple[int, int, int], wrong: str) -> None:
    hidden = runtime.create_tensor(F32, (3,))
    with pytest.raises(ValueError, match=f"{wrong} must be"):
        runtime.create_decode_embed_processor(*sizes, hidden)


@pytest.mark.parametrize("sizes", [(2**31, 3, 4), (6, 3, 2**31)])
def test_t59_sizes_fit_in_31_bits(runtime: Runtime, sizes: tuple[int, int, int]) -> None:
    hidden = runtime.create_tensor(F32, (3,))
    with failing(0x80070057):
        runtime.create_decode_embed_processor(*sizes, hidden)


def test_state_must_be_open_tensors(runtime: Runtime, sample: Sampler) -> None:
    with pytest.raises(TypeError):
        runtime.create_decode_embed_processor(6, 3, 4, np.zeros(3, np.float32))  # type: ignore[arg-type]
    sample.observed.close()
    with pytest.raises(RuntimeError):
        runtime.create_decode_sample_processor(
            VOCABULARY, True, sample.ring, sample.position, sample.length, sample.observed
        )


def test_a_closed_input_is_refused(runtime: Runtime, sample: Sampler) -> None:
    logits = peaks(runtime, 1)
    logits.close()
    with pytest.raises(RuntimeError):
        sample.processor.execute([logits])


def test_a_closed_processor_is_refused(runtime: Runtime, sample: Sampler) -> None:
    sample.processor.close()
    sample.processor.close()
    with pytest.raises(RuntimeError, match="Processor is closed"):
        sample.processor.execute([peaks(runtime, 1)])


def test_t60_descriptors_are_concrete(runtime: Runtime) -> None:
    embed = runtime.create_decode_embed_processor(6, 3, 4, runtime.create_tensor(F16, (1, 1, 3)))
    assert embed.inputs() == [(I32, (4,)), (I32, (1,)), (F16, (6, 3))]
    assert embed.outputs() == [(F16, (1, 1, 3))]
    assert (embed.input_count, embed.output_count) == (3, 1)


def test_t60_sample_has_one_input_and_four_outputs(sample: Sampler) -> None:
    processor = sample.processor
    assert processor.inputs() == [(F32, (1, 8))]
    assert processor.outputs() == [(I32, (1,)), (I32, (4,)), (I32, (1,)), (I64, (1,))]
    assert len(processor.inputs()) == processor.input_count
    assert len(processor.outputs()) == processor.output_count


def test_t60_descriptor_indices_are_checked(sample: Sampler) -> None:
    assert sample.processor.output_desc(3) == (I64, (1,))
    with pytest.raises(TypeError):
        sample.processor.input_desc(True)
    with pytest.raises(ValueError):
        sample.processor.input_desc(-1)
    with failing(0x8000000B):
        sample.processor.input_desc(1)
    with failing(0x8000000B):
        sample.processor.output_desc(4)


# Outputs of `execute`


def test_t61_outputs_are_the_tensors_of_the_caller(runtime: Runtime, sample: Sampler) -> None:
    observed, ring, *_ = sample.processor.execute([peaks(runtime, 3)])
    sample.processor.execute([peaks(runtime, 5)])
    assert values(observed) == [5]
    assert values(ring) == [1, 3, 5, 0]


def test_t61_closing_an_output_leaves_the_tensor_open(runtime: Runtime, sample: Sampler) -> None:
    for output in sample.processor.execute([peaks(runtime, 3)]):
        output.close()
    assert sample.state() == ([1, 3, 0, 0], [1], [2], [3])


def test_the_processor_outlives_the_tensor_objects_and_the_target(runtime: Runtime) -> None:
    with runtime.create_cpu_target() as target:
        kept = [runtime.create_tensor(I32, (count,), target=target) for count in (4, 1, 1, 1)]
        processor = runtime.create_decode_sample_processor(VOCABULARY, True, *kept, target=target)
    for tensor in kept:
        tensor.close()
    observed, *_ = processor.execute([peaks(runtime, 3)])
    assert values(observed.region((0,), (1,))) == [3]


@pytest.mark.parametrize("name", ["ring", "position", "length", "observed"])
def test_a_locked_tensor_stops_the_processor(runtime: Runtime, sample: Sampler, name: str) -> None:
    with getattr(sample, name).lock(TensorLockMode.READ), failing(0x800700D4):
        sample.processor.execute([peaks(runtime, 3)])
    assert sample.state() == ([1, 0, 0, 0], [0], [1], [-1])


def test_an_input_may_be_locked_for_reading_only(runtime: Runtime, sample: Sampler) -> None:
    logits = peaks(runtime, 3)
    with logits.lock(TensorLockMode.WRITE), failing(0x800700D4):
        sample.processor.execute([logits])
    with logits.lock(TensorLockMode.READ):
        sample.processor.execute([logits])
    assert values(sample.observed) == [3]


# Windows-only recording


def test_t62_recording_is_refused(runtime: Runtime, sample: Sampler) -> None:
    with pytest.raises(ValueError, match="command_list must not be None"):
        sample.processor.record_commands(None, [])
    with pytest.raises(ValueError, match="takes 1 inputs, not 0"):
        sample.processor.record_commands(object(), [])
    with failing(0x80004002, NotSupportedError):
        sample.processor.record_commands(object(), [peaks(runtime, 1)])


def test_recorded_outputs_close_their_tensors(runtime: Runtime) -> None:
    tensor = int32(runtime, 1)
    outputs = RecordedProcessorOutputs([tensor], object())
    outputs.release_recording()
    outputs.release_recording()
    assert values(tensor) == [1]
    outputs.close()
    outputs.close()
    assert outputs == []
    with pytest.raises(RuntimeError):
        tensor.desc()


# Stages


def sample_stage(runtime: Runtime, sample: Sampler) -> tuple[Stage, Pipeline]:
    builder = runtime.create_pipeline_builder()
    stage = builder.add_processor_stage(sample.processor, name="sample")
    stage.bind_input(0, peaks(runtime, 3))
    stage.request_output(0)
    return stage, builder.build()


def test_a_stage_does_what_the_processor_does(runtime: Runtime, sample: Sampler) -> None:
    stage, pipeline = sample_stage(runtime, sample)
    pipeline.run()
    assert values(stage.output(0)) == [3]
    assert sample.state() == ([1, 3, 0, 0], [1], [2], [3])


def test_a_stage_goes_on_when_processor_and_tensors_are_closed(runtime: Runtime, sample: Sampler) -> None:
    stage, pipeline = sample_stage(runtime, sample)
    sample.processor.close()
    sample.ring.close()
    pipeline.run()
    assert values(stage.output(0)) == [3]


def test_a_requested_output_is_the_tensor_of_the_caller(runtime: Runtime, sample: Sampler) -> None:
    stage, pipeline = sample_stage(runtime, sample)
    pipeline.run()
    observed = stage.output(0)
    stage.bind_input(0, peaks(runtime, 6))
    pipeline.run()
    assert values(observed) == [6]


def test_a_bound_output_gets_the_value_too(runtime: Runtime, sample: Sampler) -> None:
    stage, pipeline = sample_stage(runtime, sample)
    elsewhere = runtime.create_tensor(I32, (4,))
    stage.bind_output(1, elsewhere)
    pipeline.run()
    assert values(elsewhere) == [1, 3, 0, 0]
    assert values(sample.ring) == [1, 3, 0, 0]


def test_a_bound_output_must_fit(runtime: Runtime, sample: Sampler) -> None:
    stage, _ = sample_stage(runtime, sample)
    with failing(0x80070057):
        stage.bind_output(1, runtime.create_tensor(I32, (5,)))


def test_a_processor_stage_counts_its_ports_before_build(runtime: Runtime, sample: Sampler) -> None:
    stage = runtime.create_pipeline_builder().add_processor_stage(sample.processor)
    assert (stage.schema().input_count, stage.schema().output_count) == (1, 4)
    with failing(0x8007139F):
        stage.schema().inputs()
    with failing(0x80070057):
        stage.request_output(4)


def test_a_built_processor_stage_shows_its_ports_and_its_target(runtime: Runtime, sample: Sampler) -> None:
    stage, _ = sample_stage(runtime, sample)
    assert stage.schema().inputs() == [(F32, (1, 8))]
    assert stage.execution_target.kind is ExecutionTargetKind.CPU
    with failing(0x80070057):
        stage.schema().output_desc(4)


def test_a_processor_stage_has_no_extras_of_an_engine(runtime: Runtime, sample: Sampler) -> None:
    stage, _ = sample_stage(runtime, sample)
    assert stage.supports_symbolic_dimensions is False
    with failing(0x80004002, NotSupportedError):
        _ = stage.symbolic_dimensions
    with failing(0x80070032, NotSupportedError):
        stage.ort_bindings().output("x")
    with failing(0x80070032, NotSupportedError):
        _ = stage.ort_diagnostics().selected_provider
    with failing(0x80070032, NotSupportedError):
        _ = stage.llama_options().thread_count
    with failing(0x80070032, NotSupportedError):
        _ = stage.sequence_position


def test_a_missing_input_runs_nothing(runtime: Runtime, sample: Sampler) -> None:
    builder = runtime.create_pipeline_builder()
    builder.add_processor_stage(sample.processor)
    pipeline = builder.build()
    with failing(0x80070057):
        pipeline.run()
    assert sample.state() == ([1, 0, 0, 0], [0], [1], [-1])


@pytest.mark.parametrize("name", ["ring", "position", "length", "observed"])
def test_a_locked_tensor_stops_the_pipeline(runtime: Runtime, sample: Sampler, name: str) -> None:
    _, pipeline = sample_stage(runtime, sample)
    with getattr(sample, name).lock(TensorLockMode.READ), failing(0x800700D4):
        pipeline.run()
    pipeline.run()
    assert sample.state() == ([1, 3, 0, 0], [1], [2], [3])


def test_a_capacity_hint_is_ignored(runtime: Runtime, sample: Sampler) -> None:
    builder = runtime.create_pipeline_builder()
    stage = builder.add_processor_stage(sample.processor)
    stage.set_sequence_capacity_hint(16)
    builder.build()
    with failing(0x80070032, NotSupportedError):
        _ = stage.sequence_capacity


def test_state_pairs_are_refused_at_build(runtime: Runtime, sample: Sampler) -> None:
    builder = runtime.create_pipeline_builder()
    stage = builder.add_processor_stage(sample.processor)
    stage.add_state_tensor_pair(0, 0)
    with failing(0x80070032):
        builder.build()
    stage.clear_state_tensor_pairs()
    stage.caller_owns_state_tensors = True
    with failing(0x80070032):
        builder.build()
    stage.caller_owns_state_tensors = False
    builder.build()


def test_ort_options_are_refused_at_build(runtime: Runtime, sample: Sampler) -> None:
    builder = runtime.create_pipeline_builder()
    builder.add_processor_stage(sample.processor).ort_options().set_thread_count(1)
    with failing(0x80070032):
        builder.build()


@pytest.mark.usefixtures("machine_with_gpu")
def test_a_processor_stage_on_a_gpu_is_refused_at_build(runtime: Runtime, sample: Sampler) -> None:
    builder = runtime.create_pipeline_builder()
    builder.add_processor_stage(sample.processor, runtime.create_target(ExecutionTargetKind.GPU), "sample")
    with failing(0x80070032) as caught:
        builder.build()
    assert "sample: " in str(caught.value)


def test_a_processor_stage_on_a_provider_is_refused_at_build(runtime: Runtime, sample: Sampler) -> None:
    pinned = runtime.create_ort_execution_target("CPUExecutionProvider", ExecutionTargetKind.CPU)
    builder = runtime.create_pipeline_builder()
    builder.add_processor_stage(sample.processor, pinned)
    with failing(0x80070032):
        builder.build()


@pytest.mark.usefixtures("machine_with_gpu")
def test_a_processor_is_not_made_for_a_gpu(runtime: Runtime) -> None:
    hidden, gpu = runtime.create_tensor(F32, (3,)), runtime.create_target(ExecutionTargetKind.GPU)
    with failing(0x80070032):
        runtime.create_decode_embed_processor(6, 3, 4, hidden, target=gpu)


def test_add_processor_stage_checks_its_arguments(runtime: Runtime, sample: Sampler) -> None:
    builder = runtime.create_pipeline_builder()
    with pytest.raises(TypeError):
        builder.add_processor_stage(object())  # type: ignore[arg-type]
    with pytest.raises(ValueError):
        builder.add_processor_stage(sample.processor, name=1)  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        builder.add_processor_stage(sample.processor, object())  # type: ignore[arg-type]
    with Runtime() as other, failing(0x80070057):
        builder.add_processor_stage(sampler(other).processor)
    with Runtime() as other, failing(0x80070057):
        builder.add_processor_stage(sample.processor, other.create_cpu_target())


def test_a_built_builder_takes_no_processor_stage(runtime: Runtime, sample: Sampler) -> None:
    builder = runtime.create_pipeline_builder()
    builder.add_processor_stage(sample.processor).bind_input(0, peaks(runtime, 3))
    builder.build()
    with failing(0x8007139F):
        builder.add_processor_stage(sample.processor)


# With models in one graph


@pytest.mark.usefixtures("onnx_engine")
def test_logits_of_a_model_feed_a_processor(runtime: Runtime, sample: Sampler) -> None:
    builder = runtime.create_pipeline_builder()
    decoder = builder.add_model_stage(successors(runtime))
    stage = builder.add_processor_stage(sample.processor)
    builder.connect(decoder, 0, stage, 0)
    decoder.bind_input(0, runtime.tensor_from_tokens([2]))
    builder.build().run()
    assert sample.state() == ([1, 3, 0, 0], [1], [2], [3])


def test_an_edge_of_another_type_or_size_is_refused(runtime: Runtime, files: ModelFiles, sample: Sampler) -> None:
    builder = runtime.create_pipeline_builder()
    adder = builder.add_model_stage(runtime.load_model(files.onnx("add")))
    builder.connect(adder, 0, builder.add_processor_stage(sample.processor), 0)
    with failing(0x80070057):
        builder.build()


@pytest.mark.usefixtures("onnx_engine")
def test_a_processor_feeds_itself_in_the_next_iteration(runtime: Runtime, sample: Sampler) -> None:
    """Token 2 of the ring is followed by 3, that by 4, as the model says."""
    hidden = runtime.create_tensor(F32, (1,))
    embed = runtime.create_decode_embed_processor(VOCABULARY, 1, 4, hidden)
    ids = runtime.create_processor(lambda row: row.astype(np.int64)[None], [(F32, (1,))], [(I64, (1, 1))])
    sample.ring.copy_from(int32(runtime, 2, 0, 0, 0))
    builder = runtime.create_pipeline_builder()
    first, second = builder.add_processor_stage(embed), builder.add_processor_stage(ids)
    decoder = builder.add_model_stage(successors(runtime))
    last = builder.add_processor_stage(sample.processor)
    builder.connect(first, 0, second, 0)
    builder.connect(second, 0, decoder, 0)
    builder.connect(decoder, 0, last, 0)
    builder.connect_next_iteration(last, 1, first, 0)
    builder.connect_next_iteration(last, 2, first, 1)
    first.bind_input(0, sample.ring)
    first.bind_input(1, sample.position)
    first.bind_input(2, runtime.tensor_from_numpy(np.arange(8, dtype=np.float32)[:, None]))
    pipeline = builder.build()
    for _ in range(3):
        pipeline.run()
    assert sample.state() == ([2, 3, 4, 5], [3], [4], [5])


@pytest.mark.parametrize("failure", [WinMLError(0x80004005), KeyboardInterrupt()])
def test_a_later_stage_that_fails_leaves_the_tensors_unchanged(
    runtime: Runtime, files: ModelFiles, sample: Sampler, fake_ort: FakeBackend, script: Script, failure: BaseException
) -> None:
    builder = runtime.create_pipeline_builder()
    first = builder.add_processor_stage(sample.processor)
    adder = builder.add_model_stage(runtime.load_model(files.onnx("add")))
    first.bind_input(0, peaks(runtime, 3))
    adder.bind_input(0, runtime.tensor_from_numpy(np.zeros(2, np.float32)))
    adder.bind_input(1, runtime.tensor_from_numpy(np.zeros(2, np.float32)))
    pipeline = builder.build()
    script.fail_at[1] = failure
    with pytest.raises(type(failure)):
        pipeline.run()
    assert sample.state() == ([1, 0, 0, 0], [0], [1], [-1])
    pipeline.run()
    assert sample.state() == ([1, 3, 0, 0], [1], [2], [3])


def test_a_full_ring_fails_the_run_and_its_earlier_stages(runtime: Runtime, sample: Sampler) -> None:
    hidden = runtime.tensor_from_numpy(np.array([7, 8, 9], np.float32))
    embed = runtime.create_decode_embed_processor(6, 3, 4, hidden)
    builder = runtime.create_pipeline_builder()
    first, last = builder.add_processor_stage(embed), builder.add_processor_stage(sampler(runtime, 3).processor)
    first.bind_input(0, sample.ring)
    first.bind_input(1, sample.position)
    first.bind_input(2, runtime.tensor_from_numpy(TABLE))
    last.bind_input(0, peaks(runtime, 3))
    with failing(0x8000000B):
        builder.build().run()
    assert values(hidden) == [7.0, 8.0, 9.0]


def test_stages_that_change_the_same_tensors_are_undone_together(runtime: Runtime, sample: Sampler) -> None:
    builder = runtime.create_pipeline_builder()
    for token in (3, 6):
        builder.add_processor_stage(sample.processor).bind_input(0, peaks(runtime, token))
    builder.add_processor_stage(sampler(runtime, 3).processor).bind_input(0, peaks(runtime, 1))
    with failing(0x8000000B):
        builder.build().run()
    assert sample.state() == ([1, 0, 0, 0], [0], [1], [-1])


def test_stages_that_change_the_same_tensors_see_each_other(runtime: Runtime, sample: Sampler) -> None:
    builder = runtime.create_pipeline_builder()
    for token in (3, 6):
        builder.add_processor_stage(sample.processor).bind_input(0, peaks(runtime, token))
    builder.build().run()
    assert sample.state() == ([1, 3, 6, 0], [2], [3], [6])


@pytest.mark.usefixtures("gguf_engine")
def test_a_decoder_and_a_choice_are_a_token_loop(runtime: Runtime, files: ModelFiles) -> None:
    """A line feed is the prompt; the model says its sentence and ends its turn."""
    ring, one = runtime.create_tensor(I32, (20,)), int32(runtime, 0)
    processor = runtime.create_decode_sample_processor(VOCABULARY_SIZE, True, ring, int32(runtime, 0), one, one)
    builder = runtime.create_pipeline_builder()
    decoder, choice = (
        builder.add_model_stage(runtime.load_model(files.scripted_gguf)),
        builder.add_processor_stage(processor),
    )
    decoder.bind_input(0, runtime.tensor_from_tokens([10]))
    builder.connect(decoder, 0, choice, 0)
    builder.connect_next_iteration(choice, 0, decoder, 0)
    builder.build().iteration_execution().submit_iterations(18).wait()
    assert values(ring)[1:19] == list(SUCCESSORS.values())
    assert decoder.sequence_position == 18


def test_iterations_are_submitted_together(runtime: Runtime, sample: Sampler) -> None:
    """The choice is fed back to itself: to a function that prefers the token after it."""
    peak = runtime.create_processor(
        lambda token: np.eye(VOCABULARY, dtype=np.float32)[token + 1], [(I32, (1,))], [(F32, (1, VOCABULARY))]
    )
    builder = runtime.create_pipeline_builder()
    first, last = builder.add_processor_stage(peak), builder.add_processor_stage(sample.processor)
    builder.connect(first, 0, last, 0)
    builder.connect_next_iteration(last, 0, first, 0)
    first.bind_input(0, int32(runtime, 2))
    builder.build().iteration_execution().submit_iterations(3).wait()
    assert sample.state() == ([1, 3, 4, 5], [3], [4], [5])


# Memory that the CPU reaches only through a copy


def staged_sampler(runtime: Runtime) -> tuple[Processor, DeviceStorage]:
    """A sample processor whose position lies on a device."""
    position = DeviceStorage(bytes(4), I32, (1,))
    kept = (Tensor(position, runtime.underlying_object), int32(runtime, 1), int32(runtime, -1))
    return runtime.create_decode_sample_processor(VOCABULARY, True, int32(runtime, 1, 0, 0), *kept), position


def test_a_staged_tensor_is_fetched_and_published(runtime: Runtime) -> None:
    processor, position = staged_sampler(runtime)
    position.memory[:] = b"\x01\x00\x00\x00"
    _, ring, *_ = processor.execute([peaks(runtime, 3)])
    assert bytes(position.memory) == b"\x02\x00\x00\x00"
    assert values(ring) == [1, 0, 3]


def test_a_failed_run_publishes_nothing(runtime: Runtime) -> None:
    processor, position = staged_sampler(runtime)
    builder = runtime.create_pipeline_builder()
    stage = builder.add_processor_stage(processor)
    stage.bind_input(0, peaks(runtime, 3))
    pipeline = builder.build()
    pipeline.run()
    pipeline.run()
    assert bytes(position.memory) == b"\x02\x00\x00\x00"
    position.memory[:] = b"\x07\x00\x00\x00"
    with failing(0x8000000B):
        pipeline.run()
    assert bytes(position.memory) == b"\x07\x00\x00\x00"
