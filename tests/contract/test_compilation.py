"""Compilation ahead of time: statements 63-73 and 88 of tensors."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
import pytest

from fakes.model_files import ModelFiles
from fakes.rig import failing
from models import onnx_models
from winml_lite import (
    CompiledModelForm,
    ExecutionTarget,
    ExecutionTargetKind,
    Model,
    ModelCompiler,
    NotSupportedError,
    ResourceDescriptor,
    Runtime,
    TensorDataType,
    WinMLError,
    save_as_ort,
)
from winml_lite.target import TargetCore

FREE = 2**64 - 1
E_INVALIDARG, NOT_SUPPORTED = 0x80070057, 0x80070032
DEVICE_TARGETED, DURABLE = CompiledModelForm.DEVICE_TARGETED, CompiledModelForm.DURABLE
X = np.linspace(-1, 1, 3 * 64, dtype=np.float32).reshape(3, 64)


def run(runtime: Runtime, model: Model, *inputs: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """The first output of one run on the CPU."""
    builder = runtime.create_pipeline_builder()
    stage = builder.add_model_stage(model, runtime.create_cpu_target())
    for index, value in enumerate(inputs):
        stage.bind_input(index, runtime.tensor_from_numpy(value))
    stage.request_output(0)
    builder.build().run()
    return stage.output(0).to_numpy()


@pytest.fixture
def target(runtime: Runtime, ort: None) -> ExecutionTarget:
    return runtime.create_cpu_target()


@pytest.fixture
def compiler(target: ExecutionTarget) -> ModelCompiler:
    return target.model_compiler()


@pytest.fixture
def dense(runtime: Runtime, files: ModelFiles, ort: None) -> Model:
    """A layer with 16 KiB of weights."""
    return runtime.load_model(files.onnx("dense"))


class Capture:
    """A sink that keeps what it gets, and every call."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, str]] = []
        self.artifact = b""
        self.resources: dict[str, bytes] = {}
        self.described: dict[str, ResourceDescriptor] = {}
        self.views: list[memoryview] = []

    def write_artifact_bytes(self, data: memoryview) -> None:
        self.calls.append(("artifact", ""))
        self.views.append(data)
        self.artifact += data

    def begin_resource(self, key: str, descriptor: ResourceDescriptor) -> None:
        self.calls.append(("begin", key))
        self.described[key] = descriptor
        self.resources[key] = b""

    def write_resource_bytes(self, key: str, data: memoryview) -> None:
        self.calls.append(("write", key))
        self.views.append(data)
        self.resources[key] += data

    def end_resource(self, key: str) -> None:
        self.calls.append(("end", key))


# --- forms ------------------------------------------------------------------------------------------------------------


def test_t63_forms_of_the_cpu(compiler: ModelCompiler) -> None:
    assert compiler.supports_form(DEVICE_TARGETED)
    assert compiler.supports_form(DURABLE)
    assert compiler.create_options().form == DEVICE_TARGETED
    with failing(E_INVALIDARG):
        compiler.supports_form(7)
    with failing(E_INVALIDARG):
        compiler.create_options().form = 7


def test_a_form_is_set_by_its_number(compiler: ModelCompiler) -> None:
    options = compiler.create_options()
    options.form = 1
    assert options.form is DURABLE
    assert options.supports_symbolic_dimensions
    assert not options.supports_device_lowering_options


@pytest.mark.parametrize("form", [True, "1", 1.0, None, TensorDataType.FLOAT32])
def test_what_is_no_form(compiler: ModelCompiler, form: Any) -> None:
    with pytest.raises(TypeError, match="form must be a CompiledModelForm, not "):
        compiler.supports_form(form)


def test_durable_keeps_standard_operators(
    compiler: ModelCompiler, runtime: Runtime, files: ModelFiles, tmp_path: Path
) -> None:
    model = runtime.load_model(files.onnx("convolution"))
    compiler.compile_to_file(model, tmp_path / "durable.onnx", form=DURABLE)
    assert {node.domain for node in onnx.load(str(tmp_path / "durable.onnx")).graph.node} == {""}


