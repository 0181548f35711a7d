"""Memory comes back when models are closed (case S-LIF-04): `memory_programs.py` says how much may be kept."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from lifetime.held_memory import COUNTED
from lifetime.programs import run_program
from onnx import TensorProto, helper, numpy_helper

from fakes.model_files import ModelFiles
from models import onnx_models


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


def run_counted(program: str, path: str | Path, engine: str) -> None:
    """Run a program of `memory_programs.py`: it must end well and print nothing."""
    run_program("memory_programs.py", program, path, engine, **COUNTED)


def model_of(files: ModelFiles, engine: str) -> str:
    return files.onnx("add") if engine == "ort" else files.gguf


def test_s_lif_04_loading_and_closing_200_times_keeps_no_memory(ort: None, tmp_path: Path) -> None:
    run_counted("heavy", heavy_model(tmp_path / "heavy.onnx"), "ort")


def test_s_lif_04_a_thousand_cycles_keep_nothing(files: ModelFiles, engine: str) -> None:
    run_counted("cycles", model_of(files, engine), engine)


def test_s_lif_04_a_cycle_leaves_nothing_to_the_collector(files: ModelFiles, engine: str) -> None:
    run_counted("garbage", model_of(files, engine), engine)


def test_s_lif_04_ten_thousand_runs_keep_nothing(files: ModelFiles, engine: str) -> None:
    run_counted("runs", model_of(files, engine), engine)


def test_s_lif_04_ten_thousand_submissions_keep_nothing(files: ModelFiles, engine: str) -> None:
    run_counted("submissions", model_of(files, engine), engine)


def test_s_lif_04_ten_thousand_speculative_steps_keep_nothing(files: ModelFiles, llama: None) -> None:
    run_counted("speculation", files.gguf, "llama")


def test_s_lif_04_ten_thousand_runs_of_a_processor_keep_nothing(files: ModelFiles, ort: None) -> None:
    run_counted("processors", files.onnx("add"), "ort")
