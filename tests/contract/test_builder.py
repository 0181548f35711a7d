"""Builders and connections: statements 44-56 of the object model."""

from __future__ import annotations

import gc

import numpy as np
import pytest

from fakes.engines import Sample, add_sample, decoder_sample
from fakes.model_files import ModelFiles
from fakes.rig import failing, floats, integers, result
from winml_lite import PipelineBuilder, Runtime, Stage, TensorDataType, WinMLError


def add_stage(builder: PipelineBuilder, runtime: Runtime, path: str, name: str = "stage") -> Stage:
    return builder.add_model_stage(runtime.load_model(path), None, name)


def test_r44_an_empty_builder(runtime: Runtime) -> None:
    with failing(0x80070057):
        runtime.create_pipeline_builder().build()


def test_r45_a_successful_build_consumes_the_builder(runtime: Runtime, engine: Sample) -> None:
    builder = runtime.create_pipeline_builder()
    model = runtime.load_model(engine.path)
    first, second = engine.add(runtime, builder, model=model), engine.add(runtime, builder, model=model)
    builder.build()
    with failing(0x8007139F):
        builder.add_model_stage(model)
    with failing(0x8007139F):
        builder.connect(first, 0, second, 0)
    with failing(0x8007139F):
        builder.connect_next_iteration(first, 0, second, 0)
    with failing(0x8007139F):
        builder.build()


def test_r46_a_failed_build_does_not(runtime: Runtime, files: ModelFiles, onnx_engine: str) -> None:
    builder = runtime.create_pipeline_builder()
    stage = add_stage(builder, runtime, files.onnx("badop"))
    with pytest.raises(WinMLError):
        builder.build()
    stage.request_output(0)
    stage.set_sequence_capacity_hint(8)
    builder.connect(stage, 0, add_stage(builder, runtime, files.onnx("add")), 0)
    with pytest.raises(WinMLError):
        builder.build()


def test_r46_what_was_wrong_can_be_corrected_and_the_build_repeated(runtime: Runtime, engine: Sample) -> None:
    builder = runtime.create_pipeline_builder()
    stage = engine.add(runtime, builder)
    stage.request_output(0)
    stage.bind_input(0, runtime.create_tensor(TensorDataType.FLOAT64, (2,)))
    with failing(0x80070057):
        builder.build()
    stage.bind_input(0, engine.value(runtime))
    builder.build().run()
    assert engine.answer(stage.output(0)) == engine.first


def test_r46_options_can_be_corrected_and_the_build_repeated(runtime: Runtime, engine: Sample) -> None:
    builder = runtime.create_pipeline_builder()
    stage = engine.add(runtime, builder)
    stage.request_output(0)
    stage.add_state_tensor_pair(7, 0)
    with pytest.raises(WinMLError):
        builder.build()
    stage.clear_state_tensor_pairs()
    builder.build().run()
    assert engine.answer(stage.output(0)) == engine.first


def test_r46_a_failed_build_of_many_stages_leaves_none_built(runtime: Runtime, engine: Sample) -> None:
    builder = runtime.create_pipeline_builder()
    good, bad = engine.add(runtime, builder), engine.add(runtime, builder)
    bad.add_state_tensor_pair(7, 0)
    with pytest.raises(WinMLError):
        builder.build()
    with failing(0x8007139F):
        _ = good.execution_target
    good.set_sequence_capacity_hint(8)


@pytest.mark.parametrize("connect", ["connect", "connect_next_iteration"])
def test_r47_ends_of_a_connection_are_checked(runtime: Runtime, files: ModelFiles, connect: str) -> None:
    builder, other = runtime.create_pipeline_builder(), runtime.create_pipeline_builder()
    source, target = (add_stage(builder, runtime, files.onnx("add")) for _ in range(2))
    foreign = add_stage(other, runtime, files.onnx("add"))
    call = getattr(builder, connect)
    with pytest.raises(ValueError):
        call(source, -1, target, 0)
    with pytest.raises(ValueError):
        call(source, 0, target, 2**32)
    with pytest.raises(TypeError):
        call(source, 0, "target", 0)
    with failing(0x80070057):
        call(source, 99, target, 0)
    with failing(0x80070057):
        call(source, 0, target, 99)
    with failing(0x80070057):
        call(foreign, 0, target, 0)
    with failing(0x80070057):
        call(source, 0, foreign, 0)