def test_a_pinned_provider_compiles_for_the_device_only(runtime: Runtime, dense: Model, tmp_path: Path) -> None:
    target = runtime.create_ort_execution_target("SomeExecutionProvider", ExecutionTargetKind.NPU)
    compiler = target.model_compiler()
    assert compiler.supports_form(DEVICE_TARGETED)
    assert not compiler.supports_form(DURABLE)
    with failing(NOT_SUPPORTED) as caught:
        compiler.compile_to_file(dense, tmp_path / "out.onnx", form=DURABLE)
    assert "SomeExecutionProvider" in str(caught.value)


def test_the_cpu_provider_may_be_pinned(runtime: Runtime, dense: Model, tmp_path: Path) -> None:
    target = runtime.create_ort_execution_target("cpuexecutionprovider", ExecutionTargetKind.CPU)
    target.compile_to_file(dense, tmp_path / "out.onnx", form=DURABLE)
    assert (run(runtime, runtime.load_model(tmp_path / "out.onnx"), X) == run(runtime, dense, X)).all()


def test_a_provider_that_is_not_there(runtime: Runtime, dense: Model, tmp_path: Path) -> None:
    compiler = runtime.create_ort_execution_target("NoSuchProvider", ExecutionTargetKind.GPU).model_compiler()
    with failing(0x80070490) as caught:
        compiler.compile_to_file(dense, tmp_path / "out.onnx")  # its free extent would be the next thing to mend
    assert "NoSuchProvider" in str(caught.value)
    assert os.listdir(tmp_path) == []


def test_t88_an_unpinned_gpu_has_no_compiler(runtime: Runtime) -> None:
    target = ExecutionTarget(TargetCore(runtime.create_cpu_target()._core.runtime, ExecutionTargetKind.GPU))
    with failing(0x80004002, NotSupportedError):
        target.model_compiler()
    with failing(0x80004002, NotSupportedError):
        target.compile_to_file(None, "out.onnx")  # type: ignore[arg-type]


# --- round trips ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", [DEVICE_TARGETED, DURABLE])
@pytest.mark.parametrize("weights", [None, "weights.bin"])
def test_t64_a_compiled_model_does_the_same(
    compiler: ModelCompiler,
    runtime: Runtime,
    dense: Model,
    tmp_path: Path,
    form: CompiledModelForm,
    weights: str | None,
) -> None:
    compiler.compile_to_file(dense, tmp_path / "out.onnx", weights, form)
    assert (tmp_path / "weights.bin").exists() is (weights is not None)
    assert np.allclose(run(runtime, runtime.load_model(tmp_path / "out.onnx"), X), run(runtime, dense, X), atol=1e-5)


@pytest.mark.parametrize("name", ["convolution", "twins", "dense"])
def test_durable_is_the_same_to_the_bit(
    compiler: ModelCompiler, runtime: Runtime, files: ModelFiles, tmp_path: Path, name: str
) -> None:
    model = runtime.load_model(files.onnx(name))
    x = np.linspace(-1, 1, 16 * 64, dtype=np.float32).reshape((1, 16, 8, 8) if name == "convolution" else (16, 64))
    compiler.compile_to_file(model, tmp_path / "out.onnx", form=DURABLE)
    assert run(runtime, runtime.load_model(tmp_path / "out.onnx"), x).tobytes() == run(runtime, model, x).tobytes()


@pytest.mark.parametrize("weights", [None, "weights.bin"])
def test_weights_of_subgraphs(
    compiler: ModelCompiler, runtime: Runtime, files: ModelFiles, tmp_path: Path, weights: str | None
) -> None:
    model = runtime.load_model(files.onnx("branches"))
    compiler.compile_to_file(model, tmp_path / "out.onnx", weights)
    x = np.ones(512, np.float32)
    again = runtime.load_model(tmp_path / "out.onnx")
    assert run(runtime, again, x, np.array([True])).tolist() == (2 * np.arange(512)).tolist()
    assert run(runtime, again, x, np.array([False])).tolist() == (3 * np.arange(512)).tolist()


