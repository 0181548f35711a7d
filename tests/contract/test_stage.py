"""Stages: bindings, outputs, shapes and extensions.

Statements 57-76 and 132-142 of the object model, 77-86 of tensors.
"""

from __future__ import annotations

import gc
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from fakes.backend import FakeBackend, Script
from fakes.engines import Sample, decoder_sample, spoil
from fakes.model_files import ModelFiles
from fakes.rig import built, built_add, failing, floats, integers, result
from winml_lite import (
    ExecutionTargetKind,
    NotSupportedError,
    PipelineBuilder,
    Runtime,
    Stage,
    TensorAccessMode,
    TensorDataType,
)
from winml_lite.native.backend import replaced_backend
from winml_lite.ort_extensions import OrtStageOptions

F32, I32 = TensorDataType.FLOAT32, TensorDataType.INT32
FREE = 2**64 - 1


def unbuilt(runtime: Runtime, path: str) -> Stage:
    return runtime.create_pipeline_builder().add_model_stage(runtime.load_model(path))


# Bindings and outputs


def test_r57_bind_run_read(runtime: Runtime, engine: Sample) -> None:
    stage, pipeline = engine.built(runtime)
    stage.bind_input(0, engine.value(runtime))
    stage.request_output(0)
    pipeline.run()
    assert engine.answer(stage.output(0)) == engine.first


def test_r57_the_sum_of_two_vectors(runtime: Runtime, files: ModelFiles, onnx_engine: str) -> None:
    stage, pipeline = built_add(runtime, files.onnx("add"))
    pipeline.run()
    output = stage.output(0)
    assert output.desc() == (F32, (2,))
    assert output.to_numpy().tolist() == [11, 22]


def test_r58_an_output_that_is_not_published(runtime: Runtime, engine: Sample) -> None:
    stage, pipeline = engine.built(runtime)
    stage.reset_output(0)
    with failing(0x80070490):
        stage.output(0)
    pipeline.run()
    with failing(0x80070490):
        stage.output(0)


def test_r58_an_output_that_was_never_published(runtime: Runtime, engine: Sample) -> None:
    builder = runtime.create_pipeline_builder()
    stage = engine.add(runtime, builder)
    pipeline = builder.build()
    with failing(0x80070490):
        stage.output(0)
    pipeline.run()
    with failing(0x80070490):
        stage.output(0)


def test_r59_a_requested_output_before_the_first_run(runtime: Runtime, engine: Sample) -> None:
    stage, _ = engine.built(runtime)
    with failing(0x8007139F):
        stage.output(0)


def test_r59_a_requested_output_before_build(runtime: Runtime, engine: Sample) -> None:
    stage = engine.unbuilt(runtime)
    stage.request_output(0)
    with failing(0x8007139F):
        stage.output(0)


def test_r60_a_bound_output_is_the_tensor(runtime: Runtime, engine: Sample) -> None:
    stage, pipeline = engine.built(runtime)
    mine = engine.room(runtime)
    stage.bind_output(0, mine)
    before = stage.output(0)
    pipeline.run()
    assert engine.answer(mine) == engine.first
    assert engine.answer(before) == engine.answer(stage.output(0)) == engine.first
    mine.fill(0)
    assert not before.to_numpy().any()


def test_r60_an_output_bound_before_build(runtime: Runtime, engine: Sample) -> None:
    builder, mine = runtime.create_pipeline_builder(), engine.room(runtime)
    stage = engine.add(runtime, builder)
    stage.bind_output(0, mine)
    assert engine.answer(stage.output(0)) != engine.first
    builder.build().run()
    assert engine.answer(mine) == engine.first


def test_r61_binding_takes_over_from_a_request(runtime: Runtime, engine: Sample) -> None:
    stage, pipeline = engine.built(runtime)
    mine = engine.room(runtime)
    stage.request_output(0)
    stage.bind_output(0, mine)
    pipeline.run()
    assert engine.answer(mine) == engine.first
    stage.reset_output(0)
    with failing(0x80070490):
        stage.output(0)


def test_r61_a_request_takes_over_from_a_binding(runtime: Runtime, engine: Sample) -> None:
    stage, pipeline = engine.built(runtime)
    mine = engine.room(runtime)
    stage.bind_output(0, mine)
    stage.request_output(0)
    pipeline.run()
    assert engine.answer(stage.output(0)) == engine.first
    assert not mine.to_numpy().any()


def test_requesting_again_keeps_what_was_produced(runtime: Runtime, engine: Sample) -> None:
    stage, pipeline = engine.built(runtime)
    pipeline.run()
    stage.request_output(0)
    assert engine.answer(stage.output(0)) == engine.first


def test_r62_one_of_two_outputs(runtime: Runtime, files: ModelFiles, onnx_engine: str) -> None:
    stage, pipeline = built(runtime, files.onnx("two"))
    stage.bind_input(0, floats(runtime, 1, 2))
    stage.request_output(1)
    pipeline.run()
    assert result(stage, 1) == [-1, -2]
    with failing(0x80070490):
        stage.output(0)


def test_r63_a_withdrawn_output_still_feeds_its_consumer(runtime: Runtime, files: ModelFiles, onnx_engine: str) -> None:
    builder = runtime.create_pipeline_builder()
    model = runtime.load_model(files.onnx("inc"))
    first, second = builder.add_model_stage(model), builder.add_model_stage(model)
    builder.connect(first, 0, second, 0)
    first.bind_input(0, integers(runtime, 5))
    first.request_output(0)
    second.request_output(0)
    pipeline = builder.build()
    pipeline.run()
    assert (result(first), result(second)) == ([6], [7])
    first.reset_output(0)
    first.bind_input(0, integers(runtime, 7))
    pipeline.run()
    assert result(second) == [9]
    with failing(0x80070490):
        first.output(0)


