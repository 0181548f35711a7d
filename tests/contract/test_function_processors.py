"""Processors written in Python, as stages and alone: an extension of the object model."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Sequence
from threading import Thread, get_ident
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from fakes.model_files import ModelFiles
from fakes.rig import failing, floats
from winml_lite import NotSupportedError, Pipeline, Processor, Runtime, Stage, Tensor, TensorDataType, WinMLError

BF16, F32, I4, I64 = TensorDataType.BFLOAT16, TensorDataType.FLOAT32, TensorDataType.INT4, TensorDataType.INT64
FREE = 0xFFFFFFFFFFFFFFFF
Array = npt.NDArray[Any]
ROW = [(F32, (None,))]


def doubled(row: Array) -> Array:
    return row * 2


def staged(
    runtime: Runtime, function: Any, *inputs: Tensor, outputs: Sequence[Any] = ((F32, (None,)),)
) -> tuple[Stage, Pipeline]:
    """A pipeline of one function with its inputs bound, and every output requested."""
    processor = runtime.create_processor(function, [tensor.desc() for tensor in inputs], outputs)
    builder = runtime.create_pipeline_builder()
    stage = builder.add_processor_stage(processor, name="own")
    for index, tensor in enumerate(inputs):
        stage.bind_input(index, tensor)
    for index in range(len(outputs)):
        stage.request_output(index)
    return stage, builder.build()


def listed(stage: Stage, index: int = 0) -> Any:
    return stage.output(index).to_numpy().tolist()


# What a function gets and gives


def test_a_function_is_a_stage(runtime: Runtime) -> None:
    stage, pipeline = staged(runtime, doubled, floats(runtime, 1, 2))
    pipeline.run()
    assert listed(stage) == [2.0, 4.0]


def test_a_function_can_be_executed_alone(runtime: Runtime) -> None:
    processor = runtime.create_processor(doubled, ROW, ROW)
    (output,) = processor.execute([floats(runtime, 1, 2)])
    assert output.to_numpy().tolist() == [2.0, 4.0]


def test_inputs_and_outputs_are_in_port_order(runtime: Runtime) -> None:
    def divided(count: Array, by: Array) -> tuple[Array, Array]:
        return np.asarray(count // by), np.asarray(count % by)

    numbers = runtime.tensor_from_numpy(np.array([7])), runtime.tensor_from_numpy(np.array([4]))
    stage, pipeline = staged(runtime, divided, *numbers, outputs=[(I64, (1,)), (I64, (1,))])
    pipeline.run()
    assert (listed(stage, 0), listed(stage, 1)) == ([1], [3])


def test_inputs_are_read_only_views(runtime: Runtime) -> None:
    seen: list[Array] = []
    memory = np.array([1, 2], np.float32)
    bound = runtime.tensor_from_buffer(memory, F32, (2,), access=2)
    _, pipeline = staged(runtime, lambda row: seen.append(row), bound, outputs=[])
    pipeline.run()
    assert np.shares_memory(seen[0], memory)
    assert not seen[0].flags.writeable
    bound.fill(0)
    assert memory.tolist() == [0, 0]


def test_a_free_extent_changes_from_run_to_run(runtime: Runtime) -> None:
    builder = runtime.create_pipeline_builder()
    processor = runtime.create_processor(doubled, [(F32, (FREE,))], ROW)
    stage = builder.add_processor_stage(processor)
    stage.request_output(0)
    pipeline = builder.build()
    stage.bind_input(0, floats(runtime, 1))
    pipeline.run()
    first = stage.output(0)
    stage.bind_input(0, floats(runtime, 1, 2, 3))
    pipeline.run()
    assert listed(stage) == [2.0, 4.0, 6.0]
    assert first.to_numpy().tolist() == [2.0]


def test_earlier_outputs_keep_their_values_though_the_function_reuses_its_array(runtime: Runtime) -> None:
    own = np.zeros(1, np.float32)

    def counted() -> Array:
        own[0] += 1
        return own

    stage, pipeline = staged(runtime, counted, outputs=[(F32, (1,))])
    pipeline.run()
    first = stage.output(0)
    pipeline.run()
    assert first.to_numpy().tolist() == [1.0]
    assert listed(stage) == [2.0]


def test_a_bound_output_is_written_in_place(runtime: Runtime) -> None:
    stage, pipeline = staged(runtime, doubled, floats(runtime, 1, 2))
    memory = np.zeros(2, np.float32)
    stage.bind_output(0, runtime.tensor_from_buffer(memory, F32, (2,), access=2))
    pipeline.run()
    assert memory.tolist() == [2.0, 4.0]


def test_a_bound_output_of_another_extent_fails_the_run(runtime: Runtime) -> None:
    stage, pipeline = staged(runtime, doubled, floats(runtime, 1, 2))
    stage.bind_output(0, runtime.create_tensor(F32, (3,)))
    with failing(0x80070057):
        pipeline.run()


def test_scalars_and_empty_tensors(runtime: Runtime) -> None:
    empty = runtime.create_tensor(F32, (0,))
    stage, pipeline = staged(runtime, lambda row: row.sum(), empty, outputs=[(F32, ())])
    pipeline.run()
    assert stage.output(0).desc() == (F32, ())
    assert listed(stage) == 0.0


def test_a_foreign_byte_order_is_converted(runtime: Runtime) -> None:
    stage, pipeline = staged(runtime, lambda: np.array([1, 2], ">f4"), outputs=[(F32, (2,))])
    pipeline.run()
    assert listed(stage) == [1.0, 2.0]


def test_a_returned_view_of_an_input_is_copied(runtime: Runtime) -> None:
    memory = np.array([1, 2, 3], np.float32)
    bound = runtime.tensor_from_buffer(memory, F32, (3,), access=2)
    stage, pipeline = staged(runtime, lambda row: row[::-1], bound)
    pipeline.run()
    memory[:] = 0
    assert listed(stage) == [3.0, 2.0, 1.0]


def test_two_tensors_can_be_swapped_in_place(runtime: Runtime) -> None:
    left, right = floats(runtime, 1, 2), floats(runtime, 3, 4)
    stage, pipeline = staged(runtime, lambda a, b: (b, a), left, right, outputs=[(F32, (2,)), (F32, (2,))])
    stage.bind_output(0, left)
    stage.bind_output(1, right)
    pipeline.run()
    assert left.to_numpy().tolist() == [3.0, 4.0]
    assert right.to_numpy().tolist() == [1.0, 2.0]


def test_a_wrong_second_output_leaves_the_first_place_unwritten(runtime: Runtime) -> None:
    given = floats(runtime, 1, 2)
    stage, pipeline = staged(runtime, lambda a: (a * 2, "b"), given, outputs=[(F32, (2,)), (F32, (2,))])
    stage.bind_output(0, given)
    with failing(0x8000FFFF):
        pipeline.run()
    assert given.to_numpy().tolist() == [1.0, 2.0]


def test_types_that_numpy_lacks_are_bytes(runtime: Runtime) -> None:
    source = runtime.create_tensor(BF16, (2,), b"\x80\x3f\x00\x40")
    nibbles = runtime.create_tensor(I4, (3,), b"\x21\x03")
    shapes: list[tuple[int, ...]] = []

    def swapped(brain: Array, packed: Array) -> tuple[Array, Array]:
        shapes.extend((brain.shape, packed.shape))
        return brain[[2, 3, 0, 1]], packed[::-1]

    stage, pipeline = staged(runtime, swapped, source, nibbles, outputs=[(BF16, (2,)), (I4, (3,))])
    pipeline.run()
    assert shapes == [(4,), (2,)]
    with stage.output(0).lock(1) as lock:
        assert bytes(lock.data()) == b"\x00\x40\x80\x3f"
    with stage.output(1).lock(1) as lock:
        assert bytes(lock.data()) == b"\x03\x21"


def test_a_function_without_ports_returns_nothing(runtime: Runtime) -> None:
    calls: list[int] = []
    _, pipeline = staged(runtime, lambda: calls.append(1), outputs=[])
    pipeline.run()
    assert calls == [1]


# Wrong results


@pytest.mark.parametrize(
    ("returned", "port"),
    [
        (np.zeros(2), "output 0"),
        (np.zeros((1, 2), np.float32), "output 0"),
        (np.zeros(3, np.float32), "output 0"),
        ("text", "output 0"),
        (None, "0 arrays for 1 outputs"),
        ((np.zeros(2, np.float32), np.zeros(2, np.float32)), "2 arrays for 1 outputs"),
    ],
)
def test_a_wrong_result_names_the_stage_and_the_port(runtime: Runtime, returned: object, port: str) -> None:
    _, pipeline = staged(runtime, lambda: returned, outputs=[(F32, (2,))])
    with failing(0x8000FFFF) as caught:
        pipeline.run()
    assert caught.value.context == "IWinMLPipeline.Run"
    assert "own: " in str(caught.value)
    assert port in str(caught.value)


def test_wrong_bytes_are_refused(runtime: Runtime) -> None:
    _, pipeline = staged(runtime, lambda: np.zeros(3, np.uint8), outputs=[(BF16, (2,))])
    with failing(0x8000FFFF):
        pipeline.run()


# Exceptions


class Broken(Exception):
    """An exception of the caller's own."""


