"""Pipelines: run, the busy rule, reset, feedback. Statements 77-86 and 111 of the object model."""

from __future__ import annotations

import time
from collections.abc import Callable
from threading import Barrier, Thread

import numpy as np
import pytest

from fakes.backend import Block, FakeBackend, FakeExecutor, Script
from fakes.engines import Sample, add_sample, decoder_sample, hold, spoil
from fakes.model_files import ModelFiles
from fakes.rig import built, built_add, failing, floats, integers, result, running
from winml_lite import Pipeline, Runtime, Stage, TensorLockMode, WinMLError


def counter(runtime: Runtime, path: str, seed: int | None = 1) -> tuple[Stage, Pipeline]:
    """x -> x + 1, each iteration on the value of the one before."""
    builder = runtime.create_pipeline_builder()
    stage = builder.add_model_stage(runtime.load_model(path))
    builder.connect_next_iteration(stage, 0, stage, 0)
    if seed is not None:
        stage.bind_input(0, integers(runtime, seed))
    stage.request_output(0)
    return stage, builder.build()


# Busy


def quickest_refusal(call: Callable[[], object]) -> float:
    """Seconds of the quickest of five calls that are all refused as busy: who waits for something always waits."""
    seconds = []
    for _ in range(5):
        begun = time.monotonic()
        with failing(0x800700AA):
            call()
        seconds.append(time.monotonic() - begun)
    return min(seconds)