def test_r63_withdrawn_logits_still_feed_their_consumer(runtime: Runtime, files: ModelFiles, both_engines: str) -> None:
    builder = runtime.create_pipeline_builder()
    decoder = decoder_sample(files).add(runtime, builder)
    likeliest = builder.add_model_stage(runtime.load_model(files.onnx("likeliest")))
    builder.connect(decoder, 0, likeliest, 0)
    decoder.request_output(0)
    likeliest.request_output(0)
    pipeline = builder.build()
    decoder.reset_output(0)
    pipeline.run()
    assert result(likeliest) == [259]


@pytest.mark.parametrize("is_built", [False, True])
def test_r64_an_index_out_of_range(runtime: Runtime, files: ModelFiles, onnx_engine: str, is_built: bool) -> None:
    stage = built(runtime, files.onnx("add"))[0] if is_built else unbuilt(runtime, files.onnx("add"))
    tensor = floats(runtime, 1, 2)
    with failing(0x80070057):
        stage.bind_input(2, tensor)
    with failing(0x80070057):
        stage.clear_input(2)
    with failing(0x80070057):
        stage.bind_output(1, tensor)
    with failing(0x80070057):
        stage.request_output(1)
    with failing(0x80070057):
        stage.reset_output(1)
    with failing(0x80070057):
        stage.output(1)


def test_r64_an_index_out_of_range_of_a_decoder(runtime: Runtime, files: ModelFiles, gguf_engine: str) -> None:
    sample = decoder_sample(files)
    stage, _ = sample.built(runtime)
    with failing(0x80070057):
        stage.bind_input(1, sample.value(runtime))
    with failing(0x80070057):
        stage.clear_input(1)
    with failing(0x80070057):
        stage.bind_output(1, sample.room(runtime))
    with failing(0x80070057):
        stage.request_output(1)
    with failing(0x80070057):
        stage.reset_output(1)
    with failing(0x80070057):
        stage.output(1)


@pytest.mark.parametrize("change", ["bind_input", "bind_output", "request_output"])
def test_r64_a_decoder_learns_its_indices_at_build(
    runtime: Runtime, files: ModelFiles, gguf_engine: str, change: str
) -> None:
    sample, builder = decoder_sample(files), runtime.create_pipeline_builder()
    stage = sample.add(runtime, builder)
    tensor = () if change == "request_output" else (sample.room(runtime),)
    getattr(stage, change)(1, *tensor)
    with failing(0x80070057):
        builder.build()


@pytest.mark.parametrize("index", [True, "0", 0.0, None])
def test_what_is_no_index(runtime: Runtime, engine: Sample, index: int) -> None:
    stage, tensor = engine.unbuilt(runtime), engine.value(runtime)
    with pytest.raises(TypeError):
        stage.bind_input(index, tensor)
    with pytest.raises(TypeError):
        stage.clear_input(index)
    with pytest.raises(TypeError):
        stage.bind_output(index, tensor)
    with pytest.raises(TypeError):
        stage.request_output(index)
    with pytest.raises(TypeError):
        stage.reset_output(index)
    with pytest.raises(TypeError):
        stage.output(index)


@pytest.mark.parametrize("index", [-1, 2**32])
def test_an_index_that_is_no_uint32(runtime: Runtime, engine: Sample, index: int) -> None:
    stage, tensor = engine.unbuilt(runtime), engine.value(runtime)
    with pytest.raises(ValueError):
        stage.bind_input(index, tensor)
    with pytest.raises(ValueError):
        stage.clear_input(index)
    with pytest.raises(ValueError):
        stage.bind_output(index, tensor)
    with pytest.raises(ValueError):
        stage.request_output(index)
    with pytest.raises(ValueError):
        stage.reset_output(index)
    with pytest.raises(ValueError):
        stage.output(index)


def test_a_numpy_integer_is_an_index(runtime: Runtime, engine: Sample) -> None:
    stage, pipeline = engine.built(runtime)
    stage.bind_input(np.int64(0), engine.other(runtime))  # type: ignore[arg-type]
    pipeline.run()
    assert engine.answer(stage.output(np.uint8(0))) == engine.second  # type: ignore[arg-type]


@pytest.mark.parametrize("tensor", [None, np.zeros(2, np.float32)])
def test_r65_what_is_no_tensor(runtime: Runtime, engine: Sample, tensor: object) -> None:
    for stage in (engine.unbuilt(runtime), engine.built(runtime)[0]):
        with pytest.raises(TypeError):
            stage.bind_input(0, tensor)  # type: ignore[arg-type]
        with pytest.raises(TypeError):
            stage.bind_output(0, tensor)  # type: ignore[arg-type]


def test_r65_an_array_is_told_how_to_become_a_tensor(runtime: Runtime, files: ModelFiles) -> None:
    stage = unbuilt(runtime, files.onnx("add"))
    with pytest.raises(TypeError, match=r"not ndarray; make one with runtime\.tensor_from_numpy"):
        stage.bind_input(0, np.zeros(2, np.float32))  # type: ignore[arg-type]


def test_r65_a_closed_tensor(runtime: Runtime, engine: Sample) -> None:
    stage, _ = engine.built(runtime)
    tensor, room = engine.value(runtime), engine.room(runtime)
    tensor.close()
    room.close()
    with pytest.raises(RuntimeError, match="Tensor is closed"):
        stage.bind_input(0, tensor)
    with pytest.raises(RuntimeError, match="Tensor is closed"):
        stage.bind_output(0, room)


def test_r66_the_index_is_checked_before_the_tensor(runtime: Runtime, engine: Sample) -> None:
    stage, tensor = engine.built(runtime)[0], engine.value(runtime)
    tensor.close()
    with pytest.raises(TypeError):
        stage.bind_input("0", tensor)  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        stage.bind_output("0", tensor)  # type: ignore[arg-type]