@pytest.mark.parametrize("error", [Broken("own"), KeyboardInterrupt(), NotSupportedError(0x80004001, "mine", "text")])
def test_an_exception_of_the_function_comes_out_as_it_is(runtime: Runtime, error: BaseException) -> None:
    def fail() -> None:
        raise error

    _, pipeline = staged(runtime, fail, outputs=[])
    with pytest.raises(type(error)) as caught:
        pipeline.run()
    assert caught.value is error
    if isinstance(caught.value, WinMLError):
        assert caught.value.context == "mine"


def test_an_exception_comes_out_of_execute_as_it_is(runtime: Runtime) -> None:
    error = WinMLError(0x80004001, "mine", "text")

    def fail() -> None:
        raise error

    with pytest.raises(WinMLError) as caught:
        runtime.create_processor(fail, [], []).execute([])
    assert caught.value is error
    assert caught.value.context == "mine"


def test_a_failing_function_leaves_the_earlier_stages_unchanged(runtime: Runtime, files: ModelFiles) -> None:
    position, one = (runtime.tensor_from_numpy(np.zeros(1, np.int32)) for _ in range(2))
    ring = runtime.tensor_from_numpy(np.zeros(4, np.int32))
    sample = runtime.create_decode_sample_processor(2, True, ring, position, one, one)

    def fail(token: Array) -> None:
        assert token.tolist() == [1]
        raise Broken

    builder = runtime.create_pipeline_builder()
    first = builder.add_processor_stage(sample)
    last = builder.add_processor_stage(runtime.create_processor(fail, [one.desc()], []))
    first.bind_input(0, runtime.tensor_from_numpy(np.array([[0, 1]], np.float32)))
    builder.connect(first, 0, last, 0)
    pipeline = builder.build()
    with pytest.raises(Broken):
        pipeline.run()
    assert (position.to_numpy().tolist(), ring.to_numpy().tolist()) == ([0], [0, 0, 0, 0])


