"""Saving a state holds no second copy of it, and loading none but the one that stays."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto, helper

from fakes.rig import built
from winml_lite import Runtime

pytestmark = pytest.mark.usefixtures("ort")
POSITION_BYTES = 64 * 256 * 4
STATE_BYTES = 256 * POSITION_BYTES  # 16 MiB
WORK_BYTES = 3 << 20
"""Pieces that are read and digested, and small things."""


def growing(path: Path) -> str:
    """A graph whose state is everything it was given."""
    shape, past = [1, 64, "n", 256], [1, 64, "past", 256]
    nodes = [helper.make_node("Concat", ["past", "x"], ["present"], axis=2)]
    inputs = [helper.make_tensor_value_info(name, TensorProto.FLOAT, s) for name, s in (("x", shape), ("past", past))]
    outputs = [helper.make_tensor_value_info("present", TensorProto.FLOAT, [1, 64, "all", 256])]
    graph = helper.make_graph(nodes, "growing", inputs, outputs)
    model = helper.make_model(graph, ir_version=10, opset_imports=[helper.make_opsetid("", 21)])
    path.write_bytes(model.SerializeToString())
    return str(path)


def peak(work: Callable[[], object]) -> int:
    """Bytes that `work` held at most beyond what was there."""
    tracemalloc.start()
    try:
        work()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_a_state_is_streamed(runtime: Runtime, tmp_path: Path) -> None:
    stage, pipeline = built(runtime, growing(tmp_path / "growing.onnx"), (1, 0))
    stage.bind_input(0, runtime.tensor_from_numpy(np.ones((1, 64, 256, 256), np.float32)))
    pipeline.run()
    path = tmp_path / "sequence.state"
    assert peak(lambda: stage.save_sequence_state(path)) < WORK_BYTES
    assert STATE_BYTES < path.stat().st_size < STATE_BYTES + 4096
    assert peak(lambda: stage.load_sequence_state(path)) < STATE_BYTES + WORK_BYTES