def test_r66_the_stage_is_checked_first(runtime: Runtime, engine: Sample) -> None:
    stage, _ = engine.built(runtime)
    stage.close()
    with pytest.raises(RuntimeError, match="Stage is closed"):
        stage.bind_input("0", None)  # type: ignore[arg-type]


def test_r67_a_tensor_may_be_closed_after_binding(runtime: Runtime, engine: Sample) -> None:
    stage, pipeline = engine.built(runtime)
    with engine.other(runtime) as tensor:
        stage.bind_input(0, tensor)
    del tensor
    gc.collect()
    pipeline.run()
    assert engine.answer(stage.output(0)) == engine.second
    pipeline.run()
    assert engine.answer(stage.output(0)) == engine.second


def test_r68_bindings_survive_runs_and_resets(runtime: Runtime, engine: Sample) -> None:
    stage, pipeline = engine.built(runtime)
    pipeline.run()
    pipeline.run()
    assert engine.answer(stage.output(0)) == engine.first
    pipeline.reset()
    pipeline.run()
    assert engine.answer(stage.output(0)) == engine.first


def test_r69_binding_again_feeds_new_data(runtime: Runtime, engine: Sample) -> None:
    stage, pipeline = engine.built(runtime)
    pipeline.run()
    stage.bind_input(0, engine.other(runtime))
    pipeline.run()
    assert engine.answer(stage.output(0)) == engine.second


def test_r69_binding_again_changes_one_input(runtime: Runtime, files: ModelFiles, onnx_engine: str) -> None:
    stage, pipeline = built_add(runtime, files.onnx("add"))
    pipeline.run()
    stage.bind_input(1, floats(runtime, 100, 200))
    pipeline.run()
    assert result(stage) == [101, 202]


def test_contents_are_read_by_each_run(runtime: Runtime, engine: Sample) -> None:
    stage, pipeline = engine.built(runtime)
    tensor = engine.value(runtime)
    stage.bind_input(0, tensor)
    pipeline.run()
    tensor.copy_from(engine.other(runtime))
    pipeline.run()
    assert engine.answer(stage.output(0)) == engine.second


@pytest.mark.parametrize(("access", "changed"), [(1, [15, 26]), (2, [15, 26])])
def test_changes_of_an_aliased_buffer_are_seen(
    runtime: Runtime, files: ModelFiles, onnx_engine: str, access: int, changed: list[float]
) -> None:
    stage, pipeline = built_add(runtime, files.onnx("add"))
    mine = np.array([1, 2], np.float32)
    stage.bind_input(0, runtime.tensor_from_buffer(mine, F32, (2,), access=access))
    pipeline.run()
    mine[:] = [5, 6]
    pipeline.run()
    assert result(stage) == changed


def test_r70_another_element_type(runtime: Runtime, engine: Sample) -> None:
    stage, _ = engine.built(runtime)
    with failing(0x80070057):
        stage.bind_input(0, runtime.create_tensor(TensorDataType.FLOAT64, (2,)))
    with failing(0x80070057):
        stage.bind_output(0, runtime.create_tensor(TensorDataType.FLOAT64, (2,)))


def test_r70_another_rank(runtime: Runtime, engine: Sample) -> None:
    stage, _ = engine.built(runtime)
    data_type = engine.value(runtime).desc()[0]
    with failing(0x80070057):
        stage.bind_input(0, runtime.create_tensor(data_type, (1, 1, 2)))
    with failing(0x80070057):
        stage.bind_output(0, runtime.create_tensor(F32, (1, 1, 2)))


def test_r70_s_shp_01_both_types_are_named(runtime: Runtime, files: ModelFiles, onnx_engine: str) -> None:
    stage, _ = built(runtime, files.onnx("add"))
    with failing(0x80070057) as caught:
        stage.bind_input(0, integers(runtime, 1, 2))
    assert "FLOAT32[2]" in str(caught.value)
    assert "INT64[2]" in str(caught.value)


@pytest.mark.parametrize("shape", [(3,), (1, 4), (1, 1, 3)])
def test_r70_another_rank_or_fixed_extent(
    runtime: Runtime, files: ModelFiles, onnx_engine: str, shape: tuple[int, ...]
) -> None:
    stage, _ = built(runtime, files.onnx("dyn1"))
    with failing(0x80070057) as caught:
        stage.bind_input(0, runtime.create_tensor(F32, shape))
    assert "FLOAT32[?, 3]" in str(caught.value)


@pytest.mark.parametrize("shape", [(2, 2), (0,), (1, 0), ()])
def test_r70_what_is_no_row_of_ids(
    runtime: Runtime, files: ModelFiles, gguf_engine: str, shape: tuple[int, ...]
) -> None:
    stage, _ = decoder_sample(files).built(runtime)
    with failing(0x80070057):
        stage.bind_input(0, runtime.create_tensor(TensorDataType.INT32, shape))


def test_r70_a_wrong_binding_made_before_build_fails_build(runtime: Runtime, engine: Sample) -> None:
    builder = runtime.create_pipeline_builder()
    stage = engine.add(runtime, builder)
    stage.bind_input(0, runtime.create_tensor(TensorDataType.FLOAT64, (2,)))
    with failing(0x80070057):
        builder.build()


def test_r71_a_missing_input(runtime: Runtime, engine: Sample) -> None:
    stage, pipeline = engine.built(runtime)
    stage.clear_input(0)
    with failing(0x80070057):
        pipeline.run()
    with failing(0x8007139F):
        stage.output(0)
    stage.bind_input(0, engine.value(runtime))
    pipeline.run()
    assert engine.answer(stage.output(0)) == engine.first


def test_r71_nothing_is_published_when_an_input_is_missing(runtime: Runtime, engine: Sample) -> None:
    stage, pipeline = engine.built(runtime)
    mine = engine.room(runtime)
    stage.bind_output(0, mine)
    stage.clear_input(0)
    with failing(0x80070057):
        pipeline.run()
    assert not mine.to_numpy().any()