@pytest.mark.parametrize("connect", ["connect", "connect_next_iteration"])
def test_r47_ends_of_a_decoder_are_checked(runtime: Runtime, engine: Sample, connect: str) -> None:
    builder, other = runtime.create_pipeline_builder(), runtime.create_pipeline_builder()
    source, target, foreign = (engine.add(runtime, b) for b in (builder, builder, other))
    call = getattr(builder, connect)
    for index in (-1, 2**32):
        with pytest.raises(ValueError):
            call(source, index, target, 0)
        with pytest.raises(ValueError):
            call(source, 0, target, index)
    with failing(0x80070057):
        call(foreign, 0, target, 0)
    with failing(0x80070057):
        call(source, 0, foreign, 0)


@pytest.mark.parametrize("ends", [(99, 0), (0, 99)])
def test_r47_a_decoder_learns_its_indices_at_build(
    runtime: Runtime, files: ModelFiles, gguf_engine: str, ends: tuple[int, int]
) -> None:
    builder = runtime.create_pipeline_builder()
    source, target = (builder.add_model_stage(runtime.load_model(files.gguf)) for _ in range(2))
    builder.connect_next_iteration(source, ends[0], target, ends[1])
    with failing(0x80070057):
        builder.build()


def test_r48_an_input_has_one_producer(runtime: Runtime, engine: Sample) -> None:
    builder = runtime.create_pipeline_builder()
    first, second, target = (builder.add_model_stage(runtime.load_model(engine.path)) for _ in range(3))
    builder.connect(first, 0, target, 0)
    with failing(0x80070057):
        builder.connect(second, 0, target, 0)
    with failing(0x80070057):
        builder.connect(first, 0, target, 0)


def test_r49_a_feedback_target_cannot_be_connected(runtime: Runtime, engine: Sample) -> None:
    builder = runtime.create_pipeline_builder()
    source, target = (builder.add_model_stage(runtime.load_model(engine.path)) for _ in range(2))
    builder.connect_next_iteration(source, 0, target, 0)
    with failing(0x80070057):
        builder.connect(source, 0, target, 0)


def test_r49_a_connected_input_cannot_be_a_feedback_target(runtime: Runtime, engine: Sample) -> None:
    builder = runtime.create_pipeline_builder()
    source, target = (builder.add_model_stage(runtime.load_model(engine.path)) for _ in range(2))
    builder.connect(source, 0, target, 0)
    with failing(0x80070057):
        builder.connect_next_iteration(source, 0, target, 0)


def test_r50_a_circle_of_connections(runtime: Runtime, files: ModelFiles, onnx_engine: str) -> None:
    builder = runtime.create_pipeline_builder()
    first = add_stage(builder, runtime, files.onnx("inc"), "first")
    second = add_stage(builder, runtime, files.onnx("inc"), "second")
    builder.connect(first, 0, second, 0)
    builder.connect(second, 0, first, 0)
    with failing(0x80070057) as caught:
        builder.build()
    assert "first, second" in str(caught.value)


def test_r50_a_circle_through_a_decoder(runtime: Runtime, files: ModelFiles, both_engines: str) -> None:
    builder = runtime.create_pipeline_builder()
    decoder = add_stage(builder, runtime, files.scripted_gguf, "decoder")
    choice = add_stage(builder, runtime, files.onnx("likeliest"), "choice")
    builder.connect(decoder, 0, choice, 0)
    builder.connect(choice, 0, decoder, 0)
    with failing(0x80070057) as caught:
        builder.build()
    assert "decoder, choice" in str(caught.value)


def test_r50_a_stage_cannot_feed_itself(runtime: Runtime, engine: Sample) -> None:
    builder = runtime.create_pipeline_builder()
    stage = builder.add_model_stage(runtime.load_model(engine.path))
    builder.connect(stage, 0, stage, 0)
    with failing(0x80070057):
        builder.build()


@pytest.mark.parametrize("connect", ["connect", "connect_next_iteration"])
def test_r51_element_types_of_a_connection_must_agree(
    runtime: Runtime, files: ModelFiles, onnx_engine: str, connect: str
) -> None:
    builder = runtime.create_pipeline_builder()
    source = add_stage(builder, runtime, files.onnx("inc"))
    target = add_stage(builder, runtime, files.onnx("add"))
    getattr(builder, connect)(source, 0, target, 0)
    with failing(0x80070057):
        builder.build()


@pytest.mark.parametrize("connect", ["connect", "connect_next_iteration"])
def test_r51_logits_are_no_tokens(runtime: Runtime, files: ModelFiles, gguf_engine: str, connect: str) -> None:
    builder = runtime.create_pipeline_builder()
    source, target = (builder.add_model_stage(runtime.load_model(files.gguf)) for _ in range(2))
    getattr(builder, connect)(source, 0, target, 0)
    with failing(0x80070057):
        builder.build()


