"""Execution providers that are libraries of their own, shown with a real one that computes on the CPU (`ggml`)."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import genai
from fakes.c_libraries import compiled
from fakes.ggml_provider import OPTIONS, ggml_library
from fakes.model_files import ModelFiles
from fakes.rig import failing
from genai import Tokenizer
from genai.model_folder import declare_state, wire_decoder
from genai.tasks import Tasks, TextGenerationOutputKind
from models import onnx_models, recipes
from winml_lite import (
    ExecutionTargetKind,
    Pipeline,
    ResourceDescriptor,
    Runtime,
    Stage,
    TensorAccessMode,
    TensorDataType,
    WinMLError,
)

pytestmark = [pytest.mark.real, pytest.mark.usefixtures("ggml")]

CPU, GPU = ExecutionTargetKind.CPU, ExecutionTargetKind.GPU
CPU_PROVIDER = "CPUExecutionProvider"
READWRITE = TensorAccessMode.READWRITE
SENTENCE = "Paris is the capital of France, a city with good café and museums."
ASKED = "<|im_start|>user\nWhat?<|im_end|>\n<|im_start|>assistant\n"


def built(
    runtime: Runtime,
    model: onnx.ModelProto,
    provider: str = "ggml",
    kind: ExecutionTargetKind = CPU,
    options: Mapping[str, str] | None = None,
    config: Mapping[str, str] | None = None,
) -> tuple[Stage, Pipeline]:
    """A stage that is pinned to a provider."""
    builder = runtime.create_pipeline_builder()
    target = runtime.create_ort_execution_target(provider, kind)
    stage = builder.add_model_stage(runtime.load_model_from_buffer(model.SerializeToString()), target)
    stage.ort_options().set_provider_options(options or {})
    stage.ort_options().set_session_config_entries(config or {})
    return stage, builder.build()


def graph(*nodes: onnx.NodeProto, shape: tuple[int, ...] = (2, 2), kind: int = TensorProto.FLOAT) -> onnx.ModelProto:
    """A graph from `x` to `y`, both of one shape."""
    ports = [[helper.make_tensor_value_info(name, kind, shape)] for name in "xy"]
    return helper.make_model(
        helper.make_graph(list(nodes), "g", *ports), opset_imports=[helper.make_opsetid("", 18)], ir_version=9
    )


ONE_OF_TWO = graph(helper.make_node("Add", ["x", "x"], ["a"]), helper.make_node("Hardmax", ["a"], ["y"]))
"""`ggml` has Add and no Hardmax; unless it is told to, it takes a graph whole or not at all."""
TEXTS = graph(helper.make_node("Identity", ["x"], ["y"]), shape=(2,), kind=TensorProto.STRING)


# Registration


def test_a_registered_provider_is_listed(runtime: Runtime) -> None:
    (cpu,) = (device for device in runtime.enumerate_devices() if device.kind is CPU)
    assert cpu.providers == (CPU_PROVIDER, "ggml")


def test_the_same_library_again_changes_nothing(runtime: Runtime) -> None:
    assert runtime.register_execution_provider("ggml", str(ggml_library())) == ("ggml",)
    assert runtime.enumerate_devices()[0].providers == (CPU_PROVIDER, "ggml")


def test_a_name_in_use_stays_with_its_library(runtime: Runtime, tmp_path: Path) -> None:
    other = tmp_path / "other.so"
    other.write_bytes(b"")
    with failing(0x80070057) as caught:
        runtime.register_execution_provider("ggml", other)
    assert str(ggml_library()) in str(caught.value)
    with failing(0x80070057) as caught:
        runtime.register_execution_provider(CPU_PROVIDER, ggml_library())
    assert "is a provider of ONNX Runtime itself" in str(caught.value)


def test_what_is_no_provider_library(runtime: Runtime, tmp_path: Path) -> None:
    (tmp_path / "text.so").write_text("no library")
    with failing(0x8007007E) as caught:
        runtime.register_execution_provider("text", tmp_path / "text.so")
    assert "gets no execution provider from" in str(caught.value)
    assert "text.so: " in str(caught.value)


def test_a_library_without_factories(runtime: Runtime) -> None:
    import _ctypes  # an extension module is a library that loads

    if not getattr(_ctypes, "__file__", None):
        pytest.skip("this Python has its extension modules built in")
    with failing(0x8007007E) as caught:
        runtime.register_execution_provider("none", _ctypes.__file__)
    assert "CreateEpFactories" in str(caught.value)


def test_what_is_no_file(runtime: Runtime, tmp_path: Path) -> None:
    with failing(0x80070002):
        runtime.register_execution_provider("absent", tmp_path / "absent.so")
    with failing(0x80070003):
        runtime.register_execution_provider("absent", tmp_path / "no folder" / "absent.so")
    with failing(0x80070057):
        runtime.register_execution_provider("folder", tmp_path)


@pytest.mark.parametrize(("name", "path"), [("", "x.so"), ("a\0b", "x.so"), (3, "x.so"), ("x", 3)])
def test_arguments_of_a_registration(runtime: Runtime, name: str, path: str) -> None:
    with pytest.raises(ValueError):
        runtime.register_execution_provider(name, path)


def test_a_closed_runtime_registers_nothing() -> None:
    runtime = Runtime()
    runtime.close()
    with pytest.raises(RuntimeError, match="closed"):
        runtime.register_execution_provider("ggml", ggml_library())


# Installed packages

PROGRAM = """
import sys
from winml_lite import ExecutionTargetKind, Runtime, WinMLError
runtime = Runtime()
print(runtime.enumerate_devices()[0].providers)
builder = runtime.create_pipeline_builder()
builder.add_model_stage(
    runtime.load_model(sys.argv[1]), runtime.create_ort_execution_target("absent", ExecutionTargetKind.CPU)
)
try:
    builder.build()
