"""External data of subgraphs, functions and sparse tensors, which the engine takes from files only (tensors 10)."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
import pytest
from onnx import TensorProto, helper

from fakes.rig import failing
from models import onnx_models
from winml_lite import Model, Runtime, TensorDataType, save_as_ort

pytestmark = [pytest.mark.real, pytest.mark.usefixtures("ort")]

COUNT = 1024
WEIGHTS = np.full(COUNT, 3, np.float32)
DECOY = np.full(COUNT, 66, np.float32)
ADD = helper.make_node("Add", ["x", "w"], ["y"])


def port(name: str, kind: int = TensorProto.FLOAT, extent: int = COUNT) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, kind, [extent])


def weight() -> onnx.TensorProto:
    tensor = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[COUNT], data_location=TensorProto.EXTERNAL)
    for key, value in (("location", "parts/w.bin"), ("offset", "0"), ("length", str(4 * COUNT))):
        tensor.external_data.add(key=key, value=value)
    return tensor


def graph(*nodes: onnx.NodeProto, functions: tuple[onnx.FunctionProto, ...] = ()) -> onnx.ModelProto:
    """`y = x + w`, or `-x` where `chosen` is false."""
    inputs = [port("x"), port("chosen", TensorProto.BOOL, 1)]
    opsets = [helper.make_opsetid("", onnx_models.OPSET), helper.make_opsetid("local", 1)]
    return helper.make_model(
        helper.make_graph([*nodes, helper.make_node("Identity", ["chosen"], ["same"])], "g", inputs, [port("y")]),
        functions=functions,
        opset_imports=opsets,
        ir_version=onnx_models.IR_VERSION,
    )


def choice(*nodes: onnx.NodeProto, weights: tuple[onnx.TensorProto, ...] = ()) -> onnx.NodeProto:
    yes = helper.make_graph([*nodes, helper.make_node("Add", ["x", "w"], ["yes"])], "yes", [], [port("yes")], weights)
    no = helper.make_graph([helper.make_node("Neg", ["x"], ["no"])], "no", [], [port("no")])
    return helper.make_node("If", ["chosen"], ["y"], then_branch=yes, else_branch=no)


def constant() -> onnx.NodeProto:
    return helper.make_node("Constant", [], ["w"], value=weight())


def subgraph_initializer() -> onnx.ModelProto:
    return graph(choice(weights=(weight(),)))


def subgraph_constant() -> onnx.ModelProto:
    return graph(choice(constant()))


def function_constant() -> onnx.ModelProto:
    opsets = [helper.make_opsetid("", onnx_models.OPSET)]
    function = helper.make_function("local", "F", ["x"], ["y"], [constant(), ADD], opsets)
    return graph(helper.make_node("F", ["x"], ["y"], domain="local"), functions=(function,))


def function_default() -> onnx.ModelProto:
    node = helper.make_node("Constant", [], ["w"])
    node.attribute.add(name="value", type=onnx.AttributeProto.TENSOR, ref_attr_name="v")
    default = helper.make_attribute("v", weight())
    opsets = [helper.make_opsetid("", onnx_models.OPSET)]
    function = helper.make_function("local", "F", ["x"], ["y"], [node, ADD], opsets, attribute_protos=[default])
    return graph(helper.make_node("F", ["x"], ["y"], domain="local"), functions=(function,))


def sparse_initializer() -> onnx.ModelProto:
    sparse = onnx.SparseTensorProto(dims=[COUNT], values=weight())
    sparse.indices.CopyFrom(helper.make_tensor("places", TensorProto.INT64, [COUNT], range(COUNT)))
    model = graph(ADD)
    model.graph.sparse_initializer.append(sparse)
    return model


def result(runtime: Runtime, model: Model) -> set[float]:
    """The values of `w`, as the engine has them."""
    builder = runtime.create_pipeline_builder()
    stage = builder.add_model_stage(model, runtime.create_cpu_target())
    stage.bind_input(0, runtime.tensor_from_numpy(np.zeros(COUNT, np.float32)))
    stage.bind_input(1, runtime.create_tensor(TensorDataType.BOOL, (1,), b"\1"))
    stage.request_output(0)
    builder.build().run()
    return set(stage.output(0).to_numpy().tolist())


def save_weights(folder: Path, values: npt.NDArray[Any]) -> None:
    (folder / "parts").mkdir(parents=True)
    values.tofile(folder / "parts" / "w.bin")


nested = pytest.mark.parametrize(
    "make", [subgraph_initializer, subgraph_constant, function_constant, function_default, sparse_initializer]
)


@nested
def test_buffers_count_and_the_working_directory_does_not(
    runtime: Runtime, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, make: Callable[[], onnx.ModelProto]
) -> None:
    save_weights(tmp_path, DECOY)
    monkeypatch.chdir(tmp_path)
    data = make().SerializeToString()
    assert result(runtime, runtime.load_model_from_buffer(data, resources={"parts/w.bin": WEIGHTS})) == {3.0}
    with failing(0x80070490):
        result(runtime, runtime.load_model_from_buffer(data))


def test_a_session_option_does_not_bring_the_working_directory_back(
    runtime: Runtime, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save_weights(tmp_path, DECOY)
    monkeypatch.chdir(tmp_path)
    model = runtime.load_model_from_buffer(subgraph_constant().SerializeToString(), resources={"parts/w.bin": WEIGHTS})
    builder = runtime.create_pipeline_builder()
    stage = builder.add_model_stage(model, runtime.create_cpu_target())
    stage.ort_options().set_session_config("session.model_external_initializers_file_folder_path", str(tmp_path))
    stage.bind_input(0, runtime.tensor_from_numpy(np.zeros(COUNT, np.float32)))
    stage.bind_input(1, runtime.create_tensor(TensorDataType.BOOL, (1,), b"\1"))
    stage.request_output(0)
    builder.build().run()
    assert set(stage.output(0).to_numpy().tolist()) == {3.0}


@nested
def test_files_beside_the_model(runtime: Runtime, tmp_path: Path, make: Callable[[], onnx.ModelProto]) -> None:
    save_weights(tmp_path, WEIGHTS)
    path = onnx_models.save(make(), tmp_path / "m.onnx")
    assert result(runtime, runtime.load_model(path)) == {3.0}
    with failing(0x80070057) as caught:
        runtime.create_cpu_target().compile_to_file(runtime.load_model(path), tmp_path / "parts" / "w.bin")
    assert "belongs to the source model" in str(caught.value)


@nested
def test_resources_do_not_replace_the_file_of_a_model_file(
    runtime: Runtime, tmp_path: Path, make: Callable[[], onnx.ModelProto]
) -> None:
    path = onnx_models.save(make(), tmp_path / "m.onnx")
    model = runtime.load_model(path, resources={"parts/w.bin": WEIGHTS})
    with failing(0x80070032) as caught:
        result(runtime, model)
    assert "it must be the file" in str(caught.value)


@nested
def test_compiled_from_a_buffer(
    runtime: Runtime, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, make: Callable[[], onnx.ModelProto]
) -> None:
    save_weights(tmp_path, DECOY)
    monkeypatch.chdir(tmp_path)
    model = runtime.load_model_from_buffer(make().SerializeToString(), resources={"parts/w.bin": WEIGHTS})
    runtime.create_cpu_target().compile_to_file(model, tmp_path / "out.onnx", "out.bin")
    save_as_ort(model, tmp_path / "out.ort")
    assert result(runtime, runtime.load_model(tmp_path / "out.onnx")) == {3.0}
    assert result(runtime, runtime.load_model(tmp_path / "out.ort")) == {3.0}


class Sink:
    """Keeps what it gets."""

    def __init__(self) -> None:
        self.artifact = b""
        self.resources: dict[str, bytes] = {}

    def write_artifact_bytes(self, data: memoryview) -> None:
        self.artifact += data

    def begin_resource(self, key: str, descriptor: object) -> None:
        self.resources[key] = b""

    def write_resource_bytes(self, key: str, data: memoryview) -> None:
        self.resources[key] += data

    def end_resource(self, key: str) -> None:
        pass


def test_t71_a_sink_gets_the_weights_of_subgraphs(runtime: Runtime, tmp_path: Path) -> None:
    save_weights(tmp_path, WEIGHTS)
    source = runtime.load_model(onnx_models.save(subgraph_constant(), tmp_path / "m.onnx"))
    sink = Sink()
    runtime.create_cpu_target().model_compiler().compile_to_sink(source, sink)
    assert [len(data) for data in sink.resources.values()] == [4 * COUNT]
    assert result(runtime, runtime.load_model_from_buffer(sink.artifact, resources=sink.resources)) == {3.0}


def test_copies_are_deleted(runtime: Runtime, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    data = subgraph_constant().SerializeToString()
    result(runtime, runtime.load_model_from_buffer(data, resources={"parts/w.bin": WEIGHTS}))
    assert os.listdir(tmp_path) == []
