"""What an ONNX file may hold beside plain operators: custom operators, defaults of inputs, subgraphs, any names."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from fakes.c_libraries import compiled
from fakes.rig import failing
from models import onnx_models
from winml_lite import NotSupportedError, Pipeline, Runtime, Stage, save_as_ort

pytestmark = [pytest.mark.real, pytest.mark.usefixtures("ort")]

FLOAT, INT64, BOOL = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL
DOMAIN = "winml.lite.test"


def port(name: str, kind: int = FLOAT, shape: Sequence[int | str] = (2,)) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, kind, shape)


def model(
    nodes: Sequence[onnx.NodeProto],
    inputs: Sequence[onnx.ValueInfoProto],
    outputs: Sequence[onnx.ValueInfoProto],
    constants: Sequence[onnx.TensorProto] = (),
    opsets: Sequence[tuple[str, int]] = (("", 18),),
) -> onnx.ModelProto:
    return helper.make_model(
        helper.make_graph(list(nodes), "g", list(inputs), list(outputs), list(constants)),
        opset_imports=[helper.make_opsetid(*opset) for opset in opsets],
        ir_version=9,
    )


def added(runtime: Runtime, made: onnx.ModelProto) -> tuple[Stage, Pipeline]:
    builder = runtime.create_pipeline_builder()
    stage = builder.add_model_stage(runtime.load_model_from_buffer(made.SerializeToString()))
    return stage, builder.build()


def ran(runtime: Runtime, made: onnx.ModelProto, *values: object) -> list[float]:
    """Output 0 of one run."""
    stage, pipeline = added(runtime, made)
    for index, value in enumerate(values):
        stage.bind_input(index, runtime.tensor_from_numpy(np.array(value)))
    stage.request_output(0)
    pipeline.run()
    result: list[float] = stage.output(0).to_numpy().tolist()
    return result


def floats(*values: float) -> object:
    return np.array(values, np.float32)


# Custom operators

TWICE = model(
    [helper.make_node("TwicePlusOne", ["x"], ["y"], domain=DOMAIN)],
    [port("x")],
    [port("y")],
    opsets=[("", 18), (DOMAIN, 1)],
)


@pytest.fixture(scope="module")
def operators(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A library of custom operators, compiled."""
    return compiled("custom_operator", tmp_path_factory.mktemp("operators"))


def test_a_custom_operator(runtime: Runtime, operators: Path) -> None:
    builder = runtime.create_pipeline_builder()
    source = runtime.load_model_from_buffer(TWICE.SerializeToString())
    stages = [builder.add_model_stage(source) for _ in range(2)]
    for stage in stages:
        stage.ort_options().register_custom_ops_library(operators)
        stage.ort_options().register_custom_ops_library(str(operators))
    builder.connect(stages[0], 0, stages[1], 0)
    pipeline = builder.build()
    stages[0].bind_input(0, runtime.tensor_from_numpy(floats(1, 2)))  # type: ignore[arg-type]
    stages[1].request_output(0)
    pipeline.run()
    assert stages[1].output(0).to_numpy().tolist() == [7, 11]


def test_a_model_with_a_custom_operator_is_compiled(runtime: Runtime, operators: Path, tmp_path: Path) -> None:
    source = runtime.load_model_from_buffer(TWICE.SerializeToString())
    compiler = runtime.create_cpu_target().model_compiler()
    options = compiler.create_options()
    with failing(0x80070002):
        options.register_custom_ops_library(tmp_path / "absent.so")
    options.register_custom_ops_library(operators)
    compiler.compile_to_file(source, tmp_path / "out.onnx", options=options)
    save_as_ort(source, tmp_path / "out.ort", custom_operators=[operators])
    for name in ("out.onnx", "out.ort"):
        builder = runtime.create_pipeline_builder()
        stage = builder.add_model_stage(runtime.load_model(tmp_path / name))
        stage.ort_options().register_custom_ops_library(operators)
        pipeline = builder.build()
        stage.bind_input(0, runtime.tensor_from_numpy(floats(1, 2)))  # type: ignore[arg-type]
        stage.request_output(0)
        pipeline.run()
        assert stage.output(0).to_numpy().tolist() == [3, 5]


def test_a_custom_operator_without_its_library(runtime: Runtime) -> None:
    with failing(0x80004005) as caught:
        added(runtime, TWICE)
    assert "winml.lite.test:TwicePlusOne" in str(caught.value)
    assert "register_custom_ops_library" in str(caught.value)


def test_what_is_no_library_of_operators(runtime: Runtime, tmp_path: Path) -> None:
    (tmp_path / "text.so").write_text("no library")
    builder = runtime.create_pipeline_builder()
    stage = builder.add_model_stage(runtime.load_model_from_buffer(TWICE.SerializeToString()))
    options = stage.ort_options()
    with failing(0x80070002):
        options.register_custom_ops_library(tmp_path / "absent.so")
    with failing(0x80070057):
        options.register_custom_ops_library(tmp_path)
    with pytest.raises(ValueError):
        options.register_custom_ops_library(3)  # type: ignore[arg-type]
    options.register_custom_ops_library(tmp_path / "text.so")
    with failing(0x8007007E) as caught:
        builder.build()
    assert "text.so cannot be used as a library of custom operators" in str(caught.value)


def test_t80_libraries_come_before_build(runtime: Runtime, tmp_path: Path) -> None:
    (tmp_path / "any.so").write_text("")
    stage, _ = added(runtime, onnx_models.add())
    with failing(0x8007139F):
        stage.ort_options().register_custom_ops_library(tmp_path / "any.so")


# Versions


