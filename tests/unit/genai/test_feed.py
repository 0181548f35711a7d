"""Token ids, positions and mask on their way into a stage, and the last row of logits on its way out.

The graph tells what it was given: for each token its logits are (id, position, length of the mask).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from fakes.backend import FakeBackend, Script
from fakes.rig import failing
from fakes.scripted import A, B, C, Composed, composed
from genai.endpoints import Endpoints
from genai.feed import CHUNK, TokenFeed
from winml_lite import NotSupportedError, Pipeline, Runtime, Stage, TensorDataType, WinMLError
from winml_lite.native.backend import replaced_backend

E_INVALIDARG = 0x80070057


def telling_graph(
    folder: Path, inputs: Sequence[str] = ("ids", "positions", "mask"), integer: int = TensorProto.INT64
) -> Path:
    """Write a graph with the named inputs; what it lacks shows as 0."""
    shapes = {"ids": ["n", "s"], "positions": ["n", "s"], "mask": ["n", "t"]}
    names = {"ids": "input_ids", "positions": "position_ids", "mask": "attention_mask"}
    nodes = [
        helper.make_node("Cast", ["input_ids"], ["id"], to=TensorProto.FLOAT),
        helper.make_node("Mul", ["id", "zero"], ["nothing"]),
    ]
    if "positions" in inputs:
        nodes.append(helper.make_node("Cast", ["position_ids"], ["position"], to=TensorProto.FLOAT))
    else:
        nodes.append(helper.make_node("Identity", ["nothing"], ["position"]))
    if "mask" in inputs:
        nodes.append(helper.make_node("Cast", ["attention_mask"], ["ones"], to=TensorProto.FLOAT))
        nodes.append(helper.make_node("ReduceSum", ["ones", "last_axis"], ["sum"], keepdims=1))
        nodes.append(helper.make_node("Add", ["nothing", "sum"], ["length"]))
    else:
        nodes.append(helper.make_node("Identity", ["nothing"], ["length"]))
    for name in ("id", "position", "length"):
        nodes.append(helper.make_node("Unsqueeze", [name, "axis"], [f"{name}_column"]))
    nodes.append(helper.make_node("Concat", ["id_column", "position_column", "length_column"], ["logits"], axis=2))
    graph = helper.make_graph(
        nodes,
        "telling",
        [helper.make_tensor_value_info(names[name], integer, shapes[name]) for name in inputs],
        [helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["n", "s", 3])],
        [
            helper.make_tensor("zero", TensorProto.FLOAT, [], [0.0]),
            helper.make_tensor("axis", TensorProto.INT64, [1], [2]),
            helper.make_tensor("last_axis", TensorProto.INT64, [1], [-1]),
        ],
    )
    path = folder / "telling.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), path)
    return path


@pytest.fixture
def fake() -> Iterator[Script]:
    with replaced_backend("ort", FakeBackend(script := Script())):
        yield script


def feed_of(runtime: Runtime, path: Path) -> tuple[TokenFeed, Stage, Pipeline]:
    builder = runtime.create_pipeline_builder()
    stage = builder.add_model_stage(runtime.load_model(path))
    pipeline = builder.build()
    feed = TokenFeed(runtime, Endpoints(pipeline, stage, 0, stage, 0), runtime.create_cpu_target())
    return feed, stage, pipeline


def prepared(runtime: Runtime, path: Path) -> TokenFeed:
    feed = feed_of(runtime, path)[0]
    feed.prepare()
    feed.begin()
    return feed


def test_a_prompt_gives_its_last_row(runtime: Runtime, fake: Script, tmp_path: Path) -> None:
    feed = prepared(runtime, telling_graph(tmp_path))
    assert feed.run([5, 6, 7], 0).tolist() == [7.0, 2.0, 3.0]


def test_steps_bind_position_and_mask(runtime: Runtime, fake: Script, tmp_path: Path) -> None:
    feed = prepared(runtime, telling_graph(tmp_path))
    feed.run([5, 6, 7], 0)
    assert feed.step(8, 3).tolist() == [8.0, 3.0, 4.0]
    assert feed.step(9, 4).tolist() == [9.0, 4.0, 5.0]


def test_a_later_piece_counts_from_its_position(runtime: Runtime, fake: Script, tmp_path: Path) -> None:
    feed = prepared(runtime, telling_graph(tmp_path))
    feed.skip([1, 2], 0)
    assert feed.run([3, 4], 2).tolist() == [4.0, 3.0, 4.0]
    assert feed.step(5, 4).tolist() == [5.0, 4.0, 5.0]
    assert feed.run([6, 7], 5).tolist() == [7.0, 6.0, 7.0]
    assert feed.step(8, 7).tolist() == [8.0, 7.0, 8.0]


@pytest.mark.parametrize("inputs", [("ids",), ("ids", "mask"), ("ids", "positions")])
def test_missing_inputs_are_left_alone(runtime: Runtime, fake: Script, tmp_path: Path, inputs: Sequence[str]) -> None:
    feed = prepared(runtime, telling_graph(tmp_path, inputs))
    row = feed.run([5, 6], 0)
    assert row.tolist() == [6.0, 1.0 if "positions" in inputs else 0.0, 2.0 if "mask" in inputs else 0.0]


def test_int32_inputs_get_int32(runtime: Runtime, fake: Script, tmp_path: Path) -> None:
    feed = prepared(runtime, telling_graph(tmp_path, integer=TensorProto.INT32))
    assert feed.run([5, 6], 0).tolist() == [6.0, 1.0, 2.0]
    assert feed.step(7, 2).tolist() == [7.0, 2.0, 3.0]


def test_a_mask_of_more_than_1024_tokens_grows(runtime: Runtime, fake: Script, tmp_path: Path) -> None:
    feed = prepared(runtime, telling_graph(tmp_path))
    assert feed.step(1, 1023).tolist() == [1.0, 1023.0, 1024.0]
    assert feed.step(1, 1024).tolist() == [1.0, 1024.0, 1025.0]
    assert feed.step(1, 5000).tolist() == [1.0, 5000.0, 5001.0]


def test_a_step_row_is_the_same_memory_each_time(runtime: Runtime, fake: Script, tmp_path: Path) -> None:
    feed = prepared(runtime, telling_graph(tmp_path))
    assert feed.step(1, 0) is feed.step(2, 1)


def test_a_row_of_a_prompt_stays_as_it_is(runtime: Runtime, fake: Script, tmp_path: Path) -> None:
    feed = prepared(runtime, telling_graph(tmp_path))
    row = feed.run([5, 6], 0)
    feed.run([7, 8], 2)
    assert row.tolist() == [6.0, 1.0, 2.0]


def test_a_new_operation_binds_again_what_others_changed(runtime: Runtime, fake: Script, tmp_path: Path) -> None:
    feed, stage, pipeline = feed_of(runtime, telling_graph(tmp_path))
    feed.prepare()
    feed.step(1, 0)
    for index in (0, 1):
        stage.bind_input(index, runtime.tensor_from_tokens([9]))
    stage.request_output(0)
    pipeline.run()
    feed.begin()
    assert feed.step(2, 5).tolist() == [2.0, 5.0, 6.0]


def test_a_mask_of_another_stage_is_bound_too(runtime: Runtime, fake: Script, tmp_path: Path) -> None:
    builder = runtime.create_pipeline_builder()
    folders = tmp_path / "tokens", tmp_path / "telling"
    for folder in folders:
        folder.mkdir()
    tokens = builder.add_model_stage(runtime.load_model(telling_graph(folders[0], ("ids",))))
    telling = builder.add_model_stage(runtime.load_model(telling_graph(folders[1], ("ids", "mask"))))
    cast = runtime.create_processor(
        lambda rows: rows[..., 0].astype(np.int64),
        [(TensorDataType.FLOAT32, (None, None, 3))],
        [(TensorDataType.INT64, (None, None))],
    )
    between = builder.add_processor_stage(cast)
    builder.connect(tokens, 0, between, 0)
    builder.connect(between, 0, telling, 0)
    endpoints = Endpoints(builder.build(), tokens, 0, telling, 0)
    feed = TokenFeed(runtime, endpoints, runtime.create_cpu_target(), telling)
    feed.prepare()
    feed.begin()
    assert feed.run([5, 6], 0).tolist() == [6.0, 0.0, 2.0]
    assert feed.step(7, 2).tolist() == [7.0, 0.0, 3.0]


def test_a_mask_that_a_stage_makes_is_left_to_it(runtime: Runtime, fake: Script, tmp_path: Path) -> None:
    builder = runtime.create_pipeline_builder()
    telling = builder.add_model_stage(runtime.load_model(telling_graph(tmp_path, ("ids", "mask"))))
    ones = runtime.create_processor(lambda: np.ones((1, 7), np.int64), [], [(TensorDataType.INT64, (1, None))])
    builder.connect(builder.add_processor_stage(ones), 0, telling, 1)
    feed = TokenFeed(runtime, Endpoints(builder.build(), telling, 0, telling, 0), runtime.create_cpu_target())
    feed.prepare()
    feed.begin()
    assert feed.run([5, 6], 0).tolist() == [6.0, 0.0, 7.0]
    assert feed.step(8, 2).tolist() == [8.0, 0.0, 7.0]


def test_a_mask_that_is_not_integer_is_refused(runtime: Runtime, fake: Script, tmp_path: Path) -> None:
    graph = onnx.load(telling_graph(tmp_path, ("ids", "mask")))
    graph.graph.input[1].type.tensor_type.elem_type = TensorProto.FLOAT
    onnx.save(graph, tmp_path / "floating.onnx")
    feed = feed_of(runtime, tmp_path / "floating.onnx")[0]
    with failing(E_INVALIDARG) as caught:
        feed.prepare()
    assert "attention_mask" in str(caught.value)


def test_a_chunk_is_128_tokens_and_one_where_the_shape_is_fixed(runtime: Runtime, fake: Script, tmp_path: Path) -> None:
    assert feed_of(runtime, telling_graph(tmp_path, ("ids",)))[0].chunk == CHUNK == 128
    builder = runtime.create_pipeline_builder()
    stage = builder.add_model_stage(runtime.load_model(tmp_path / "telling.onnx"))
    stage.symbolic_dimensions["s"] = 1
    pipeline = builder.build()
    feed = TokenFeed(runtime, Endpoints(pipeline, stage, 0, stage, 0), runtime.create_cpu_target())
    assert feed.chunk == 1
    assert feed.vocabulary_size == 3


def test_tensors_are_made_on_the_given_target(runtime: Runtime, fake: Script, tmp_path: Path) -> None:
    builder = runtime.create_pipeline_builder()
    stage = builder.add_model_stage(runtime.load_model(telling_graph(tmp_path)))
    pipeline = builder.build()
    pinned = runtime.create_ort_execution_target("CPUExecutionProvider", 1)
    with pytest.raises(NotSupportedError, match="make tensors on create_cpu_target"):
        TokenFeed(runtime, Endpoints(pipeline, stage, 0, stage, 0), pinned)


def test_a_failing_run_is_passed_on_and_can_be_repeated(tmp_path: Path) -> None:
    with composed(tmp_path) as stage:
        stage.script.fail_at[1] = WinMLError(0x80004005)
        feed = _feed(stage)
        with failing(0x80004005):
            feed.run([A, B], 0)
        assert int(feed.run([A, B], 0).argmax()) == C
        assert stage.stage.sequence_position == 2


def test_a_stage_without_names_has_no_mask(tmp_path: Path) -> None:
    with composed(tmp_path) as stage:
        feed = _feed(stage)
        assert int(feed.step(A, 0).argmax()) == B
        assert feed.step(B, 1).dtype == np.float32


def test_closing_gives_the_pipeline_up(tmp_path: Path) -> None:
    with composed(tmp_path) as stage:
        feed = _feed(stage)
        feed.close()
        feed.close()
        with pytest.raises(RuntimeError, match="Pipeline is closed"):
            stage.pipeline.run()


def _feed(stage: Composed) -> TokenFeed:
    feed = TokenFeed(stage.runtime, Endpoints(stage.pipeline, stage.stage, 0, stage.stage, 0), stage.target)
    feed.prepare()
    return feed
