"""Pipelines: run, the busy rule, reset, feedback. Statements 77-86 and 111 of the object model."""

from __future__ import annotations

import time
from threading import Barrier, Thread

import numpy as np
import pytest

from fakes.backend import Block, FakeBackend, FakeExecutor, Script
from fakes.model_files import ModelFiles
from fakes.rig import built, built_add, failing, floats, integers, result, running
from winml_lite import Pipeline, Runtime, Stage, TensorLockMode, WinMLError
from winml_lite.native.backend import replaced_backend


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


def test_r77_r79_while_a_run_is_active_everything_else_is_refused(
    runtime: Runtime, files: ModelFiles, fake_ort: FakeBackend, script: Script
) -> None:
    stage, pipeline = built_add(runtime, files.onnx("add"))
    block = script.block_at[1] = Block()
    other = floats(runtime, 7, 7)
    with running(pipeline, block) as errors:
        begun = time.monotonic()
        with failing(0x800700AA):
            pipeline.run()
        with failing(0x800700AA):
            pipeline.reset()
        with failing(0x800700AA):
            stage.bind_input(0, other)
        with failing(0x800700AA):
            stage.clear_input(0)
        with failing(0x800700AA):
            stage.bind_output(0, other)
        with failing(0x800700AA):
            stage.request_output(0)
        with failing(0x800700AA):
            stage.reset_output(0)
        assert time.monotonic() - begun < 0.7
    assert errors == []
    assert result(stage) == [11, 22]
    stage.bind_input(0, other)
    pipeline.run()
    pipeline.reset()
    assert result(stage) == [17, 27]


def test_r77_rewind_and_a_new_capacity_are_refused_too(runtime: Runtime, files: ModelFiles, script: Script) -> None:
    with replaced_backend("llama", FakeBackend(script, logits=lambda ids: [0.0, 1.0], vocabulary_size=2)):
        stage, pipeline = built(runtime, files.gguf)
    stage.bind_input(0, runtime.tensor_from_tokens([1]))
    block = script.block_at[1] = Block()
    with running(pipeline, block):
        with failing(0x800700AA):
            stage.rewind(0)
        with failing(0x800700AA):
            stage.set_sequence_capacity(5)
        assert stage.sequence_position == 0
    assert stage.sequence_position == 1


def test_r78_another_pipeline_runs_meanwhile(
    runtime: Runtime, files: ModelFiles, fake_ort: FakeBackend, script: Script
) -> None:
    _, first = built_add(runtime, files.onnx("add"))
    stage, second = built_add(runtime, files.onnx("add"))
    block = script.block_at[1] = Block()
    with running(first, block):
        second.run()
        assert result(stage) == [11, 22]


def test_s_lif_06_threads_get_a_result_or_busy(runtime: Runtime, files: ModelFiles, onnx_engine: str) -> None:
    stage, pipeline = built_add(runtime, files.onnx("add"))
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
    assert set(codes) <= {0, 0x800700AA}
    assert result(stage) == [11, 22]


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


def test_cancel_run_without_a_run_does_nothing(runtime: Runtime, files: ModelFiles, onnx_engine: str) -> None:
    stage, pipeline = built_add(runtime, files.onnx("add"))
    pipeline.cancel_run()
    pipeline.run()
    pipeline.cancel_run()
    pipeline.run()
    assert result(stage) == [11, 22]


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
    runtime: Runtime, files: ModelFiles, script: Script
) -> None:
    fake = FakeBackend(script, logits=lambda ids: [0.0, 1.0], vocabulary_size=2)
    builder = runtime.create_pipeline_builder()
    decoder = builder.add_model_stage(runtime.load_model(files.gguf))
    later = builder.add_model_stage(runtime.load_model(files.gguf))
    decoder.bind_input(0, runtime.tensor_from_tokens([1, 0]))
    later.bind_input(0, runtime.tensor_from_tokens([1]))
    with replaced_backend("llama", fake):
        pipeline = builder.build()
    pipeline.run()
    script.fail_at[4] = WinMLError(0x80004005)
    with failing(0x80004005):
        pipeline.run()
    assert (decoder.sequence_position, later.sequence_position) == (2, 1)
    pipeline.run()
    assert (decoder.sequence_position, later.sequence_position) == (4, 2)


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


def test_any_lock_on_a_bound_output_refuses_the_run(runtime: Runtime, files: ModelFiles, onnx_engine: str) -> None:
    stage, pipeline = built_add(runtime, files.onnx("add"))
    tensor = floats(runtime, 0, 0)
    stage.bind_output(0, tensor)
    with tensor.lock(TensorLockMode.READ), failing(0x800700D4):
        pipeline.run()
    pipeline.run()
    assert tensor.to_numpy().tolist() == [11, 22]


def test_a_pipeline_without_published_outputs_runs(runtime: Runtime, files: ModelFiles, onnx_engine: str) -> None:
    stage, pipeline = built_add(runtime, files.onnx("add"))
    stage.reset_output(0)
    pipeline.run()


def test_a_closed_pipeline(runtime: Runtime, files: ModelFiles, onnx_engine: str) -> None:
    _, pipeline = built_add(runtime, files.onnx("add"))
    pipeline.close()
    for call in (pipeline.run, pipeline.reset, pipeline.cancel_run):
        with pytest.raises(RuntimeError, match="Pipeline is closed"):
            call()


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
    runtime: Runtime, files: ModelFiles, fake_ort: FakeBackend, script: Script
) -> None:
    stage, pipeline = counter(runtime, files.onnx("inc"))
    pipeline.run()
    script.fail_at[2] = WinMLError(0x80004005)
    with failing(0x80004005):
        pipeline.run()
    pipeline.run()
    assert result(stage) == [3]


def test_r85_reset_of_a_stateless_pipeline(runtime: Runtime, files: ModelFiles, onnx_engine: str) -> None:
    _, pipeline = built(runtime, files.onnx("add"))
    pipeline.reset()


def test_r86_feedback_needs_no_publication(runtime: Runtime, files: ModelFiles, onnx_engine: str) -> None:
    stage, pipeline = counter(runtime, files.onnx("inc"))
    stage.reset_output(0)
    pipeline.run()
    pipeline.run()
    stage.request_output(0)
    pipeline.run()
    assert result(stage) == [4]


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
