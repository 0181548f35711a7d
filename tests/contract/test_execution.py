"""Work in the background and fences: statements 143-146 of the object model, and what else §13 and §14 say."""

from __future__ import annotations

import asyncio
import gc
import threading
import time
import weakref
from _thread import interrupt_main
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from fakes.backend import Block, FakeBackend, Script
from fakes.engines import Sample, hold, spoil
from fakes.model_files import ModelFiles
from fakes.rig import built, built_add, failing, integers, result
from fakes.waiting import until
from winml_lite import (
    Fence,
    NotSupportedError,
    Pipeline,
    PipelineExecutionCapabilities,
    Runtime,
    Stage,
    WinMLError,
)
from winml_lite.interrupts import start_thread


@contextmanager
def pending(pipeline: Pipeline, block: Block) -> Iterator[Fence]:
    """Inside the block, submitted work hangs in the engine."""
    fence = pipeline.execution().submit()
    assert block.entered.wait(100)
    try:
        yield fence
    finally:
        block.release.set()
        fence.wait(100_000)


@pytest.fixture
def counter(runtime: Runtime, files: ModelFiles, onnx_engine: str) -> tuple[Stage, Pipeline]:
    """x -> x + 1, each iteration on the value of the one before, from 1; the output is requested."""
    return counting(runtime, files)


def counting(runtime: Runtime, files: ModelFiles) -> tuple[Stage, Pipeline]:
    builder = runtime.create_pipeline_builder()
    stage = builder.add_model_stage(runtime.load_model(files.onnx("inc")))
    builder.connect_next_iteration(stage, 0, stage, 0)
    stage.bind_input(0, integers(runtime, 1))
    stage.request_output(0)
    return stage, builder.build()


# Single iterations


def test_r143_capabilities(runtime: Runtime, engine: Sample) -> None:
    _, pipeline = engine.built(runtime)
    assert pipeline.execution().capabilities is PipelineExecutionCapabilities.HOST_ASYNC


