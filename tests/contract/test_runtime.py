"""Runtime, loading and targets: statements 1-31 of the object model."""

from __future__ import annotations

import errno
import gc
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fakes.backend import FakeBackend, Script
from fakes.engines import Sample
from fakes.model_files import ModelFiles
from fakes.rig import built, failing, floats, result
from models.gguf_writer import write_gguf
from winml_lite import (
    ExecutionTargetKind,
    ExecutionTargetPreference,
    ModelSchema,
    NotSupportedError,
    Runtime,
    TensorDataType,
    WinMLError,
)
from winml_lite.devices import replaced_enumerators
from winml_lite.native.backend import replaced_backend
from winml_lite.native.hardware import Device

CPU, GPU, NPU = ExecutionTargetKind.CPU, ExecutionTargetKind.GPU, ExecutionTargetKind.NPU


# Runtime and loading


def test_r1_importing_the_package_and_making_a_runtime_loads_no_engine_and_no_numpy() -> None:
    code = (
        "import sys, winml_lite\n"
        "assert 'numpy' not in sys.modules\n"
        "winml_lite.Runtime()\n"
        "engines = ('winml_lite.native.ort', 'winml_lite.native.llama', 'onnxruntime', 'llama_cpp')\n"
        "print([name for name in sys.modules if name.startswith(engines)])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_r2_runtime_is_its_own_context_manager() -> None:
    runtime = Runtime()
    with runtime as entered:
        assert entered is runtime
    with pytest.raises(RuntimeError, match="Runtime is closed"):
        runtime.create_cpu_target()


def test_r2_a_runtime_takes_no_arguments() -> None:
    with pytest.raises(TypeError):
        Runtime(1)  # type: ignore[call-arg]


def test_r3_closing_twice_is_silent() -> None:
    runtime = Runtime()
    runtime.close()
    runtime.close()


def test_r3_entering_a_closed_runtime_raises() -> None:
    runtime = Runtime()
    runtime.close()
    with pytest.raises(RuntimeError), runtime:
        pass


@pytest.mark.parametrize(
    "call",
    [
        lambda r: r.create_cpu_target(),
        lambda r: r.create_target(CPU),
        lambda r: r.create_pipeline_builder(),
        lambda r: r.create_ort_execution_target("CPUExecutionProvider", CPU),
        lambda r: r.create_tensor(1, (1,)),
        lambda r: r.tensor_from_numpy([1]),
        lambda r: r.tensor_from_buffer(b"1234", 1, (1,)),
        lambda r: r.tensor_from_tokens([1]),
        lambda r: r.load_model_from_buffer(b"1234"),
        lambda r: r.load_model(__file__),
        lambda r: r.create_target(GPU),
        lambda r: r.create_target_from_adapter(1),
        lambda r: r.create_target_from_d3d12(1),
        lambda r: r.enumerate_devices(),
        lambda r: r.underlying_object,
    ],
)
def test_r3_every_method_of_a_closed_runtime_raises(call: object) -> None:
    runtime = Runtime()
    runtime.close()
    with pytest.raises(RuntimeError, match="Runtime is closed"):
        call(runtime)  # type: ignore[operator]


def test_r3_everything_else_is_closed_alike(runtime: Runtime, engine: Sample) -> None:
    builder = runtime.create_pipeline_builder()
    stage, pipeline = engine.built(runtime)
    pipeline.run()
    model, output = runtime.load_model(engine.path), stage.output(0)
    for wrapper in (builder, model, model.schema(), stage, stage.schema(), stage.execution_target, pipeline, output):
        with wrapper as entered:
            assert entered is wrapper
        wrapper.close()
        with pytest.raises(RuntimeError, match=f"{type(wrapper).__name__} is closed"), wrapper:
            pass
        with pytest.raises(RuntimeError, match=f"{type(wrapper).__name__} is closed"):
            _ = wrapper.underlying_object


def test_r4_what_a_runtime_made_works_after_it_is_closed(engine: Sample) -> None:
    runtime = Runtime()
    target, model = runtime.create_cpu_target(), runtime.load_model(engine.path)
    stage, pipeline = engine.built(runtime)
    runtime.close()
    pipeline.run()
    assert engine.answer(stage.output(0)) == engine.first
    assert target.kind is CPU
    assert isinstance(model.schema(), ModelSchema)


def test_r5_a_path_object_is_accepted(runtime: Runtime, engine: Sample) -> None:
    builder = runtime.create_pipeline_builder()
    stage = engine.add(runtime, builder, model=runtime.load_model(Path(engine.path)))
    stage.request_output(0)
    builder.build().run()
    assert engine.answer(stage.output(0)) == engine.first


@pytest.mark.parametrize("path", [None, 5, b"model.onnx", ["model.onnx"]])
def test_r5_what_is_no_path_is_refused(runtime: Runtime, path: object) -> None:
    with pytest.raises(ValueError):
        runtime.load_model(path)  # type: ignore[arg-type]


def test_r6_a_missing_file(runtime: Runtime, tmp_path: Path) -> None:
    with failing(0x80070002) as caught:
        runtime.load_model(str(tmp_path / "missing.onnx"))
    assert "missing.onnx" in str(caught.value)
    assert isinstance(caught.value, OSError)


def test_r6_a_missing_folder(runtime: Runtime, tmp_path: Path) -> None:
    with failing(0x80070003) as caught:
        runtime.load_model(str(tmp_path / "nowhere" / "missing.onnx"))
    assert isinstance(caught.value, OSError)


def test_r6_a_file_used_as_a_folder(runtime: Runtime, files: ModelFiles) -> None:
    with failing(0x80070003):
        runtime.load_model(os.path.join(files.onnx("add"), "model.onnx"))


def test_r6_an_empty_path(runtime: Runtime) -> None:
    with failing(0x80070003):
        runtime.load_model("")


def test_r6_a_name_that_is_too_long(runtime: Runtime, tmp_path: Path) -> None:
    with failing(0x800700CE):
        runtime.load_model(str(tmp_path / ("x" * 300 + ".onnx")))


def test_r7_a_missing_file_is_noticed_before_the_closed_runtime(tmp_path: Path, files: ModelFiles) -> None:
    runtime = Runtime()
    runtime.close()
    with failing(0x80070002):
        runtime.load_model(str(tmp_path / "missing.onnx"))
    with pytest.raises(RuntimeError):
        runtime.load_model(files.onnx("add"))


def test_the_file_is_looked_for_before_the_resources_are_checked(runtime: Runtime, tmp_path: Path) -> None:
    with failing(0x80070002):
        runtime.load_model(str(tmp_path / "missing.onnx"), resources=[])  # type: ignore[arg-type]


def test_resources_are_checked_before_the_closed_runtime(files: ModelFiles) -> None:
    runtime = Runtime()
    runtime.close()
    with pytest.raises(TypeError):
        runtime.load_model(files.onnx("add"), resources=[])  # type: ignore[arg-type]


def test_a_closed_runtime_is_noticed_before_a_folder(tmp_path: Path) -> None:
    runtime = Runtime()
    runtime.close()
    with pytest.raises(RuntimeError):
        runtime.load_model(tmp_path)


def test_a_file_that_may_not_be_read(runtime: Runtime, files: ModelFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(path: str) -> None:
        raise PermissionError(errno.EACCES, "Permission denied", path)

    path = files.onnx("add")
    monkeypatch.setattr(os, "stat", refused)
    with failing(0x80070005):
        runtime.load_model(path)


def test_a_relative_path(runtime: Runtime, engine: Sample, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(Path(engine.path).parent)
    model = runtime.load_model(Path(engine.path).name)
    monkeypatch.chdir("/")
    builder = runtime.create_pipeline_builder()
    stage = engine.add(runtime, builder, model=model)
    stage.request_output(0)
    builder.build().run()
    assert engine.answer(stage.output(0)) == engine.first


def test_r8_a_folder_of_any_name(runtime: Runtime, tmp_path: Path) -> None:
    for name in ("x", "x.bin", "x.gguf"):
        (tmp_path / name).mkdir()
        with failing(0x80070057):
            runtime.load_model(tmp_path / name)


def test_r8_a_folder_is_not_a_model(runtime: Runtime, tmp_path: Path) -> None:
    (tmp_path / "x.onnx").mkdir()
    with failing(0x80070057):
        runtime.load_model(str(tmp_path / "x.onnx"))


def test_r9_another_extension_is_refused(runtime: Runtime, tmp_path: Path, files: ModelFiles) -> None:
    shutil.copy(files.onnx("add"), tmp_path / "add.bin")
    with failing(0x80070032) as caught:
        runtime.load_model(str(tmp_path / "add.bin"))
    assert not isinstance(caught.value, NotSupportedError)
    (tmp_path / "words.txt").write_text("no model")
    with failing(0x80070032):
        runtime.load_model(str(tmp_path / "words.txt"))


def test_r10_extensions_in_capitals(runtime: Runtime, tmp_path: Path, files: ModelFiles) -> None:
    shutil.copy(files.onnx("add"), tmp_path / "MODEL.ONNX")
    shutil.copy(files.gguf, tmp_path / "Model.GgUf")
    assert runtime.load_model(str(tmp_path / "MODEL.ONNX")).ort_schema().input_name(0) == "A"
    with failing(0x80004002, NotSupportedError):
        runtime.load_model(str(tmp_path / "Model.GgUf")).ort_schema()


def test_r10_extensions_in_capitals_build(runtime: Runtime, tmp_path: Path, engine: Sample) -> None:
    name = "Model.GgUf" if engine.is_decoder else "MODEL.ONNX"
    shutil.copy(engine.path, tmp_path / name)
    builder = runtime.create_pipeline_builder()
    stage = engine.add(runtime, builder, model=runtime.load_model(str(tmp_path / name)))
    stage.request_output(0)
    builder.build().run()
    assert engine.answer(stage.output(0)) == engine.first


@pytest.mark.parametrize("name", ["model.onnx", "model.ort", "model.gguf"])
@pytest.mark.parametrize("content", [b"", b"\xff" * 100, b"no model at all, only words and words"])
def test_r11_unreadable_content(runtime: Runtime, tmp_path: Path, name: str, content: bytes) -> None:
    (tmp_path / name).write_bytes(content)
    with failing(0x80070570) as caught:
        runtime.load_model(str(tmp_path / name))
    assert name in str(caught.value)


def test_r12_an_unknown_operator_loads_and_does_not_build(
    runtime: Runtime, files: ModelFiles, onnx_engine: str
) -> None:
    builder = runtime.create_pipeline_builder()
    builder.add_model_stage(runtime.load_model(files.onnx("badop")))
    with pytest.raises(WinMLError, match="NoSuchOperator"):
        builder.build()


def test_r12_an_unknown_architecture_loads_and_does_not_build(runtime: Runtime, tmp_path: Path, llama: None) -> None:
    path = write_gguf(tmp_path / "strange.gguf", {"general.architecture": "no-such-architecture"})
    builder = runtime.create_pipeline_builder()
    builder.add_model_stage(runtime.load_model(path))
    with pytest.raises(WinMLError, match="no-such-architecture"):
        builder.build()


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview, lambda data: np.frombuffer(data, np.uint8)])
def test_r13_any_buffer_is_a_model(runtime: Runtime, files: ModelFiles, kind: type[bytes]) -> None:
    data = Path(files.onnx("add")).read_bytes()
    assert runtime.load_model_from_buffer(kind(data)).schema().output_count == 1


def test_r13_a_buffer_is_recognised_by_its_content(runtime: Runtime, engine: Sample) -> None:
    builder = runtime.create_pipeline_builder()
    data = bytearray(Path(engine.path).read_bytes())
    stage = engine.add(runtime, builder, model=runtime.load_model_from_buffer(data))
    stage.request_output(0)
    builder.build().run()
    assert engine.answer(stage.output(0)) == engine.first


@pytest.mark.parametrize("data", [None, 5, "text"])
def test_r13_what_is_no_buffer_is_refused(runtime: Runtime, data: object) -> None:
    with pytest.raises(ValueError):
        runtime.load_model_from_buffer(data)


def test_r13_an_empty_buffer(runtime: Runtime) -> None:
    with failing(0x80070057):
        runtime.load_model_from_buffer(b"")


@pytest.mark.parametrize("content", [b"\xff" * 100, b"GGUF", b"1234ORTM"])
def test_r13_an_unrecognisable_buffer(runtime: Runtime, content: bytes) -> None:
    with failing(0x80070570):
        runtime.load_model_from_buffer(content)


def test_r14_the_buffer_is_copied(runtime: Runtime, engine: Sample) -> None:
    data = bytearray(Path(engine.path).read_bytes())
    builder = runtime.create_pipeline_builder()
    stage = engine.add(runtime, builder, model=runtime.load_model_from_buffer(data))
    data[:] = bytes(len(data))
    data.clear()
    stage.request_output(0)
    builder.build().run()
    assert engine.answer(stage.output(0)) == engine.first


def test_r15_resources_is_keyword_only(runtime: Runtime, files: ModelFiles) -> None:
    with pytest.raises(TypeError):
        runtime.load_model(files.onnx("add"), {})  # type: ignore[call-arg]


def test_r15_resources_must_be_a_mapping(runtime: Runtime, files: ModelFiles) -> None:
    with pytest.raises(TypeError):
        runtime.load_model(files.onnx("add"), resources=[])  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("resources", "kind"),
    [
        ({"": b"x"}, ValueError),
        ({"a\0": b"x"}, ValueError),
        ({5: b"x"}, TypeError),
        ({"a": 5}, TypeError),
        ({"a": np.array([None])}, TypeError),
        ({"a": b""}, ValueError),
        ({"a": memoryview(b"1234")[::2]}, BufferError),
    ],
)
def test_r16_t76_wrong_resources(
    runtime: Runtime, files: ModelFiles, resources: dict[str, bytes], kind: type[Exception]
) -> None:
    with pytest.raises(kind):
        runtime.load_model(files.onnx("add"), resources=resources)
    with pytest.raises(kind):
        runtime.load_model_from_buffer(Path(files.onnx("add")).read_bytes(), resources=resources)