@pytest.mark.parametrize("weights", [None, "weights.bin"])
def test_constants_that_are_strings(
    compiler: ModelCompiler, runtime: Runtime, files: ModelFiles, tmp_path: Path, weights: str | None
) -> None:
    compiler.compile_to_file(runtime.load_model(files.onnx("texts")), tmp_path / "out.onnx", weights)
    assert sorted(os.listdir(tmp_path)) == sorted(filter(None, ["out.onnx", weights]))
    assert run(runtime, runtime.load_model(tmp_path / "out.onnx"), np.array([7])).tolist() == [1.0] * 300


def test_constants_that_are_strings_do_not_go_into_a_sink(
    compiler: ModelCompiler, runtime: Runtime, files: ModelFiles
) -> None:
    with failing(NOT_SUPPORTED) as caught:
        compiler.compile_to_sink(runtime.load_model(files.onnx("texts")), Capture())
    assert "strings" in str(caught.value)


def test_a_source_with_external_weights(
    compiler: ModelCompiler, runtime: Runtime, files: ModelFiles, tmp_path: Path
) -> None:
    compiler.compile_to_file(runtime.load_model(files.external[0]), tmp_path / "out.onnx")
    assert os.listdir(tmp_path) == ["out.onnx"]
    assert run(runtime, runtime.load_model(tmp_path / "out.onnx"), np.array([1, 2], np.float32)).tolist() == [11, 22]


def test_a_source_from_a_buffer_with_resources(
    compiler: ModelCompiler, runtime: Runtime, files: ModelFiles, tmp_path: Path
) -> None:
    path, weights = files.external
    model = runtime.load_model_from_buffer(Path(path).read_bytes(), resources={"weights.bin": weights})
    compiler.compile_to_file(model, tmp_path / "out.onnx")
    model.close()
    assert run(runtime, runtime.load_model(tmp_path / "out.onnx"), np.array([1, 2], np.float32)).tolist() == [11, 22]


def test_t74_a_source_from_a_buffer_without_its_resources(
    compiler: ModelCompiler, runtime: Runtime, files: ModelFiles, tmp_path: Path
) -> None:
    model = runtime.load_model_from_buffer(Path(files.external[0]).read_bytes())
    with failing(0x80070490) as caught:
        compiler.compile_to_file(model, tmp_path / "out.onnx")
    assert "weights.bin" in str(caught.value)
    assert os.listdir(tmp_path) == []


def test_an_older_artifact_is_replaced(compiler: ModelCompiler, runtime: Runtime, dense: Model, tmp_path: Path) -> None:
    for name in ("out.onnx", "weights.bin"):
        (tmp_path / name).write_bytes(b"old")
    compiler.compile_to_file(dense, tmp_path / "out.onnx", "weights.bin")
    assert sorted(os.listdir(tmp_path)) == ["out.onnx", "weights.bin"]
    assert run(runtime, runtime.load_model(tmp_path / "out.onnx"), X).shape == (3, 64)


def test_the_source_stays_usable(compiler: ModelCompiler, runtime: Runtime, dense: Model, tmp_path: Path) -> None:
    compiler.compile_to_file(dense, tmp_path / "out.onnx")
    assert run(runtime, dense, X).shape == (3, 64)


@pytest.mark.parametrize("umask", [0o022])
def test_files_have_ordinary_permissions(compiler: ModelCompiler, dense: Model, tmp_path: Path, umask: int) -> None:
    (tmp_path / "plain").write_bytes(b"")
    compiler.compile_to_file(dense, tmp_path / "out.onnx", "weights.bin")
    wanted = (tmp_path / "plain").stat().st_mode
    assert [(tmp_path / name).stat().st_mode for name in ("out.onnx", "weights.bin")] == [wanted, wanted]


# --- weights beside the artifact --------------------------------------------------------------------------------------


def test_t65_weights_lie_beside_the_artifact(
    compiler: ModelCompiler, runtime: Runtime, dense: Model, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "made").mkdir()
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    compiler.compile_to_file(dense, str(tmp_path / "made" / "out.onnx"), external_weights_path="weights.bin")
    assert sorted(os.listdir(tmp_path / "made")) == ["out.onnx", "weights.bin"]
    assert os.listdir(tmp_path / "elsewhere") == []
    assert (tmp_path / "made" / "weights.bin").stat().st_size == 64 * 64 * 4