def test_outputs_of_a_failed_run_cannot_be_read(runtime: Runtime) -> None:
    answers: list[Array | None] = [np.ones(1, np.float32), None]
    stage, pipeline = staged(runtime, lambda: answers.pop(0), outputs=[(F32, (1,))])
    pipeline.run()
    with failing(0x8000FFFF):
        pipeline.run()
    with failing(0x8007139F):
        stage.output(0)


def test_a_function_cannot_run_its_own_pipeline(runtime: Runtime) -> None:
    seen: list[int] = []

    def again() -> None:
        try:
            pipelines[0].run()
        except WinMLError as error:
            seen.append(error.hresult)

    pipelines = [staged(runtime, again, outputs=[])[1]]
    pipelines[0].run()
    assert seen == [0x800700AA]


def test_the_busy_error_may_leave_the_function(runtime: Runtime) -> None:
    pipelines: list[Pipeline] = []
    pipelines.append(staged(runtime, lambda: pipelines[0].run(), outputs=[])[1])
    with failing(0x800700AA):
        pipelines[0].run()


def test_a_function_may_run_another_pipeline(runtime: Runtime) -> None:
    inner_stage, inner = staged(runtime, doubled, floats(runtime, 1, 2))

    def outer() -> Array:
        inner.run()
        return inner_stage.output(0).to_numpy() + 1

    stage, pipeline = staged(runtime, outer, outputs=[(F32, (2,))])
    pipeline.run()
    assert listed(stage) == [3.0, 5.0]


def test_the_function_runs_on_the_thread_of_the_run(runtime: Runtime) -> None:
    threads: list[int] = []
    _, pipeline = staged(runtime, lambda: threads.append(get_ident()), outputs=[])
    runner = Thread(target=pipeline.run)
    runner.start()
    number = runner.ident
    runner.join()
    assert threads == [number]


def test_cancelling_ends_the_run_when_the_function_returns(runtime: Runtime) -> None:
    pipelines: list[Pipeline] = []

    def cancelled() -> Array:
        pipelines[0].cancel_run()
        return np.ones(1, np.float32)

    stage, pipeline = staged(runtime, cancelled, outputs=[(F32, (1,))])
    pipelines.append(pipeline)
    with failing(0x800704C7):
        pipeline.run()
    with failing(0x8007139F):
        stage.output(0)


# Declarations


def test_ports_are_shown(runtime: Runtime) -> None:
    processor = runtime.create_processor(doubled, [(F32, (None, 2))], [(1, [2]), (I64, ())])
    assert processor.inputs() == [(F32, (FREE, 2))]
    assert processor.outputs() == [(F32, (2,)), (I64, ())]
    assert repr(processor) == "<Processor doubled: 1 inputs, 2 outputs>"


@pytest.mark.parametrize(
    ("inputs", "outputs", "kind"),
    [
        ([(99, (1,))], [], ValueError),
        ([(F32, (-1,))], [], ValueError),
        ([(F32, (True,))], [], ValueError),
        ([F32], [], ValueError),
        ([(F32, 3)], [], ValueError),
        ([], [(BF16, (None,))], ValueError),
    ],
)
def test_wrong_ports_are_refused(runtime: Runtime, inputs: Any, outputs: Any, kind: type[Exception]) -> None:
    with pytest.raises(kind):
        runtime.create_processor(doubled, inputs, outputs)