def test_the_refusal_of_a_resource_names_it(runtime: Runtime, files: ModelFiles) -> None:
    with pytest.raises(TypeError, match="resource 'second' must be bytes or another buffer, not str"):
        runtime.load_model(files.onnx("add"), resources={"first": b"1", "second": "2"})


class Resources:
    """Has `keys` and items, and is no Mapping."""

    def __init__(self, **items: bytes) -> None:
        self._items = {name.replace("_", "."): value for name, value in items.items()}

    def keys(self) -> list[str]:
        return list(self._items)

    def __getitem__(self, name: str) -> bytes:
        return self._items[name]


def test_r15_what_behaves_like_a_mapping_is_accepted(runtime: Runtime, files: ModelFiles, onnx_engine: str) -> None:
    path, weights = files.external
    resources: Any = Resources(weights_bin=weights)
    model = runtime.load_model_from_buffer(Path(path).read_bytes(), resources=resources)
    builder = runtime.create_pipeline_builder()
    stage = builder.add_model_stage(model)
    stage.bind_input(0, floats(runtime, 1, 2))
    stage.request_output(0)
    builder.build().run()
    assert result(stage) == [11, 22]


def test_r16_a_failed_load_leaves_no_export(runtime: Runtime, files: ModelFiles, tmp_path: Path) -> None:
    (tmp_path / "words.onnx").write_bytes(b"no model at all, only words and words")
    buffer = bytearray(b"1234")
    with failing(0x80070570) as from_file:
        runtime.load_model(tmp_path / "words.onnx", resources={"a": buffer})
    buffer.extend(b"5")
    with failing(0x80070570) as from_buffer:
        runtime.load_model_from_buffer(b"no model at all, only words", resources={"a": buffer})
    buffer.extend(b"6")
    assert from_file.value is not from_buffer.value