def test_r71_a_later_stage_misses_an_input(runtime: Runtime, files: ModelFiles, both_engines: str) -> None:
    builder = runtime.create_pipeline_builder()
    decoder = decoder_sample(files).add(runtime, builder)
    later = builder.add_model_stage(runtime.load_model(files.onnx("add")), name="sum")
    later.bind_input(0, floats(runtime, 1, 2))
    with failing(0x80070057) as caught:
        builder.build().run()
    assert decoder.sequence_position == 0
    assert "sum: input 1" in str(caught.value)


def test_r71_nothing_executes_when_a_later_stage_misses_an_input(
    runtime: Runtime, files: ModelFiles, fake_ort: FakeBackend, script: Script
) -> None:
    builder = runtime.create_pipeline_builder()
    first = builder.add_model_stage(runtime.load_model(files.onnx("two")))
    second = builder.add_model_stage(runtime.load_model(files.onnx("add")), name="sum")
    builder.connect(first, 0, second, 0)
    first.bind_input(0, floats(runtime, 1, 2))
    with failing(0x80070057) as caught:
        builder.build().run()
    assert script.runs == 0
    assert "sum: input 1" in str(caught.value)


def test_r72_a_read_view_takes_no_output(runtime: Runtime, engine: Sample) -> None:
    data_type, shape = engine.room(runtime).desc()
    view = runtime.tensor_from_buffer(np.zeros(shape, np.float32), data_type, shape, access=TensorAccessMode.READ)
    for stage in (engine.unbuilt(runtime), engine.built(runtime)[0]):
        with failing(0x80070057):
            stage.bind_output(0, view)


def test_a_read_view_is_an_input(runtime: Runtime, engine: Sample) -> None:
    stage, pipeline = engine.built(runtime)
    other = engine.other(runtime)
    view = runtime.tensor_from_buffer(other.to_numpy().tobytes(), *other.desc(), access=TensorAccessMode.READ)
    stage.bind_input(0, view)
    pipeline.run()
    assert engine.answer(stage.output(0)) == engine.second


def test_r73_an_output_keeps_its_values(runtime: Runtime, engine: Sample) -> None:
    stage, pipeline = engine.built(runtime)
    pipeline.run()
    first = stage.output(0)
    before = first.to_numpy()
    stage.bind_input(0, engine.other(runtime))
    pipeline.run()
    assert engine.answer(first) == engine.first
    assert np.array_equal(first.to_numpy(), before)
    assert engine.answer(stage.output(0)) == engine.second