def test_a_function_must_be_callable(runtime: Runtime) -> None:
    with pytest.raises(TypeError):
        runtime.create_processor(3, [], [])  # type: ignore[arg-type]


def test_an_input_of_another_kind_is_refused(runtime: Runtime) -> None:
    processor: Processor = runtime.create_processor(doubled, [(F32, (None, 2))], ROW)
    for tensor in (runtime.create_tensor(F32, (2,)), runtime.create_tensor(I64, (1, 2))):
        with failing(0x80070057):
            processor.execute([tensor])
    builder = runtime.create_pipeline_builder()
    stage = builder.add_processor_stage(processor)
    builder.build()
    with failing(0x80070057):
        stage.bind_input(0, runtime.create_tensor(F32, (1, 3)))


# With models in one graph


@pytest.mark.usefixtures("onnx_engine")
def test_functions_before_and_after_a_model(runtime: Runtime, files: ModelFiles) -> None:
    builder = runtime.create_pipeline_builder()
    before = builder.add_processor_stage(runtime.create_processor(doubled, ROW, [(F32, (2,))]))
    adder = builder.add_model_stage(runtime.load_model(files.onnx("add")))
    after = builder.add_processor_stage(
        runtime.create_processor(lambda row: np.sort(row)[::-1], [(F32, (2,))], [(F32, (2,))])
    )
    builder.connect(before, 0, adder, 0)
    builder.connect(adder, 0, after, 0)
    before.bind_input(0, floats(runtime, 1, 2))
    adder.bind_input(1, floats(runtime, 10, 20))
    after.request_output(0)
    pipeline = builder.build()
    pipeline.run()
    assert listed(after) == [24.0, 12.0]
    before.bind_input(0, floats(runtime, 50, 0))
    pipeline.run()
    assert listed(after) == [110.0, 20.0]


def test_ranks_of_an_edge_must_agree(runtime: Runtime) -> None:
    builder = runtime.create_pipeline_builder()
    first = builder.add_processor_stage(runtime.create_processor(doubled, [], [(F32, (1, 2))]))
    last = builder.add_processor_stage(runtime.create_processor(doubled, [(F32, (2,))], []))
    builder.connect(first, 0, last, 0)
    with failing(0x80070057):
        builder.build()


def test_a_function_feeds_itself(runtime: Runtime) -> None:
    builder = runtime.create_pipeline_builder()
    stage = builder.add_processor_stage(runtime.create_processor(doubled, [(F32, (1,))], [(F32, (1,))]))
    builder.connect_next_iteration(stage, 0, stage, 0)
    stage.bind_input(0, floats(runtime, 1))
    stage.request_output(0)
    pipeline = builder.build()
    for _ in range(10):
        pipeline.run()
    assert listed(stage) == [1024.0]


def pipeline_in_a_circle(runtime: Runtime) -> weakref.ref[Any]:
    """The core of a pipeline whose function refers to it."""
    pipelines: list[Pipeline] = []
    pipelines.append(staged(runtime, lambda: pipelines[0], outputs=[])[1])
    return weakref.ref(pipelines[0].underlying_object)


def test_a_pipeline_that_its_own_function_refers_to_is_collected(runtime: Runtime) -> None:
    core = pipeline_in_a_circle(runtime)
    gc.collect()
    assert core() is None


def test_a_function_runs_in_the_background(runtime: Runtime) -> None:
    threads: list[int] = []
    _, pipeline = staged(runtime, lambda: threads.append(get_ident()), outputs=[])
    pipeline.execution().submit().wait()
    assert threads != [get_ident()]
    assert len(threads) == 1


@pytest.mark.parametrize("error", [Broken("own"), NotSupportedError(0x80004001, "mine", "text")])
def test_its_exception_comes_out_of_the_fence(runtime: Runtime, error: Exception) -> None:
    def fail() -> None:
        raise error

    _, pipeline = staged(runtime, fail, outputs=[])
    fence = pipeline.execution().submit()
    for _ in range(2):
        with pytest.raises(type(error)) as caught:
            fence.wait()
        assert caught.value is error
        assert caught.traceback[-1].name == "fail"


def test_an_exception_keeps_what_it_was_raised_from(runtime: Runtime) -> None:
    def fail() -> None:
        try:
            raise LookupError("first")
        except LookupError:
            raise WinMLError(0x80004001)  # noqa: B904  (the context is the point)

    _, pipeline = staged(runtime, fail, outputs=[])
    with failing(0x80004001) as caught:
        pipeline.run()
    assert isinstance(caught.value.__context__, LookupError)
    assert not caught.value.__suppress_context__