def test_r16_a_closed_runtime_keeps_no_export(files: ModelFiles) -> None:
    runtime, buffer = Runtime(), bytearray(b"1234")
    runtime.close()
    with pytest.raises(RuntimeError) as caught:
        runtime.load_model(files.onnx("add"), resources={"a": buffer})
    buffer.extend(b"5")
    assert "Runtime is closed" in str(caught.value)


def test_r16_a_refused_map_leaves_no_export(runtime: Runtime, files: ModelFiles) -> None:
    first = bytearray(b"1234")
    with pytest.raises(ValueError):
        runtime.load_model(files.onnx("add"), resources={"a": first, "b": b""})
    first.extend(b"5")
    assert first == b"12345"


@pytest.mark.parametrize("behind", [b"", b"what is longer is accepted"])
def test_r17_t74_external_weights_of_a_buffer_come_from_the_map(
    runtime: Runtime, files: ModelFiles, onnx_engine: str, behind: bytes
) -> None:
    path, weights = files.external
    resources = {"weights.bin": weights + behind, "other": b"x"}
    model = runtime.load_model_from_buffer(Path(path).read_bytes(), resources=resources)
    builder = runtime.create_pipeline_builder()
    stage = builder.add_model_stage(model)
    stage.bind_input(0, floats(runtime, 1, 2))
    stage.request_output(0)
    builder.build().run()
    assert result(stage) == [11, 22]


