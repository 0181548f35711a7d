"""From an artifact to a session: options, placement, external weights, failures (runtime 6.2, 15.2, 18; tensors 10)."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from pathlib import Path

import onnx
import pytest

from fakes.ort_stages import CPU, build, flat, step, tensor
from models import onnx_models
from winml_lite.errors import (
    E_INVALIDARG,
    FILE_CORRUPT,
    FILE_NOT_FOUND,
    MODULE_NOT_FOUND,
    NOT_FOUND,
    WinMLError,
)
from winml_lite.files.onnx import read_onnx
from winml_lite.files.ort import read_ort, read_ort_bytes
from winml_lite.native.backend import OrtOptions, Placement, StageExecutor, StageOptions, backend
from winml_lite.native.ort import library
from winml_lite.values import ExecutionTargetKind

pytestmark = pytest.mark.real


def build_file(path: Path) -> StageExecutor:
    return backend("ort").build_stage(read_onnx(str(path)), CPU, StageOptions())


def run_added(stage: StageExecutor) -> list[float]:
    """Run a stage that computes X + (10, 20) with X = (1, 2)."""
    stage.bind_input(0, tensor([1, 2]))
    stage.bind_output(0, None, True)
    stage.run()
    stage.commit()
    values: list[float] = stage.output(0).array().tolist()
    return values


def with_weights(folder: Path, location: str = "weights.bin") -> Path:
    model, payload = onnx_models.external_weights(location)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "weights.bin").write_bytes(payload)
    return onnx_models.save(model, folder / "model.onnx")


def test_engine_describes_itself() -> None:
    info = backend("ort").describe()
    assert info.problem is None
    assert info.version is not None and info.version.startswith("1.")
    assert info.path is not None and os.path.exists(info.path)


def test_r12_unknown_operator_fails_the_build(tmp_path: Path) -> None:
    path = onnx_models.save(onnx_models.badop(), tmp_path / "badop.onnx")
    with pytest.raises(WinMLError, match="NoSuchOperator") as caught:
        build_file(path)
    assert str(path) in str(caught.value)
    assert caught.value.context == "IWinMLPipelineBuilder.Build"


def test_s_lod_08_model_of_a_later_version() -> None:
    model = onnx_models.add()
    model.ir_version = 99
    with pytest.raises(WinMLError, match=r"99.*max supported IR version"):
        build(model)


def test_s_lod_09_graph_without_nodes() -> None:
    stage = build(onnx_models.pass_through())
    stage.bind_input(0, tensor([1, 2]))
    stage.bind_output(0, None, True)
    step(stage)
    assert flat(stage) == [1, 2]


def test_s_lod_05_any_path(tmp_path: Path) -> None:
    assert run_added(build_file(with_weights(tmp_path / "mödel dir ✓"))) == [11, 22]


def test_s_lod_07_weights_lie_beside_the_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = with_weights(tmp_path / "a")
    monkeypatch.chdir(tmp_path)
    assert run_added(build_file(path)) == [11, 22]


def test_s_lod_07_missing_weights_are_named(tmp_path: Path) -> None:
    path = with_weights(tmp_path)
    (tmp_path / "weights.bin").unlink()
    with pytest.raises(WinMLError, match=r"weights\.bin is missing") as caught:
        build_file(path)
    assert caught.value.hresult == FILE_NOT_FOUND


def test_truncated_weights_are_named(tmp_path: Path) -> None:
    path = with_weights(tmp_path)
    (tmp_path / "weights.bin").write_bytes(b"\0" * 7)
    with pytest.raises(WinMLError, match=r"weights\.bin has 7 bytes, 8 are needed") as caught:
        build_file(path)
    assert caught.value.hresult == FILE_CORRUPT


@pytest.mark.parametrize(
    "location", ["../weights.bin", "/etc/passwd", "a/../../weights.bin", "C:\\x", "..\\weights.bin"]
)
def test_s_lod_07_weights_outside_the_folder_are_refused(tmp_path: Path, location: str) -> None:
    path = with_weights(tmp_path / "model", location)
    with pytest.raises(WinMLError, match="leads out of the model's folder") as caught:
        build_file(path)
    assert caught.value.hresult == E_INVALIDARG


def test_raw_addresses_as_locations_are_refused() -> None:
    model, payload = onnx_models.external_weights("*/_ORT_MEM_ADDR_/*")
    with pytest.raises(WinMLError):
        build(model, resources={"*/_ORT_MEM_ADDR_/*": memoryview(payload)})


def test_r17_weights_from_resources() -> None:
    model, payload = onnx_models.external_weights()
    resources = {"weights.bin": memoryview(payload + b"more"), "unused": memoryview(b"x")}
    assert run_added(build(model, resources=resources)) == [11, 22]


def test_r17_missing_resource() -> None:
    model, _ = onnx_models.external_weights()
    with pytest.raises(WinMLError, match="pass resources") as caught:
        build(model)
    assert caught.value.hresult == NOT_FOUND


def test_short_resource() -> None:
    model, payload = onnx_models.external_weights()
    with pytest.raises(WinMLError, match="has 7 bytes, 8 are needed") as caught:
        build(model, resources={"weights.bin": memoryview(payload[:7])})
    assert caught.value.hresult == E_INVALIDARG


def test_r19_files_win_over_resources(tmp_path: Path) -> None:
    path = with_weights(tmp_path)
    artifact = read_onnx(str(path), {"weights.bin": memoryview(bytes(8))})
    assert run_added(backend("ort").build_stage(artifact, CPU, StageOptions())) == [11, 22]


def test_resource_stands_in_for_an_absent_file(tmp_path: Path) -> None:
    path = with_weights(tmp_path)
    payload = (tmp_path / "weights.bin").read_bytes()
    (tmp_path / "weights.bin").unlink()
    artifact = read_onnx(str(path), {"weights.bin": memoryview(payload)})
    assert run_added(backend("ort").build_stage(artifact, CPU, StageOptions())) == [11, 22]


def test_one_file_beside_the_model_and_one_resource(tmp_path: Path) -> None:
    model, payload = onnx_models.external_weights()
    second = onnx.TensorProto.FromString(model.graph.initializer[0].SerializeToString())
    second.name = "V"
    second.external_data[0].value = "absent.bin"
    model.graph.initializer.append(second)
    model.graph.node[0].input[0] = "V"
    (tmp_path / "weights.bin").write_bytes(payload)
    path = onnx_models.save(model, tmp_path / "model.onnx")
    artifact = read_onnx(str(path), {"absent.bin": memoryview(payload)})
    assert run_added(backend("ort").build_stage(artifact, CPU, StageOptions())) == [20, 40]


def test_ort_format_from_file_and_from_memory(tmp_path: Path) -> None:
    source = onnx_models.save(onnx_models.add(), tmp_path / "add.onnx")
    path = onnx_models.to_ort(source, tmp_path / "add.ort")
    for artifact in (read_ort(str(path)), read_ort_bytes(path.read_bytes())):
        stage = backend("ort").build_stage(artifact, CPU, StageOptions())
        stage.bind_input(1, tensor([10, 20]))
        assert run_added(stage) == [11, 22]


# Placement and options


def placement(kind: ExecutionTargetKind | None = None, provider: str | None = None) -> Placement:
    return Placement(kind, provider)


@pytest.mark.parametrize("kind", [ExecutionTargetKind.GPU, ExecutionTargetKind.NPU])
def test_r131_hardware_without_a_provider(kind: ExecutionTargetKind) -> None:
    if any(device.kind is kind for device in backend("ort").devices()):
        pytest.skip(f"this machine has a {kind.name} provider")
    with pytest.raises(WinMLError, match=r"available: .*CPUExecutionProvider \(CPU\)") as caught:
        build(onnx_models.add(), placement(kind))
    assert caught.value.hresult == NOT_FOUND


def test_r131_automatic_placement_without_a_gpu() -> None:
    stage = build(onnx_models.add(), placement())
    assert stage.target_kind in (ExecutionTargetKind.CPU, ExecutionTargetKind.GPU)


@pytest.mark.parametrize("name", ["CPUExecutionProvider", "cpuexecutionprovider"])
def test_r132_pinned_cpu_provider(name: str) -> None:
    stage = build(onnx_models.add(), placement(ExecutionTargetKind.CPU, name))
    assert (stage.provider_name, stage.target_kind) == ("CPUExecutionProvider", ExecutionTargetKind.CPU)


def test_r133_unknown_provider() -> None:
    with pytest.raises(WinMLError, match=r"'NoSuchProvider'.*available: .*CPUExecutionProvider") as caught:
        build(onnx_models.add(), placement(ExecutionTargetKind.CPU, "NoSuchProvider"))
    assert caught.value.hresult == NOT_FOUND


def test_r134_session_entries_and_threads() -> None:
    options = OrtOptions(
        thread_count=1, session_config=(("session.log_severity_level", "3"), ("session.intra_op.allow_spinning", "0"))
    )
    stage = build(onnx_models.add(), ort=options)
    stage.bind_input(1, tensor([10, 20]))
    assert run_added(stage) == [11, 22]


def test_bad_severity_is_refused() -> None:
    with pytest.raises(WinMLError) as caught:
        build(onnx_models.add(), ort=OrtOptions(session_config=(("session.log_severity_level", "9"),)))
    assert caught.value.hresult == E_INVALIDARG


def test_profiling_entry_writes_a_profile(tmp_path: Path) -> None:
    options = OrtOptions(session_config=(("session.enable_profiling", str(tmp_path / "profile")),))
    stage = build(onnx_models.add(), ort=options)
    stage.bind_input(1, tensor([10, 20]))
    run_added(stage)
    del stage
    assert list(tmp_path.glob("profile*"))


def test_native_warnings_go_to_logging(caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]) -> None:
    with caplog.at_level(logging.WARNING, "winml_lite.native"):
        stage = build(onnx_models.dyn1())
        stage.bind_input(0, tensor([[1, 2, 3]]))
        stage.bind_output(0, tensor([[0, 0, 0], [0, 0, 0]]), False)
        with pytest.raises(WinMLError):
            stage.run()
    assert any("onnxruntime" in record.getMessage() for record in caplog.records)
    assert capfd.readouterr() == ("", "")


# The library


@pytest.mark.parametrize(("version", "agreed"), [("1.22.0", 22), ("1.23.2", 23), ("1.24.0", 24), ("1.99.0", 24)])
def test_api_version(version: str, agreed: int) -> None:
    assert library.agreed_version(version, "x") == agreed


@pytest.mark.parametrize("version", ["1.21.1", "1.7.0", "nonsense"])
def test_too_old_library(version: str) -> None:
    with pytest.raises(WinMLError, match=f"x is version {version}.*pip install -U onnxruntime") as caught:
        library.agreed_version(version, "x")
    assert caught.value.hresult == MODULE_NOT_FOUND


PROGRAM = """
from winml_lite.errors import WinMLError
from winml_lite.files.artifact import OnnxArtifact

from winml_lite.native.backend import Placement, StageOptions, backend
print(backend("ort").describe().problem)
try:
    backend("ort").build_stage(OnnxArtifact((), (), "onnx", data=b""), Placement(), StageOptions())
except WinMLError as error:
    print("%08X" % error.hresult)
"""


@pytest.mark.parametrize("name", ["absent.so", "text.so"])
def test_library_that_cannot_be_loaded(tmp_path: Path, name: str) -> None:
    (tmp_path / "text.so").write_text("no library")
    environment = {**os.environ, "WINML_LITE_ORT_LIBRARY": str(tmp_path / name)}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], env=environment, capture_output=True, text=True, timeout=500, check=False
    )
    assert done.stderr == ""
    assert "pip install onnxruntime" in done.stdout
    assert name in done.stdout
    assert done.stdout.endswith("8007007E\n")


def test_artifact_of_another_engine_is_refused() -> None:
    with pytest.raises(TypeError):
        backend("ort").build_stage(object(), CPU, StageOptions())  # type: ignore[arg-type]