def test_r51_fixed_extents_of_a_connection_must_agree(runtime: Runtime, files: ModelFiles, onnx_engine: str) -> None:
    builder = runtime.create_pipeline_builder()
    source, target = (add_stage(builder, runtime, files.onnx("dyn1")) for _ in range(2))
    source.symbolic_dimensions["N"] = 2
    target.symbolic_dimensions["N"] = 3
    builder.connect(source, 0, target, 0)
    with failing(0x80070057):
        builder.build()


def test_a_free_extent_meets_any(runtime: Runtime, files: ModelFiles, onnx_engine: str) -> None:
    builder = runtime.create_pipeline_builder()
    source = add_stage(builder, runtime, files.onnx("dyn1"))
    target = add_stage(builder, runtime, files.onnx("dyn1"))
    builder.connect(source, 0, target, 0)
    source.bind_input(0, runtime.tensor_from_numpy(np.ones((2, 3), np.float32)))
    target.request_output(0)
    builder.build().run()
    assert result(target) == [4.0] * 6


def test_r52_two_stages_in_a_row(runtime: Runtime, files: ModelFiles, onnx_engine: str) -> None:
    builder = runtime.create_pipeline_builder()
    first, second = (add_stage(builder, runtime, files.onnx("inc")) for _ in range(2))
    builder.connect(first, 0, second, 0)
    first.bind_input(0, integers(runtime, 5))
    second.request_output(0)
    builder.build().run()
    assert result(second) == [7]


def test_r52_stages_run_in_the_order_of_their_connections(
    runtime: Runtime, files: ModelFiles, onnx_engine: str
) -> None:
    builder = runtime.create_pipeline_builder()
    last, middle, first = (add_stage(builder, runtime, files.onnx("inc")) for _ in range(3))
    builder.connect(middle, 0, last, 0)
    builder.connect(first, 0, middle, 0)
    first.bind_input(0, integers(runtime, 5))
    last.request_output(0)
    builder.build().run()
    assert result(last) == [8]


def test_r52_tokens_from_a_graph_and_logits_into_a_graph(
    runtime: Runtime, files: ModelFiles, both_engines: str
) -> None:
    builder = runtime.create_pipeline_builder()
    choice = add_stage(builder, runtime, files.onnx("likeliest"))
    decoder = add_stage(builder, runtime, files.scripted_gguf)
    increment = add_stage(builder, runtime, files.onnx("inc"))
    builder.connect(increment, 0, decoder, 0)
    builder.connect(decoder, 0, choice, 0)
    increment.bind_input(0, integers(runtime, 9))
    choice.request_output(0)
    builder.build().run()
    assert result(choice) == [259]


def test_r53_one_output_may_feed_two_decoders(runtime: Runtime, files: ModelFiles, both_engines: str) -> None:
    builder = runtime.create_pipeline_builder()
    increment = add_stage(builder, runtime, files.onnx("inc"))
    first, second = (add_stage(builder, runtime, files.scripted_gguf) for _ in range(2))
    for decoder in (first, second):
        builder.connect(increment, 0, decoder, 0)
        decoder.request_output(0)
    increment.bind_input(0, integers(runtime, 9))
    builder.build().run()
    assert int(np.argmax(result(first))) == 259
    assert result(first) == result(second)


def test_r53_one_output_may_feed_two_inputs(runtime: Runtime, files: ModelFiles, onnx_engine: str) -> None:
    builder = runtime.create_pipeline_builder()
    source = add_stage(builder, runtime, files.onnx("two"))
    target = add_stage(builder, runtime, files.onnx("add"))
    builder.connect(source, 0, target, 0)
    builder.connect(source, 0, target, 1)
    source.bind_input(0, floats(runtime, 1, 2))
    target.request_output(0)
    builder.build().run()
    assert result(target) == [4, 8]


def test_r54_model_target_and_builder_may_be_closed_after_build(runtime: Runtime, engine: Sample) -> None:
    model, target, builder = (
        runtime.load_model(engine.path),
        runtime.create_cpu_target(),
        runtime.create_pipeline_builder(),
    )
    stage = engine.add(runtime, builder, model=model, target=target)
    stage.request_output(0)
    pipeline = builder.build()
    model.close()
    target.close()
    builder.close()
    del model, target, builder
    gc.collect()
    pipeline.run()
    assert engine.answer(stage.output(0)) == engine.first