def test_r74_after_a_failed_run_there_is_no_output(
    runtime: Runtime, engine: Sample, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage, pipeline = engine.built(runtime)
    pipeline.run()
    kept = stage.output(0)
    spoil(stage, monkeypatch, RuntimeError("the second run fails"))
    with pytest.raises(RuntimeError, match="the second run fails"):
        pipeline.run()
    with failing(0x8007139F):
        stage.output(0)
    assert engine.answer(kept) == engine.first
    pipeline.run()
    assert engine.answer(stage.output(0)) == engine.first


def test_r74_extents_that_disagree_fail_a_run(runtime: Runtime, files: ModelFiles, onnx_engine: str) -> None:
    stage, pipeline = built(runtime, files.onnx("same_symbol"))
    stage.bind_input(0, floats(runtime, 1, 2))
    stage.bind_input(1, floats(runtime, 10, 20))
    stage.request_output(0)
    pipeline.run()
    assert result(stage) == [33]
    stage.bind_input(1, floats(runtime, 10, 20, 30))
    with failing(0x80070057):
        pipeline.run()
    with failing(0x8007139F):
        stage.output(0)


def test_r74_an_unknown_token_fails_a_run(runtime: Runtime, files: ModelFiles, gguf_engine: str) -> None:
    stage, pipeline = decoder_sample(files).built(runtime)
    pipeline.run()
    stage.bind_input(0, runtime.tensor_from_tokens([331]))
    with failing(0x80070057):
        pipeline.run()
    with failing(0x8007139F):
        stage.output(0)


def test_r75_the_execution_target(runtime: Runtime, engine: Sample) -> None:
    builder = runtime.create_pipeline_builder()
    stage = engine.add(runtime, builder)
    with failing(0x8007139F):
        _ = stage.execution_target
    builder.build()
    assert stage.execution_target.kind is ExecutionTargetKind.CPU
    assert stage.execution_target is not stage.execution_target


def test_r76_an_output_requested_after_a_run(runtime: Runtime, engine: Sample) -> None:
    builder = runtime.create_pipeline_builder()
    stage = engine.add(runtime, builder)
    pipeline = builder.build()
    pipeline.run()
    stage.request_output(0)
    with failing(0x8007139F):
        stage.output(0)
    pipeline.run()
    assert engine.answer(stage.output(0)) == engine.first


# ONNX Runtime extensions


def test_r132_t84_diagnostics_of_a_pinned_stage(runtime: Runtime, files: ModelFiles, onnx_engine: str) -> None:
    builder = runtime.create_pipeline_builder()
    target = runtime.create_ort_execution_target("CPUExecutionProvider", ExecutionTargetKind.CPU)
    stage = builder.add_model_stage(runtime.load_model(files.onnx("add")), target)
    builder.build()
    diagnostics = stage.ort_diagnostics()
    assert diagnostics.requested_provider == diagnostics.selected_provider == "CPUExecutionProvider"
    assert diagnostics.is_provider_pinned is True


def test_r132_t84_s_plc_01_diagnostics_of_a_cpu_stage(runtime: Runtime, files: ModelFiles, onnx_engine: str) -> None:
    builder = runtime.create_pipeline_builder()
    stage = builder.add_model_stage(runtime.load_model(files.onnx("add")), runtime.create_cpu_target())
    builder.build()
    diagnostics = stage.ort_diagnostics()
    assert repr(diagnostics) == "<OrtStageDiagnostics of 'stage': CPUExecutionProvider>"
    assert diagnostics.requested_provider is None
    assert diagnostics.selected_provider == "CPUExecutionProvider"
    assert diagnostics.is_provider_pinned is False


def test_diagnostics_show_that_nothing_is_chosen_yet(runtime: Runtime, files: ModelFiles, onnx_engine: str) -> None:
    stage = runtime.create_pipeline_builder().add_model_stage(runtime.load_model(files.onnx("add")))
    diagnostics = stage.ort_diagnostics()
    assert repr(diagnostics) == "<OrtStageDiagnostics of 'stage': no provider yet>"
    diagnostics.close()
    assert repr(diagnostics) == "<OrtStageDiagnostics (closed)>"


def test_r133_t85_an_unknown_provider_fails_at_build(runtime: Runtime, files: ModelFiles, onnx_engine: str) -> None:
    builder = runtime.create_pipeline_builder()
    target = runtime.create_ort_execution_target("NoSuchProvider", ExecutionTargetKind.CPU)
    builder.add_model_stage(runtime.load_model(files.onnx("add")), target)
    with failing(0x80070490) as caught:
        builder.build()
    assert "CPUExecutionProvider" in str(caught.value)


def test_r134_t79_provider_options_need_a_provider(runtime: Runtime, files: ModelFiles, onnx_engine: str) -> None:
    builder = runtime.create_pipeline_builder()
    stage = builder.add_model_stage(runtime.load_model(files.onnx("add")))
    stage.ort_options().set_provider_option("arena_extend_strategy", "kSameAsRequested")
    with failing(0x80070057) as caught:
        builder.build()
    assert "provider options need a provider" in str(caught.value)


def test_r134_t79_provider_options_with_a_provider(runtime: Runtime, files: ModelFiles, onnx_engine: str) -> None:
    builder = runtime.create_pipeline_builder()
    target = runtime.create_ort_execution_target("CPUExecutionProvider", ExecutionTargetKind.CPU)
    stage = builder.add_model_stage(runtime.load_model(files.onnx("add")), target)
    stage.ort_options().set_provider_option("arena_extend_strategy", "kSameAsRequested")
    builder.build()
    assert stage.ort_diagnostics().selected_provider == "CPUExecutionProvider"


def test_r134_session_entries_need_no_provider(runtime: Runtime, files: ModelFiles, onnx_engine: str) -> None:
    builder = runtime.create_pipeline_builder()
    stage = builder.add_model_stage(runtime.load_model(files.onnx("add")))
    stage.ort_options().set_session_config("an.unknown.entry", "1")
    builder.build()


def test_options_reach_the_engine(runtime: Runtime, files: ModelFiles, fake_ort: FakeBackend, script: Script) -> None:
    builder = runtime.create_pipeline_builder()
    target = runtime.create_ort_execution_target("CPUExecutionProvider", ExecutionTargetKind.CPU)
    options = builder.add_model_stage(runtime.load_model(files.onnx("add")), target, "sum").ort_options()
    options.set_thread_count(3)
    options.set_session_config_entries({"a": "1", "b": "2"})
    options.set_session_config("a", "3")
    options.set_provider_options({"c": ""})
    builder.build()
    sent = script.options[0].ort
    assert sent is not None
    assert sent.thread_count == 3
    assert sent.session_config == (("a", "3"), ("b", "2"))
    assert sent.provider_options == (("c", ""),)
    assert script.options[0].debug_name == "sum"
    assert script.placements[0].provider == "CPUExecutionProvider"


def test_t81_wrong_options(runtime: Runtime, files: ModelFiles) -> None:
    options = unbuilt(runtime, files.onnx("add")).ort_options()
    with pytest.raises(ValueError, match=r"count must be in 0\.\.512"):
        options.set_thread_count(513)
    with pytest.raises(ValueError, match="the key must not be empty"):
        options.set_session_config("", "1")
    with pytest.raises(ValueError, match="value must be a str, not int"):
        options.set_session_config("a", 1)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="key must be free of NUL"):
        options.set_session_config("a\0", "1")
    with pytest.raises(ValueError, match="value must be text"):
        options.set_session_config("a", "\ud800")
    with pytest.raises(ValueError, match="key must be text"):
        options.set_provider_option("\ud800", "1")
    with pytest.raises(ValueError, match="options must be a mapping"):
        options.set_provider_options([("a", "1")])  # type: ignore[arg-type]
    options.set_provider_option("a", "")
    with failing(0x80070057):
        options.set_session_config("k" * 1025, "1")


def test_t81_a_bulk_setter_keeps_what_came_before_the_wrong_entry(
    runtime: Runtime, files: ModelFiles, fake_ort: FakeBackend, script: Script
) -> None:
    builder = runtime.create_pipeline_builder()
    options = builder.add_model_stage(runtime.load_model(files.onnx("add"))).ort_options()
    with pytest.raises(ValueError, match="the key must not be empty"):
        options.set_session_config_entries({"a": "1", "": "2", "c": "3"})
    builder.build()
    sent = script.options[0].ort
    assert sent is not None
    assert sent.session_config == (("a", "1"),)


