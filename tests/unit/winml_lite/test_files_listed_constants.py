"""Old models list their constants as inputs; the copy of version 4 does not."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from winml_lite.files.listed_constants import without_listed_constants
from winml_lite.files.onnx import read_onnx_bytes


def shifted(ir_version: int, listed: list[str]) -> onnx.ModelProto:
    """`y = relu(x + a) + b` with equal constants."""
    port = helper.make_tensor_value_info
    graph = helper.make_graph(
        [
            helper.make_node("Add", ["x", "a"], ["s"]),
            helper.make_node("Relu", ["s"], ["r"]),
            helper.make_node("Add", ["r", "b"], ["y"]),
        ],
        "shifted",
        [port(name, TensorProto.FLOAT, [2]) for name in ("a", "x", "b") if name in listed],
        [port("y", TensorProto.FLOAT, [2])],
        [numpy_helper.from_array(np.array([1, 2], np.float32), name) for name in ("a", "b")],
    )
    return helper.make_model(graph, ir_version=ir_version, opset_imports=[helper.make_opsetid("", 8)], doc_string="é")


def test_the_copy_lists_true_inputs_only() -> None:
    copy = without_listed_constants(shifted(3, ["a", "x", "b"]).SerializeToString())
    assert onnx.load_from_string(copy) == shifted(4, ["x"])


def test_several_graphs_merge_as_protobuf_merges_them() -> None:
    whole = shifted(3, ["a", "x", "b"])
    rest = onnx.ModelProto()
    rest.graph.initializer.add().CopyFrom(whole.graph.initializer.pop())
    data = whole.SerializeToString() + rest.SerializeToString()
    assert onnx.load_from_string(without_listed_constants(data)) == shifted(4, ["x"])


@pytest.mark.parametrize(
    ("ir_version", "listed", "has"),
    [(3, ["a", "x", "b"], True), (3, ["x", "b"], True), (3, ["x"], False), (4, ["a", "x", "b"], False)],
)
def test_which_models_have_listed_constants(ir_version: int, listed: list[str], has: bool) -> None:
    artifact = read_onnx_bytes(shifted(ir_version, listed).SerializeToString())
    assert artifact.has_listed_constants is has
    assert [port.name for port in artifact.inputs] == ["x"]
