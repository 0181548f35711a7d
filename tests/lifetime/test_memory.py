"""Memory comes back when models are closed (case S-LIF-04)."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
from onnx import TensorProto, helper, numpy_helper

from fakes.model_files import ModelFiles
from models import onnx_models

ROOT = Path(__file__).resolve().parents[2]
# Several arenas of the C library keep what other threads have freed, in amounts that change from window to window.
ONE_ARENA = {"MALLOC_ARENA_MAX": "1"}
# The C library of Linux keeps large freed blocks once it has learnt their size; with a fixed threshold it does not.
RETURN_AT_ONCE = {"MALLOC_MMAP_THRESHOLD_": "262144"}
PROGRAM = """
import gc, sys
import numpy as np, psutil
from winml_lite import Runtime

gc.disable()
process = psutil.Process()

def once():
    with Runtime() as runtime, runtime.load_model(sys.argv[1]) as model:
        with runtime.create_pipeline_builder() as builder, builder.add_model_stage(model) as stage:
            stage.bind_input(0, runtime.tensor_from_numpy(np.ones(1, np.float32)))
            stage.request_output(0)
            with builder.build() as pipeline:
                pipeline.run()
                assert stage.output(0).to_numpy()[-1] == 8

sizes = []
for _ in range(200):
    once()
    sizes.append(process.memory_info().rss)
# The allocator keeps a freed block now and then, so the smallest size of a while is what counts.
print(min(sizes[170:]) - min(sizes[20:50]))
"""


def heavy_model(path: Path) -> Path:
    """`Y[N] = X[1] + W[N]` with 4 MB of weights."""
    weight = numpy_helper.from_array(np.full(1_000_000, 7, np.float32), "W")
    graph = helper.make_graph(
        [helper.make_node("Add", ["X", "W"], ["Y"])],
        "graph",
        [helper.make_tensor_value_info("X", TensorProto.FLOAT, [1])],
        [helper.make_tensor_value_info("Y", TensorProto.FLOAT, [1_000_000])],
        [weight],
    )
    model = helper.make_model(graph, ir_version=onnx_models.IR_VERSION, opset_imports=[helper.make_opsetid("", 21)])
    return onnx_models.save(model, path)


def test_s_lif_04_loading_and_closing_200_times_keeps_no_memory(ort: None, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(heavy_model(tmp_path / "heavy.onnx"))],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "PYTHONPATH": str(ROOT), **RETURN_AT_ONCE},
    )
    assert int(done.stdout) < 8_000_000


def measured(program: str, files: ModelFiles, engine: str) -> float:
    """Run a program of `memory_programs.py` and return what it prints: bytes."""
    path = files.onnx("add") if engine == "ort" else files.gguf
    done = subprocess.run(
        [sys.executable, str(Path(__file__).with_name("memory_programs.py")), program, path, engine],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
        env={**os.environ, "PYTHONPATH": str(ROOT), **ONE_ARENA},
    )
    assert (done.returncode, done.stderr) == (0, "")
    return float(done.stdout)


def test_s_lif_04_a_thousand_cycles_keep_less_than_half_a_kib_each(files: ModelFiles, engine: str) -> None:
    assert measured("cycles", files, engine) < 512


def test_s_lif_04_ten_thousand_runs_keep_less_than_a_mib(files: ModelFiles, engine: str) -> None:
    assert measured("runs", files, engine) < 1 << 20


def test_s_lif_04_ten_thousand_submissions_keep_less_than_a_mib(files: ModelFiles, engine: str) -> None:
    assert measured("submissions", files, engine) < 1 << 20


def test_s_lif_04_ten_thousand_speculative_steps_keep_less_than_a_mib(files: ModelFiles, llama: None) -> None:
    assert measured("speculation", files, "llama") < 1 << 20


def test_s_lif_04_ten_thousand_runs_of_a_processor_keep_less_than_a_mib(files: ModelFiles, ort: None) -> None:
    assert measured("processors", files, "ort") < 1 << 20