except WinMLError as error:
    print("%08X" % error.hresult, error.native_message)
"""


def test_installed_packages_are_found(files: ModelFiles, tmp_path: Path) -> None:
    for name, path in (("good", str(ggml_library())), ("bad", "nowhere.so")):
        folder = tmp_path / f"onnxruntime_ep_{name}"
        folder.mkdir()
        lines = f"def get_library_path(): return {path!r}", f"def get_ep_names(): return ['tiny_{name}']"
        (folder / "__init__.py").write_text("\n".join(lines))
    program = f"import sys; sys.path.append({str(tmp_path)!r})\n{PROGRAM}"
    done = subprocess.run(
        [sys.executable, "-c", program, files.onnx("add")], capture_output=True, text=True, check=True, timeout=500
    )
    listed, refusal = done.stdout.splitlines()
    assert listed == "('CPUExecutionProvider', 'tiny_good')"
    assert refusal.startswith("80070490")
    assert "available: CPUExecutionProvider (CPU), tiny_good (CPU)" in refusal
    assert "the installed package onnxruntime_ep_bad cannot be used" in refusal


def test_a_package_that_ends_the_program_does_not(files: ModelFiles, tmp_path: Path) -> None:
    folder = tmp_path / "onnxruntime_ep_ending"
    folder.mkdir()
    (folder / "__init__.py").write_text("raise SystemExit(3)")
    program = f"import sys; sys.path.append({str(tmp_path)!r})\n{PROGRAM}"
    done = subprocess.run(
        [sys.executable, "-c", program, files.onnx("add")], capture_output=True, text=True, check=True, timeout=500
    )
    assert "the installed package onnxruntime_ep_ending cannot be used: SystemExit: 3" in done.stdout


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="pipes of POSIX")
def test_a_pipe_is_not_waited_for(runtime: Runtime, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.so")
    with failing(0x80070057):
        runtime.register_execution_provider("pipe", tmp_path / "pipe.so")


IDLE = """
import sys
from winml_lite import ExecutionTargetKind, Runtime, WinMLError
runtime = Runtime()
print(runtime.register_execution_provider("idle", sys.argv[2]))
builder = runtime.create_pipeline_builder()
target = runtime.create_ort_execution_target("IdleProvider", ExecutionTargetKind.GPU)
builder.add_model_stage(runtime.load_model(sys.argv[1]), target)
try:
    builder.build()
