"""What `describe_onnx` says of a file: operators, operator sets, weights in other files."""

from __future__ import annotations

from pathlib import Path

import onnx
import pytest
from onnx import TensorProto, helper

from fakes.rig import failing
from models import onnx_models
from winml_lite import ExternalData, OnnxPort, TensorDataType, describe_onnx
from winml_lite.files.operators import onnx_operators


def described_operators(model: onnx.ModelProto, folder: Path) -> dict[str, int]:
    return dict(describe_onnx(onnx_models.save(model, folder / "model.onnx")).operators)


def test_operators_by_frequency(tmp_path: Path) -> None:
    operators = described_operators(onnx_models.twins(), tmp_path)
    assert list(operators.items()) == [("MatMul", 2), ("Relu", 1)]


def test_operators_of_subgraphs_count(tmp_path: Path) -> None:
    assert described_operators(onnx_models.branches(), tmp_path) == {"Add": 2, "If": 1, "Mul": 1}


def test_operators_of_functions_count(tmp_path: Path) -> None:
    port = helper.make_tensor_value_info("x", TensorProto.FLOAT, [2])
    out = helper.make_tensor_value_info("y", TensorProto.FLOAT, [2])
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid("mine", 1)]
    function = helper.make_function("mine", "Twice", ["a"], ["b"], [helper.make_node("Add", ["a", "a"], ["b"])], opsets)
    call = helper.make_node("Twice", ["x"], ["y"], domain="mine")
    graph = helper.make_graph([call], "graph", [port], [out])
    model = helper.make_model(graph, functions=[function], opset_imports=opsets)
    assert described_operators(model, tmp_path) == {"mine.Twice": 1, "Add": 1}


def test_operators_of_other_domains_have_it_in_their_name(tmp_path: Path) -> None:
    assert "com.microsoft.GroupQueryAttention" in described_operators(onnx_models.group_query_attention(), tmp_path)


def test_the_default_domain_has_two_spellings(tmp_path: Path) -> None:
    model = onnx_models.add()
    model.graph.node[0].domain = "ai.onnx"
    assert described_operators(model, tmp_path) == {"Add": 1}


def test_versions_producer_and_properties(tmp_path: Path) -> None:
    model = onnx_models.add()
    model.metadata_props.add(key="task", value="sum")
    about = describe_onnx(onnx_models.save(model, tmp_path / "model.onnx"))
    assert (about.format, about.producer) == ("ONNX", "winml-lite")
    assert about.opsets == {"ai.onnx": onnx_models.OPSET}
    assert about.metadata == {"task": "sum"}
    assert about.external_data == ()


@pytest.mark.parametrize(("content", "size"), [(None, None), (b"12345678", 8), (b"1234", 4)])
def test_weights_in_another_file(tmp_path: Path, content: bytes | None, size: int | None) -> None:
    model, _ = onnx_models.external_weights("weights.bin")
    if content is not None:
        (tmp_path / "weights.bin").write_bytes(content)
    about = describe_onnx(onnx_models.save(model, tmp_path / "model.onnx"))
    assert about.external_data == (ExternalData("weights.bin", needed_bytes=8, file_bytes=size),)


def test_ports_keep_their_symbols(tmp_path: Path) -> None:
    model = onnx_models.identity(TensorProto.INT64, ["batch", 2, None])
    about = describe_onnx(onnx_models.save(model, tmp_path / "model.onnx"))
    assert about.inputs == (OnnxPort("X", TensorDataType.INT64, ("batch", 2, None), ""),)
    assert about.outputs == (OnnxPort("Y", TensorDataType.INT64, ("batch", 2, None), ""),)


def test_ports_of_unknown_rank_and_without_a_tensor(tmp_path: Path) -> None:
    graph = helper.make_graph(
        [helper.make_node("SequenceAt", ["parts", "which"], ["part"])],
        "graph",
        [
            helper.make_tensor_sequence_value_info("parts", TensorProto.FLOAT, None),
            helper.make_tensor_value_info("which", TensorProto.INT64, []),
        ],
        [helper.make_tensor_value_info("part", TensorProto.FLOAT, None)],
    )
    about = describe_onnx(onnx_models.save(helper.make_model(graph), tmp_path / "model.onnx"))
    assert about.inputs[0] == OnnxPort("parts", TensorDataType.UNDEFINED, None, "a sequence")
    assert about.inputs[1] == OnnxPort("which", TensorDataType.INT64, (), "")
    assert about.outputs == (OnnxPort("part", TensorDataType.FLOAT32, None, ""),)


def test_files_that_cannot_be_described(tmp_path: Path) -> None:
    (tmp_path / "bad.onnx").write_bytes(b"\xff" * 40)
    (tmp_path / "model.gguf").write_bytes(b"GGUF")
    with failing(0x80070570):
        describe_onnx(tmp_path / "bad.onnx")
    with failing(0x80070032):
        describe_onnx(tmp_path / "model.gguf")
    with failing(0x80070002):
        describe_onnx(tmp_path / "missing.onnx")


def sized(tag: bytes, payload: bytes) -> bytes:
    """A field of bytes, of less than 16 KiB."""
    return tag + bytes([len(payload) & 0x7F | 0x80, len(payload) >> 7]) + payload


def test_subgraphs_in_subgraphs_without_end() -> None:
    graph = b""
    for _ in range(40):
        graph = sized(b"\x0a", sized(b"\x2a", sized(b"\x32", graph)))
    with pytest.raises(ValueError, match="nested deeper"):
        onnx_operators(b"\x08\x0a" + sized(b"\x3a", graph))
