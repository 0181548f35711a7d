"""Pipelines of several stages: order, fan-out, both engines in one, what is published, and all or nothing."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from fakes.backend import FakeBackend, Script
from fakes.engines import spoil
from fakes.model_files import ModelFiles
from fakes.rig import failing, floats, integers, result
from winml_lite import Pipeline, PipelineBuilder, Runtime, Stage, WinMLError
from winml_lite.native.backend import replaced_backend

ANSWERS = [259, 261, 264, 271, 273, 279, 44, 280, 283, 287, 291, 292, 195, 169, 294, 301, 46, 330]
"""What the scripted decoder says after a line feed, token 10."""


def add(runtime: Runtime, builder: PipelineBuilder, path: str, name: str = "stage") -> Stage:
    return builder.add_model_stage(runtime.load_model(path), None, name)


def chain(runtime: Runtime, files: ModelFiles, count: int) -> tuple[list[Stage], Pipeline]:
    """`count` stages that add 1 each; the last one is requested."""
    builder = runtime.create_pipeline_builder()
    stages = [add(runtime, builder, files.onnx("inc"), f"stage {number}") for number in range(count)]
    for source, target in pairwise(stages):
        builder.connect(source, 0, target, 0)
    stages[-1].request_output(0)
    return stages, builder.build()


def token_loop(runtime: Runtime, files: ModelFiles) -> tuple[Stage, Stage, Pipeline]:
    """Decoder (GGUF) and greedy selection (ONNX) that feed each other, from a line feed; the token is requested."""
    builder = runtime.create_pipeline_builder()
    decoder = add(runtime, builder, files.scripted_gguf, "decoder")
    choice = add(runtime, builder, files.onnx("likeliest"), "choice")
    builder.connect(decoder, 0, choice, 0)
    builder.connect_next_iteration(choice, 0, decoder, 0)
    decoder.bind_input(0, integers(runtime, 10))
    choice.request_output(0)
    return decoder, choice, builder.build()


# Both engines in one pipeline


def test_r137_stages_of_both_engines_run_in_one_pipeline(
    runtime: Runtime, files: ModelFiles, both_engines: str
) -> None:
    builder = runtime.create_pipeline_builder()
    choice = add(runtime, builder, files.onnx("likeliest"))
    decoder = add(runtime, builder, files.scripted_gguf)
    before = add(runtime, builder, files.onnx("inc"))
    builder.connect(decoder, 0, choice, 0)
    builder.connect(before, 0, decoder, 0)
    before.bind_input(0, integers(runtime, 9))
    choice.request_output(0)
    pipeline = builder.build()
    pipeline.run()
    assert result(choice) == [259]
    before.bind_input(0, integers(runtime, 258))
    pipeline.run()
    assert result(choice) == [261]
    assert decoder.sequence_position == 2


def test_r137_both_stages_work_apart(runtime: Runtime, files: ModelFiles, both_engines: str) -> None:
    builder = runtime.create_pipeline_builder()
    decoder = add(runtime, builder, files.scripted_gguf)
    adder = add(runtime, builder, files.onnx("add"))
    decoder.bind_input(0, integers(runtime, 10))
    adder.bind_input(0, floats(runtime, 1, 2))
    adder.bind_input(1, floats(runtime, 10, 20))
    decoder.request_output(0)
    adder.request_output(0)
    builder.build().run()
    assert decoder.output(0).to_numpy().argmax() == 259
    assert result(adder) == [11, 22]


def test_a_decoder_that_feeds_itself_writes_the_sentence(
    runtime: Runtime, files: ModelFiles, both_engines: str
) -> None:
    decoder, choice, pipeline = token_loop(runtime, files)
    tokens = []
    for _ in range(18):
        pipeline.run()
        tokens += result(choice)
    assert tokens == ANSWERS
    assert decoder.sequence_position == 18
    pipeline.reset()
    pipeline.iteration_execution().submit_iterations(18).wait()
    assert result(choice) == [330]
    assert decoder.sequence_position == 18


def test_a_hundred_tokens_by_iterations_by_runs_and_by_hand(
    runtime: Runtime, files: ModelFiles, llama: None, ort: None
) -> None:
    _, choice, pipeline = token_loop(runtime, files)
    pipeline.iteration_execution().submit_iterations(100).wait()
    submitted = result(choice)
    pipeline.reset()
    tokens = []
    for _ in range(100):
        pipeline.run()
        tokens += result(choice)

    builder = runtime.create_pipeline_builder()
    decoder = add(runtime, builder, files.scripted_gguf)
    decoder.request_output(0)
    single = builder.build()
    by_hand = [10]
    for _ in range(100):
        decoder.bind_input(0, integers(runtime, by_hand[-1]))
        single.run()
        by_hand.append(int(decoder.output(0).to_numpy().argmax()))
    assert tokens == by_hand[1:]
    assert submitted == by_hand[-1:]


def test_a_failing_later_stage_takes_the_token_back(
    runtime: Runtime, files: ModelFiles, both_engines: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    decoder, choice, pipeline = token_loop(runtime, files)
    pipeline.run()
    spoil(choice, monkeypatch, WinMLError(0x80004005))
    with failing(0x80004005):
        pipeline.run()
    assert decoder.sequence_position == 1
    pipeline.run()
    assert result(choice) == [261]
    assert decoder.sequence_position == 2


# Order and fan-out


def test_independent_stages_run_in_the_order_they_were_added(
    runtime: Runtime, files: ModelFiles, onnx_engine: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    builder = runtime.create_pipeline_builder()
    stages = [add(runtime, builder, files.onnx("inc"), name) for name in "abcd"]
    builder.connect(stages[3], 0, stages[1], 0)
    for index in (0, 2, 3):
        stages[index].bind_input(0, integers(runtime, index))
    pipeline = builder.build()
    order: list[str] = []

    def note(stage: Stage) -> None:
        executor = stage.underlying_object.executor
        run = executor.run

        def noted_run() -> None:
            order.append(stage.debug_name)
            run()

        monkeypatch.setattr(executor, "run", noted_run)

    for stage in stages:
        note(stage)
    pipeline.run()
    assert order == ["a", "c", "d", "b"]


def test_a_fork_that_joins_again(runtime: Runtime, files: ModelFiles, onnx_engine: str) -> None:
    builder = runtime.create_pipeline_builder()
    fork, left, right, join = (add(runtime, builder, files.onnx(name)) for name in ("two", "two", "two", "add"))
    builder.connect(fork, 0, left, 0)
    builder.connect(fork, 0, right, 0)
    builder.connect(left, 0, join, 0)
    builder.connect(right, 1, join, 1)
    fork.bind_input(0, floats(runtime, 1, 2))  # 2x, then 4x and -2x
    join.request_output(0)
    pipeline = builder.build()
    for _ in range(3):
        pipeline.run()
        assert result(join) == [2, 4]
    fork.bind_input(0, floats(runtime, 3, 5))
    pipeline.run()
    assert result(join) == [6, 10]


def test_an_output_may_feed_this_iteration_and_the_next(runtime: Runtime, files: ModelFiles, onnx_engine: str) -> None:
    builder = runtime.create_pipeline_builder()
    counter, after = add(runtime, builder, files.onnx("inc")), add(runtime, builder, files.onnx("inc"))
    builder.connect(counter, 0, after, 0)
    builder.connect_next_iteration(counter, 0, counter, 0)
    counter.bind_input(0, integers(runtime, 0))
    after.request_output(0)
    pipeline = builder.build()
    values = []
    for _ in range(4):
        pipeline.run()
        values += result(after)
    assert values == [2, 3, 4, 5]


def test_two_values_go_round_in_a_ring(runtime: Runtime, files: ModelFiles, onnx_engine: str) -> None:
    builder = runtime.create_pipeline_builder()
    first, second = add(runtime, builder, files.onnx("inc")), add(runtime, builder, files.onnx("inc"))
    builder.connect_next_iteration(first, 0, second, 0)
    builder.connect_next_iteration(second, 0, first, 0)
    first.bind_input(0, integers(runtime, 0))
    second.bind_input(0, integers(runtime, 100))
    first.request_output(0)
    second.request_output(0)
    pipeline = builder.build()
    values = []
    for _ in range(4):
        pipeline.run()
        values.append((result(first), result(second)))
    assert values == [([1], [101]), ([102], [2]), ([3], [103]), ([104], [4])]


def test_a_connected_input_that_the_model_returns_as_it_is(
    runtime: Runtime, files: ModelFiles, onnx_engine: str
) -> None:
    builder = runtime.create_pipeline_builder()
    passing, target = add(runtime, builder, files.onnx("pass_through")), add(runtime, builder, files.onnx("two"))
    builder.connect(passing, 0, target, 0)
    passing.bind_input(0, floats(runtime, 1, 2))
    target.request_output(0)
    pipeline = builder.build()
    for _ in range(3):
        pipeline.run()
        assert result(target) == [2, 4]
    passing.bind_input(0, floats(runtime, 5, 6))
    pipeline.run()
    assert result(target) == [10, 12]


# Missing inputs


def test_r71_a_missing_input_of_a_later_stage_stops_the_first(
    runtime: Runtime, files: ModelFiles, fake_ort: FakeBackend, script: Script
) -> None:
    builder = runtime.create_pipeline_builder()
    first, second = (
        add(runtime, builder, files.onnx("two"), "first"),
        add(runtime, builder, files.onnx("add"), "second"),
    )
    builder.connect(first, 0, second, 0)
    first.bind_input(0, floats(runtime, 1, 2))
    pipeline = builder.build()
    with failing(0x80070057) as caught:
        pipeline.run()
    assert "second: input 1 is not bound" in str(caught.value)
    assert script.runs == 0
    second.bind_input(1, floats(runtime, 0, 0))
    pipeline.run()
    second.clear_input(1)
    with failing(0x80070057):
        pipeline.run()
    assert script.runs == 2


# What is published


def test_inner_outputs_stay_hidden_unless_they_are_requested(
    runtime: Runtime, files: ModelFiles, onnx_engine: str
) -> None:
    stages, pipeline = chain(runtime, files, 3)
    stages[0].bind_input(0, integers(runtime, 5))
    stages[1].request_output(0)
    pipeline.run()
    with failing(0x80070490):
        stages[0].output(0)
    assert (result(stages[1]), result(stages[2])) == ([7], [8])


def test_r63_an_inner_output_may_be_published_and_withdrawn_at_any_time(
    runtime: Runtime, files: ModelFiles, onnx_engine: str
) -> None:
    stages, pipeline = chain(runtime, files, 3)
    seen: list[float] = []
    for value in range(12):
        stages[0].bind_input(0, integers(runtime, value))
        if value % 4 == 2:
            stages[1].request_output(0)
        if value % 4 == 0:
            stages[1].reset_output(0)
        pipeline.run()
        seen += result(stages[2])
    assert seen == [3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14]


def test_r73_a_published_inner_output_is_new_memory_in_each_run(
    runtime: Runtime, files: ModelFiles, onnx_engine: str
) -> None:
    stages, pipeline = chain(runtime, files, 3)
    stages[0].bind_input(0, integers(runtime, 0))
    for _ in range(3):
        pipeline.run()
    stages[1].request_output(0)
    kept = []
    for value in (10, 20, 30):
        stages[0].bind_input(0, integers(runtime, value))
        pipeline.run()
        kept.append(stages[1].output(0))
    assert [int(tensor.to_numpy()[0]) for tensor in kept] == [12, 22, 32]


def test_r60_an_inner_output_is_written_into_the_callers_tensor(
    runtime: Runtime, files: ModelFiles, onnx_engine: str
) -> None:
    stages, pipeline = chain(runtime, files, 3)
    stages[0].bind_input(0, integers(runtime, 5))
    pipeline.run()
    mine, other = integers(runtime, 0), integers(runtime, 0)
    stages[0].bind_output(0, mine)
    pipeline.run()
    stages[0].bind_output(0, other)
    stages[0].bind_input(0, integers(runtime, 50))
    pipeline.run()
    stages[0].reset_output(0)
    stages[0].bind_input(0, integers(runtime, 70))
    pipeline.run()
    assert (mine.to_numpy().tolist(), other.to_numpy().tolist(), result(stages[2])) == ([6], [51], [73])


# Shapes


def test_r138_the_shapes_inside_follow_the_inputs(runtime: Runtime, files: ModelFiles, onnx_engine: str) -> None:
    builder = runtime.create_pipeline_builder()
    first, second = add(runtime, builder, files.onnx("dyn1")), add(runtime, builder, files.onnx("dyn1"))
    builder.connect(first, 0, second, 0)
    second.request_output(0)
    pipeline = builder.build()
    shapes = []
    for count in (1, 1, 1, 7, 7, 2):
        first.bind_input(0, runtime.tensor_from_numpy(np.ones((count, 3), np.float32)))
        pipeline.run()
        assert set(result(second)) == {4.0}
        shapes.append(second.output(0).desc()[1])
    assert shapes == [(1, 3), (1, 3), (1, 3), (7, 3), (7, 3), (2, 3)]


def test_r139_fixed_symbols_hold_through_the_graph(runtime: Runtime, files: ModelFiles, onnx_engine: str) -> None:
    builder = runtime.create_pipeline_builder()
    first, second = add(runtime, builder, files.onnx("dyn1")), add(runtime, builder, files.onnx("dyn1"))
    first.symbolic_dimensions["N"] = second.symbolic_dimensions["N"] = 2
    builder.connect(first, 0, second, 0)
    second.request_output(0)
    pipeline = builder.build()
    for value in (1.0, 2.0, 3.0, 4.0):
        first.bind_input(0, runtime.tensor_from_numpy(np.full((2, 3), value, np.float32)))
        pipeline.run()
        assert set(result(second)) == {4 * value}


def test_r70_a_value_that_does_not_fit_its_consumer(runtime: Runtime, files: ModelFiles, onnx_engine: str) -> None:
    builder = runtime.create_pipeline_builder()
    first, second = (add(runtime, builder, files.onnx("dyn1"), name) for name in ("first", "second"))
    second.symbolic_dimensions["N"] = 2
    builder.connect(first, 0, second, 0)
    second.request_output(0)
    pipeline = builder.build()
    first.bind_input(0, runtime.tensor_from_numpy(np.ones((3, 3), np.float32)))
    with failing(0x80070057) as caught:
        pipeline.run()
    assert "output 0 of first does not fit second" in str(caught.value)
    first.bind_input(0, runtime.tensor_from_numpy(np.ones((2, 3), np.float32)))
    pipeline.run()
    assert result(second) == [4.0] * 6


# Failures


def test_a_failure_names_the_stage(
    runtime: Runtime, files: ModelFiles, onnx_engine: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    stages, pipeline = chain(runtime, files, 3)
    stages[0].bind_input(0, integers(runtime, 0))
    spoil(stages[1], monkeypatch, WinMLError(0x80004005, "IWinMLPipeline.Run", "out of luck"))
    with failing(0x80004005) as caught:
        pipeline.run()
    assert "[IWinMLPipeline.Run]: stage 1: out of luck" in str(caught.value)
    spoil(stages[1], monkeypatch, WinMLError(0x80004005, "node 7", "out of luck"))
    with failing(0x80004005) as caught:
        pipeline.run()
    assert "[IWinMLPipeline.Run]: stage 1: node 7: out of luck" in str(caught.value)


# State


def test_r111_a_failing_later_stage_leaves_managed_state(
    runtime: Runtime, files: ModelFiles, onnx_engine: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    builder = runtime.create_pipeline_builder()
    state, later = add(runtime, builder, files.onnx("stat")), add(runtime, builder, files.onnx("inc"))
    state.add_state_tensor_pair(1, 1)
    state.bind_input(0, runtime.tensor_from_numpy(np.array([[2]], np.int64)))
    state.request_output(0)
    later.bind_input(0, integers(runtime, 1))
    pipeline = builder.build()
    pipeline.run()
    spoil(later, monkeypatch, WinMLError(0x80004005))
    with failing(0x80004005):
        pipeline.run()
    assert state.sequence_position == 1
    pipeline.run()
    assert (state.sequence_position, result(state)) == (2, [4])


def test_a_connected_state_of_the_caller_arrives_new(runtime: Runtime, files: ModelFiles, onnx_engine: str) -> None:
    builder = runtime.create_pipeline_builder()
    first, second = add(runtime, builder, files.onnx("stat")), add(runtime, builder, files.onnx("stat"))
    first.caller_owns_state_tensors = True
    first.add_state_tensor_pair(1, 1)
    builder.connect(first, 1, second, 1)
    mine = runtime.tensor_from_numpy(np.zeros((1, 1, 8, 1), np.float32))
    first.bind_input(1, mine)
    first.bind_input(0, runtime.tensor_from_numpy(np.array([[5]], np.int64)))
    second.bind_input(0, runtime.tensor_from_numpy(np.array([[1]], np.int64)))
    second.request_output(0)
    pipeline = builder.build()
    sums = []
    for _ in range(4):
        pipeline.run()
        sums += result(second)
    assert sums == [6, 11, 16, 21]  # the sum of the newest eight: n times 5, and 1
    assert mine.to_numpy().reshape(-1).tolist() == [0, 0, 0, 0, 5, 5, 5, 5]


def test_r84_a_value_that_is_fed_back_survives_a_failing_stage(
    runtime: Runtime, files: ModelFiles, onnx_engine: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    builder = runtime.create_pipeline_builder()
    first, second = add(runtime, builder, files.onnx("inc")), add(runtime, builder, files.onnx("inc"))
    builder.connect(first, 0, second, 0)
    builder.connect_next_iteration(second, 0, first, 0)
    first.bind_input(0, integers(runtime, 0))
    second.request_output(0)
    pipeline = builder.build()
    for _ in range(3):
        pipeline.run()
    for stage in (first, second):
        spoil(stage, monkeypatch, WinMLError(0x80004005))
        with failing(0x80004005):
            pipeline.run()
    pipeline.run()
    assert result(second) == [8]


@pytest.mark.parametrize("interrupted", [0, 1])
def test_s_lif_08_ctrl_c_between_two_commits_leaves_no_half_of_a_run(
    runtime: Runtime, files: ModelFiles, script: Script, monkeypatch: pytest.MonkeyPatch, interrupted: int
) -> None:
    fake = FakeBackend(script, logits=lambda ids: [0.0, 1.0], vocabulary_size=2)
    builder = runtime.create_pipeline_builder()
    stages = [add(runtime, builder, files.gguf), add(runtime, builder, files.gguf)]
    for stage in stages:
        stage.bind_input(0, runtime.tensor_from_tokens([1]))
    with replaced_backend("llama", fake):
        pipeline = builder.build()
    executor = stages[interrupted].underlying_object.executor
    commit = executor.commit

    def interrupt() -> None:
        commit()
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(executor, "commit", interrupt)
        with pytest.raises(KeyboardInterrupt):
            pipeline.run()
    assert [stage.sequence_position for stage in stages] == [1, 1]
    pipeline.run()
    assert [stage.sequence_position for stage in stages] == [2, 2]