@pytest.mark.parametrize("resources", [None, {}, {"other.bin": b"12345678"}])
def test_r17_t74_a_missing_resource_fails_at_build(
    runtime: Runtime, files: ModelFiles, onnx_engine: str, resources: dict[str, bytes] | None
) -> None:
    model = runtime.load_model_from_buffer(Path(files.external[0]).read_bytes(), resources=resources)
    builder = runtime.create_pipeline_builder()
    builder.add_model_stage(model)
    with failing(0x80070490) as caught:
        builder.build()
    assert "weights.bin" in str(caught.value)


def test_t74_a_resource_that_is_too_short_fails_at_build(runtime: Runtime, files: ModelFiles, onnx_engine: str) -> None:
    data = Path(files.external[0]).read_bytes()
    builder = runtime.create_pipeline_builder()
    builder.add_model_stage(runtime.load_model_from_buffer(data, resources={"weights.bin": b"1234"}))
    with failing(0x80070057) as caught:
        builder.build()
    assert "weights.bin" in str(caught.value)


def test_r18_t76_resources_are_pinned_while_something_uses_them(
    runtime: Runtime, files: ModelFiles, onnx_engine: str
) -> None:
    path, weights = files.external
    buffer = bytearray(weights)
    model = runtime.load_model_from_buffer(Path(path).read_bytes(), resources={"weights.bin": buffer})
    builder = runtime.create_pipeline_builder()
    stage = builder.add_model_stage(model)
    pipeline = builder.build()
    model.close()
    builder.close()
    with pytest.raises(BufferError):
        buffer.extend(b"x")
    pipeline.close()
    with pytest.raises(BufferError):
        buffer.extend(b"x")
    stage.close()
    buffer.extend(b"x")


