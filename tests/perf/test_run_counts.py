"""What one `Pipeline.run` costs, in counts: calls into the engine, Python calls, memory that stays."""

from __future__ import annotations

import numpy as np
import pytest

from fakes.backend import FakeBackend, Script
from fakes.call_counts import calls_of
from fakes.model_files import ModelFiles
from fakes.rig import built, built_add
from fakes.traced_growth import traced_growth
from winml_lite import Runtime, TensorAccessMode, TensorDataType

pytestmark = pytest.mark.perf


def test_a_run_enters_three_functions_of_the_object_model(
    runtime: Runtime, files: ModelFiles, fake_ort: FakeBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, pipeline = built_add(runtime, files.onnx("add"))
    monkeypatch.setattr(fake_ort.executors[0], "run", lambda: None)
    assert calls_of(pipeline) == {"run": 1, "hold": 1, "execute": 1}


def test_runs_on_unchanged_bindings_bind_nothing(
    runtime: Runtime, files: ModelFiles, fake_ort: FakeBackend, script: Script
) -> None:
    _, pipeline = built_add(runtime, files.onnx("add"))
    binds = script.binds
    for _ in range(100):
        pipeline.run()
    assert (script.runs, script.commits, script.discards) == (100, 100, 0)
    assert script.binds == binds


def test_a_token_loop_keeps_no_memory(runtime: Runtime, files: ModelFiles, ort: None) -> None:
    stage, pipeline = built(runtime, files.onnx("add"))
    first, second, result = (np.zeros(2, np.float32) for _ in range(3))
    access = TensorAccessMode.READWRITE

    def step() -> None:
        stage.bind_input(1, runtime.tensor_from_buffer(second, TensorDataType.FLOAT32, (2,), access=access))
        pipeline.run()

    stage.bind_input(0, runtime.tensor_from_buffer(first, TensorDataType.FLOAT32, (2,), access=access))
    stage.bind_output(0, runtime.tensor_from_buffer(result, TensorDataType.FLOAT32, (2,), access=access))
    for _ in range(3000):  # the interpreter keeps up to 2,000 freed tuples of each length
        step()
    assert traced_growth(step, 2000) < 4096