def test_r77_r79_while_a_run_is_active_everything_else_is_refused(
    runtime: Runtime, engine: Sample, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage, pipeline = engine.built(runtime)
    other, room = engine.other(runtime), engine.room(runtime)
    block = hold(stage, monkeypatch)
    with running(pipeline, block) as errors:
        assert quickest_refusal(pipeline.run) < 0.1
        assert quickest_refusal(pipeline.reset) < 0.1
        assert quickest_refusal(lambda: stage.bind_input(0, other)) < 0.1
        assert quickest_refusal(lambda: stage.clear_input(0)) < 0.1
        assert quickest_refusal(lambda: stage.bind_output(0, room)) < 0.1
        assert quickest_refusal(lambda: stage.request_output(0)) < 0.1
        assert quickest_refusal(lambda: stage.reset_output(0)) < 0.1
    assert errors == []
    assert engine.answer(stage.output(0)) == engine.first
    stage.bind_input(0, other)
    pipeline.run()
    pipeline.reset()
    assert engine.answer(stage.output(0)) == engine.second
    stage.bind_output(0, room)
    pipeline.run()
    assert engine.answer(room) == engine.second


def test_r77_rewind_and_a_new_capacity_are_refused_too(
    runtime: Runtime, files: ModelFiles, gguf_engine: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage, pipeline = decoder_sample(files).built(runtime)
    block = hold(stage, monkeypatch)
    with running(pipeline, block):
        with failing(0x800700AA):
            stage.rewind(0)
        with failing(0x800700AA):
            stage.set_sequence_capacity(5)
        assert stage.sequence_position == 0
    assert stage.sequence_position == 1
    stage.rewind(0)
    stage.set_sequence_capacity(5)
    assert (stage.sequence_position, stage.sequence_capacity) == (0, 5)


def test_r77_a_state_of_tensors_is_refused_to_move_too(
    runtime: Runtime, files: ModelFiles, onnx_engine: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage, pipeline = built(runtime, files.onnx("grow"), (1, 1), hint=8)
    stage.bind_input(0, runtime.tensor_from_tokens([1, 2]))
    block = hold(stage, monkeypatch)
    with running(pipeline, block):
        with failing(0x800700AA):
            stage.rewind(0)
        with failing(0x800700AA):
            stage.set_sequence_capacity(5)
        assert (stage.sequence_position, stage.sequence_capacity) == (0, 8)
    assert stage.sequence_position == 2


def test_r77_bindings_by_name_are_refused_too(
    runtime: Runtime, files: ModelFiles, onnx_engine: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage, pipeline = built_add(runtime, files.onnx("add"))
    tensor, names = floats(runtime, 7, 7), stage.ort_bindings()
    block = hold(stage, monkeypatch)
    with running(pipeline, block):
        with failing(0x800700AA):
            names.bind_input("A", tensor)
        with failing(0x800700AA):
            names.bind_output("C", tensor)
    assert result(stage) == [11, 22]


def test_r77_all_stages_of_a_pipeline_are_busy(
    runtime: Runtime, files: ModelFiles, both_engines: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    builder = runtime.create_pipeline_builder()
    decoder, add = decoder_sample(files).add(runtime, builder), add_sample(files).add(runtime, builder)
    pipeline = builder.build()
    with running(pipeline, hold(add, monkeypatch)):
        with failing(0x800700AA):
            decoder.bind_input(0, runtime.tensor_from_tokens([1]))
        with failing(0x800700AA):
            decoder.rewind(0)
        with failing(0x800700AA):
            add.request_output(0)
    assert decoder.sequence_position == 1


def test_r78_another_pipeline_runs_meanwhile(runtime: Runtime, engine: Sample, monkeypatch: pytest.MonkeyPatch) -> None:
    blocked, first = engine.built(runtime)
    stage, second = engine.built(runtime)
    block = hold(blocked, monkeypatch)
    with running(first, block):
        second.run()
        assert engine.answer(stage.output(0)) == engine.first


def test_r78_two_pipelines_of_one_model(runtime: Runtime, engine: Sample, monkeypatch: pytest.MonkeyPatch) -> None:
    model = runtime.load_model(engine.path)
    builders = runtime.create_pipeline_builder(), runtime.create_pipeline_builder()
    blocked, stage = (engine.add(runtime, builder, model=model) for builder in builders)
    stage.request_output(0)
    first, second = (builder.build() for builder in builders)
    block = hold(blocked, monkeypatch)
    with running(first, block):
        second.run()
        assert engine.answer(stage.output(0)) == engine.first


def test_s_lif_06_threads_get_a_result_or_busy(runtime: Runtime, engine: Sample) -> None:
    stage, pipeline = engine.built(runtime)
    barrier = Barrier(2)
    codes: list[int] = []

    def work() -> None:
        barrier.wait()
        for _ in range(50):
            try:
                pipeline.run()
                codes.append(0)
            except WinMLError as error:
                codes.append(error.hresult)

    threads = [Thread(target=work) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(codes) == 100
    assert 0 in codes
    assert set(codes) <= {0, 0x800700AA}
    assert engine.answer(stage.output(0)) == engine.first


def test_s_lif_07_pipelines_of_one_model_do_not_mix(runtime: Runtime, files: ModelFiles, onnx_engine: str) -> None:
    model = runtime.load_model(files.onnx("two"))
    seen: list[tuple[int, set[float]]] = []

    def work(k: int) -> None:
        builder = runtime.create_pipeline_builder()
        stage = builder.add_model_stage(model)
        stage.bind_input(0, floats(runtime, k, k))
        stage.request_output(0)
        pipeline = builder.build()
        values: set[float] = set()
        for _ in range(50):
            pipeline.run()
            values.update(result(stage))
        seen.append((k, values))

    threads = [Thread(target=work, args=(k,)) for k in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(seen) == [(0, {0.0}), (1, {2.0}), (2, {4.0}), (3, {6.0})]


# Stopping a run


def test_cancel_run_stops_a_run_on_another_thread(
    runtime: Runtime, files: ModelFiles, fake_ort: FakeBackend, script: Script
) -> None:
    stage, pipeline = built_add(runtime, files.onnx("add"))
    block = script.block_at[1] = Block()
    with running(pipeline, block) as errors:
        pipeline.cancel_run()
    assert [error.hresult for error in errors] == [0x800704C7]
    assert (script.discards, script.commits) == (1, 0)
    pipeline.run()
    assert result(stage) == [11, 22]


def test_cancel_run_stops_between_two_stages(
    runtime: Runtime, files: ModelFiles, fake_ort: FakeBackend, script: Script, monkeypatch: pytest.MonkeyPatch
) -> None:
    builder = runtime.create_pipeline_builder()
    model = runtime.load_model(files.onnx("inc"))
    first, second = builder.add_model_stage(model), builder.add_model_stage(model)
    builder.connect(first, 0, second, 0)
    first.bind_input(0, integers(runtime, 1))
    pipeline = builder.build()
    monkeypatch.setattr(FakeExecutor, "abort", lambda self: None)  # an engine that cannot stop
    block = script.block_at[1] = Block()
    with running(pipeline, block) as errors:
        pipeline.cancel_run()
    assert [error.hresult for error in errors] == [0x800704C7]
    assert script.runs == 1
    pipeline.run()
    assert script.runs == 3


def test_cancel_run_stops_a_run_that_has_not_come_to_the_engine_yet(
    runtime: Runtime, engine: Sample, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage, pipeline = engine.built(runtime)
    executor = stage.underlying_object.executor
    run = executor.run

    def late_run() -> None:
        monkeypatch.setattr(executor, "run", run)
        pipeline.cancel_run()
        run()

    monkeypatch.setattr(executor, "run", late_run)
    with failing(0x800704C7):
        pipeline.run()
    pipeline.run()
    assert engine.answer(stage.output(0)) == engine.first


def test_cancel_run_without_a_run_does_nothing(runtime: Runtime, engine: Sample) -> None:
    stage, pipeline = engine.built(runtime)
    pipeline.cancel_run()
    pipeline.run()
    pipeline.cancel_run()
    pipeline.run()
    assert engine.answer(stage.output(0)) == engine.first


def test_s_lif_08_an_interrupted_run_leaves_the_pipeline_usable(
    runtime: Runtime, files: ModelFiles, fake_ort: FakeBackend, script: Script
) -> None:
    stage, pipeline = built_add(runtime, files.onnx("add"))
    script.fail_at[1] = KeyboardInterrupt()
    with pytest.raises(KeyboardInterrupt):
        pipeline.run()
    assert (script.discards, script.commits) == (1, 0)
    pipeline.run()
    assert result(stage) == [11, 22]


# Failing and locked runs


def test_a_failure_of_the_engine_keeps_code_and_text(
    runtime: Runtime, files: ModelFiles, fake_ort: FakeBackend, script: Script
) -> None:
    _, pipeline = built_add(runtime, files.onnx("add"))
    script.fail_at[1] = WinMLError(0x80004005, "node Add", "out of luck")
    with failing(0x80004005) as caught:
        pipeline.run()
    assert "[IWinMLPipeline.Run]: node Add: out of luck" in str(caught.value)


def test_r111_a_failing_later_stage_leaves_the_earlier_ones(
    runtime: Runtime, files: ModelFiles, gguf_engine: str
) -> None:
    builder = runtime.create_pipeline_builder()
    decoder = builder.add_model_stage(runtime.load_model(files.gguf))
    later = builder.add_model_stage(runtime.load_model(files.gguf))
    later.set_sequence_capacity_hint(3)
    decoder.bind_input(0, runtime.tensor_from_tokens([1, 0]))
    later.bind_input(0, runtime.tensor_from_tokens([1, 2, 3]))
    pipeline = builder.build()
    pipeline.run()
    with failing(0x8000000B):
        pipeline.run()
    assert (decoder.sequence_position, later.sequence_position) == (2, 3)
    later.rewind(0)
    pipeline.run()
    assert (decoder.sequence_position, later.sequence_position) == (4, 3)


def test_r111_a_failing_later_stage_leaves_the_state_of_the_earlier_ones(
    runtime: Runtime, files: ModelFiles, onnx_engine: str
) -> None:
    builder = runtime.create_pipeline_builder()
    grown = builder.add_model_stage(runtime.load_model(files.onnx("grow")))
    later = builder.add_model_stage(runtime.load_model(files.onnx("same_symbol")))
    grown.add_state_tensor_pair(1, 1)
    grown.bind_input(0, runtime.tensor_from_tokens([1, 2]))
    grown.request_output(0)
    later.bind_input(0, floats(runtime, 1))
    later.bind_input(1, floats(runtime, 2))
    pipeline = builder.build()
    pipeline.run()
    later.bind_input(1, floats(runtime, 2, 3))
    with failing(0x80070057):
        pipeline.run()
    assert grown.sequence_position == 2
    later.bind_input(1, floats(runtime, 4))
    pipeline.run()
    assert grown.sequence_position == 4
    assert result(grown) == [6]


def test_r111_a_failing_graph_leaves_the_decoder_before_it(
    runtime: Runtime, files: ModelFiles, both_engines: str
) -> None:
    builder = runtime.create_pipeline_builder()
    decoder = decoder_sample(files).add(runtime, builder)
    later = builder.add_model_stage(runtime.load_model(files.onnx("same_symbol")))
    later.bind_input(0, floats(runtime, 1))
    later.bind_input(1, floats(runtime, 2, 3))
    pipeline = builder.build()
    with failing(0x80070057):
        pipeline.run()
    assert decoder.sequence_position == 0
    later.bind_input(1, floats(runtime, 2))
    pipeline.run()
    assert decoder.sequence_position == 1


def test_r111_a_run_that_fails_at_its_end_moves_nothing(
    runtime: Runtime, files: ModelFiles, both_engines: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    builder = runtime.create_pipeline_builder()
    decoder = decoder_sample(files).add(runtime, builder)
    grown = builder.add_model_stage(runtime.load_model(files.onnx("grow")))
    grown.add_state_tensor_pair(1, 1)
    grown.bind_input(0, runtime.tensor_from_tokens([1, 2]))
    grown.request_output(0)
    pipeline = builder.build()
    pipeline.run()
    spoil(grown, monkeypatch, WinMLError(0x80004005))
    with failing(0x80004005):
        pipeline.run()
    assert (decoder.sequence_position, grown.sequence_position) == (1, 2)
    pipeline.run()
    assert (decoder.sequence_position, grown.sequence_position) == (2, 4)
    assert result(grown) == [6]


def test_a_locked_input_refuses_the_run(
    runtime: Runtime, files: ModelFiles, fake_ort: FakeBackend, script: Script
) -> None:
    stage, pipeline = built_add(runtime, files.onnx("add"))
    tensor = floats(runtime, 1, 2)
    stage.bind_input(0, tensor)
    with tensor.lock(TensorLockMode.READ_WRITE), failing(0x800700D4):
        pipeline.run()
    assert script.runs == 0
    with tensor.lock(TensorLockMode.READ):
        pipeline.run()
    assert script.runs == 1


def test_any_lock_on_a_bound_output_refuses_the_run(runtime: Runtime, engine: Sample) -> None:
    stage, pipeline = engine.built(runtime)
    tensor = engine.room(runtime)
    stage.bind_output(0, tensor)
    with tensor.lock(TensorLockMode.READ), failing(0x800700D4):
        pipeline.run()
    assert not tensor.to_numpy().any()
    pipeline.run()
    assert engine.answer(tensor) == engine.first


def test_a_locked_input_refuses_the_run_of_every_engine(runtime: Runtime, engine: Sample) -> None:
    stage, pipeline = engine.built(runtime)
    tensor = engine.value(runtime)
    stage.bind_input(0, tensor)
    with tensor.lock(TensorLockMode.WRITE), failing(0x800700D4):
        pipeline.run()
    with tensor.lock(TensorLockMode.READ):
        pipeline.run()
    assert engine.answer(stage.output(0)) == engine.first


def test_an_output_can_be_read_through_a_lock(runtime: Runtime, engine: Sample) -> None:
    stage, pipeline = engine.built(runtime)
    pipeline.run()
    output = stage.output(0)
    with output.lock(TensorLockMode.READ) as lock:
        assert bytes(lock.data()) == output.to_numpy().tobytes()


def test_a_pipeline_without_published_outputs_runs(runtime: Runtime, engine: Sample) -> None:
    stage, pipeline = engine.built(runtime)
    stage.reset_output(0)
    pipeline.run()
    stage.request_output(0)
    pipeline.run()
    assert engine.answer(stage.output(0)) == engine.first


def test_a_closed_pipeline(runtime: Runtime, engine: Sample) -> None:
    _, pipeline = engine.built(runtime)
    pipeline.close()
    for call in (pipeline.run, pipeline.reset, pipeline.cancel_run):
        with pytest.raises(RuntimeError, match="Pipeline is closed"):
            call()


def test_errors_name_the_call(runtime: Runtime, engine: Sample, monkeypatch: pytest.MonkeyPatch) -> None:
    stage, pipeline = engine.built(runtime)
    with pytest.raises(WinMLError, match=r"\[IWinMLStage\.GetOutput\]"):
        stage.output(0)
    with pytest.raises(WinMLError, match=r"\[IWinMLStage\.RewindTo\]"):
        stage.rewind(7)
    stage.clear_input(0)
    with pytest.raises(WinMLError, match=r"\[IWinMLPipeline\.Run\]"):
        pipeline.run()
    stage.bind_input(0, engine.value(runtime))
    with running(pipeline, hold(stage, monkeypatch)):
        with pytest.raises(WinMLError, match=r"\[IWinMLPipeline\.ResetExecutionState\]"):
            pipeline.reset()
        with pytest.raises(WinMLError, match=r"\[IWinMLStage\.BindInput\]"):
            stage.bind_input(0, engine.value(runtime))
        with pytest.raises(WinMLError, match=r"\[IWinMLStage\.RequestOutput\]"):
            stage.request_output(0)


# Feedback


def test_r80_a_counter(runtime: Runtime, files: ModelFiles, onnx_engine: str) -> None:
    stage, pipeline = counter(runtime, files.onnx("inc"))
    values = []
    for _ in range(3):
        pipeline.run()
        values += result(stage)
    assert values == [2, 3, 4]


def test_r81_reset_begins_again_with_the_seed(runtime: Runtime, files: ModelFiles, onnx_engine: str) -> None:
    stage, pipeline = counter(runtime, files.onnx("inc"))
    pipeline.run()
    pipeline.run()
    pipeline.reset()
    assert result(stage) == [3]
    pipeline.run()
    assert result(stage) == [2]


def test_r82_a_new_seed_counts_after_reset(runtime: Runtime, files: ModelFiles, onnx_engine: str) -> None:
    stage, pipeline = counter(runtime, files.onnx("inc"))
    pipeline.run()
    stage.bind_input(0, integers(runtime, 10))
    pipeline.run()
    assert result(stage) == [3]
    pipeline.reset()
    pipeline.run()
    assert result(stage) == [11]


def test_a_wrong_seed_is_refused_when_it_is_bound(runtime: Runtime, files: ModelFiles, onnx_engine: str) -> None:
    stage, _ = counter(runtime, files.onnx("inc"))
    with failing(0x80070057):
        stage.bind_input(0, floats(runtime, 1))


def test_r83_a_missing_seed(runtime: Runtime, files: ModelFiles, onnx_engine: str) -> None:
    _, pipeline = counter(runtime, files.onnx("inc"), seed=None)
    with failing(0x80070057):
        pipeline.run()


def test_r84_a_failed_run_does_not_advance(
    runtime: Runtime, files: ModelFiles, onnx_engine: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage, pipeline = counter(runtime, files.onnx("inc"))
    pipeline.run()
    spoil(stage, monkeypatch, WinMLError(0x80004005))
    with failing(0x80004005):
        pipeline.run()
    pipeline.run()
    assert result(stage) == [3]


def test_r84_a_failing_neighbour_does_not_advance_it_either(
    runtime: Runtime, files: ModelFiles, onnx_engine: str
) -> None:
    builder = runtime.create_pipeline_builder()
    stage = builder.add_model_stage(runtime.load_model(files.onnx("inc")))
    builder.connect_next_iteration(stage, 0, stage, 0)
    stage.bind_input(0, integers(runtime, 1))
    stage.request_output(0)
    neighbour = builder.add_model_stage(runtime.load_model(files.onnx("same_symbol")))
    neighbour.bind_input(0, floats(runtime, 1))
    neighbour.bind_input(1, floats(runtime, 1))
    pipeline = builder.build()
    pipeline.run()
    neighbour.bind_input(1, floats(runtime, 1, 2))
    with failing(0x80070057):
        pipeline.run()
    neighbour.bind_input(1, floats(runtime, 1))
    pipeline.run()
    assert result(stage) == [3]


def test_r85_reset_of_a_stateless_pipeline(runtime: Runtime, files: ModelFiles, onnx_engine: str) -> None:
    stage, pipeline = built_add(runtime, files.onnx("add"))
    pipeline.reset()
    pipeline.run()
    assert result(stage) == [11, 22]


def test_r85_reset_before_the_first_run(runtime: Runtime, engine: Sample) -> None:
    stage, pipeline = engine.built(runtime)
    pipeline.reset()
    with failing(0x8007139F):
        stage.output(0)
    pipeline.run()
    assert engine.answer(stage.output(0)) == engine.first


def test_r86_feedback_needs_no_publication(runtime: Runtime, files: ModelFiles, onnx_engine: str) -> None:
    stage, pipeline = counter(runtime, files.onnx("inc"))
    stage.reset_output(0)
    pipeline.run()
    pipeline.run()
    stage.request_output(0)
    pipeline.run()
    assert result(stage) == [4]


def writer(
    runtime: Runtime, files: ModelFiles, seed: int | None = 10, published: bool = True
) -> tuple[Stage, Pipeline]:
    """The scripted decoder and the choice of the likeliest token, which feeds the decoder in the next iteration."""
    builder = runtime.create_pipeline_builder()
    decoder = builder.add_model_stage(runtime.load_model(files.scripted_gguf))
    choice = builder.add_model_stage(runtime.load_model(files.onnx("likeliest")))
    builder.connect(decoder, 0, choice, 0)
    builder.connect_next_iteration(choice, 0, decoder, 0)
    if seed is not None:
        decoder.bind_input(0, runtime.tensor_from_tokens([seed]))
    if published:
        choice.request_output(0)
    pipeline = builder.build()
    return choice, pipeline


def test_r80_r81_a_decoder_writes_by_itself(runtime: Runtime, files: ModelFiles, both_engines: str) -> None:
    choice, pipeline = writer(runtime, files)
    tokens: list[float] = []
    for _ in range(18):
        pipeline.run()
        tokens += result(choice)
    assert tokens == [259, 261, 264, 271, 273, 279, 44, 280, 283, 287, 291, 292, 195, 169, 294, 301, 46, 330]
    pipeline.reset()
    pipeline.run()
    assert result(choice) == [259]


def test_r82_a_new_prompt_counts_after_reset(runtime: Runtime, files: ModelFiles, both_engines: str) -> None:
    builder = runtime.create_pipeline_builder()
    decoder = builder.add_model_stage(runtime.load_model(files.scripted_gguf))
    choice = builder.add_model_stage(runtime.load_model(files.onnx("likeliest")))
    builder.connect(decoder, 0, choice, 0)
    builder.connect_next_iteration(choice, 0, decoder, 0)
    decoder.bind_input(0, runtime.tensor_from_tokens([10]))
    choice.request_output(0)
    pipeline = builder.build()
    pipeline.run()
    decoder.bind_input(0, runtime.tensor_from_tokens([5, 273]))
    pipeline.run()
    assert result(choice) == [261]
    assert decoder.sequence_position == 2
    pipeline.reset()
    pipeline.run()
    assert result(choice) == [279]
    assert decoder.sequence_position == 2


def test_rewind_keeps_the_value_of_the_iteration_before(runtime: Runtime, files: ModelFiles, both_engines: str) -> None:
    builder = runtime.create_pipeline_builder()
    decoder = builder.add_model_stage(runtime.load_model(files.scripted_gguf))
    choice = builder.add_model_stage(runtime.load_model(files.onnx("likeliest")))
    builder.connect(decoder, 0, choice, 0)
    builder.connect_next_iteration(choice, 0, decoder, 0)
    decoder.bind_input(0, runtime.tensor_from_tokens([10]))
    choice.request_output(0)
    pipeline = builder.build()
    pipeline.run()
    pipeline.run()
    decoder.rewind(0)
    pipeline.run()
    assert result(choice) == [264]
    assert decoder.sequence_position == 1


def test_r83_a_missing_prompt(runtime: Runtime, files: ModelFiles, both_engines: str) -> None:
    _, pipeline = writer(runtime, files, seed=None)
    with failing(0x80070057):
        pipeline.run()


def test_r84_a_failed_choice_neither_advances_nor_feeds(
    runtime: Runtime, files: ModelFiles, both_engines: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    choice, pipeline = writer(runtime, files)
    pipeline.run()
    spoil(choice, monkeypatch, WinMLError(0x80004005))
    with failing(0x80004005):
        pipeline.run()
    pipeline.run()
    assert result(choice) == [261]


def test_r86_an_unpublished_choice_feeds(runtime: Runtime, files: ModelFiles, both_engines: str) -> None:
    choice, pipeline = writer(runtime, files, published=False)
    pipeline.run()
    pipeline.run()
    choice.request_output(0)
    pipeline.run()
    assert result(choice) == [264]


def test_feedback_does_not_depend_on_the_callers_output_tensor(
    runtime: Runtime, files: ModelFiles, onnx_engine: str
) -> None:
    stage, pipeline = counter(runtime, files.onnx("inc"))
    mine = integers(runtime, 0)
    stage.bind_output(0, mine)
    pipeline.run()
    mine.fill(100)
    pipeline.run()
    assert mine.to_numpy().tolist() == [3]


def test_feedback_does_not_depend_on_a_produced_output(runtime: Runtime, files: ModelFiles, onnx_engine: str) -> None:
    stage, pipeline = counter(runtime, files.onnx("inc"))
    pipeline.run()
    stage.output(0).fill(100)
    pipeline.run()
    assert result(stage) == [3]


def test_feedback_between_two_stages(runtime: Runtime, files: ModelFiles, onnx_engine: str) -> None:
    builder = runtime.create_pipeline_builder()
    model = runtime.load_model(files.onnx("inc"))
    first, second = builder.add_model_stage(model), builder.add_model_stage(model)
    builder.connect(first, 0, second, 0)
    builder.connect_next_iteration(second, 0, first, 0)
    first.bind_input(0, integers(runtime, 0))
    second.request_output(0)
    pipeline = builder.build()
    values = []
    for _ in range(3):
        pipeline.run()
        values += result(second)
    assert values == [2, 4, 6]


def test_outputs_of_many_runs_stay_apart(runtime: Runtime, files: ModelFiles, onnx_engine: str) -> None:
    stage, pipeline = counter(runtime, files.onnx("inc"))
    tensors = []
    for _ in range(20):
        pipeline.run()
        tensors.append(stage.output(0))
    assert np.concatenate([tensor.to_numpy() for tensor in tensors]).tolist() == list(range(2, 22))


def test_owns_takes_a_stage(runtime: Runtime, files: ModelFiles, onnx_engine: str) -> None:
    stage, pipeline = built_add(runtime, files.onnx("add"))
    assert pipeline.owns(stage)
    with pytest.raises(TypeError):
        pipeline.owns(None)  # type: ignore[arg-type]