def test_r19_t75_a_file_beside_the_model_wins_over_the_map(
    runtime: Runtime, files: ModelFiles, onnx_engine: str
) -> None:
    builder = runtime.create_pipeline_builder()
    stage = builder.add_model_stage(runtime.load_model(files.external[0], resources={"weights.bin": bytes(8)}))
    stage.bind_input(0, floats(runtime, 1, 2))
    stage.request_output(0)
    builder.build().run()
    assert result(stage) == [11, 22]


def test_t75_the_map_replaces_a_file_that_is_absent(
    runtime: Runtime, files: ModelFiles, onnx_engine: str, tmp_path: Path
) -> None:
    path, weights = files.external
    shutil.copy(path, tmp_path / "alone.onnx")
    model = runtime.load_model(str(tmp_path / "alone.onnx"), resources={"weights.bin": weights})
    builder = runtime.create_pipeline_builder()
    stage = builder.add_model_stage(model)
    stage.bind_input(0, floats(runtime, 1, 2))
    stage.request_output(0)
    builder.build().run()
    assert result(stage) == [11, 22]


def test_r20_without_llama_cpp_a_gguf_loads_and_does_not_build(runtime: Runtime, files: ModelFiles) -> None:
    with replaced_backend("llama", FakeBackend(problem="llama.cpp is missing: install it")):
        builder = runtime.create_pipeline_builder()
        builder.add_model_stage(runtime.load_model(files.gguf))
        with failing(0x8007007E) as caught:
            builder.build()
    assert caught.value.native_message is not None
    assert "llama.cpp is missing: install it" in caught.value.native_message


def test_r20_without_onnx_runtime_a_graph_loads_and_does_not_build(runtime: Runtime, files: ModelFiles) -> None:
    with replaced_backend("ort", FakeBackend(problem="ONNX Runtime is missing: install it")):
        builder = runtime.create_pipeline_builder()
        builder.add_model_stage(runtime.load_model(files.onnx("add")))
        with failing(0x8007007E) as caught:
            builder.build()
    assert caught.value.native_message is not None
    assert "ONNX Runtime is missing: install it" in caught.value.native_message