def test_r135_t80_before_and_after_build(runtime: Runtime, files: ModelFiles, onnx_engine: str) -> None:
    builder = runtime.create_pipeline_builder()
    stage = builder.add_model_stage(runtime.load_model(files.onnx("add")))
    with failing(0x8007139F):
        _ = stage.ort_diagnostics().requested_provider
    with failing(0x8007139F):
        _ = stage.ort_diagnostics().selected_provider
    with failing(0x8007139F):
        _ = stage.ort_diagnostics().is_provider_pinned
    options = stage.ort_options()
    builder.build()
    with failing(0x8007139F):
        options.set_session_config("a", "1")
    with failing(0x8007139F):
        options.set_session_config_entries({"a": "1"})
    with failing(0x8007139F):
        options.set_provider_option("a", "1")
    with failing(0x8007139F):
        options.set_provider_options({"a": "1"})
    with failing(0x8007139F):
        options.set_thread_count(1)
    with failing(0x8007139F):
        options.set_shared_context_group("a")
    with failing(0x8007139F):
        options.clear_shared_context_group()


@pytest.mark.parametrize("is_built", [False, True])
def test_r135_t86_views_of_another_engine(
    runtime: Runtime, files: ModelFiles, gguf_engine: str, is_built: bool
) -> None:
    stage = built(runtime, files.gguf)[0] if is_built else unbuilt(runtime, files.gguf)
    with failing(0x80070032, NotSupportedError):
        _ = stage.ort_diagnostics().requested_provider
    with failing(0x80070032, NotSupportedError):
        _ = stage.ort_diagnostics().selected_provider
    with failing(0x80070032, NotSupportedError):
        _ = stage.ort_diagnostics().is_provider_pinned
    with failing(0x80070032, NotSupportedError):
        stage.ort_bindings().bind_input("A", floats(runtime, 1))
    with failing(0x80070032, NotSupportedError):
        stage.ort_bindings().bind_output("A", floats(runtime, 1))
    with failing(0x80070032, NotSupportedError):
        stage.ort_bindings().output("A")


@pytest.mark.parametrize(
    "option",
    [
        lambda options: options.set_thread_count(2),
        lambda options: options.set_session_config("a", "1"),
        lambda options: options.set_provider_option("a", "1"),
        lambda options: options.set_shared_context_group("a"),
    ],
)
def test_t86_ort_options_on_a_gguf_stage_fail_build(
    runtime: Runtime, files: ModelFiles, gguf_engine: str, option: Callable[[OrtStageOptions], None]
) -> None:
    builder = runtime.create_pipeline_builder()
    option(builder.add_model_stage(runtime.load_model(files.gguf)).ort_options())
    with failing(0x80070032):
        builder.build()


def test_r136_t78_names_and_positions_are_one_slot(runtime: Runtime, files: ModelFiles, onnx_engine: str) -> None:
    stage, pipeline = built(runtime, files.onnx("add"))
    names = stage.ort_bindings()
    mine = floats(runtime, 0, 0)
    stage.bind_input(0, floats(runtime, 1, 2))
    names.bind_input("A", floats(runtime, 5, 6))
    names.bind_input("B", floats(runtime, 10, 20))
    names.bind_output("C", mine)
    pipeline.run()
    assert mine.to_numpy().tolist() == [15, 26]
    assert names.output("C").underlying_object is mine.underlying_object


def test_an_output_is_requested_by_its_name(runtime: Runtime, files: ModelFiles, onnx_engine: str) -> None:
    stage, pipeline = built(runtime, files.onnx("add"))
    names = stage.ort_bindings()
    names.bind_input("A", floats(runtime, 5, 6))
    names.bind_input("B", floats(runtime, 10, 20))
    names.request_output("C")
    pipeline.run()
    assert names.output("C").to_numpy().tolist() == [15, 26]
    with failing(0x80070490) as caught:
        names.request_output("A")
    assert "'C'" in str(caught.value)


def test_r136_t78_wrong_names_and_tensors(runtime: Runtime, files: ModelFiles) -> None:
    names = unbuilt(runtime, files.onnx("add")).ort_bindings()
    with failing(0x80070490) as caught:
        names.bind_input("nope", floats(runtime, 1, 2))
    assert "'A', 'B'" in str(caught.value)
    with pytest.raises(TypeError):
        names.bind_input("A", None)  # type: ignore[arg-type]
    with pytest.raises(ValueError):
        names.bind_input(0, floats(runtime, 1, 2))  # type: ignore[arg-type]
    with failing(0x80070490):
        names.bind_output("A", floats(runtime, 1, 2))
    with failing(0x80070490):
        names.output("A")
    with failing(0x80070490):
        names.output("C")
    closed = floats(runtime, 1, 2)
    closed.close()
    with pytest.raises(RuntimeError, match="Tensor is closed"):
        names.bind_input("A", closed)


def test_no_silent_operators_on_the_cpu(runtime: Runtime, files: ModelFiles, ort: None) -> None:
    builder = runtime.create_pipeline_builder()
    stage = builder.add_model_stage(runtime.load_model(files.onnx("add")))
    stage.ort_options().set_session_config("session.disable_cpu_ep_fallback", "1")
    with failing(0x80004005):
        builder.build()


def test_a_pin_to_the_cpu_that_the_cpu_is_forbidden(runtime: Runtime, files: ModelFiles, ort: None) -> None:
    builder = runtime.create_pipeline_builder()
    target = runtime.create_ort_execution_target("CPUExecutionProvider", ExecutionTargetKind.CPU)
    stage = builder.add_model_stage(runtime.load_model(files.onnx("add")), target)
    stage.ort_options().set_session_config("session.disable_cpu_ep_fallback", "1")
    with failing(0x80070057) as caught:
        builder.build()
    assert "forbids CPUExecutionProvider" in str(caught.value)


def test_t83_profiling_leaves_a_file(runtime: Runtime, files: ModelFiles, ort: None, tmp_path: Path) -> None:
    builder = runtime.create_pipeline_builder()
    stage = builder.add_model_stage(runtime.load_model(files.onnx("two")))
    stage.ort_options().set_session_config("session.enable_profiling", str(tmp_path / "profile"))
    stage.bind_input(0, floats(runtime, 1, 2))
    pipeline = builder.build()
    pipeline.run()
    pipeline.close()
    stage.close()
    assert [path.name.startswith("profile_") for path in tmp_path.glob("*.json")] == [True]