def test_t65_without_large_weights_there_is_no_file(
    compiler: ModelCompiler, runtime: Runtime, files: ModelFiles, tmp_path: Path
) -> None:
    compiler.compile_to_file(runtime.load_model(files.external[0]), tmp_path / "out.onnx", "weights.bin")
    assert os.listdir(tmp_path) == ["out.onnx"]
    assert run(runtime, runtime.load_model(tmp_path / "out.onnx"), np.array([1, 2], np.float32)).tolist() == [11, 22]


def test_the_weights_path_may_be_absolute_in_that_folder(compiler: ModelCompiler, dense: Model, tmp_path: Path) -> None:
    compiler.compile_to_file(dense, tmp_path / "out.onnx", tmp_path / "weights.bin")
    assert sorted(os.listdir(tmp_path)) == ["out.onnx", "weights.bin"]


@pytest.mark.parametrize(
    "weights",
    ["/elsewhere/weights.bin", "", "out.onnx", "OUT.onnx", "../weights.bin", "sub/weights.bin", ".", "a*b", "a\0b"],
)
def test_t66_weights_paths_that_are_refused(
    compiler: ModelCompiler, dense: Model, tmp_path: Path, weights: str
) -> None:
    with failing(E_INVALIDARG):
        compiler.compile_to_file(dense, tmp_path / "out.onnx", weights)
    assert os.listdir(tmp_path) == []


def test_t66_arguments_that_are_refused(
    compiler: ModelCompiler, target: ExecutionTarget, dense: Model, tmp_path: Path
) -> None:
    with pytest.raises(ValueError, match="empty"):
        compiler.compile_to_file(dense, "")
    with pytest.raises(ValueError, match="form or options"):
        compiler.compile_to_file(dense, str(tmp_path / "out.onnx"), form=DURABLE, options=compiler.create_options())
    with pytest.raises(ValueError, match="artifact_path"):
        compiler.compile_to_file(dense, b"out.onnx")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="precision"):
        target.compile_to_file(dense, "out.onnx", precision="int8")  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="model must be a Model, not str"):
        compiler.compile_to_file("model.onnx", "out.onnx")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="options must be ModelCompileOptions"):
        compiler.compile_to_file(dense, "out.onnx", options=DURABLE)  # type: ignore[arg-type]


# --- checks -----------------------------------------------------------------------------------------------------------


def test_t67_options_belong_to_a_target(
    compiler: ModelCompiler, target: ExecutionTarget, runtime: Runtime, dense: Model, tmp_path: Path
) -> None:
    other = runtime.create_cpu_target().model_compiler()
    with failing(E_INVALIDARG):
        compiler.compile_to_file(dense, tmp_path / "out.onnx", options=other.create_options())
    with target.model_compiler() as second:
        options = second.create_options()
    target.close()
    compiler.compile_to_file(dense, tmp_path / "out.onnx", options=options)
    assert (tmp_path / "out.onnx").exists()


def test_closed_objects(compiler: ModelCompiler, dense: Model, tmp_path: Path) -> None:
    options = compiler.create_options()
    options.close()
    with pytest.raises(RuntimeError, match="ModelCompileOptions is closed"):
        compiler.compile_to_file(dense, tmp_path / "out.onnx", options=options)
    with pytest.raises(RuntimeError, match="closed"):
        options.supports_symbolic_dimensions  # noqa: B018
    dense.close()
    with pytest.raises(RuntimeError, match="Model is closed"):
        compiler.compile_to_file(dense, "")
    compiler.close()
    with pytest.raises(RuntimeError, match="ModelCompiler is closed"):
        compiler.create_options()


def test_objects_of_two_runtimes(compiler: ModelCompiler, files: ModelFiles, tmp_path: Path) -> None:
    with Runtime() as other, failing(E_INVALIDARG):
        compiler.compile_to_file(other.load_model(files.onnx("add")), tmp_path / "out.onnx")


