"""Compiled models on the real engine: SmolLM2, the ORT format, large models, what happens when writing fails."""

from __future__ import annotations

import mmap
import os
import signal
import subprocess
import sys
import textwrap
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
import pytest
from onnx import TensorProto, helper

from fakes.model_files import ModelFiles
from fakes.rig import failing
from models import onnx_models
from winml_lite import CompiledModelForm, Model, Runtime, TensorDataType, WinMLError, compiled_files, save_as_ort
from winml_lite.native.ort import compile as ort_compile
from winml_lite.native.ort.devices import provider_listing

pytestmark = [pytest.mark.real, pytest.mark.usefixtures("ort")]

DEVICE_TARGETED, DURABLE = CompiledModelForm.DEVICE_TARGETED, CompiledModelForm.DURABLE
ROOT = Path(__file__).resolve().parents[2]


def results(runtime: Runtime, model: Model, **inputs: npt.NDArray[Any]) -> list[bytes]:
    """All outputs of one run, byte by byte; inputs that are not given are empty float32 caches."""
    schema, names = model.schema(), model.ort_schema()
    builder = runtime.create_pipeline_builder()
    stage = builder.add_model_stage(model, runtime.create_cpu_target())
    stage.ort_options().set_thread_count(1)
    for index, (_, shape) in enumerate(schema.inputs()):
        name = names.input_name(index)
        value = inputs[name] if name in inputs else np.zeros((1, shape[1], 0, shape[-1]), np.float32)
        stage.bind_input(index, runtime.tensor_from_numpy(value))
    for index in range(schema.output_count):
        stage.request_output(index)
    builder.build().run()
    return [stage.output(index).to_numpy().tobytes() for index in range(schema.output_count)]


IDS = np.array([[504, 3575, 4052, 314]])
X = np.linspace(-1, 1, 3 * 64, dtype=np.float32).reshape(3, 64)


@pytest.mark.parametrize("form", [DEVICE_TARGETED, DURABLE])
@pytest.mark.parametrize("weights", [None, "weights.bin"])
def test_smollm2_compiled_is_smollm2(
    runtime: Runtime, smollm2_q8: Path, tmp_path: Path, form: CompiledModelForm, weights: str | None
) -> None:
    source = runtime.load_model(smollm2_q8 / "model.onnx")
    runtime.create_cpu_target().compile_to_file(source, tmp_path / "out.onnx", weights, form)
    compiled = runtime.load_model(tmp_path / "out.onnx")
    inputs = {"input_ids": IDS, "attention_mask": np.ones_like(IDS)}
    assert results(runtime, compiled, **inputs) == results(runtime, source, **inputs)


def test_weights_that_are_tied_lie_there_once(runtime: Runtime, smollm2_q8: Path, tmp_path: Path) -> None:
    source = runtime.load_model(smollm2_q8 / "model.onnx")
    runtime.create_cpu_target().compile_to_file(source, tmp_path / "out.onnx", "weights.bin")
    ours, theirs = (tmp_path / "weights.bin").stat().st_size, (smollm2_q8 / "model.onnx.data").stat().st_size
    assert ours <= theirs * 1.01