@pytest.mark.parametrize("domain", ["", "ai.onnx.ml"])
def test_an_opset_of_the_future(runtime: Runtime, domain: str) -> None:
    node = helper.make_node("Scaler" if domain else "Abs", ["x"], ["y"], domain=domain)
    with failing(0x80004005) as caught:
        added(runtime, model([node], [port("x")], [port("y")], opsets=[(domain, 99)]))
    assert "Opset 99 is under development" in str(caught.value)
    assert f"official support for domain {domain or 'ai.onnx'} is till opset" in str(caught.value)


def test_an_ir_version_of_the_future(runtime: Runtime, caplog: pytest.LogCaptureFixture) -> None:
    made = onnx_models.add()
    made.ir_version = 99
    caplog.set_level(logging.DEBUG, "winml_lite.native")
    with failing(0x80004005) as caught:
        added(runtime, made)
    assert "the model buffer: Unsupported model IR version: 99, max supported IR version:" in str(caught.value)
    assert "onnxruntime::Model::Model" in caplog.text  # where it was raised is in the log


# Inputs with defaults


def test_r36_an_input_with_a_default_is_none(runtime: Runtime) -> None:
    constant = helper.make_tensor("b", FLOAT, [2], [10, 20])
    made = model([helper.make_node("Add", ["x", "b"], ["y"])], [port("b"), port("x")], [port("y")], [constant])
    assert runtime.load_model_from_buffer(made.SerializeToString()).ort_schema().input_name(0) == "x"
    assert ran(runtime, made, floats(1, 2)) == [11, 22]


# Subgraphs


def test_branches_see_the_values_around_them(runtime: Runtime) -> None:
    then, otherwise = (
        helper.make_graph([helper.make_node(kind, ["x", "x"], [name])], name, [], [port(name)])
        for kind, name in (("Add", "twice"), ("Mul", "square"))
    )
    node = helper.make_node("If", ["which"], ["y"], then_branch=then, else_branch=otherwise)
    made = model([node], [port("which", BOOL, (1,)), port("x")], [port("y")])
    assert ran(runtime, made, True, floats(3, 4)) == [6, 8]
    assert ran(runtime, made, False, floats(3, 4)) == [9, 16]


def test_operators_of_branches_are_counted(runtime: Runtime) -> None:
    then, otherwise = (
        helper.make_graph([helper.make_node(kind, ["x"], [kind])], kind, [], [port(kind)]) for kind in ("Abs", "Neg")
    )
    node = helper.make_node("If", ["which"], ["y"], then_branch=then, else_branch=otherwise)
    stage, _ = added(runtime, model([node], [port("which", BOOL, (1,)), port("x")], [port("y")]))
    assert stage.ort_diagnostics().node_counts == {"CPUExecutionProvider": 3}


def test_a_graph_of_constants_has_no_operator(runtime: Runtime) -> None:
    constant = helper.make_tensor("a", FLOAT, [2], [1, 2])
    made = model([helper.make_node("Add", ["a", "a"], ["y"])], [], [port("y")], [constant])
    assert ran(runtime, made) == [2, 4]
    assert added(runtime, made)[0].ort_diagnostics().node_counts == {}


def test_operators_of_the_ort_format_are_not_counted(runtime: Runtime, tmp_path: Path) -> None:
    save_as_ort(runtime.load_model_from_buffer(onnx_models.add().SerializeToString()), tmp_path / "add.ort")
    builder = runtime.create_pipeline_builder()
    stage = builder.add_model_stage(runtime.load_model(tmp_path / "add.ort"))
    builder.build()
    with failing(0x80070032, NotSupportedError):
        stage.ort_diagnostics().node_counts  # noqa: B018


def test_a_function_of_the_model(runtime: Runtime) -> None:
    opset = helper.make_opsetid("", 18)
    function = helper.make_function(
        "local", "Twice", ["a"], ["b"], [helper.make_node("Add", ["a", "a"], ["b"])], [opset]
    )
    graph = helper.make_graph([helper.make_node("Twice", ["x"], ["y"], domain="local")], "g", [port("x")], [port("y")])
    opsets = [opset, helper.make_opsetid("local", 1)]
    made = helper.make_model(graph, functions=[function], opset_imports=opsets, ir_version=9)
    assert ran(runtime, made, floats(3, 4)) == [6, 8]


# Names


@pytest.mark.parametrize("name", ["a b", "model/layers.0/attn:0", "été", "日本", "a\nb", "%s{}", "x" * 3000])
def test_ports_of_any_name(runtime: Runtime, name: str) -> None:
    stage, pipeline = added(
        runtime, model([helper.make_node("Abs", [name], [name + "'"])], [port(name)], [port(name + "'")])
    )
    bindings = stage.ort_bindings()
    bindings.bind_input(name, runtime.tensor_from_numpy(floats(-1, 2)))  # type: ignore[arg-type]
    stage.request_output(0)
    pipeline.run()
    assert bindings.output(name + "'").to_numpy().tolist() == [1, 2]


def test_a_symbol_of_any_name(runtime: Runtime) -> None:
    symbol = "past_sequence_length + 1"
    made = model([helper.make_node("Abs", ["x"], ["y"])], [port("x", shape=[symbol])], [port("y", shape=[symbol])])
    builder = runtime.create_pipeline_builder()
    stage = builder.add_model_stage(runtime.load_model_from_buffer(made.SerializeToString()))
    stage.symbolic_dimensions[symbol] = 3
    builder.build()
    assert [shape for _, shape in (*stage.schema().inputs(), *stage.schema().outputs())] == [(3,), (3,)]