def same_path(path: Path) -> Path:
    return path


def hard_link(path: Path) -> Path:
    os.link(path, path.with_name("hard.onnx"))
    return path.with_name("hard.onnx")


def symbolic_link(path: Path) -> Path:
    path.with_name("soft.onnx").symlink_to(path)
    return path.with_name("soft.onnx")


def roundabout(path: Path) -> Path:
    return path.parent / "nowhere" / ".." / path.name


@pytest.mark.parametrize("other", [same_path, hard_link, symbolic_link, roundabout])
def test_t68_the_source_is_never_written(
    compiler: ModelCompiler, runtime: Runtime, tmp_path: Path, other: Callable[[Path], Path]
) -> None:
    path = onnx_models.save(onnx_models.dense(), tmp_path / "model.onnx")
    before = path.read_bytes()
    with failing(E_INVALIDARG) as caught:
        compiler.compile_to_file(runtime.load_model(path), other(path))
    assert "belongs to the source" in str(caught.value)
    assert path.read_bytes() == before


@pytest.mark.parametrize(("artifact", "weights"), [("out.onnx", "weights.bin"), ("weights.bin", None)])
def test_t68_the_weights_of_the_source_are_never_written(
    compiler: ModelCompiler, runtime: Runtime, tmp_path: Path, artifact: str, weights: str | None
) -> None:
    model, payload = onnx_models.external_weights()
    (tmp_path / "weights.bin").write_bytes(payload)
    path = onnx_models.save(model, tmp_path / "model.onnx")
    with failing(E_INVALIDARG):
        compiler.compile_to_file(runtime.load_model(path), tmp_path / artifact, weights)
    assert (tmp_path / "weights.bin").read_bytes() == payload


def test_t68_sources_that_cannot_be_compiled(
    compiler: ModelCompiler, runtime: Runtime, files: ModelFiles, tmp_path: Path
) -> None:
    ort = onnx_models.to_ort(files.onnx("add"), tmp_path / "add.ort")
    for source in (runtime.load_model(ort), runtime.load_model_from_buffer(ort.read_bytes())):
        with failing(NOT_SUPPORTED):
            compiler.compile_to_file(source, tmp_path / "out.onnx")
    with failing(NOT_SUPPORTED):
        compiler.compile_to_file(runtime.load_model(files.gguf), tmp_path / "out.onnx")
    with failing(NOT_SUPPORTED):
        compiler.compile_to_sink(runtime.load_model(ort), Capture())
    assert os.listdir(tmp_path) == ["add.ort"]


def test_t68_what_a_source_is_comes_before_the_name_of_the_artifact(
    compiler: ModelCompiler, runtime: Runtime, files: ModelFiles, tmp_path: Path
) -> None:
    ort = onnx_models.to_ort(files.onnx("add"), tmp_path / "add.ort")
    with failing(NOT_SUPPORTED) as caught:
        compiler.compile_to_file(runtime.load_model(ort), ort)
    assert "cannot be compiled" in str(caught.value)


def test_provider_options_of_a_compilation_need_a_provider(
    compiler: ModelCompiler, runtime: Runtime, dense: Model, tmp_path: Path
) -> None:
    options = compiler.create_options()
    options.set_provider_option("an.option", "1")
    with failing(E_INVALIDARG) as caught:
        compiler.compile_to_file(dense, tmp_path / "out.onnx", options=options)
    assert "provider option 'an.option' needs a target pinned to a provider" in str(caught.value)
    pinned = runtime.create_ort_execution_target("CPUExecutionProvider", ExecutionTargetKind.CPU).model_compiler()
    options = pinned.create_options()
    options.set_provider_option("an.option", "1")
    pinned.compile_to_file(dense, tmp_path / "out.onnx", options=options)
    with pytest.raises(ValueError):
        options.set_provider_option("", "1")
    with failing(E_INVALIDARG):
        options.set_provider_option("k" * 1025, "1")


