"""Outputs that a run would write to one place: refused before anything executes, wherever the first would be lost."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from fakes.model_files import ModelFiles
from fakes.rig import built, failing, floats, integers
from winml_lite import Pipeline, Runtime, Stage, Tensor, TensorAccessMode, TensorDataType

RUN = "IWinMLPipeline.Run"


def two_outputs(runtime: Runtime, files: ModelFiles) -> tuple[Stage, Pipeline]:
    """doubled = X + X, negated = -X, with X = (1, 2)."""
    stage, pipeline = built(runtime, files.onnx("two"))
    stage.bind_input(0, floats(runtime, 1, 2))
    return stage, pipeline


def view(runtime: Runtime, numbers: npt.NDArray[np.float32]) -> Tensor:
    return runtime.tensor_from_dlpack(numbers, access=TensorAccessMode.READWRITE)


def incrementers(runtime: Runtime, files: ModelFiles, connected: bool) -> tuple[Stage, Stage, Pipeline]:
    """Two stages y = x + 1, of which the first may feed the second."""
    builder = runtime.create_pipeline_builder()
    model = runtime.load_model(files.onnx("inc"))
    first, second = builder.add_model_stage(model, name="first"), builder.add_model_stage(model, name="second")
    first.bind_input(0, integers(runtime, 1))
    if connected:
        builder.connect(first, 0, second, 0)
    else:
        second.bind_input(0, integers(runtime, 10))
    return first, second, builder.build()


def work_in_place(tensor: Tensor, *stages: Stage) -> None:
    for stage in stages:
        stage.bind_input(0, tensor)
        stage.bind_output(0, tensor)


def test_two_outputs_in_one_tensor(runtime: Runtime, files: ModelFiles, onnx_engine: str) -> None:
    stage, pipeline = two_outputs(runtime, files)
    mine = floats(runtime, 7, 7)
    stage.bind_output(0, mine)
    stage.bind_output(1, mine)
    with failing(0x80070057) as caught:
        pipeline.run()
    assert caught.value.context == RUN
    assert "output 0 of stage and output 1 of stage are bound to the same memory" in str(caught.value)
    assert mine.to_numpy().tolist() == [7, 7]
    with failing(0x80070057):
        pipeline.run()


def test_two_outputs_in_one_tensor_before_build(runtime: Runtime, files: ModelFiles, onnx_engine: str) -> None:
    builder, mine = runtime.create_pipeline_builder(), floats(runtime, 7, 7)
    stage = builder.add_model_stage(runtime.load_model(files.onnx("two")))
    stage.bind_input(0, floats(runtime, 1, 2))
    stage.bind_output(0, mine)
    stage.bind_output(1, mine)
    with failing(0x80070057):
        builder.build().run()


def test_two_outputs_in_views_that_overlap(runtime: Runtime, files: ModelFiles, onnx_engine: str) -> None:
    stage, pipeline = two_outputs(runtime, files)
    numbers = np.zeros(3, np.float32)
    stage.bind_output(0, view(runtime, numbers[1:]))
    stage.bind_output(1, view(runtime, numbers[:2]))
    with failing(0x80070057) as caught:
        pipeline.run()
    assert "output 0 of stage and output 1 of stage" in str(caught.value)
    assert numbers.tolist() == [0, 0, 0]


def test_a_tensor_and_a_view_of_its_memory(runtime: Runtime, files: ModelFiles, onnx_engine: str) -> None:
    stage, pipeline = two_outputs(runtime, files)
    mine = runtime.create_tensor(TensorDataType.FLOAT32, (2,))
    stage.bind_output(0, mine)
    stage.bind_output(1, runtime.tensor_from_dlpack(mine, access=TensorAccessMode.READWRITE))
    with failing(0x80070057):
        pipeline.run()


def test_two_outputs_side_by_side_in_one_buffer(runtime: Runtime, files: ModelFiles, onnx_engine: str) -> None:
    stage, pipeline = two_outputs(runtime, files)
    numbers = np.zeros(4, np.float32)
    stage.bind_output(0, view(runtime, numbers[2:]))
    stage.bind_output(1, view(runtime, numbers[:2]))
    pipeline.run()
    assert numbers.tolist() == [-1, -2, 2, 4]


def test_outputs_may_change_places_between_runs(runtime: Runtime, files: ModelFiles, onnx_engine: str) -> None:
    stage, pipeline = two_outputs(runtime, files)
    one, other = floats(runtime, 0, 0), floats(runtime, 0, 0)
    stage.bind_output(0, one)
    stage.bind_output(1, other)
    pipeline.run()
    stage.bind_output(0, other)  # for a moment both are bound to it
    stage.bind_output(1, one)
    pipeline.run()
    assert (one.to_numpy().tolist(), other.to_numpy().tolist()) == ([-1, -2], [2, 4])


def test_a_binding_that_comes_later_is_looked_at_too(runtime: Runtime, files: ModelFiles, onnx_engine: str) -> None:
    stage, pipeline = two_outputs(runtime, files)
    mine = floats(runtime, 7, 7)
    stage.bind_output(0, mine)
    pipeline.run()
    stage.bind_output(1, mine)
    with failing(0x80070057):
        pipeline.run()
    stage.reset_output(0)
    pipeline.run()
    assert mine.to_numpy().tolist() == [-1, -2]


def test_outputs_of_two_stages_in_one_tensor(runtime: Runtime, files: ModelFiles, onnx_engine: str) -> None:
    first, second, pipeline = incrementers(runtime, files, connected=False)
    mine = integers(runtime, 7)
    second.bind_output(0, mine)
    first.bind_output(0, mine)
    with failing(0x80070057) as caught:
        pipeline.run()
    assert "output 0 of first and output 0 of second are bound to the same memory" in str(caught.value)
    assert mine.to_numpy().tolist() == [7]


def test_iterations_are_refused_too(runtime: Runtime, files: ModelFiles, onnx_engine: str) -> None:
    builder = runtime.create_pipeline_builder()
    model = runtime.load_model(files.onnx("inc"))
    first, second = builder.add_model_stage(model, name="first"), builder.add_model_stage(model, name="second")
    builder.connect(first, 0, second, 0)
    builder.connect_next_iteration(first, 0, first, 0)
    first.bind_input(0, integers(runtime, 1))
    mine = integers(runtime, 7)
    first.bind_output(0, mine)
    second.bind_output(0, mine)
    fence = builder.build().iteration_execution().submit_iterations(2)
    with failing(0x80070057):  # the second stage reads it, but so does the next iteration
        fence.wait(100_000)
    assert mine.to_numpy().tolist() == [7]


def test_a_connected_chain_works_in_place(runtime: Runtime, files: ModelFiles, onnx_engine: str) -> None:
    first, second, pipeline = incrementers(runtime, files, connected=True)
    mine = integers(runtime, 7)
    first.bind_output(0, mine)
    second.bind_output(0, mine)
    pipeline.run()
    assert mine.to_numpy().tolist() == [3]


def test_a_connected_chain_works_in_views_of_one_memory(runtime: Runtime, files: ModelFiles, onnx_engine: str) -> None:
    first, second, pipeline = incrementers(runtime, files, connected=True)
    mine = integers(runtime, 7)
    first.bind_output(0, mine)
    second.bind_output(0, runtime.tensor_from_dlpack(mine, access=TensorAccessMode.READWRITE))
    pipeline.run()
    assert mine.to_numpy().tolist() == [3]


def test_a_processor_reads_what_it_keeps(runtime: Runtime, files: ModelFiles, onnx_engine: str) -> None:
    builder = runtime.create_pipeline_builder()
    model, position, token = runtime.load_model(files.onnx("inc")), integers(runtime, 7), integers(runtime, 0)
    count, observed = integers(runtime, 0), runtime.create_tensor(TensorDataType.INT32, (1,))
    processor = runtime.create_decode_greedy_processor(2, True, token, position, count, observed)
    before = builder.add_model_stage(model, name="before")
    greedy = builder.add_processor_stage(processor)
    after = builder.add_model_stage(model, name="after")
    for stage, number in ((before, 3), (after, 20)):
        stage.bind_input(0, integers(runtime, number))
        stage.bind_output(0, position)
    greedy.bind_input(0, floats(runtime, 0, 1))
    builder.build().run()
    assert (position.to_numpy().tolist(), count.to_numpy().tolist()) == ([21], [6])  # 4 of `before`, and one more


def test_a_chain_of_bindings_works_in_place(runtime: Runtime, files: ModelFiles, onnx_engine: str) -> None:
    first, second, pipeline = incrementers(runtime, files, connected=False)
    mine = integers(runtime, 7)
    work_in_place(mine, first, second)
    pipeline.run()
    pipeline.run()
    assert mine.to_numpy().tolist() == [11]


def test_a_chain_of_bindings_that_is_broken_later(runtime: Runtime, files: ModelFiles, onnx_engine: str) -> None:
    first, second, pipeline = incrementers(runtime, files, connected=False)
    mine = integers(runtime, 7)
    work_in_place(mine, first, second)
    pipeline.run()
    second.bind_input(0, integers(runtime, 100))
    with failing(0x80070057) as caught:
        pipeline.run()
    assert "output 0 of first and output 0 of second" in str(caught.value)
    assert mine.to_numpy().tolist() == [9]


def test_two_pipelines_write_one_tensor(runtime: Runtime, files: ModelFiles, onnx_engine: str) -> None:
    mine = integers(runtime, 7)
    (one, first), (other, second) = (built(runtime, files.onnx("inc")) for _ in range(2))
    work_in_place(mine, one, other)
    first.run()
    second.run()
    assert mine.to_numpy().tolist() == [9]


def test_empty_outputs_share_nothing(runtime: Runtime, files: ModelFiles, onnx_engine: str) -> None:
    builder = runtime.create_pipeline_builder()
    model = runtime.load_model(files.onnx("dyn1"))
    nothing = runtime.create_tensor(TensorDataType.FLOAT32, (0, 3))
    for name in ("first", "second"):
        stage = builder.add_model_stage(model, name=name)
        stage.bind_input(0, runtime.create_tensor(TensorDataType.FLOAT32, (0, 3)))
        stage.bind_output(0, nothing)
    builder.build().run()


def with_state_of_the_caller(runtime: Runtime, files: ModelFiles) -> tuple[Stage, Pipeline]:
    """As `two_outputs`, but unbound, with X and doubled as state."""
    builder = runtime.create_pipeline_builder()
    stage = builder.add_model_stage(runtime.load_model(files.onnx("two")))
    stage.caller_owns_state_tensors = True
    stage.add_state_tensor_pair(0, 0)
    return stage, builder.build()


def test_a_state_of_the_caller_and_an_output(runtime: Runtime, files: ModelFiles, onnx_engine: str) -> None:
    stage, pipeline = with_state_of_the_caller(runtime, files)
    state, mine = floats(runtime, 1, 2), floats(runtime, 10, 20)
    stage.bind_output(1, mine)
    stage.bind_input(0, state)
    pipeline.run()
    stage.bind_input(0, mine)
    with failing(0x80070057) as caught:
        pipeline.run()
    assert "output 1 of stage and output 0 of stage" in str(caught.value)
    assert (state.to_numpy().tolist(), mine.to_numpy().tolist()) == ([2, 4], [-1, -2])


def test_a_state_of_the_caller_that_is_requested(runtime: Runtime, files: ModelFiles, onnx_engine: str) -> None:
    stage, pipeline = with_state_of_the_caller(runtime, files)
    mine = floats(runtime, 1, 2)
    stage.bind_input(0, mine)
    stage.bind_output(1, mine)
    stage.request_output(0)
    with failing(0x80070057):
        pipeline.run()
    assert mine.to_numpy().tolist() == [1, 2]


def test_a_state_of_the_caller_that_comes_back_to_its_tensor(
    runtime: Runtime, files: ModelFiles, onnx_engine: str
) -> None:
    stage, pipeline = with_state_of_the_caller(runtime, files)
    mine, elsewhere = floats(runtime, 1, 2), floats(runtime, 0, 0)
    stage.bind_input(0, mine)
    stage.bind_output(0, elsewhere)
    stage.bind_output(1, mine)
    pipeline.run()
    assert (mine.to_numpy().tolist(), elsewhere.to_numpy().tolist()) == ([-1, -2], [2, 4])
    stage.reset_output(0)
    with failing(0x80070057):
        pipeline.run()
    assert mine.to_numpy().tolist() == [-1, -2]
