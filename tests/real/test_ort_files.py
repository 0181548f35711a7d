"""What our walkers read is what ONNX Runtime sees: ports, order, and the state pairs of its own `.ort` files."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import onnx
import pytest

from models import onnx_models
from winml_lite.files.onnx import read_onnx
from winml_lite.files.ort import read_ort
from winml_lite.native.backend import Placement, StageOptions, backend
from winml_lite.values import ExecutionTargetKind

pytestmark = pytest.mark.real

BUILDERS = [
    onnx_models.add,
    onnx_models.two,
    onnx_models.dyn1,
    onnx_models.same_symbol,
    onnx_models.inc,
    onnx_models.pass_through,
    onnx_models.text_output,
    onnx_models.slow,
    onnx_models.grow,
    onnx_models.stat,
    onnx_models.sum_state,
    onnx_models.group_query_attention,
]


@pytest.mark.parametrize("build", BUILDERS)
def test_session_has_the_ports_that_were_read(build: Callable[[], onnx.ModelProto], tmp_path: Path) -> None:
    artifact = read_onnx(str(onnx_models.save(build(), tmp_path / "m.onnx")))
    stage = backend("ort").build_stage(artifact, Placement(ExecutionTargetKind.CPU), StageOptions())
    assert stage.inputs == tuple(port.descriptor for port in artifact.inputs)
    assert stage.outputs == tuple(port.descriptor for port in artifact.outputs)


@pytest.mark.parametrize("build", BUILDERS)
def test_both_formats_read_the_same(build: Callable[[], onnx.ModelProto], tmp_path: Path) -> None:
    source = onnx_models.save(build(), tmp_path / "m.onnx")
    before = read_onnx(str(source))
    after = read_ort(str(onnx_models.to_ort(source, tmp_path / "m.ort")))
    assert (after.inputs, after.outputs) == (before.inputs, before.outputs)
    assert after.shareable_pairs == before.shareable_pairs
    assert after.metadata["opset.ai.onnx"] == "21"
