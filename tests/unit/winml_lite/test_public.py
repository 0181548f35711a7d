"""The package root: lazy names."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import winml_lite
from fakes.backend import FakeBackend
from models.onnx_models import add, save


def test_an_unknown_name() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'Device'"):
        _ = winml_lite.Device


@pytest.mark.parametrize("name", winml_lite.__all__)
def test_every_name_is_there(name: str) -> None:
    assert getattr(winml_lite, name).__name__ == name


def test_dir_lists_the_public_names() -> None:
    assert dir(winml_lite) == sorted(winml_lite.__all__)


def test_the_main_objects_show_what_they_are(tmp_path: Path, fake_ort: FakeBackend) -> None:
    path = save(add(), tmp_path / "add.onnx")
    with winml_lite.Runtime() as runtime:
        model = runtime.load_model(path)
        assert repr(model) == f"<Model for ONNX Runtime from {path}>"
        assert repr(runtime.load_model_from_buffer(path.read_bytes())) == "<Model for ONNX Runtime from a buffer>"
        builder = runtime.create_pipeline_builder()
        stage = builder.add_model_stage(model, None, "sum")
        assert repr(stage) == "<Stage 'sum' on ONNX Runtime, not built>"
        pipeline = builder.build()
        assert repr(stage) == "<Stage 'sum' on ONNX Runtime, built>"
        assert repr(pipeline) == "<Pipeline of 'sum'>"
        tensor = runtime.tensor_from_numpy(np.zeros((2, 3), np.float32))
        assert repr(tensor) == "<Tensor FLOAT32 [2, 3]>"
        closed = []
        for part in (tensor, stage, pipeline, model):
            part.close()
            closed.append(repr(part))
    assert closed == ["<Tensor (closed)>", "<Stage (closed)>", "<Pipeline (closed)>", "<Model (closed)>"]


def test_no_submodule_has_the_name_of_what_the_package_offers() -> None:
    folder = Path(winml_lite.__file__).parent
    assert {path.stem for path in folder.glob("*.py")} & set(winml_lite.__all__) == set()


def test_a_name_costs_only_its_module() -> None:
    code = "import sys; from winml_lite import WinMLError, TensorDataType; assert 'numpy' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize("kind", [winml_lite.Model, winml_lite.Pipeline, winml_lite.ExecutionTarget])
@pytest.mark.parametrize("argument", ["model.onnx", [1], winml_lite.ExecutionTargetKind.CPU])
def test_classes_are_not_called_by_the_user(kind: Any, argument: object) -> None:
    with pytest.raises(TypeError, match="objects come from a Runtime"):
        kind(argument)


def test_mistakes_are_answered_with_the_way_to_do_it(tmp_path: Path, fake_ort: FakeBackend) -> None:
    runtime: Any = winml_lite.Runtime()
    builder = runtime.create_pipeline_builder()
    with pytest.raises(TypeError, match=r"runtime\.load_model"):
        builder.add_model_stage("model.onnx")
    with pytest.raises(TypeError, match=r"runtime\.create_processor"):
        builder.add_processor_stage(abs)
    stage = builder.add_model_stage(runtime.load_model(save(add(), tmp_path / "add.onnx")))
    assert repr(builder) == "<PipelineBuilder of 1 stages, not built>"
    with pytest.raises(TypeError, match="create_cpu_target"):
        builder.add_model_stage(runtime.load_model(tmp_path / "add.onnx"), "cpu")
    with pytest.raises(TypeError, match="finds the position of a name"):
        stage.bind_input("x", runtime.tensor_from_numpy([1.0]))
    with pytest.raises(TypeError, match=r"runtime\.tensor_from_numpy"):
        stage.bind_input(0, [1.0])