except WinMLError as error:
    print("%08X" % error.hresult, error.native_message)
"""


def test_s_plc_01_a_provider_without_its_hardware(files: ModelFiles, tmp_path: Path) -> None:
    arguments = [sys.executable, "-c", IDLE, files.onnx("add"), str(compiled("idle_provider", tmp_path))]
    done = subprocess.run(arguments, capture_output=True, text=True, check=True, timeout=500)
    found, refusal = done.stdout.splitlines()
    assert found == "()"
    assert refusal.startswith("80070490")
    assert "execution provider 'IdleProvider' with a GPU device was not found" in refusal
    assert "idle_provider.so) is registered, but finds no hardware here that it can use" in refusal


def test_problems_of_providers(tmp_path: Path) -> None:
    program = """if True:
        import sys
        from winml_lite import Runtime
        runtime = Runtime()
        runtime.register_execution_provider("idle", sys.argv[1])
        print(*runtime.provider_problems(), sep="\\n")
    """
    library = str(compiled("idle_provider", tmp_path))
    done = subprocess.run([sys.executable, "-c", program, library], capture_output=True, text=True, timeout=500)
    assert done.stdout == f"idle ({library}) is registered, but finds no hardware here that it can use\n", done.stderr


def test_a_provider_compiles_fixed_extents_only(runtime: Runtime, files: ModelFiles, tmp_path: Path) -> None:
    compiler = runtime.create_ort_execution_target("ggml", CPU).model_compiler()
    with failing(0x80070057) as caught:
        compiler.compile_to_file(runtime.load_model(files.onnx("dense")), tmp_path / "out.onnx")
    assert "symbolic_dimensions['batch']" in str(caught.value)
    assert os.listdir(tmp_path) == []


# Pins


def test_r134_a_pinned_stage_computes_there(runtime: Runtime) -> None:
    stage, pipeline = built(runtime, onnx_models.add())
    for index, values in enumerate(([1, 2], [10, 20])):
        stage.bind_input(index, runtime.tensor_from_numpy(np.array(values, np.float32)))
    stage.request_output(0)
    pipeline.run()
    assert stage.output(0).to_numpy().tolist() == [11, 22]
    diagnostics = stage.ort_diagnostics()
    assert (diagnostics.requested_provider, diagnostics.selected_provider) == ("ggml", "ggml")
    assert diagnostics.is_provider_pinned is True
    assert diagnostics.node_counts == {"ggml": 1}
    assert stage.execution_target.kind is CPU


def test_names_of_providers_ignore_case(runtime: Runtime) -> None:
    diagnostics = built(runtime, onnx_models.add(), "GGML")[0].ort_diagnostics()
    assert (diagnostics.requested_provider, diagnostics.selected_provider) == ("ggml", "ggml")


def test_r133_t85_a_provider_that_is_not_registered(runtime: Runtime) -> None:
    with failing(0x80070490) as caught:
        built(runtime, onnx_models.add(), "unregistered")
    assert "execution provider 'unregistered' with a CPU device was not found" in str(caught.value)
    assert "available: CPUExecutionProvider (CPU), ggml (CPU)" in str(caught.value)


def test_r133_a_provider_without_such_a_device(runtime: Runtime) -> None:
    with failing(0x80070490) as caught:
        built(runtime, onnx_models.add(), "ggml", GPU)
    assert "execution provider 'ggml' with a GPU device was not found" in str(caught.value)


def test_a_provider_that_cannot_take_the_graph(runtime: Runtime) -> None:
    with failing(0x80004001) as caught:
        built(runtime, TEXTS)
    assert "ggml on the CPU: unsupported: tensor element type 8" in str(caught.value)


def test_an_option_that_the_provider_cannot_meet(runtime: Runtime) -> None:
    with failing(0x8007054F) as caught:
        built(runtime, onnx_models.add(), options={"device": "gpu"})
    assert "ggml on the CPU" in str(caught.value)
    assert "no gpu backend is available" in str(caught.value)


def test_operators_that_the_provider_lacks_run_on_the_cpu(runtime: Runtime) -> None:
    stage, pipeline = built(runtime, ONE_OF_TWO, options={"partial": "1"})
    assert stage.ort_diagnostics().node_counts == {"ggml": 1, CPU_PROVIDER: 1}
    stage.bind_input(0, runtime.tensor_from_numpy(np.array([[1, 2], [3, -3]], np.float32)))
    stage.request_output(0)
    pipeline.run()
    assert stage.output(0).to_numpy().tolist() == [[0, 1], [1, 0]]


def test_a_provider_that_declines_everything_is_said(runtime: Runtime, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "winml_lite.native"):
        stage, _ = built(runtime, ONE_OF_TWO)
    assert stage.ort_diagnostics().node_counts == {CPU_PROVIDER: 2}
    assert "ggml is pinned, but it took none of the 2 operators of the graph" in caplog.text


def test_operators_on_the_cpu_can_be_forbidden(runtime: Runtime) -> None:
    forbidden = {"session.disable_cpu_ep_fallback": "1"}
    for options in ({}, {"partial": "1"}):
        with failing(0x80004005) as caught:
            built(runtime, ONE_OF_TWO, options=options, config=forbidden)
        assert "ggml on the CPU" in str(caught.value)
    assert built(runtime, onnx_models.add(), config=forbidden)[0].ort_diagnostics().node_counts == {"ggml": 1}


def test_what_is_written_between_runs_is_read_whatever_the_provider_copies_when_it_is_bound(
    runtime: Runtime, monkeypatch: pytest.MonkeyPatch
) -> None:
    from winml_lite.native.ort import api

    def refuse(*arguments: object) -> None:
        pytest.fail("a provider may copy what is bound, and would not see what is written to it later")

    monkeypatch.setattr(api, "BindInput", refuse)
    stage, pipeline = built(runtime, onnx_models.add())
    x, y = np.ones(2, np.float32), np.zeros(2, np.float32)
    for index in range(2):
        stage.bind_input(index, runtime.tensor_from_buffer(x, TensorDataType.FLOAT32, (2,), access=READWRITE))
    stage.bind_output(0, runtime.tensor_from_buffer(y, TensorDataType.FLOAT32, (2,), access=READWRITE))
    pipeline.run()
    x[:] = [3, 4]
    pipeline.run()
    assert y.tolist() == [6, 8]


def test_stages_of_two_providers_in_one_pipeline(runtime: Runtime) -> None:
    builder = runtime.create_pipeline_builder()
    model = runtime.load_model_from_buffer(onnx_models.inc().SerializeToString())
    pins = [runtime.create_ort_execution_target(name, CPU) for name in ("ggml", CPU_PROVIDER)]
    first, second = (builder.add_model_stage(model, target) for target in pins)
    builder.connect(first, 0, second, 0)
    pipeline = builder.build()
    first.bind_input(0, runtime.tensor_from_numpy(np.array([5])))
    second.request_output(0)
    pipeline.run()
    assert second.output(0).to_numpy().tolist() == [7]
    assert [stage.ort_diagnostics().node_counts for stage in (first, second)] == [{"ggml": 1}, {CPU_PROVIDER: 1}]


def test_t82_a_shared_group_of_one_provider(runtime: Runtime) -> None:
    builder = runtime.create_pipeline_builder()
    model = runtime.load_model_from_buffer(onnx_models.add().SerializeToString())
    target = runtime.create_ort_execution_target("ggml", CPU)
    stages = [builder.add_model_stage(model, target) for _ in range(2)]
    for stage in stages:
        stage.ort_options().set_shared_context_group("weights")
    stages[1].ort_options().set_provider_option("threads", "1")
    with failing(0x80070057):
        builder.build()
    stages[0].ort_options().set_provider_option("threads", "1")
    builder.build()
    assert stages[0].ort_diagnostics().node_counts == {"ggml": 1}


def test_dimensions_are_fixed_for_the_provider(runtime: Runtime) -> None:
    builder = runtime.create_pipeline_builder()
    model = runtime.load_model_from_buffer(onnx_models.dyn1().SerializeToString())
    stage = builder.add_model_stage(model, runtime.create_ort_execution_target("ggml", CPU))
    stage.symbolic_dimensions["N"] = 2
    pipeline = builder.build()
    assert stage.schema().input_desc(0)[1] == (2, 3)
    bindings = stage.ort_bindings()
    bindings.bind_input("X", runtime.tensor_from_numpy(np.ones((2, 3), np.float32)))
    stage.request_output(0)
    pipeline.run()
    assert bindings.output("Y").to_numpy().shape == (2, 3)


def test_a_provider_that_compiles_nothing_ahead_of_time(files: ModelFiles, runtime: Runtime, tmp_path: Path) -> None:
    target = runtime.create_ort_execution_target("ggml", CPU)
    with failing(0x80070032) as caught:
        target.compile_to_file(runtime.load_model(files.onnx("add")), tmp_path / "compiled.onnx")
    assert "ggml compiles nothing ahead of time" in str(caught.value)
    assert list(tmp_path.iterdir()) == []


# Models that a provider has compiled


def test_t79_a_compiled_model_pins_its_provider(runtime: Runtime) -> None:
    model = runtime.load_model_from_buffer(onnx_models.ep_context("GGML").SerializeToString())
    for target in (None, runtime.create_cpu_target()):
        builder = runtime.create_pipeline_builder()
        builder.add_model_stage(model, target).ort_options().set_provider_option("threads", "1")
        with pytest.raises(WinMLError) as caught:  # of the provider, which compiles nothing
            builder.build()
        assert "ggml on the CPU: " in str(caught.value)


def test_a_compiled_model_names_its_provider_in_short(runtime: Runtime) -> None:
    model = runtime.load_model_from_buffer(onnx_models.ep_context("CPU").SerializeToString())
    builder = runtime.create_pipeline_builder()
    builder.add_model_stage(model).ort_options().set_provider_option("a", "1")
    with pytest.raises(WinMLError) as caught:
        builder.build()
    assert "EPContext" in str(caught.value)


@pytest.mark.parametrize("kind", [None, CPU])
def test_a_compiled_model_runs_nowhere_else(runtime: Runtime, kind: ExecutionTargetKind | None) -> None:
    model = runtime.load_model_from_buffer(onnx_models.ep_context("SomeProvider").SerializeToString())
    builder = runtime.create_pipeline_builder()
    builder.add_model_stage(model, None if kind is None else runtime.create_target(kind))
    with failing(0x80070490) as caught:
        builder.build()
    assert "SomeProvider has compiled this model, and nothing else runs it" in str(caught.value)
    assert "ggml (CPU)" in str(caught.value)


def test_a_compilation_has_provider_options(files: ModelFiles, runtime: Runtime, tmp_path: Path) -> None:
    compiler = runtime.create_ort_execution_target("ggml", CPU).model_compiler()
    options = compiler.create_options()
    options.set_provider_option("device", "gpu")
    with failing(0x8007054F) as caught:
        compiler.compile_to_file(runtime.load_model(files.onnx("add")), tmp_path / "out.onnx", options=options)
    assert "ggml on the CPU: " in str(caught.value)
    assert "no gpu backend is available" in str(caught.value)


def test_a_sink_of_a_provider_is_refused_before_free_extents(files: ModelFiles, runtime: Runtime) -> None:
    class Sink:
        def write_artifact_bytes(self, data: memoryview) -> None: ...
        def begin_resource(self, key: str, descriptor: ResourceDescriptor) -> None: ...
        def write_resource_bytes(self, key: str, data: memoryview) -> None: ...
        def end_resource(self, key: str) -> None: ...

    compiler = runtime.create_ort_execution_target("ggml", CPU).model_compiler()
    with failing(0x80070032) as caught:
        compiler.compile_to_sink(runtime.load_model(files.onnx("dyn1")), Sink())
    assert "use compile_to_file" in str(caught.value)


EXIT = """
import sys
import numpy as np
from winml_lite import ExecutionTargetKind, Runtime
runtime = Runtime()
runtime.register_execution_provider("ggml", sys.argv[2])
builder = runtime.create_pipeline_builder()
target = runtime.create_ort_execution_target("ggml", ExecutionTargetKind.CPU)
stage = builder.add_model_stage(runtime.load_model(sys.argv[1]), target)
pipeline = builder.build()
for index in range(2):
    stage.bind_input(index, runtime.tensor_from_numpy(np.ones(2, np.float32)))
