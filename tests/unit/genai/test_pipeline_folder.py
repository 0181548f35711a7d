"""A decoder in several graphs: what `genai_config.json` may say of them, and which graphs are connected."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import onnx
import pytest
from onnx import TensorProto, helper

from fakes.backend import FakeBackend, Script
from fakes.rig import failing
from genai.model_folder import read_pipeline
from genai.pipeline_folder import assemble_pipeline
from genai.placement import placement
from genai.session_settings import SessionSettings
from winml_lite import ExecutionTargetKind, Runtime
from winml_lite.native.backend import replaced_backend

FILE_NOT_FOUND = 0x80070002
INVALID_DATA = 0x8007000D
NOT_SUPPORTED = 0x80070032
ON_THE_CPU = SessionSettings(placement(ExecutionTargetKind.CPU, None, None))


@pytest.fixture(autouse=True)
def _fake_engine() -> Iterator[None]:
    with replaced_backend("ort", FakeBackend(Script())):
        yield


def graph(folder: Path, name: str, inputs: dict[str, str], outputs: dict[str, str]) -> None:
    """Write a graph that adds up its inputs; a type is "ids", "rows" or "cache"."""
    types: dict[str, tuple[int, list[Any]]] = {
        "ids": (TensorProto.INT64, ["b", "s"]),
        "rows": (TensorProto.FLOAT, ["b", "s", 4]),
        "cache": (TensorProto.FLOAT, ["b", 1, "p", 4]),
    }
    nodes = []
    for output, kind in outputs.items():
        source = next((source for source, given in inputs.items() if given == kind), None)
        if source is None:
            nodes.append(helper.make_node("Cast", [next(iter(inputs))], [f"{output}_flat"], to=TensorProto.FLOAT))
            nodes.append(helper.make_node("Unsqueeze", [f"{output}_flat", "axis"], [output]))
        else:
            nodes.append(helper.make_node("Identity", [source], [output]))
    made = helper.make_graph(
        nodes,
        name,
        [helper.make_tensor_value_info(port, *types[kind]) for port, kind in inputs.items()],
        [helper.make_tensor_value_info(port, *types[kind]) for port, kind in outputs.items()],
        [helper.make_tensor("axis", TensorProto.INT64, [1], [2])],
    )
    model = helper.make_model(made, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    onnx.save(model, folder / f"{name}.onnx")


def three(folder: Path) -> None:
    """Write embedding, body and head."""
    graph(folder, "embedding", {"input_ids": "ids"}, {"inputs_embeds": "rows"})
    inputs = {"inputs_embeds": "rows", "attention_mask": "ids", "past_key_values.0.key": "cache"}
    graph(folder, "body", inputs, {"hidden_states": "rows", "present.0.key": "cache"})
    graph(folder, "head", {"hidden_states": "rows"}, {"logits": "rows"})


def configure(folder: Path, pipeline: Any, **decoder: Any) -> Path:
    content = {"model": {"decoder": {"pipeline": pipeline, **decoder}}}
    (folder / "genai_config.json").write_text(json.dumps(content), encoding="utf-8")
    return folder


def stages(*names: str, **changes: Any) -> list[dict[str, Any]]:
    return [{name: {"filename": f"{name}.onnx", **changes.get(name, {})}} for name in names]


def connected(folder: Path, runtime: Runtime) -> tuple[list[str], str, str, str]:
    """Names of all stages, then of those that take the ids, give the logits, and keep the cache."""
    pipeline = read_pipeline(folder)
    assert pipeline is not None
    assembly = assemble_pipeline(runtime, pipeline, lambda _: ON_THE_CPU)
    endpoints, owner = assembly.finish(folder, 64, None)
    names = [stage.debug_name for stage in endpoints.others]
    assert owner.sequence_capacity == 64
    return names, endpoints.token_stage.debug_name, endpoints.output_stage.debug_name, owner.debug_name


# --- the configuration ------------------------------------------------------------------------------------------------


def test_a_folder_of_one_decoder_has_no_pipeline(tmp_path: Path) -> None:
    assert read_pipeline(tmp_path) is None
    (tmp_path / "genai_config.json").write_text('{"model": {"decoder": {"filename": "model.onnx"}}}', encoding="utf-8")
    assert read_pipeline(tmp_path) is None
    assert read_pipeline(configure(tmp_path, [])) is None


@pytest.mark.parametrize("shape", ["one object each", "one object", "no list"])
def test_the_graphs_come_in_their_order(tmp_path: Path, shape: str) -> None:
    three(tmp_path)
    separate = stages("embedding", "body", "head")
    joined = {name: graph for entry in separate for name, graph in entry.items()}
    forms = {"one object each": separate, "one object": [joined], "no list": joined}
    pipeline = read_pipeline(configure(tmp_path, forms[shape]))
    assert pipeline is not None
    assert [graph.name for graph in pipeline.graphs] == ["embedding", "body", "head"]
    assert [graph.file.name for graph in pipeline.graphs] == ["embedding.onnx", "body.onnx", "head.onnx"]
    assert (pipeline.token_input, pipeline.logits_output) == ("input_ids", "logits")


@pytest.mark.parametrize(
    ("pipeline", "code"),
    [
        (5, INVALID_DATA),
        ([5], INVALID_DATA),
        ([{"embedding": 5}], INVALID_DATA),
        ([{"embedding": {}}], INVALID_DATA),
        ([{"embedding": {"filename": ""}}], INVALID_DATA),
        ([{"embedding": {"filename": "nowhere.onnx"}}], FILE_NOT_FOUND),
        ([{"embedding": {"filename": "embedding.onnx", "output_names_forwarder": 5}}], INVALID_DATA),
        ([{"embedding": {"filename": "embedding.onnx", "run_on_prompt": False}}], NOT_SUPPORTED),
        ([{"embedding": {"filename": "embedding.onnx", "run_on_token_gen": False}}], NOT_SUPPORTED),
    ],
)
def test_a_pipeline_that_cannot_be_read(tmp_path: Path, pipeline: Any, code: int) -> None:
    three(tmp_path)
    with failing(code) as caught:
        read_pipeline(configure(tmp_path, pipeline))
    assert "genai_config.json" in str(caught.value)


# --- the graphs -------------------------------------------------------------------------------------------------------


def test_values_go_from_graph_to_graph_by_name(tmp_path: Path, runtime: Runtime) -> None:
    three(tmp_path)
    configure(tmp_path, stages("embedding", "body", "head"))
    assert connected(tmp_path, runtime) == (["embedding", "body", "head"], "embedding", "head", "body")


def test_an_output_may_go_on_under_another_name(tmp_path: Path, runtime: Runtime) -> None:
    three(tmp_path)
    graph(tmp_path, "embedding", {"input_ids": "ids"}, {"looked_up": "rows"})
    renamed = {"output_names_forwarder": {"looked_up": "inputs_embeds"}}
    configure(tmp_path, stages("embedding", "body", "head", embedding=renamed))
    assert connected(tmp_path, runtime)[1] == "embedding"


def test_the_configuration_may_rename_ids_and_logits(tmp_path: Path, runtime: Runtime) -> None:
    three(tmp_path)
    graph(tmp_path, "embedding", {"tokens": "ids"}, {"inputs_embeds": "rows"})
    graph(tmp_path, "head", {"hidden_states": "rows"}, {"scores": "rows"})
    names = {"inputs": {"input_ids": "tokens"}, "outputs": {"logits": "scores"}}
    configure(tmp_path, stages("embedding", "body", "head"), **names)
    assert connected(tmp_path, runtime)[2] == "head"


def refused(folder: Path, runtime: Runtime, *names: str) -> str:
    configure(folder, stages(*names))
    with failing(NOT_SUPPORTED) as caught:
        connected(folder, runtime)
    return str(caught.value)


def test_an_input_that_nothing_gives_is_named(tmp_path: Path, runtime: Runtime) -> None:
    three(tmp_path)
    graph(tmp_path, "head", {"hidden_states": "rows", "total_seq_len": "ids"}, {"logits": "rows"})
    text = refused(tmp_path, runtime, "embedding", "body", "head")
    assert "head.onnx" in text
    assert "nothing gives the input 'total_seq_len'" in text


def test_graphs_in_the_wrong_order_are_refused(tmp_path: Path, runtime: Runtime) -> None:
    three(tmp_path)
    assert "'hidden_states'" in refused(tmp_path, runtime, "embedding", "head", "body")


def test_two_graphs_with_a_cache_are_refused(tmp_path: Path, runtime: Runtime) -> None:
    three(tmp_path)
    inputs = {"hidden_states": "rows", "past_key_values.1.key": "cache"}
    graph(tmp_path, "second", inputs, {"hidden_states": "rows", "present.1.key": "cache"})
    assert "a second graph keeps a cache" in refused(tmp_path, runtime, "embedding", "body", "second", "head")


def test_two_graphs_that_take_the_ids_are_refused(tmp_path: Path, runtime: Runtime) -> None:
    three(tmp_path)
    graph(tmp_path, "head", {"hidden_states": "rows", "input_ids": "ids"}, {"logits": "rows"})
    assert "a second graph takes 'input_ids'" in refused(tmp_path, runtime, "embedding", "body", "head")


def test_a_cache_without_its_output_is_refused(tmp_path: Path, runtime: Runtime) -> None:
    three(tmp_path)
    graph(tmp_path, "body", {"inputs_embeds": "rows", "past_key_values.0.key": "cache"}, {"hidden_states": "rows"})
    assert "no matching present output" in refused(tmp_path, runtime, "embedding", "body", "head")


@pytest.mark.parametrize("names", [("embedding",), ("embedding", "body")])
def test_a_pipeline_must_end_in_logits(tmp_path: Path, runtime: Runtime, names: tuple[str, ...]) -> None:
    three(tmp_path)
    assert "'logits'" in refused(tmp_path, runtime, *names)
