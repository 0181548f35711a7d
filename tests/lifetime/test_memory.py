"""Memory comes back when models are closed (case S-LIF-04)."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
from onnx import TensorProto, helper, numpy_helper

from models import onnx_models

ROOT = Path(__file__).resolve().parents[2]
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