def test_a_model_that_a_provider_has_compiled_is_not_compiled_again(
    compiler: ModelCompiler, runtime: Runtime, tmp_path: Path
) -> None:
    source = runtime.load_model_from_buffer(onnx_models.ep_context("SomeProvider").SerializeToString())
    with failing(NOT_SUPPORTED) as caught:
        compiler.compile_to_file(source, tmp_path / "out.onnx")
    assert "compiled for SomeProvider already" in str(caught.value)
    with failing(NOT_SUPPORTED):
        compiler.compile_to_sink(source, Capture())
    with failing(NOT_SUPPORTED):
        save_as_ort(source, tmp_path / "out.ort")
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("form", CompiledModelForm)
@pytest.mark.parametrize("in_memory", [True, False])
def test_constants_of_an_old_model_are_no_inputs_of_the_result(
    compiler: ModelCompiler, runtime: Runtime, tmp_path: Path, form: CompiledModelForm, in_memory: bool
) -> None:
    path = onnx_models.save(onnx_models.listed_constants(), tmp_path / "old.onnx")
    source = runtime.load_model_from_buffer(path.read_bytes()) if in_memory else runtime.load_model(path)
    compiler.compile_to_file(source, tmp_path / "out.onnx", form=form)
    made = runtime.load_model(tmp_path / "out.onnx")
    assert made.schema().inputs() == source.schema().inputs() == [(TensorDataType.FLOAT32, (2,))]
    assert run(runtime, made, np.array([1, -9], np.float32)).tolist() == [3, 2]


def test_constants_of_an_old_model_are_no_inputs_of_what_a_sink_gets(
    compiler: ModelCompiler, runtime: Runtime, files: ModelFiles
) -> None:
    sink = Capture()
    compiler.compile_to_sink(runtime.load_model(files.onnx("listed_constants")), sink)
    made = runtime.load_model_from_buffer(sink.artifact)
    assert run(runtime, made, np.array([1, -9], np.float32)).tolist() == [3, 2]


def test_an_old_model_with_weights_in_another_file(compiler: ModelCompiler, runtime: Runtime, tmp_path: Path) -> None:
    model, payload = onnx_models.external_weights()
    (tmp_path / "weights.bin").write_bytes(payload)
    model.ir_version = 3
    model.graph.input.add().CopyFrom(onnx.helper.make_tensor_value_info(model.graph.initializer[0].name, 1, [2]))
    path = onnx_models.save(model, tmp_path / "old.onnx")
    with failing(NOT_SUPPORTED) as caught:
        compiler.compile_to_file(runtime.load_model(path), tmp_path / "out.onnx")
    assert "before IR version 4" in str(caught.value)


@pytest.mark.parametrize("name", ["out.ort", "out.GGUF"])
def test_a_name_of_another_format(compiler: ModelCompiler, dense: Model, tmp_path: Path, name: str) -> None:
    with failing(E_INVALIDARG) as caught:
        compiler.compile_to_file(dense, tmp_path / name)
    assert "the result is an ONNX model" in str(caught.value)
    assert os.listdir(tmp_path) == []


def test_t68_a_missing_folder(compiler: ModelCompiler, dense: Model, tmp_path: Path) -> None:
    with failing(0x80070003):
        compiler.compile_to_file(dense, tmp_path / "missing" / "out.onnx")
    assert os.listdir(tmp_path) == []


def test_a_folder_in_the_way(compiler: ModelCompiler, dense: Model, tmp_path: Path) -> None:
    (tmp_path / "out.onnx").mkdir()
    with failing(E_INVALIDARG):
        compiler.compile_to_file(dense, tmp_path / "out.onnx")


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="this system has no named pipes")
def test_a_pipe_in_the_way(compiler: ModelCompiler, dense: Model, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "out.onnx")
    with failing(E_INVALIDARG):
        compiler.compile_to_file(dense, tmp_path / "out.onnx")
    assert (tmp_path / "out.onnx").is_fifo()


def test_a_source_that_has_changed(compiler: ModelCompiler, runtime: Runtime, tmp_path: Path) -> None:
    path = onnx_models.save(onnx_models.dense(), tmp_path / "model.onnx")
    model = runtime.load_model(path)
    onnx_models.save(onnx_models.add(), path)
    with failing(0x800703EE):
        compiler.compile_to_file(model, tmp_path / "out.onnx")
    assert os.listdir(tmp_path) == ["model.onnx"]