stage.request_output(0)
pipeline.run()
print(stage.output(0).to_numpy().tolist())
"""


def test_a_program_may_end_with_a_provider_in_use(files: ModelFiles) -> None:
    arguments = [sys.executable, "-c", EXIT, files.onnx("add"), str(ggml_library())]
    done = subprocess.run(arguments, capture_output=True, text=True, timeout=500)
    assert (done.returncode, done.stdout) == (0, "[2.0, 2.0]\n")


# Decoders


@pytest.mark.parametrize(
    ("form", "counts"), [("plain", {"ggml": 152}), ("std", {CPU_PROVIDER: 72}), ("gqa", {CPU_PROVIDER: 37})]
)
def test_a_pinned_decoder_says_its_sentence(
    files: ModelFiles, runtime: Runtime, form: str, counts: dict[str, int]
) -> None:
    folder = recipes.scripted_onnx(files.folder, form)
    with runtime.load_model(folder / "model.onnx") as model:
        wiring = wire_decoder(model, folder / "model.onnx")
        builder = runtime.create_pipeline_builder()
        stage = builder.add_model_stage(model, runtime.create_ort_execution_target("ggml", CPU))
    declare_state(stage, wiring, None)
    stage.set_sequence_capacity_hint(128)
    with Tasks(runtime) as tasks, Tokenizer.from_file(folder) as tokenizer:
        configuration = tasks.create_text_generation_configuration()
        configuration.configure_unified(
            pipeline=builder.build(),
            token_input_stage=stage,
            token_input_index=wiring.token_input,
            output_stage=stage,
            output_index=wiring.logits_output,
            output_kind=TextGenerationOutputKind.LOGITS,
            state_owner_stage=stage,
            token_target=runtime.create_cpu_target(),
            tokenizer=tokenizer,
        )
        session = tasks.create_text_generation_task(tokenizer).create_session(configuration)
        assert session.generate(ASKED).text == SENTENCE
    diagnostics = stage.ort_diagnostics()
    assert (diagnostics.requested_provider, diagnostics.selected_provider) == ("ggml", "ggml")
    assert diagnostics.node_counts == counts


def test_a_model_of_a_provider(files: ModelFiles) -> None:
    folder = recipes.scripted_onnx(files.folder, "plain")
    with genai.load(folder, provider="ggml", provider_options={"threads": "1"}) as model:
        assert (model.engine, model.target, model.provider) == ("ONNX Runtime", CPU, "ggml")
        chat = model.chat()
        assert chat.send("What?").text == SENTENCE
        assert "".join(chat.stream("Where?")) == SENTENCE
    with genai.load(folder) as model:
        assert (model.target, model.provider) == (CPU, CPU_PROVIDER)


@pytest.mark.parametrize("form", ["std", "gqa"])
def test_s_plc_04_a_model_of_which_the_provider_takes_nothing(files: ModelFiles, form: str) -> None:
    with failing(0x80070032) as caught:
        genai.load(recipes.scripted_onnx(files.folder, form), provider="ggml")
    assert "the provider ggml took none of the" in str(caught.value)


def test_a_model_in_three_graphs_of_a_provider(files: ModelFiles) -> None:
    folder = recipes.scripted_pipeline(files.folder)
    with genai.load(folder, provider="ggml") as model:  # which takes the embedding
        assert "".join(model.stream(ASKED)) == SENTENCE
    with failing(0x80070490) as caught:
        genai.load(folder, provider="absent")
    assert "'absent'" in str(caught.value)


def test_smollm2_says_the_same_on_both_providers(smollm2_f32: Path) -> None:
    answers = []
    for provider, options in (("ggml", OPTIONS), (CPU_PROVIDER, None)):
        with genai.load(smollm2_f32, provider=provider, provider_options=options, context_length=128) as model:
            assert model.provider == provider
            answers.append(model.generate("Once upon a time", max_new_tokens=30, temperature=0).token_ids)
    assert len(answers[0]) == 30
    assert answers[0] == answers[1]
