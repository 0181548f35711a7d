"""`session_options` of genai_config.json and custom operators of models that generate, on the real engine."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import onnx
import pytest
from onnx import helper

import genai
from fakes.c_libraries import compiled
from fakes.rig import failing
from models.recipes import SENTENCE, scripted_onnx
from winml_lite import ExecutionTargetKind

pytestmark = [pytest.mark.real, pytest.mark.usefixtures("ort")]

Configure = Callable[[dict[str, Any]], Path]


@pytest.fixture
def configured(tmp_path: Path) -> Configure:
    """Make the folder of a scripted decoder with these `session_options`."""

    def configure(session_options: dict[str, Any]) -> Path:
        folder = scripted_onnx(tmp_path / "model", "plain")
        path = folder / "genai_config.json"
        config = json.loads(path.read_text(encoding="utf-8"))
        config["model"]["decoder"]["session_options"] = session_options
        path.write_text(json.dumps(config), encoding="utf-8")
        return folder

    return configure


def said(folder: Path, **options: Any) -> str:
    with genai.load(folder, **options) as model:
        return model.chat().send("What?", max_new_tokens=64).text


@pytest.mark.usefixtures("ggml")
def test_the_provider_of_the_file_is_used(configured: Configure) -> None:
    folder = configured({"provider_options": [{"ggml": {}}]})
    with genai.load(folder) as model:
        assert model.provider == "ggml"
    with genai.load(folder, provider="CPUExecutionProvider") as model:
        assert model.provider == "CPUExecutionProvider"


def test_a_provider_that_is_not_there_is_refused(configured: Configure) -> None:
    folder = configured({"provider_options": [{"qnn": {"backend_path": "QnnHtp.dll"}}]})
    with failing(0x80070490) as caught:
        genai.load(folder)
    for text in (str(folder / "genai_config.json"), "'qnn'", "pip install onnxruntime-qnn", "--device cpu"):
        assert text in str(caught.value)
    assert said(folder, target=ExecutionTargetKind.CPU) == SENTENCE


def test_entries_reach_the_engine(configured: Configure) -> None:
    assert said(configured({"graph_optimization_level": "ORT_DISABLE_ALL", "intra_op_num_threads": 1})) == SENTENCE
    with failing(0x80070057) as caught:
        genai.load(configured({"graph_optimization_level": "ORT_ENABLE_NOTHING"}))
    assert "session.graph_optimization_level must be one of ORT_DISABLE_ALL" in str(caught.value)


def test_custom_operators(configured: Configure, tmp_path: Path) -> None:
    folder = configured({"custom_ops_library": "operators.so"})
    model = onnx.load(folder / "model.onnx")
    model.graph.initializer.append(helper.make_tensor("two", onnx.TensorProto.FLOAT, [2], [1, 2]))
    model.graph.node.append(helper.make_node("TwicePlusOne", ["two"], ["unused"], domain="winml.lite.test"))
    model.opset_import.append(helper.make_opsetid("winml.lite.test", 1))
    onnx.save(model, folder / "model.onnx")
    with failing(0x80070032) as caught:
        genai.load(folder)
    assert "custom_ops_library 'operators.so' is code" in str(caught.value)
    with failing(0x80070002):
        genai.load(folder, custom_operators=tmp_path / "absent.so")
    assert said(folder, custom_operators=compiled("custom_operator", tmp_path)) == SENTENCE