def test_an_engine_that_is_there_need_not_be_installed(runtime: Runtime, files: ModelFiles, gguf_engine: str) -> None:
    builder = runtime.create_pipeline_builder()
    stage = builder.add_model_stage(runtime.load_model(files.gguf))
    stage.caller_owns_state_tensors = True
    with failing(0x80070032) as caught:
        builder.build()
    assert "install" not in str(caught.value)


def test_a_model_from_a_buffer_gets_no_hint(runtime: Runtime, files: ModelFiles, fake_gguf: FakeBackend) -> None:
    builder = runtime.create_pipeline_builder()
    with replaced_enumerators(lambda: [Device(GPU, "a GPU")]):
        builder.add_model_stage(
            runtime.load_model_from_buffer(Path(files.gguf).read_bytes()), runtime.create_target(GPU)
        )
    with failing(0x80070032) as caught:
        builder.build()
    assert caught.value.native_message == "stage: no GPU in the fake engine"


def test_a_model_from_a_buffer_leaves_no_file(
    runtime: Runtime, files: ModelFiles, gguf_engine: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    model = runtime.load_model_from_buffer(Path(files.gguf).read_bytes())
    builder = runtime.create_pipeline_builder()
    stage = builder.add_model_stage(model)
    model.close()
    stage.bind_input(0, runtime.tensor_from_tokens([1]))
    pipeline = builder.build()
    builder.close()
    pipeline.run()
    pipeline.close()
    stage.close()
    del model, builder, stage, pipeline
    gc.collect()
    assert list(tmp_path.iterdir()) == []


def test_r21_a_later_shard_is_refused(runtime: Runtime, files: ModelFiles) -> None:
    second = sorted(files.shards.parent.glob("*-00002-of-*.gguf"))[0]
    with failing(0x80070057):
        runtime.load_model(second)


def test_r21_a_missing_shard_is_noticed_at_load(runtime: Runtime, files: ModelFiles, tmp_path: Path) -> None:
    shutil.copy(files.shards, tmp_path / files.shards.name)
    with failing(0x80070002):
        runtime.load_model(tmp_path / files.shards.name)


# Targets


def test_r22_each_cpu_target_is_a_new_object(runtime: Runtime) -> None:
    first, second = runtime.create_cpu_target(), runtime.create_cpu_target()
    assert first.kind is CPU
    assert first is not second


def test_r22_a_stage_runs_on_it(runtime: Runtime, engine: Sample) -> None:
    builder = runtime.create_pipeline_builder()
    stage = engine.add(runtime, builder, target=runtime.create_target(CPU, ExecutionTargetPreference.PERFORMANCE))
    stage.request_output(0)
    builder.build().run()
    assert engine.answer(stage.output(0)) == engine.first
    assert stage.execution_target.kind is CPU


def test_r23_a_preference_means_nothing_for_the_cpu(runtime: Runtime) -> None:
    assert runtime.create_target(CPU, ExecutionTargetPreference.EFFICIENCY).kind is CPU


def test_r24_numbers_outside_the_enumerations(runtime: Runtime) -> None:
    with pytest.raises(ValueError):
        runtime.create_target(9)
    with pytest.raises(ValueError):
        runtime.create_target(CPU, 7)


def test_r25_no_device_of_the_class(runtime: Runtime) -> None:
    with replaced_enumerators(lambda: [Device(GPU, "a GPU")]), failing(0x80070490):
        runtime.create_target(NPU)


def test_r26_no_enumerator_at_all(runtime: Runtime) -> None:
    with replaced_enumerators(), failing(0x80070032):
        runtime.create_target(GPU)


def unanswered() -> list[Device]:
    raise OSError("the driver does not answer")


def test_r26_all_enumerators_fail(runtime: Runtime) -> None:
    with replaced_enumerators(unanswered, unanswered), failing(0x80070032) as caught:
        runtime.create_target(GPU)
    assert "the driver does not answer" in str(caught.value)


def test_r26_one_enumerator_that_answers_is_enough(runtime: Runtime) -> None:
    with replaced_enumerators(unanswered, lambda: [Device(GPU, "a GPU")]):
        assert runtime.create_target(GPU).kind is GPU


@pytest.mark.parametrize(
    ("preference", "name"),
    [
        (ExecutionTargetPreference.DEFAULT, "large"),
        (ExecutionTargetPreference.PERFORMANCE, "large"),
        (ExecutionTargetPreference.EFFICIENCY, "integrated"),
    ],
)
def test_r27_preferences_order_devices(preference: ExecutionTargetPreference, name: str) -> None:
    from winml_lite.devices import find_device

    devices = [
        Device(GPU, "small", memory_size=4 << 30),
        Device(GPU, "integrated", is_integrated=True, memory_size=64 << 30),
        Device(GPU, "large", memory_size=8 << 30),
        Device(NPU, "another class", memory_size=1 << 40),
    ]
    with replaced_enumerators(lambda: devices):
        assert find_device(GPU, preference).name == name


@pytest.mark.parametrize("preference", [ExecutionTargetPreference.PERFORMANCE, ExecutionTargetPreference.EFFICIENCY])
def test_r28_one_device_serves_every_preference(runtime: Runtime, preference: ExecutionTargetPreference) -> None:
    with replaced_enumerators(lambda: [Device(GPU, "a GPU")]):
        assert runtime.create_target(GPU, preference).kind is GPU


def test_r31_t85_the_provider_needs_a_name(runtime: Runtime) -> None:
    with pytest.raises(ValueError, match="provider_name must not be empty"):
        runtime.create_ort_execution_target("", CPU)


def test_r31_a_kind_outside_the_enumeration(runtime: Runtime) -> None:
    with failing(0x80070057):
        runtime.create_ort_execution_target("CPUExecutionProvider", 9)


def test_r31_the_hardware_target_must_have_the_kind(runtime: Runtime) -> None:
    with failing(0x80070057):
        runtime.create_ort_execution_target("CPUExecutionProvider", GPU, runtime.create_cpu_target())


def test_a_pinned_target_makes_no_tensors(runtime: Runtime) -> None:
    pinned = runtime.create_ort_execution_target("CPUExecutionProvider", CPU)
    with failing(0x80004002, NotSupportedError):
        runtime.create_tensor(1, (1,), target=pinned)


# Placement


def build_on(runtime: Runtime, path: str, target: object) -> object:
    builder = runtime.create_pipeline_builder()
    stage = builder.add_model_stage(runtime.load_model(path), target)  # type: ignore[arg-type]
    builder.build()
    return stage


def test_r128_a_gguf_on_a_gpu_without_a_backend_says_what_to_do(runtime: Runtime, files: ModelFiles) -> None:
    with replaced_backend("llama", FakeBackend()), replaced_enumerators(lambda: [Device(GPU, "a GPU")]):
        with failing(0x80070032) as caught:
            build_on(runtime, files.gguf, runtime.create_target(GPU))
    assert "GPU backend" in str(caught.value)


def test_r128_a_gguf_does_not_run_on_an_npu(runtime: Runtime, files: ModelFiles, gguf_engine: str) -> None:
    with replaced_enumerators(lambda: [Device(NPU, "an NPU")]):
        with failing(0x80070032) as caught:
            build_on(runtime, files.gguf, runtime.create_target(NPU))
    assert "NPU" in str(caught.value)


def test_r128_a_model_that_is_too_large_keeps_its_code(runtime: Runtime, files: ModelFiles) -> None:
    script = Script(fail_build=WinMLError(0x80070008, "", "the model does not fit"))
    with replaced_backend("llama", FakeBackend(script)), failing(0x80070008):
        build_on(runtime, files.gguf, None)


@pytest.mark.parametrize(("gpu", "kind"), [(True, GPU), (False, CPU)])
def test_r129_automatic_placement_reports_what_it_chose(
    runtime: Runtime, files: ModelFiles, gpu: bool, kind: ExecutionTargetKind
) -> None:
    with replaced_backend("llama", FakeBackend(gpu=gpu)):
        builder = runtime.create_pipeline_builder()
        stage = builder.add_model_stage(runtime.load_model(files.gguf))
        builder.build()
    assert stage.execution_target.kind is kind


def test_r130_t86_a_gguf_has_no_execution_provider(runtime: Runtime, files: ModelFiles, gguf_engine: str) -> None:
    pinned = runtime.create_ort_execution_target("CPUExecutionProvider", CPU)
    with failing(0x80070032):
        build_on(runtime, files.gguf, pinned)


def test_r131_an_explicit_gpu_never_becomes_the_cpu(runtime: Runtime, files: ModelFiles, onnx_engine: str) -> None:
    with replaced_enumerators(lambda: [Device(GPU, "a GPU")]), failing(0x80070490):
        build_on(runtime, files.onnx("add"), runtime.create_target(GPU))


def test_r131_automatic_placement_without_a_gpu_is_the_cpu(
    runtime: Runtime, files: ModelFiles, onnx_engine: str
) -> None:
    stage, _ = built(runtime, files.onnx("add"))
    assert stage.execution_target.kind is CPU


def test_s_plc_04_a_refused_model_is_tried_once(
    runtime: Runtime, files: ModelFiles, fake_ort: FakeBackend, script: Script
) -> None:
    script.fail_build = WinMLError(0x80004001, "", "operator Foo of node 3 is not implemented")
    with failing(0x80004001) as caught:
        built(runtime, files.onnx("add"))
    assert script.builds == 1
    assert "operator Foo of node 3" in str(caught.value)


# Wrappers


def test_each_access_is_a_new_wrapper(runtime: Runtime, engine: Sample) -> None:
    stage, pipeline = engine.built(runtime)
    pipeline.run()
    model = runtime.load_model(engine.path)
    assert stage.output(0) is not stage.output(0)
    assert stage.schema() is not stage.schema()
    assert model.schema() is not model.schema()
    assert stage.output(0) != stage.output(0)
    assert stage.output(0).underlying_object is stage.output(0).underlying_object


def test_what_goes_through_a_closed_runtime(engine: Sample) -> None:
    runtime = Runtime()
    stage, pipeline = engine.built(runtime)
    pipeline.run()
    output, target = stage.output(0), runtime.create_cpu_target()
    runtime.close()
    rank = len(output.desc()[1])
    with pytest.raises(RuntimeError, match="Runtime is closed"):
        output.region((0,) * rank, (1,) * rank)
    assert output.region((0,) * rank, (1,) * rank, target=target).to_numpy().size == 1
    assert engine.answer(output) == engine.first


# Exceptions


@pytest.mark.parametrize("kind", [WinMLError, NotSupportedError])
@pytest.mark.parametrize(
    ("code", "stored", "text"),
    [
        (-1, 0xFFFFFFFF, "0xFFFFFFFF"),
        (-2147024809, 0x80070057, "0x80070057"),
        (0x8000000B, 0x8000000B, "0x8000000B"),
        (0x1_8007_0002, 0x80070002, "0x80070002"),
    ],
)
def test_r149_the_code_is_kept_to_32_bits(kind: type[WinMLError], code: int, stored: int, text: str) -> None:
    error = kind(code, "Call", "why")
    assert error.hresult == stored
    assert text in str(error)


def test_r149_errors_of_a_run_have_their_code_in_the_text(runtime: Runtime, engine: Sample) -> None:
    stage, pipeline = engine.built(runtime)
    stage.clear_input(0)
    with pytest.raises(WinMLError) as caught:
        pipeline.run()
    assert caught.value.hresult == 0x80070057
    assert "0x80070057" in str(caught.value)
    assert "IWinMLPipeline.Run" in str(caught.value)


def test_r149_the_code_is_unsigned_and_in_the_text(runtime: Runtime, tmp_path: Path) -> None:
    with pytest.raises(WinMLError) as caught:
        runtime.load_model(str(tmp_path / "missing.onnx"))
    assert caught.value.hresult == 0x80070002
    assert "0x80070002" in str(caught.value)
    assert "IWinMLRuntime.LoadModelFromFile" in str(caught.value)


@pytest.mark.parametrize("value", [True, 1.0, np.True_, TensorDataType.FLOAT32, "CPU", None])
def test_r24_what_equals_a_number_and_means_no_target(value: Any) -> None:
    runtime = Runtime()
    with pytest.raises(ValueError, match="ExecutionTargetKind"):
        runtime.create_target(value)
    with pytest.raises(ValueError, match="ExecutionTargetPreference"):
        runtime.create_target(1, value)
    with failing(0x80070057):
        runtime.create_ort_execution_target("CPUExecutionProvider", value)