@pytest.mark.parametrize("name", ["dense", "twins", "convolution", "branches"])
def test_a_file_of_its_own_for_a_large_model(
    runtime: Runtime, files: ModelFiles, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setattr(compiled_files, "MOST_INSIDE", 1000)
    source = runtime.load_model(files.onnx(name))
    runtime.create_cpu_target().compile_to_file(source, tmp_path / "out.onnx", form=DURABLE)
    (weights,) = set(os.listdir(tmp_path)) - {"out.onnx"}
    assert weights.startswith("out.") and weights.endswith(".bin") and len(weights) == len("out..bin") + 16
    inputs = {
        "convolution": {"x": np.ones((1, 16, 8, 8), np.float32)},
        "branches": {"x": np.ones(512, np.float32), "chosen": np.array([True])},
    }.get(name, {"x": X})
    compiled = runtime.load_model(tmp_path / "out.onnx")
    assert results(runtime, compiled, **inputs) == results(runtime, source, **inputs)


@pytest.mark.parametrize("weights", [None, "weights.bin"])
def test_a_provider_that_compiles_nothing(
    runtime: Runtime, files: ModelFiles, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, weights: str | None
) -> None:
    """The CPU provider is one, when it is asked as others are."""
    (device,) = (each for each in provider_listing().devices if each.provider == "CPUExecutionProvider")
    monkeypatch.setattr(ort_compile, "choose_device", lambda placement, listing: device)
    compiler = runtime.create_cpu_target().model_compiler()
    options = compiler.create_options()
    options.symbolic_dimensions["batch"] = 2
    with failing(0x80070032) as caught:
        compiler.compile_to_file(
            runtime.load_model(files.onnx("dense")), tmp_path / "out.onnx", weights, options=options
        )
    assert "CPUExecutionProvider compiles nothing ahead of time: Unable to compile any nodes" in str(caught.value)
    assert os.listdir(tmp_path) == []


# --- the ORT format ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", [DEVICE_TARGETED, DURABLE])
@pytest.mark.parametrize("name", ["dense", "twins"])
def test_the_ort_format_does_the_same(
    runtime: Runtime, files: ModelFiles, tmp_path: Path, form: CompiledModelForm, name: str
) -> None:
    source = runtime.load_model(files.onnx(name))
    save_as_ort(source, tmp_path / "out.ort", form=form)
    assert os.listdir(tmp_path) == ["out.ort"]
    assert (tmp_path / "out.ort").read_bytes()[4:8] == b"ORTM"
    assert results(runtime, runtime.load_model(tmp_path / "out.ort"), x=X) == results(runtime, source, x=X)


def test_external_weights_go_into_the_ort_format(runtime: Runtime, files: ModelFiles, tmp_path: Path) -> None:
    save_as_ort(runtime.load_model(files.external[0]), tmp_path / "out.ort")
    made = runtime.load_model(tmp_path / "out.ort")
    (result,) = results(runtime, made, X=np.array([1, 2], np.float32))
    assert np.frombuffer(result, np.float32).tolist() == [11, 22]


def test_constants_of_an_old_model_are_no_inputs_in_the_ort_format(
    files: ModelFiles, runtime: Runtime, tmp_path: Path
) -> None:
    save_as_ort(runtime.load_model(files.onnx("listed_constants")), tmp_path / "out.ort")
    made = runtime.load_model(tmp_path / "out.ort")
    assert made.schema().inputs() == [(TensorDataType.FLOAT32, (2,))]
    (result,) = results(runtime, made, x=np.array([1, -9], np.float32))
    assert np.frombuffer(result, np.float32).tolist() == [3, 2]


def test_extents_are_fixed_in_the_ort_format(runtime: Runtime, files: ModelFiles, tmp_path: Path) -> None:
    save_as_ort(runtime.load_model(files.onnx("dense")), tmp_path / "out.ort", symbolic_dimensions={"batch": 2})
    schema = runtime.load_model(tmp_path / "out.ort").schema()
    assert schema.outputs() == [(TensorDataType.FLOAT32, (2, 64))]


def test_what_the_ort_format_refuses(runtime: Runtime, files: ModelFiles, tmp_path: Path) -> None:
    ort = onnx_models.to_ort(files.onnx("add"), tmp_path / "add.ort")
    path = onnx_models.save(onnx_models.add(), tmp_path / "add.onnx")
    before = path.read_bytes()
    with failing(0x80070032):
        save_as_ort(runtime.load_model(ort), tmp_path / "out.ort")
    with failing(0x80070057):
        save_as_ort(runtime.load_model(path), path)
    with failing(0x80070057) as caught:
        save_as_ort(runtime.load_model(path), tmp_path / "out.ONNX")
    assert "name it .ort" in str(caught.value)
    with failing(0x80070003):
        save_as_ort(runtime.load_model(path), tmp_path / "missing" / "out.ort")
    with pytest.raises(WinMLError, match="NoSuchOperator"):
        save_as_ort(runtime.load_model(files.onnx("badop")), tmp_path / "out.ort")
    with pytest.raises(ValueError):
        save_as_ort(runtime.load_model(path), "")
    assert sorted(os.listdir(tmp_path)) == ["add.onnx", "add.ort"]
    assert path.read_bytes() == before


def test_what_the_ort_format_cannot_hold(runtime: Runtime, tmp_path: Path) -> None:
    """The engine writes constants of 4 bits, and does not read them."""
    numbers = TensorProto(name="W", data_type=TensorProto.INT4, dims=[4096], raw_data=bytes(2048))
    scale = helper.make_tensor("scale", TensorProto.FLOAT, [], [0.5])
    graph = helper.make_graph(
        [helper.make_node("DequantizeLinear", ["W", "scale"], ["w"]), helper.make_node("Add", ["x", "w"], ["y"])],
        "four bits",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [4096])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [4096])],
        [numbers, scale],
    )
    opsets = [helper.make_opsetid("", onnx_models.OPSET)]
    model = helper.make_model(graph, ir_version=onnx_models.IR_VERSION, opset_imports=opsets)
    with failing(0x80070032) as caught:
        save_as_ort(runtime.load_model_from_buffer(model.SerializeToString()), tmp_path / "out.ort")
    assert "the ORT format cannot hold this model" in str(caught.value)
    assert os.listdir(tmp_path) == []