def test_r55_objects_of_another_runtime_are_foreign(runtime: Runtime, files: ModelFiles) -> None:
    other = Runtime()
    builder = runtime.create_pipeline_builder()
    with failing(0x80070057):
        builder.add_model_stage(runtime.load_model(files.onnx("add")), other.create_cpu_target())
    with failing(0x80070057):
        builder.add_model_stage(other.load_model(files.onnx("add")))


def test_r56_arguments_of_add_model_stage(runtime: Runtime, files: ModelFiles) -> None:
    builder, model = runtime.create_pipeline_builder(), runtime.load_model(files.onnx("add"))
    with pytest.raises(ValueError):
        builder.add_model_stage(model, name=3)  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        builder.add_model_stage("model")  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        builder.add_model_stage(model, "CPU")  # type: ignore[arg-type]
    assert builder.add_model_stage(model).debug_name == "stage"
    assert builder.add_model_stage(model, name="decoder").debug_name == "decoder"


def test_r56_closed_arguments(runtime: Runtime, files: ModelFiles) -> None:
    builder, model = runtime.create_pipeline_builder(), runtime.load_model(files.onnx("add"))
    target = runtime.create_cpu_target()
    target.close()
    with pytest.raises(RuntimeError, match="ExecutionTarget is closed"):
        builder.add_model_stage(model, target)
    model.close()
    with pytest.raises(RuntimeError, match="Model is closed"):
        builder.add_model_stage(model)


def test_a_name_appears_in_the_errors_of_its_stage(runtime: Runtime, files: ModelFiles, onnx_engine: str) -> None:
    builder = runtime.create_pipeline_builder()
    add_stage(builder, runtime, files.onnx("badop"), "detector")
    with pytest.raises(WinMLError, match=r"IWinMLPipelineBuilder\.Build.*detector"):
        builder.build()


def test_a_name_appears_in_the_errors_of_its_bindings(runtime: Runtime, files: ModelFiles, onnx_engine: str) -> None:
    builder = runtime.create_pipeline_builder()
    add_stage(builder, runtime, files.onnx("add"), "first")
    add_stage(builder, runtime, files.onnx("add"), "second").bind_input(0, floats(runtime, 1, 2, 3))
    with failing(0x80070057) as caught:
        builder.build()
    assert "]: second: " in str(caught.value)
    assert "FLOAT32[2], got FLOAT32[3]" in str(caught.value)


def test_an_input_that_is_bound_and_connected_fails_build(
    runtime: Runtime, files: ModelFiles, onnx_engine: str
) -> None:
    builder = runtime.create_pipeline_builder()
    first, second = (add_stage(builder, runtime, files.onnx("inc")) for _ in range(2))
    second.bind_input(0, integers(runtime, 5))
    builder.connect(first, 0, second, 0)
    with failing(0x80070057):
        builder.build()


def test_binding_a_connected_input_is_refused(runtime: Runtime, files: ModelFiles, onnx_engine: str) -> None:
    builder = runtime.create_pipeline_builder()
    first, second = (add_stage(builder, runtime, files.onnx("inc")) for _ in range(2))
    builder.connect(first, 0, second, 0)
    with failing(0x80070057):
        second.bind_input(0, integers(runtime, 5))
    builder.build()
    with failing(0x80070057):
        second.bind_input(0, integers(runtime, 5))


def test_r137_an_onnx_stage_feeds_a_gguf_stage(runtime: Runtime, files: ModelFiles, both_engines: str) -> None:
    builder = runtime.create_pipeline_builder()
    source = add_stage(builder, runtime, files.onnx("inc"))
    decoder = add_stage(builder, runtime, files.scripted_gguf)
    builder.connect(source, 0, decoder, 0)
    source.bind_input(0, integers(runtime, 9))
    source.request_output(0)
    decoder.request_output(0)
    builder.build().run()
    assert result(source) == [10]
    assert int(np.argmax(result(decoder))) == 259
    assert decoder.sequence_position == 1


def test_r137_stages_without_connections(runtime: Runtime, files: ModelFiles, both_engines: str) -> None:
    builder = runtime.create_pipeline_builder()
    add, decoder = add_sample(files).add(runtime, builder), decoder_sample(files).add(runtime, builder)
    add.request_output(0)
    decoder.request_output(0)
    builder.build().run()
    assert result(add) == [11, 22]
    assert int(np.argmax(result(decoder))) == 259


def test_a_pipeline_of_one_builder_does_not_hold_its_neighbours(runtime: Runtime, engine: Sample) -> None:
    first, one = engine.built(runtime)
    second, two = engine.built(runtime)
    one.run()
    with failing(0x8007139F):
        second.output(0)
    two.run()
    assert engine.answer(first.output(0)) == engine.answer(second.output(0)) == engine.first
