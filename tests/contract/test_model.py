"""Models and schemas: statements 32-43 of the object model, 77 of tensors."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from fakes.engines import Sample
from fakes.model_files import ModelFiles
from fakes.rig import built, failing, floats, result
from models import onnx_models
from winml_lite import ModelSchema, NotSupportedError, Runtime, TensorDataType

FREE = 2**64 - 1
F32, I32, UNDEFINED = TensorDataType.FLOAT32, TensorDataType.INT32, TensorDataType.UNDEFINED


def schema_of(runtime: Runtime, model: onnx.ModelProto) -> ModelSchema:
    return runtime.load_model_from_buffer(model.SerializeToString()).schema()


def test_r32_a_free_dimension(runtime: Runtime, files: ModelFiles) -> None:
    schema = runtime.load_model(files.onnx("dyn1")).schema()
    assert schema.input_desc(0) == (F32, (FREE, 3))
    assert schema.outputs() == [(F32, (FREE, 3))]


def test_r33_past_the_end_of_a_model_schema(runtime: Runtime, files: ModelFiles) -> None:
    schema = runtime.load_model(files.onnx("add")).schema()
    with failing(0x8000000B):
        schema.input_desc(2)
    with failing(0x8000000B):
        schema.output_desc(1)


def test_r33_past_the_end_of_a_stage_schema(runtime: Runtime, engine: Sample) -> None:
    schema = engine.built(runtime)[0].schema()
    with failing(0x80070057):
        schema.input_desc(schema.input_count)
    with failing(0x80070057):
        schema.output_desc(1)


@pytest.mark.parametrize("index", [True, "0", 1.0, None, np.True_])
def test_r34_what_is_no_index(runtime: Runtime, files: ModelFiles, index: int) -> None:
    schema = runtime.load_model(files.onnx("add")).schema()
    with pytest.raises(TypeError):
        schema.input_desc(index)
    with pytest.raises(TypeError):
        schema.output_desc(index)


@pytest.mark.parametrize("index", [True, "0"])
def test_r34_what_is_no_index_of_a_stage_schema(runtime: Runtime, engine: Sample, index: int) -> None:
    schema = engine.built(runtime)[0].schema()
    with pytest.raises(TypeError):
        schema.input_desc(index)
    with pytest.raises(TypeError):
        schema.output_desc(index)


@pytest.mark.parametrize("index", [-1, 2**32])
def test_r34_an_index_out_of_range(runtime: Runtime, files: ModelFiles, index: int) -> None:
    schema = runtime.load_model(files.onnx("add")).schema()
    with pytest.raises(ValueError):
        schema.input_desc(index)
    with pytest.raises(ValueError):
        schema.output_desc(index)


@pytest.mark.parametrize("index", [-1, 2**32])
def test_r34_an_index_out_of_range_of_a_stage_schema(runtime: Runtime, engine: Sample, index: int) -> None:
    schema = engine.built(runtime)[0].schema()
    with pytest.raises(ValueError):
        schema.input_desc(index)
    with pytest.raises(ValueError):
        schema.output_desc(index)


def test_r34_a_numpy_index(runtime: Runtime, files: ModelFiles) -> None:
    assert runtime.load_model(files.onnx("add")).schema().input_desc(np.array([1])[0]) == (F32, (2,))


def scalar_model() -> onnx.ModelProto:
    port = helper.make_tensor_value_info("X", TensorProto.FLOAT, [])
    result = helper.make_tensor_value_info("Y", TensorProto.FLOAT, [])
    graph = helper.make_graph([helper.make_node("Neg", ["X"], ["Y"])], "graph", [port], [result])
    return helper.make_model(graph, ir_version=10, opset_imports=[helper.make_opsetid("", 21)])


def test_r35_a_scalar(runtime: Runtime, onnx_engine: str) -> None:
    model = runtime.load_model_from_buffer(scalar_model().SerializeToString())
    assert model.schema().inputs() == [(F32, ())]
    builder = runtime.create_pipeline_builder()
    stage = builder.add_model_stage(model)
    stage.bind_input(0, runtime.create_tensor(F32, (), np.float32(3).tobytes()))
    stage.request_output(0)
    builder.build().run()
    assert stage.output(0).to_numpy() == -3
    assert stage.output(0).desc() == (F32, ())


@pytest.mark.parametrize("shape", [(1,), (0,), (1, 1)])
def test_r35_a_vector_is_no_scalar(runtime: Runtime, onnx_engine: str, shape: tuple[int, ...]) -> None:
    builder = runtime.create_pipeline_builder()
    stage = builder.add_model_stage(runtime.load_model_from_buffer(scalar_model().SerializeToString()))
    builder.build()
    with failing(0x80070057):
        stage.bind_input(0, runtime.create_tensor(F32, shape))


@pytest.mark.parametrize("data", [np.int64(2**40), np.array(2**40)])
def test_a_model_buffer_that_is_a_number_is_its_bytes(runtime: Runtime, data: np.generic) -> None:
    with failing(0x80070570):  # eight bytes that are no model, not 2**40 zeros
        runtime.load_model_from_buffer(data)


def test_a_model_in_bytes_is_not_copied(runtime: Runtime) -> None:
    data = onnx_models.add().SerializeToString()
    assert runtime.load_model_from_buffer(data).underlying_object.artifact.data is data


def test_r36_initializers_are_no_inputs(runtime: Runtime, onnx_engine: str) -> None:
    weight = helper.make_tensor("W", TensorProto.FLOAT, [2], [1, 2])
    ports = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [2]) for name in ("W", "X", "Y")]
    graph = helper.make_graph([helper.make_node("Add", ["X", "W"], ["Y"])], "graph", ports[:2], ports[2:], [weight])
    opsets = [helper.make_opsetid("", 21)]
    model_bytes = helper.make_model(graph, ir_version=10, opset_imports=opsets).SerializeToString()
    model = runtime.load_model_from_buffer(model_bytes)
    assert model.schema().input_count == 1
    assert model.ort_schema().input_name(0) == "X"
    builder = runtime.create_pipeline_builder()
    stage = builder.add_model_stage(model)
    assert stage.schema().input_count == 1
    stage.bind_input(0, floats(runtime, 10, 20))
    stage.request_output(0)
    builder.build().run()
    assert result(stage) == [11, 22]


def test_what_is_not_a_tensor_is_undefined(runtime: Runtime) -> None:
    assert schema_of(runtime, onnx_models.text_input()).inputs() == [(UNDEFINED, ())]


def test_r37_t77_names_and_positions(runtime: Runtime, files: ModelFiles) -> None:
    names = runtime.load_model(files.onnx("add")).ort_schema()
    assert [names.find_input("A"), names.find_input("B"), names.find_output("C")] == [0, 1, 0]
    assert [names.input_name(0), names.input_name(1), names.output_name(0)] == ["A", "B", "C"]


@pytest.mark.parametrize("name", ["", "a", "C", "no such"])
def test_r37_t77_an_unknown_name(runtime: Runtime, files: ModelFiles, name: str) -> None:
    with failing(0x80070490):
        runtime.load_model(files.onnx("add")).ort_schema().find_input(name)


def test_t77_names_and_indices_are_checked(runtime: Runtime, files: ModelFiles) -> None:
    names = runtime.load_model(files.onnx("add")).ort_schema()
    with failing(0x8000000B):
        names.input_name(2)
    with failing(0x8000000B):
        names.output_name(1)
    with pytest.raises(TypeError, match="index must be an integer, not bool"):
        names.input_name(True)
    with pytest.raises(ValueError, match="index must be in"):
        names.input_name(-1)
    with pytest.raises(ValueError, match="name must be a str, not int"):
        names.find_input(5)  # type: ignore[arg-type]


def test_t77_an_ort_format_model_has_names(runtime: Runtime, files: ModelFiles) -> None:
    path = onnx_models.to_ort(files.onnx("add"), files.folder / "add.ort")
    model = runtime.load_model(path)
    assert model.ort_schema().find_input("B") == 1
    assert model.schema().inputs() == [(F32, (2,)), (F32, (2,))]


@pytest.mark.parametrize("from_buffer", [False, True])
def test_an_ort_format_model_runs(runtime: Runtime, files: ModelFiles, ort: None, from_buffer: bool) -> None:
    path = onnx_models.to_ort(files.onnx("add"), files.folder / "add-to-run.ort")
    model = runtime.load_model_from_buffer(path.read_bytes()) if from_buffer else runtime.load_model(path)
    builder = runtime.create_pipeline_builder()
    stage = builder.add_model_stage(model)
    stage.bind_input(0, floats(runtime, 1, 2))
    stage.bind_input(1, floats(runtime, 10, 20))
    stage.request_output(0)
    builder.build().run()
    assert result(stage) == [11, 22]


def test_r38_a_gguf_has_no_declared_schema(runtime: Runtime, files: ModelFiles) -> None:
    model = runtime.load_model(files.gguf)
    with failing(0x80004002, NotSupportedError):
        model.ort_schema()
    with failing(0x80070490):
        _ = model.schema().input_count
    with failing(0x80070490):
        _ = model.schema().output_count
    with failing(0x80070490):
        model.schema().input_desc(0)
    with failing(0x80070490):
        model.schema().output_desc(0)


def test_r39_a_schema_outlives_its_model(runtime: Runtime, files: ModelFiles) -> None:
    model = runtime.load_model(files.onnx("add"))
    schema, names = model.schema(), model.ort_schema()
    model.close()
    assert schema.input_count == 2
    assert names.output_name(0) == "C"
    with pytest.raises(RuntimeError, match="Model is closed"):
        model.schema()


def test_r40_before_build_counts_are_known_and_descriptors_are_not(runtime: Runtime, files: ModelFiles) -> None:
    schema = runtime.create_pipeline_builder().add_model_stage(runtime.load_model(files.onnx("add"))).schema()
    assert (schema.input_count, schema.output_count) == (2, 1)
    with failing(0x8007139F):
        schema.input_desc(0)
    with failing(0x8007139F):
        schema.output_desc(0)
    with failing(0x8007139F):
        schema.inputs()
    with failing(0x8007139F):
        schema.outputs()


def test_r41_before_build_a_gguf_stage_counts_nothing(runtime: Runtime, files: ModelFiles, gguf_engine: str) -> None:
    builder = runtime.create_pipeline_builder()
    schema = builder.add_model_stage(runtime.load_model(files.scripted_gguf)).schema()
    assert (schema.input_count, schema.output_count) == (0, 0)
    assert (schema.inputs(), schema.outputs()) == ([], [])
    with failing(0x8007139F):
        schema.input_desc(0)
    with failing(0x8007139F):
        schema.output_desc(0)
    builder.build()
    assert (schema.input_count, schema.output_count) == (1, 1)
    assert schema.inputs() == [(I32, (1, FREE))]
    assert schema.outputs() == [(F32, (1, 331))]


def test_r42_a_free_dimension_stays_free(runtime: Runtime, files: ModelFiles, onnx_engine: str) -> None:
    stage, _ = built(runtime, files.onnx("dyn1"))
    assert stage.schema().inputs() == [(F32, (FREE, 3))]


def test_r43_a_stage_schema_is_a_model_schema(runtime: Runtime, engine: Sample) -> None:
    assert isinstance(engine.unbuilt(runtime).schema(), ModelSchema)
    assert isinstance(engine.built(runtime)[0].schema(), ModelSchema)


def test_a_stage_schema_outlives_its_stage(runtime: Runtime, engine: Sample) -> None:
    stage, pipeline = engine.built(runtime)
    schema = stage.schema()
    stage.close()
    pipeline.close()
    assert schema.output_count == 1
    assert schema.output_desc(0) == engine.room(runtime).desc()


def test_a_closed_schema(runtime: Runtime, files: ModelFiles) -> None:
    schema = runtime.load_model(files.onnx("add")).schema()
    schema.close()
    with pytest.raises(RuntimeError, match="ModelSchema is closed"):
        _ = schema.input_count