def test_threads_compile_at_the_same_time(runtime: Runtime, files: ModelFiles, tmp_path: Path) -> None:
    source = runtime.load_model(files.onnx("dense"))
    target = runtime.create_cpu_target()
    with ThreadPoolExecutor(4) as pool:
        for number in range(8):
            pool.submit(target.compile_to_file, source, tmp_path / f"{number}.onnx", f"{number}.bin")
    assert len(os.listdir(tmp_path)) == 16
    assert len({(tmp_path / f"{number}.bin").read_bytes() for number in range(8)}) == 1


# --- failures ---------------------------------------------------------------------------------------------------------


def test_ctrl_c_while_files_are_written(
    runtime: Runtime, files: ModelFiles, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = compiled_files._Files.write

    def interrupted(output: compiled_files._Files, data: memoryview) -> None:
        monkeypatch.setattr(compiled_files._Files, "write", write)
        write(output, data)
        signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(compiled_files._Files, "write", interrupted)
    with pytest.raises(KeyboardInterrupt):
        runtime.create_cpu_target().compile_to_file(runtime.load_model(files.onnx("dense")), tmp_path / "out.onnx")
    assert os.listdir(tmp_path) == []


STORM = """
    import random, signal, sys, time
    from winml_lite import Runtime

    class Sink:
        def write_artifact_bytes(self, data): self.size += len(data)
        def begin_resource(self, key, descriptor): self.size = 0
        def write_resource_bytes(self, key, data): self.size += len(data)
        def end_resource(self, key): pass

    may_strike = False

    def interrupt(*_):  # a stroke that was caught where it could not be raised comes again, maybe after the try
        if may_strike: raise KeyboardInterrupt

    runtime = Runtime()
    model = runtime.load_model(sys.argv[1])
    compiler = runtime.create_cpu_target().model_compiler()
    whole = Sink()
    seconds = 1.0
    for _ in range(5):
        begun = time.perf_counter()
        compiler.compile_to_sink(model, whole)
        seconds = min(seconds, time.perf_counter() - begun)
    signal.signal(signal.SIGALRM, interrupt)
    signal.signal(signal.SIGINT, interrupt)
    chance = random.Random(0)
    struck = 0
    while struck < 80:
        sink = Sink()
        try:
            may_strike = True
            signal.setitimer(signal.ITIMER_REAL, 0.0001 + seconds * chance.random())
            compiler.compile_to_sink(model, sink)
            may_strike = False
            assert vars(sink) == vars(whole), (vars(sink), vars(whole))
        except KeyboardInterrupt:
            may_strike = False
            struck += 1
    signal.setitimer(signal.ITIMER_REAL, 0)
"""


@pytest.mark.skipif(os.name == "nt", reason="timers of POSIX")
def test_ctrl_c_at_any_moment_of_a_sink(files: ModelFiles) -> None:
    command = [sys.executable, "-c", textwrap.dedent(STORM), files.onnx("twins")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=500)
    assert (done.returncode, done.stdout) == (0, ""), done.stderr


LIMITED = """
    import os, resource, signal, sys
    from winml_lite import Runtime, WinMLError, save_as_ort
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[4]), int(sys.argv[4])))
    runtime = Runtime()
    try:
        model, path = runtime.load_model(sys.argv[1]), sys.argv[2]
        if path.endswith(".ort"):
            save_as_ort(model, path)
        else:
            runtime.create_cpu_target().compile_to_file(model, path, sys.argv[3] or None)
    except WinMLError as error:
        print(error)
        print(os.listdir(os.path.dirname(sys.argv[2])))
"""


@pytest.mark.skipif(os.name == "nt", reason="limits of POSIX")
@pytest.mark.parametrize(
    ("source", "name", "weights", "limit"),
    [
        ("dense", "out.onnx", "", 8192),
        ("dense", "out.onnx", "weights.bin", 8192),
        ("texts", "out.onnx", "weights.bin", 1024),
        ("dense", "out.ort", "", 8192),
    ],
)
def test_a_file_that_cannot_grow_leaves_nothing(
    files: ModelFiles, tmp_path: Path, source: str, name: str, weights: str, limit: int
) -> None:
    arguments = [files.onnx(source), str(tmp_path / name), weights, str(limit)]
    command = [sys.executable, "-c", textwrap.dedent(LIMITED), *arguments]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=500)
    said = done.stdout.splitlines()
    assert said[-1] == "[]", done.stderr
    assert "File too large" in said[0]