def group_of(runtime: Runtime, path: str, *names: str | None) -> PipelineBuilder:
    builder, target = runtime.create_pipeline_builder(), runtime.create_cpu_target()
    model = runtime.load_model(path)
    for name in names:
        options = builder.add_model_stage(model, target).ort_options()
        if name is not None:
            options.set_shared_context_group(name)
    return builder


def test_t82_a_group_needs_two_members(runtime: Runtime, files: ModelFiles, onnx_engine: str) -> None:
    with failing(0x80070057) as caught:
        group_of(runtime, files.onnx("inc"), "a", None, "b", "b").build()
    assert "'a'" in str(caught.value)


def test_t82_a_group_on_the_cpu_runs(runtime: Runtime, files: ModelFiles, onnx_engine: str) -> None:
    builder, target = runtime.create_pipeline_builder(), runtime.create_cpu_target()
    model = runtime.load_model(files.onnx("inc"))
    first, second, third = (builder.add_model_stage(model, target) for _ in range(3))
    for stage in (first, second, third):
        stage.ort_options().set_shared_context_group("a")
        stage.bind_input(0, integers(runtime, 5))
        stage.request_output(0)
    third.ort_options().set_shared_context_group("left again")
    third.ort_options().clear_shared_context_group()
    third.ort_options().clear_shared_context_group()
    builder.build().run()
    assert result(first) == result(second) == result(third) == [6]


def test_t82_members_may_spell_their_provider_in_two_ways(runtime: Runtime, files: ModelFiles, ort: None) -> None:
    builder, model = runtime.create_pipeline_builder(), runtime.load_model(files.onnx("inc"))
    for name in ("CPUExecutionProvider", "cpuexecutionprovider"):
        target = runtime.create_ort_execution_target(name, ExecutionTargetKind.CPU)
        builder.add_model_stage(model, target).ort_options().set_shared_context_group("a")
    builder.build()


def test_t82_members_have_equal_provider_options(runtime: Runtime, files: ModelFiles, onnx_engine: str) -> None:
    builder, model = runtime.create_pipeline_builder(), runtime.load_model(files.onnx("inc"))
    target = runtime.create_ort_execution_target("CPUExecutionProvider", ExecutionTargetKind.CPU)
    for value in ("1", "2"):
        options = builder.add_model_stage(model, target).ort_options()
        options.set_shared_context_group("a")
        options.set_provider_option("an.option", value)
    with failing(0x80070057):
        builder.build()


def test_t82_members_are_built_in_a_row(
    runtime: Runtime, files: ModelFiles, fake_ort: FakeBackend, script: Script
) -> None:
    group_of(runtime, files.onnx("inc"), "a", None, "a").build()
    entries = [dict(options.ort.session_config) if options.ort else {} for options in script.options]
    share, stop = {"ep.share_ep_contexts": "1"}, {"ep.stop_share_ep_contexts": "1"}
    assert entries == [share, share | stop, {}]


def test_t82_the_last_group_counts(runtime: Runtime, files: ModelFiles, onnx_engine: str) -> None:
    builder = group_of(runtime, files.onnx("inc"), "a", "a")
    stage = builder.add_model_stage(runtime.load_model(files.onnx("inc")))
    stage.ort_options().set_shared_context_group("a")
    stage.ort_options().set_shared_context_group("alone")
    with failing(0x80070057) as caught:
        builder.build()
    assert "'alone'" in str(caught.value)


def test_t82_groups_are_of_one_build(runtime: Runtime, files: ModelFiles, onnx_engine: str) -> None:
    for _ in range(2):
        with failing(0x80070057):
            group_of(runtime, files.onnx("inc"), "a").build()


@pytest.mark.parametrize("name", ["", "a\0", 5, None])
def test_t81_what_is_no_group(runtime: Runtime, files: ModelFiles, name: str) -> None:
    with pytest.raises(ValueError):
        unbuilt(runtime, files.onnx("inc")).ort_options().set_shared_context_group(name)


# llama.cpp options


def test_llama_options_reach_the_engine(runtime: Runtime, files: ModelFiles, script: Script) -> None:
    builder = runtime.create_pipeline_builder()
    options = builder.add_model_stage(runtime.load_model(files.gguf)).llama_options()
    options.thread_count = 3
    options.key_type = "q8_0"
    options.gpu_layers = -1
    options.adapters = (("a.gguf", 1),)
    with replaced_backend("llama", FakeBackend(script, logits=lambda ids: [0.0], vocabulary_size=1)):
        builder.build()
    sent = script.options[0].llama
    assert sent is not None
    assert (sent.thread_count, sent.key_type, sent.value_type) == (3, "q8_0", "f16")
    assert sent.adapters == (("a.gguf", 1.0),)
    with failing(0x8007139F):
        options.thread_count = 4
    assert options.thread_count == 3


def test_wrong_llama_options(runtime: Runtime, files: ModelFiles) -> None:
    options = unbuilt(runtime, files.gguf).llama_options()
    with pytest.raises(ValueError):
        options.thread_count = -1
    with pytest.raises(ValueError):
        options.thread_count = 513
    with pytest.raises(ValueError):
        options.batch_thread_count = 100_000
    with pytest.raises(ValueError):
        options.batch_size = True
    with pytest.raises(ValueError):
        options.key_type = "f8"
    with pytest.raises(ValueError):
        options.value_type = ""
    with pytest.raises(ValueError):
        options.embeddings = 1  # type: ignore[assignment]
    with pytest.raises(ValueError):
        options.adapters = ("a.gguf",)  # type: ignore[assignment]
    with pytest.raises(AttributeError):
        options.threads = 2  # type: ignore[attr-defined]