def test_a_model_that_does_not_build(
    compiler: ModelCompiler, runtime: Runtime, files: ModelFiles, tmp_path: Path
) -> None:
    (tmp_path / "out.onnx").write_bytes(b"old")
    with pytest.raises(WinMLError, match="NoSuchOperator"):
        compiler.compile_to_file(runtime.load_model(files.onnx("badop")), tmp_path / "out.onnx", "weights.bin")
    assert os.listdir(tmp_path) == ["out.onnx"]
    assert (tmp_path / "out.onnx").read_bytes() == b"old"


# --- symbolic dimensions ----------------------------------------------------------------------------------------------


def test_t69_overrides_of_compile_options(compiler: ModelCompiler, dense: Model, tmp_path: Path) -> None:
    options = compiler.create_options()
    view = options.symbolic_dimensions
    view["b"], view["a"], view["b"] = 1, 2, 3
    assert list(options.symbolic_dimensions.items()) == [("b", 3), ("a", 2)]
    for extent in (0, -1, True, 1.5):
        with pytest.raises(ValueError, match="extent must be"):
            view["c"] = extent  # type: ignore[assignment]
    with pytest.raises(ValueError, match="must not be empty"):
        view[""] = 1
    for name in ("missing", ""):
        with pytest.raises(KeyError):
            view[name]
        with pytest.raises(KeyError):
            del view[name]
    compiler.compile_to_file(dense, tmp_path / "out.onnx", options=options)
    assert (tmp_path / "out.onnx").exists()


@pytest.mark.parametrize(("batch", "declared"), [(2, 2), (None, FREE)])
def test_t70_fixed_extents(
    compiler: ModelCompiler, runtime: Runtime, dense: Model, tmp_path: Path, batch: int | None, declared: int
) -> None:
    options = compiler.create_options()
    options.symbolic_dimensions.update({} if batch is None else {"batch": batch})
    compiler.compile_to_file(dense, tmp_path / "out.onnx", options=options)
    schema = runtime.load_model(tmp_path / "out.onnx").schema()
    assert schema.input_desc(0) == (TensorDataType.FLOAT32, (declared, 64))
    assert schema.output_desc(0) == (TensorDataType.FLOAT32, (declared, 64))


# --- sinks ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", [DEVICE_TARGETED, DURABLE])
@pytest.mark.parametrize("name", ["dense", "twins"])
def test_t71_a_captured_model_is_loaded_again(
    compiler: ModelCompiler, runtime: Runtime, files: ModelFiles, name: str, form: CompiledModelForm
) -> None:
    model = runtime.load_model(files.onnx(name))
    options = compiler.create_options()
    options.form = form
    sink = Capture()
    compiler.compile_to_sink(model, sink, options)
    expected = run(runtime, model, X)
    model.close()
    again = runtime.load_model_from_buffer(sink.artifact, resources=sink.resources)
    assert np.allclose(run(runtime, again, X), expected, atol=1e-5)
    key = next(iter(sink.resources))
    assert key.startswith("w-") and len(key) == len("w-.bin") + 32
    assert sink.described == {key: ResourceDescriptor(byte_size=16384, alignment=64, offset=0)}
    assert len(sink.resources[key]) == 16384
    assert [call for call in sink.calls if call[0] in ("begin", "end")] == [("begin", key), ("end", key)]