# --- models of more than 2 GB -----------------------------------------------------------------------------------------


@pytest.mark.skipif(
    not os.environ.get("WINML_LITE_LARGE_FILES"),
    reason="writes 4.5 GB: set WINML_LITE_LARGE_FILES=1 to run it",
)
def test_a_model_of_more_than_2_gb(runtime: Runtime, tmp_path: Path) -> None:
    count, rows, columns = 14, 10_000, 4_000
    size = rows * columns * 4
    with open(tmp_path / "w.bin", "wb") as file:
        file.truncate(size * count)
        for index in range(count):  # one element of each row 3, the rest is a hole
            file.seek(index * size + 3 * columns * 4)
            file.write(np.float32(index + 1).tobytes())
    weights = []
    for index in range(count):
        tensor = TensorProto(name=f"W{index}", data_type=TensorProto.FLOAT, dims=[rows, columns], data_location=1)
        for key, value in (("location", "w.bin"), ("offset", str(index * size)), ("length", str(size))):
            tensor.external_data.add(key=key, value=value)
        weights.append(tensor)
    nodes = [helper.make_node("Gather", [f"W{index}", "row"], [f"g{index}"]) for index in range(count)]
    nodes.append(helper.make_node("Sum", [f"g{index}" for index in range(count)], ["y"]))
    graph = helper.make_graph(
        nodes,
        "large",
        [helper.make_tensor_value_info("row", TensorProto.INT64, [1])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, columns])],
        weights,
    )
    opsets = [helper.make_opsetid("", onnx_models.OPSET)]
    onnx.save(helper.make_model(graph, ir_version=onnx_models.IR_VERSION, opset_imports=opsets), tmp_path / "m.onnx")
    source = runtime.load_model(tmp_path / "m.onnx")
    runtime.create_cpu_target().compile_to_file(source, tmp_path / "out.onnx")
    (made,) = set(os.listdir(tmp_path)) - {"m.onnx", "w.bin", "out.onnx"}
    assert (tmp_path / made).stat().st_size == size * count
    (result,) = results(runtime, runtime.load_model(tmp_path / "out.onnx"), row=np.array([3]))
    assert np.frombuffer(result, np.float32)[:2].tolist() == [105, 0]  # 1 + 2 + ... + 14


@pytest.mark.skipif(
    not os.environ.get("WINML_LITE_LARGE_FILES"),
    reason="maps 2.1 GB: set WINML_LITE_LARGE_FILES=1 to run it",
)
def test_a_tensor_of_more_than_2_gb_in_resources(runtime: Runtime, tmp_path: Path) -> None:
    count = 2**29 + 1
    with open(tmp_path / "w.bin", "wb") as file:
        file.truncate(count * 4)
    tensor = TensorProto(name="W", data_type=TensorProto.FLOAT, dims=[count], data_location=1)
    tensor.external_data.add(key="location", value="w.bin")
    graph = helper.make_graph(
        [helper.make_node("Gather", ["W", "row"], ["y"])],
        "large",
        [helper.make_tensor_value_info("row", TensorProto.INT64, [1])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1])],
        [tensor],
    )
    opsets = [helper.make_opsetid("", onnx_models.OPSET)]
    onnx_model = helper.make_model(graph, ir_version=onnx_models.IR_VERSION, opset_imports=opsets)
    onnx.save(onnx_model, tmp_path / "m.onnx")
    assert results(runtime, runtime.load_model(tmp_path / "m.onnx"), row=np.array([5])) == [bytes(4)]
    with open(tmp_path / "w.bin", "rb") as file:
        mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    data = onnx_model.SerializeToString()
    source = runtime.load_model_from_buffer(data, resources={"w.bin": mapped})
    del mapped
    assert results(runtime, source, row=np.array([5])) == [bytes(4)]