def test_r143_submit_returns_a_fence_and_the_pipeline_is_busy_until_it_signals(
    runtime: Runtime, engine: Sample, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage, pipeline = engine.built(runtime)
    block = hold(stage, monkeypatch)
    with pending(pipeline, block) as fence:
        assert isinstance(fence, Fence)
        assert not fence.is_complete
        with failing(0x800700AA):
            pipeline.run()
    pipeline.run()


def test_r143_every_other_call_is_refused_meanwhile_too(
    runtime: Runtime, engine: Sample, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage, pipeline = engine.built(runtime)
    block = hold(stage, monkeypatch)
    with pending(pipeline, block):
        with failing(0x800700AA):
            pipeline.execution().submit()
        with failing(0x800700AA):
            pipeline.reset()
        with failing(0x800700AA):
            stage.bind_input(0, engine.other(runtime))
        with failing(0x800700AA):
            stage.bind_output(0, engine.room(runtime))
        with failing(0x800700AA):
            stage.request_output(0)
        with failing(0x800700AA):
            stage.reset_output(0)
    assert engine.answer(stage.output(0)) == engine.first


def test_outputs_are_there_when_the_fence_is_complete(
    runtime: Runtime, engine: Sample, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage, pipeline = engine.built(runtime)
    pipeline.run()
    stage.bind_input(0, engine.other(runtime))
    block = hold(stage, monkeypatch)
    with pending(pipeline, block), failing(0x8007139F):
        stage.output(0)
    assert engine.answer(stage.output(0)) == engine.second


def test_submitted_work_writes_into_the_bound_output(runtime: Runtime, engine: Sample) -> None:
    stage, pipeline = engine.built(runtime)
    room = engine.room(runtime)
    stage.bind_output(0, room)
    pipeline.execution().submit().wait()
    assert engine.answer(room) == engine.first


def test_python_goes_on_while_the_work_is_done(
    runtime: Runtime, engine: Sample, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage, pipeline = engine.built(runtime)
    block = hold(stage, monkeypatch)
    with pending(pipeline, block) as fence:
        assert sum(range(1000)) == 499500
        assert not fence.is_complete


def test_a_failed_run_is_raised_again_by_every_wait(
    runtime: Runtime, engine: Sample, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage, pipeline = engine.built(runtime)
    spoil(stage, monkeypatch, WinMLError(0x80004005, "node 7", "out of luck"))
    fence = pipeline.execution().submit()
    with failing(0x80004005) as first:
        fence.wait()
    with failing(0x80004005) as second:
        fence.wait(0)
    assert "[IWinMLFence.Wait]: node 7: out of luck" in str(second.value)
    assert first.value is not second.value
    assert len(first.traceback) == len(second.traceback)
    assert fence.is_complete


def test_a_failure_that_is_no_hresult_is_raised_with_the_place_where_it_happened(
    runtime: Runtime, engine: Sample, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage, pipeline = engine.built(runtime)
    spoil(stage, monkeypatch, MemoryError("no room"))
    fence = pipeline.execution().submit()
    with pytest.raises(MemoryError, match="no room") as first:
        fence.wait()
    with pytest.raises(MemoryError, match="no room") as second:
        fence.wait()
    assert [entry.name for entry in second.traceback][-1] == "spoilt_run"
    assert len(first.traceback) == len(second.traceback)


def test_after_a_failed_run_the_pipeline_is_usable(
    runtime: Runtime, engine: Sample, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage, pipeline = engine.built(runtime)
    spoil(stage, monkeypatch, WinMLError(0x80004005))
    fence = pipeline.execution().submit()
    with failing(0x80004005):
        fence.wait()
    with failing(0x8007139F):
        stage.output(0)
    pipeline.execution().submit().wait()
    assert engine.answer(stage.output(0)) == engine.first


def test_a_missing_input_shows_in_the_fence(runtime: Runtime, engine: Sample) -> None:
    stage, pipeline = engine.built(runtime)
    stage.clear_input(0)
    fence = pipeline.execution().submit()
    with failing(0x80070057):
        fence.wait()


# Iterations


def test_r144_no_iterations(counter: tuple[Stage, Pipeline]) -> None:
    with failing(0x80070057):
        counter[1].iteration_execution().submit_iterations(0)


def test_r144_iterations_need_feedback(runtime: Runtime, engine: Sample) -> None:
    _, pipeline = engine.built(runtime)
    with failing(0x80070032, NotSupportedError) as caught:
        pipeline.iteration_execution().submit_iterations(2)
    assert "connect_next_iteration" in str(caught.value)
    pipeline.run()


def test_r144_the_count_is_checked_first_then_busy_then_feedback(
    runtime: Runtime, engine: Sample, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage, pipeline = engine.built(runtime)
    iterations = pipeline.iteration_execution()
    block = hold(stage, monkeypatch)
    with pending(pipeline, block):
        with failing(0x80070057):
            iterations.submit_iterations(0)
        with failing(0x800700AA):
            iterations.submit_iterations(2)
    with failing(0x80070032, NotSupportedError):
        iterations.submit_iterations(2)


@pytest.mark.parametrize(
    ("count", "error"), [(True, TypeError), (2.0, TypeError), ("2", TypeError), (-1, ValueError), (2**32, ValueError)]
)
def test_the_type_of_a_count(counter: tuple[Stage, Pipeline], count: int, error: type[Exception]) -> None:
    with pytest.raises(error):
        counter[1].iteration_execution().submit_iterations(count)


def test_a_hundred_iterations_are_a_hundred_runs_are_a_python_loop(
    runtime: Runtime, files: ModelFiles, onnx_engine: str
) -> None:
    submitted, pipeline = counting(runtime, files)
    pipeline.iteration_execution().submit_iterations(100).wait()
    ran, running = counting(runtime, files)
    for _ in range(100):
        running.run()
    looped, single = built(runtime, files.onnx("inc"))
    value = 1
    looped.request_output(0)
    for _ in range(100):
        looped.bind_input(0, integers(runtime, value))
        single.run()
        value = int(looped.output(0).to_numpy()[0])
    assert (result(submitted), result(ran), value) == ([101], [101], 101)


def test_iterations_go_on_where_runs_have_ended(counter: tuple[Stage, Pipeline]) -> None:
    stage, pipeline = counter
    pipeline.run()
    pipeline.iteration_execution().submit_iterations(3).wait()
    pipeline.run()
    assert result(stage) == [6]
    pipeline.reset()
    pipeline.iteration_execution().submit_iterations(2).wait()
    assert result(stage) == [3]


def test_the_first_failing_iteration_ends_the_work_and_moves_nothing(
    runtime: Runtime, files: ModelFiles, fake_ort: FakeBackend, script: Script
) -> None:
    stage, pipeline = counting(runtime, files)
    script.fail_at[4] = WinMLError(0x80004005, "node 7", "out of luck")
    fence = pipeline.iteration_execution().submit_iterations(10)
    with failing(0x80004005) as caught:
        fence.wait()
    assert "iteration 4 of 10" in str(caught.value)
    assert (script.runs, script.commits, script.discards) == (4, 3, 1)
    with failing(0x8007139F):
        stage.output(0)
    pipeline.run()
    assert result(stage) == [5]


def test_between_iterations_the_pipeline_stays_busy(
    runtime: Runtime, files: ModelFiles, fake_ort: FakeBackend, script: Script
) -> None:
    stage, pipeline = counting(runtime, files)
    first, second = script.block_at[1], script.block_at[2] = Block(), Block()
    fence = pipeline.iteration_execution().submit_iterations(2)
    first.release.set()
    assert second.entered.wait(100)
    with failing(0x800700AA):
        pipeline.run()
    with failing(0x8007139F):
        stage.output(0)
    second.release.set()
    fence.wait()
    assert result(stage) == [3]


# Fences


def test_r145_a_completed_fence(runtime: Runtime, engine: Sample) -> None:
    _, pipeline = engine.built(runtime)
    fence = pipeline.execution().submit()
    fence.wait()
    fence.wait(0)
    assert fence.is_complete
    with failing(0x80070032, NotSupportedError):
        fence.d3d12_fence()


def test_r146_a_pending_fence(runtime: Runtime, engine: Sample, monkeypatch: pytest.MonkeyPatch) -> None:
    stage, pipeline = engine.built(runtime)
    block = hold(stage, monkeypatch)
    with pending(pipeline, block) as fence:
        begun = time.monotonic()
        with failing(0x80070102):
            fence.wait(10)
        assert time.monotonic() - begun >= 0.010
        with failing(0x80070102):
            fence.wait(0)
        block.release.set()
        fence.wait(100_000)
    assert fence.is_complete


@pytest.mark.parametrize("timeout", [None, 0xFFFFFFFF])
def test_r146_a_wait_without_limit(
    runtime: Runtime, engine: Sample, monkeypatch: pytest.MonkeyPatch, timeout: int | None
) -> None:
    stage, pipeline = engine.built(runtime)
    block = hold(stage, monkeypatch)
    with pending(pipeline, block) as fence:
        threading.Timer(0.05, block.release.set).start()
        fence.wait(timeout)
        assert fence.is_complete


@pytest.mark.parametrize(
    ("timeout", "error"), [(True, TypeError), (1.5, TypeError), ("1", TypeError), (-1, ValueError), (2**32, ValueError)]
)
def test_the_type_of_a_timeout(runtime: Runtime, engine: Sample, timeout: int, error: type[Exception]) -> None:
    _, pipeline = engine.built(runtime)
    fence = pipeline.execution().submit()
    with pytest.raises(error):
        fence.wait(timeout)
    fence.wait()


def test_completion_values_count_the_submissions_of_a_pipeline(runtime: Runtime, engine: Sample) -> None:
    _, pipeline = engine.built(runtime)
    fences = []
    for _ in range(3):
        fences.append(pipeline.execution().submit())
        fences[-1].wait()
    assert [fence.completion_value for fence in fences] == [1, 2, 3]


def test_several_threads_wait_for_one_fence(runtime: Runtime, engine: Sample, monkeypatch: pytest.MonkeyPatch) -> None:
    stage, pipeline = engine.built(runtime)
    block = hold(stage, monkeypatch)
    with pending(pipeline, block) as fence:
        ended: list[int] = []

        def wait() -> None:
            fence.wait()
            ended.append(fence.completion_value)

        threads = [threading.Thread(target=wait) for _ in range(8)]
        for thread in threads:
            thread.start()
        block.release.set()
        for thread in threads:
            thread.join(100)
    assert ended == [1] * 8


def test_ctrl_c_ends_the_wait_and_leaves_the_fence_usable(
    runtime: Runtime, engine: Sample, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage, pipeline = engine.built(runtime)
    block = hold(stage, monkeypatch)
    with pending(pipeline, block) as fence:

        def strike() -> None:
            until(lambda: fence.underlying_object._wakes)  # the main thread waits
            interrupt_main()

        with pytest.raises(KeyboardInterrupt):
            threading.Thread(target=strike).start()
            fence.wait(100_000)
        assert not fence.is_complete
    fence.wait(0)
    assert engine.answer(stage.output(0)) == engine.first


def test_closed_objects(runtime: Runtime, engine: Sample) -> None:
    _, pipeline = engine.built(runtime)
    execution, iterations, fence = pipeline.execution(), pipeline.iteration_execution(), pipeline.execution().submit()
    fence.wait()
    for item in (execution, iterations, fence, pipeline):
        item.close()
        item.close()
    with pytest.raises(RuntimeError, match="PipelineExecution is closed"):
        execution.submit()
    with pytest.raises(RuntimeError, match="PipelineExecution is closed"):
        execution.capabilities  # noqa: B018
    with pytest.raises(RuntimeError, match="PipelineIterationExecution is closed"):
        iterations.submit_iterations(0)
    with pytest.raises(RuntimeError, match="Fence is closed"):
        fence.wait(-1)
    with pytest.raises(RuntimeError, match="Fence is closed"):
        fence.is_complete  # noqa: B018
    with pytest.raises(RuntimeError, match="Fence is closed"):
        fence.completion_value  # noqa: B018
    with pytest.raises(RuntimeError, match="Fence is closed"):
        fence.d3d12_fence()
    with pytest.raises(RuntimeError, match="Pipeline is closed"):
        pipeline.execution()
    with pytest.raises(RuntimeError, match="Pipeline is closed"):
        pipeline.iteration_execution()


def test_a_view_outlives_its_pipeline(runtime: Runtime, engine: Sample) -> None:
    stage, pipeline = engine.built(runtime)
    execution = pipeline.execution()
    pipeline.close()
    execution.submit().wait()
    assert engine.answer(stage.output(0)) == engine.first


def test_a_fence_shows_its_state(runtime: Runtime, engine: Sample, monkeypatch: pytest.MonkeyPatch) -> None:
    stage, pipeline = engine.built(runtime)
    block = hold(stage, monkeypatch)
    with pending(pipeline, block) as fence:
        assert repr(fence) == "<Fence 1, pending>"
    assert repr(fence) == "<Fence 1, complete>"
    spoil(stage, monkeypatch, WinMLError(0x80004005))
    failed = pipeline.execution().submit()
    with failing(0x80004005):
        failed.wait()
    assert repr(failed) == "<Fence 2, failed>"
    failed.close()
    assert repr(failed) == "<Fence (closed)>"


# Work after other work


def test_work_waits_for_the_work_of_another_runtime(
    runtime: Runtime, engine: Sample, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Runtime() as other:
        first_stage, first = engine.built(other)
        stage, second = engine.built(runtime)
        block = hold(first_stage, monkeypatch)
        with pending(first, block) as fence:
            after = second.execution().submit(wait_fence=fence)
            with failing(0x80070102):
                after.wait(20)
            with failing(0x800700AA):
                second.run()
        after.wait()
    assert engine.answer(stage.output(0)) == engine.first


def test_completed_work_delays_nothing(runtime: Runtime, engine: Sample) -> None:
    _, pipeline = engine.built(runtime)
    execution = pipeline.execution()
    fence = execution.submit()
    fence.wait()
    execution.submit(fence).wait()


def test_after_failed_work_nothing_runs_and_the_code_is_passed_on(
    runtime: Runtime, files: ModelFiles, fake_ort: FakeBackend, script: Script
) -> None:
    _, first = built_add(runtime, files.onnx("add"))
    _, second = built_add(runtime, files.onnx("add"))
    script.fail_at[1] = WinMLError(0x8000000B, "node 7", "out of luck")
    fence = first.execution().submit()
    after = second.execution().submit(fence)
    with failing(0x8000000B) as caught:
        after.wait()
    assert "out of luck" in str(caught.value)
    assert script.runs == 1
    second.run()


def test_iterations_wait_too(counter: tuple[Stage, Pipeline], runtime: Runtime, files: ModelFiles) -> None:
    stage, pipeline = counter
    _, other = built_add(runtime, files.onnx("add"))
    pipeline.iteration_execution().submit_iterations(4, other.execution().submit()).wait()
    assert result(stage) == [5]


def test_a_wait_fence_is_a_fence(runtime: Runtime, engine: Sample) -> None:
    _, pipeline = engine.built(runtime)
    execution = pipeline.execution()
    with pytest.raises(TypeError, match="wait_fence"):
        execution.submit(1)  # type: ignore[arg-type]
    closed = execution.submit()
    closed.wait()
    closed.close()
    with pytest.raises(RuntimeError, match="Fence is closed"):
        execution.submit(closed)


# Stopping


def test_cancel_run_stops_submitted_work(runtime: Runtime, engine: Sample, monkeypatch: pytest.MonkeyPatch) -> None:
    stage, pipeline = engine.built(runtime)
    block = hold(stage, monkeypatch)
    fence = pipeline.execution().submit()
    assert block.entered.wait(100)
    pipeline.cancel_run()
    with failing(0x800704C7):
        fence.wait(100_000)
    pipeline.run()
    assert engine.answer(stage.output(0)) == engine.first


def test_cancel_run_stops_work_that_waits_for_other_work(
    runtime: Runtime, engine: Sample, monkeypatch: pytest.MonkeyPatch
) -> None:
    first_stage, first = engine.built(runtime)
    _, second = engine.built(runtime)
    block = hold(first_stage, monkeypatch)
    with pending(first, block) as fence:
        after = second.execution().submit(fence)
        second.cancel_run()
        with failing(0x800704C7):
            after.wait(100_000)
        second.run()


def test_cancel_run_stops_between_iterations(
    runtime: Runtime, files: ModelFiles, fake_ort: FakeBackend, script: Script
) -> None:
    stage, pipeline = counting(runtime, files)
    block = script.block_at[3] = Block()
    fence = pipeline.iteration_execution().submit_iterations(1_000_000)
    assert block.entered.wait(100)
    pipeline.cancel_run()
    with failing(0x800704C7):
        fence.wait(100_000)
    assert (script.commits, script.discards) == (2, 1)
    pipeline.run()
    assert result(stage) == [4]


# Nobody is left who would look


def test_work_ends_though_everything_else_is_gone(
    runtime: Runtime, engine: Sample, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage, pipeline = engine.built(runtime)
    room = engine.room(runtime)
    stage.bind_output(0, room)
    block = hold(stage, monkeypatch)
    fence = pipeline.execution().submit()
    assert block.entered.wait(100)
    stage.close()
    pipeline.close()
    runtime.close()
    block.release.set()
    fence.wait()
    assert engine.answer(room) == engine.first


def test_a_fence_does_not_keep_its_pipeline(runtime: Runtime, engine: Sample) -> None:
    stage, pipeline = engine.built(runtime)
    core = weakref.ref(pipeline.underlying_object)
    fence = pipeline.execution().submit()
    pipeline.close()
    fence.wait()
    gc.collect()
    assert core() is None
    stage.close()


def test_a_dropped_fence_stops_nothing(runtime: Runtime, engine: Sample) -> None:
    stage, pipeline = engine.built(runtime)
    pipeline.execution().submit()
    until(lambda: pipeline.underlying_object.gate.holder is None)
    assert engine.answer(stage.output(0)) == engine.first


def test_without_a_thread_nothing_is_submitted(
    runtime: Runtime, engine: Sample, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, pipeline = engine.built(runtime)

    def refuse(work: Callable[[], object]) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch:
        patch.setattr("winml_lite.execution.start_thread", refuse)
        with pytest.raises(RuntimeError, match="can't start new thread"):
            pipeline.execution().submit()
    pipeline.run()


def test_submit_does_not_wait_for_its_thread(runtime: Runtime, engine: Sample, monkeypatch: pytest.MonkeyPatch) -> None:
    stage, pipeline = engine.built(runtime)

    def interrupted(self: threading.Thread) -> None:
        raise RuntimeError("cannot release un-acquired lock")  # what Ctrl-C inside of it may end as

    monkeypatch.setattr(threading.Thread, "start", interrupted)
    pipeline.execution().submit().wait(100_000)
    assert engine.answer(stage.output(0)) == engine.first


def test_ctrl_c_in_submit_stops_the_work(runtime: Runtime, engine: Sample, monkeypatch: pytest.MonkeyPatch) -> None:
    stage, pipeline = engine.built(runtime)
    block = hold(stage, monkeypatch)

    def interrupted(work: Callable[[], object]) -> None:
        start_thread(work)
        assert block.entered.wait(100)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("winml_lite.execution.start_thread", interrupted)
        with pytest.raises(KeyboardInterrupt):
            pipeline.execution().submit()
    until(lambda: pipeline.underlying_object.gate.holder is None)
    pipeline.run()


# asyncio


def test_a_fence_can_be_awaited(runtime: Runtime, engine: Sample, monkeypatch: pytest.MonkeyPatch) -> None:
    stage, pipeline = engine.built(runtime)
    block = hold(stage, monkeypatch)

    async def release() -> None:
        block.release.set()

    async def work() -> None:
        fence = pipeline.execution().submit()
        await asyncio.gather(_wait(fence), _wait(fence), release())
        await fence

    asyncio.run(work())
    assert engine.answer(stage.output(0)) == engine.first


async def _wait(fence: Fence) -> None:
    await fence


def test_awaiting_raises_the_failure(runtime: Runtime, engine: Sample, monkeypatch: pytest.MonkeyPatch) -> None:
    stage, pipeline = engine.built(runtime)
    spoil(stage, monkeypatch, WinMLError(0x80004005))

    async def work() -> None:
        await pipeline.execution().submit()

    with failing(0x80004005):
        asyncio.run(work())


def test_who_stops_awaiting_leaves_the_work_alone(
    runtime: Runtime, engine: Sample, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage, pipeline = engine.built(runtime)
    block = hold(stage, monkeypatch)

    async def work() -> Fence:
        fence = pipeline.execution().submit()
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(_wait(fence), 0.02)
        return fence

    fence = asyncio.run(work())
    assert not fence.is_complete
    block.release.set()
    fence.wait(100_000)
    assert engine.answer(stage.output(0)) == engine.first