def test_llama_options_of_an_onnx_stage(runtime: Runtime, files: ModelFiles) -> None:
    options = unbuilt(runtime, files.onnx("add")).llama_options()
    with failing(0x80070032, NotSupportedError):
        _ = options.thread_count
    with failing(0x80070032, NotSupportedError):
        options.thread_count = 2


# Shapes


def test_r138_a_free_extent_may_change_from_run_to_run(runtime: Runtime, files: ModelFiles, onnx_engine: str) -> None:
    stage, pipeline = built(runtime, files.onnx("dyn1"))
    stage.request_output(0)
    stage.bind_input(0, runtime.create_tensor(F32, (1, 3)))
    pipeline.run()
    assert stage.output(0).desc() == (F32, (1, 3))
    stage.bind_input(0, runtime.create_tensor(F32, (7, 3)))
    pipeline.run()
    assert stage.output(0).desc() == (F32, (7, 3))


def test_s_shp_03_an_empty_tensor_runs(runtime: Runtime, files: ModelFiles, onnx_engine: str) -> None:
    stage, pipeline = built(runtime, files.onnx("dyn1"))
    stage.request_output(0)
    stage.bind_input(0, runtime.create_tensor(F32, (0, 3)))
    pipeline.run()
    assert stage.output(0).to_numpy().shape == (0, 3)


def test_a_prompt_may_be_longer_than_a_batch(runtime: Runtime, files: ModelFiles, llama: None) -> None:
    answers = []
    for batch_size in (512, 4):
        builder = runtime.create_pipeline_builder()
        stage = builder.add_model_stage(runtime.load_model(files.gguf), runtime.create_cpu_target())
        stage.llama_options().batch_size = batch_size
        stage.bind_input(0, runtime.tensor_from_tokens([1, 2, 3, 4, 5, 6, 7, 8, 9, 10]))
        stage.request_output(0)
        builder.build().run()
        assert stage.sequence_position == 10
        answers.append(stage.output(0).to_numpy())
    assert np.allclose(answers[0], answers[1], atol=1e-3)


def test_r139_a_symbol_can_be_fixed(runtime: Runtime, files: ModelFiles, onnx_engine: str) -> None:
    builder = runtime.create_pipeline_builder()
    stage = builder.add_model_stage(runtime.load_model(files.onnx("dyn1")))
    stage.symbolic_dimensions["N"] = 4
    builder.build()
    assert stage.schema().input_desc(0) == (F32, (4, 3))
    with failing(0x80070057):
        stage.bind_input(0, runtime.create_tensor(F32, (5, 3)))
    with failing(0x8007139F):
        stage.symbolic_dimensions["N"] = 5
    with failing(0x8007139F):
        del stage.symbolic_dimensions["N"]


def test_r140_a_name_that_the_model_lacks_is_no_error(runtime: Runtime, files: ModelFiles, onnx_engine: str) -> None:
    builder = runtime.create_pipeline_builder()
    stage = builder.add_model_stage(runtime.load_model(files.onnx("dyn1")))
    stage.symbolic_dimensions["zzz"] = 2
    builder.build()
    assert stage.schema().input_desc(0) == (F32, (FREE, 3))


@pytest.mark.parametrize(
    ("name", "extent"), [("N", 0), ("N", -1), ("N", True), ("N", 1.5), ("N", 2**63), ("", 1), ("N\0", 1), ("\ud800", 1)]
)
def test_r140_t69_wrong_overrides(runtime: Runtime, files: ModelFiles, name: str, extent: int) -> None:
    with pytest.raises(ValueError):
        unbuilt(runtime, files.onnx("dyn1")).symbolic_dimensions[name] = extent


def test_r140_t69_overrides_are_an_ordered_live_mapping(runtime: Runtime, files: ModelFiles) -> None:
    stage = unbuilt(runtime, files.onnx("dyn1"))
    dimensions = stage.symbolic_dimensions
    dimensions["b"], dimensions["a"], dimensions["b"] = 1, 2, 3
    assert list(dimensions) == ["b", "a"]
    assert dict(stage.symbolic_dimensions) == {"b": 3, "a": 2}
    assert repr(dimensions) == "SymbolicDimensionOverrides({'b': 3, 'a': 2})"
    del dimensions["b"]
    dimensions["b"] = 4
    assert list(dimensions) == ["a", "b"]
    with pytest.raises(KeyError):
        _ = dimensions["c"]
    with pytest.raises(KeyError):
        _ = dimensions[""]
    with pytest.raises(KeyError):
        del dimensions["c"]


@pytest.mark.parametrize("is_built", [False, True])
def test_r141_t86_a_gguf_has_no_symbols(runtime: Runtime, files: ModelFiles, gguf_engine: str, is_built: bool) -> None:
    stage = built(runtime, files.gguf)[0] if is_built else unbuilt(runtime, files.gguf)
    assert stage.supports_symbolic_dimensions is False
    assert unbuilt(runtime, files.onnx("add")).supports_symbolic_dimensions is True
    with failing(0x80004002, NotSupportedError):
        _ = stage.symbolic_dimensions


def test_r142_a_bound_row_of_another_length(runtime: Runtime, files: ModelFiles, gguf_engine: str) -> None:
    stage, _ = decoder_sample(files).built(runtime)
    for shape in ((1, 330), (331,), (2, 331)):
        with failing(0x80070057):
            stage.bind_output(0, runtime.create_tensor(F32, shape))


def test_r142_a_bound_output_of_another_shape(runtime: Runtime, files: ModelFiles, onnx_engine: str) -> None:
    stage, pipeline = built(runtime, files.onnx("dyn1"))
    stage.bind_input(0, runtime.create_tensor(F32, (2, 3)))
    stage.bind_output(0, runtime.create_tensor(F32, (5, 3)))
    with failing(0x80070057):
        pipeline.run()
    stage.bind_output(0, runtime.create_tensor(F32, (2, 3)))
    pipeline.run()