def test_t71_a_resource_comes_in_pieces_that_make_up_its_size(
    compiler: ModelCompiler, dense: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole, sink = Capture(), Capture()
    compiler.compile_to_sink(dense, whole)
    monkeypatch.setattr("winml_lite.compiled_sink._PIECE", 5000)
    compiler.compile_to_sink(dense, sink)
    (key,) = sink.resources
    # 16384 bytes are 3 pieces of 5000 and one of 1384
    assert sink.calls[:6] == [("begin", key), *[("write", key)] * 4, ("end", key)]
    assert sink.described[key].byte_size == len(sink.resources[key]) == 16384
    assert sink.resources == whole.resources


class Failing(Capture):
    """A sink that raises in one of its methods."""

    def __init__(self, member: str, error: BaseException) -> None:
        super().__init__()
        self._member = member
        self._error = error

    def _fail(self, member: str) -> None:
        if member == self._member:
            raise self._error

    def write_artifact_bytes(self, data: memoryview) -> None:
        super().write_artifact_bytes(data)
        self._fail("artifact")

    def begin_resource(self, key: str, descriptor: ResourceDescriptor) -> None:
        super().begin_resource(key, descriptor)
        self._fail("begin")

    def write_resource_bytes(self, key: str, data: memoryview) -> None:
        super().write_resource_bytes(key, data)
        self._fail("write")

    def end_resource(self, key: str) -> None:
        super().end_resource(key)
        self._fail("end")


@pytest.mark.parametrize(
    ("member", "calls"),
    [
        ("begin", ["begin"]),
        ("write", ["begin", "write", "end"]),
        ("end", ["begin", "write", "end"]),
        ("artifact", ["begin", "write", "end", "artifact"]),
    ],
)
def test_t72_a_sink_that_fails(compiler: ModelCompiler, dense: Model, member: str, calls: list[str]) -> None:
    sink = Failing(member, error := WinMLError(0x80070070, "", "no room"))
    with failing(0x80070070) as caught:
        compiler.compile_to_sink(dense, sink)
    assert caught.value is error
    assert [name for name, _ in sink.calls] == calls
    assert {key for name, key in sink.calls if name != "artifact"} == set(sink.described)  # all of the one resource
    assert len(sink.described) == 1


def test_another_exception_of_a_sink(compiler: ModelCompiler, dense: Model) -> None:
    sink = Failing("write", error := LookupError("no such place"))
    with failing(0x80004005) as caught:
        compiler.compile_to_sink(dense, sink)
    assert caught.value.__cause__ is error
    assert "LookupError: no such place" in str(caught.value)


def test_an_interrupted_sink(compiler: ModelCompiler, dense: Model) -> None:
    sink = Failing("write", KeyboardInterrupt())
    with pytest.raises(KeyboardInterrupt):
        compiler.compile_to_sink(dense, sink)
    assert [name for name, _ in sink.calls] == ["begin", "write", "end"]


def test_t73_views_end_with_the_callback(compiler: ModelCompiler, dense: Model) -> None:
    sink = Capture()
    compiler.compile_to_sink(dense, sink)
    assert len(sink.views) >= 2
    for view in sink.views:
        with pytest.raises(ValueError, match="released"):
            view[0]


class Hoarding(Capture):
    """A sink that keeps an array over the memory it was lent."""

    def write_resource_bytes(self, key: str, data: memoryview) -> None:
        super().write_resource_bytes(key, data)
        self.kept = np.frombuffer(data, np.uint8)


def test_what_is_kept_by_mistake_is_no_memory_of_the_engine(compiler: ModelCompiler, dense: Model) -> None:
    sink = Hoarding()
    compiler.compile_to_sink(dense, sink)
    assert sink.kept.tobytes() == next(iter(sink.resources.values()))


def test_data_of_a_sink_is_read_only(compiler: ModelCompiler, dense: Model) -> None:
    class Writing(Capture):
        def write_artifact_bytes(self, data: memoryview) -> None:
            data[0] = 1

    with failing(0x80004005) as caught:
        compiler.compile_to_sink(dense, Writing())
    assert isinstance(caught.value.__cause__, TypeError)


def test_what_is_no_sink(compiler: ModelCompiler, dense: Model) -> None:
    with pytest.raises(TypeError, match="list lacks write_artifact_bytes"):
        compiler.compile_to_sink(dense, [])  # type: ignore[arg-type]


def test_a_sink_may_use_models(compiler: ModelCompiler, runtime: Runtime, dense: Model) -> None:
    class Busy(Capture):
        def end_resource(self, key: str) -> None:
            super().end_resource(key)
            self.shape = run(runtime, dense, X).shape

    sink = Busy()
    compiler.compile_to_sink(dense, sink)
    assert sink.shape == (3, 64)
