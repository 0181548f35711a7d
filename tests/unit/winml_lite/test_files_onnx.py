"""The protobuf walker against models that the `onnx` package writes, and against bytes written by hand."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from models import onnx_models
from winml_lite.errors import FILE_CORRUPT, FILE_NOT_FOUND, WinMLError
from winml_lite.files.artifact import LargeTensor, OnnxArtifact, Port
from winml_lite.files.onnx import read_onnx, read_onnx_bytes
from winml_lite.values import FREE_DIMENSION, TensorDataType

FLOAT32 = TensorDataType.FLOAT32


def read(model: onnx.ModelProto) -> OnnxArtifact:
    return read_onnx_bytes(model.SerializeToString())


def model_with(inputs: list[onnx.ValueInfoProto], **fields: object) -> onnx.ModelProto:
    return helper.make_model(helper.make_graph([], "g", inputs, []), **fields)


def refusal(data: bytes) -> WinMLError:
    with pytest.raises(WinMLError) as caught:
        read_onnx_bytes(data)
    assert caught.value.hresult == FILE_CORRUPT
    return caught.value


def test_ports_of_a_small_model() -> None:
    artifact = read(onnx_models.add())
    assert artifact.inputs == (Port("A", FLOAT32, (2,)), Port("B", FLOAT32, (2,)))
    assert artifact.outputs == (Port("C", FLOAT32, (2,)),)
    assert artifact.format == "onnx"


def test_r32_free_dimensions() -> None:
    artifact = read(model_with([helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", 3, None])]))
    assert artifact.inputs[0].dimensions == ("N", 3, None)
    assert artifact.inputs[0].descriptor == (FLOAT32, (FREE_DIMENSION, 3, FREE_DIMENSION))


def test_negative_extent_is_free() -> None:
    artifact = read(model_with([helper.make_tensor_value_info("x", TensorProto.FLOAT, [-1, 3])]))
    assert artifact.inputs[0].dimensions == (None, 3)


@pytest.mark.parametrize(
    ("sources", "compiled_for"),
    [(("QNN",), "QNN"), (("a", "a"), "a"), (("a", "b"), None), (("",), None), ((), None)],
)
def test_the_provider_that_has_compiled_a_graph(sources: tuple[str, ...], compiled_for: str | None) -> None:
    assert read(onnx_models.ep_context(*sources)).compiled_for == compiled_for


def test_what_a_provider_has_compiled_is_no_text() -> None:
    model = onnx_models.ep_context("QNN")
    model.graph.node[0].attribute.insert(0, helper.make_attribute("ep_cache_context", b"\xff\xfe"))
    assert read(model).compiled_for == "QNN"


def test_a_compiled_node_of_another_domain_is_none() -> None:
    model = onnx_models.ep_context("QNN")
    model.graph.node[0].domain = "else"
    assert read(model).compiled_for is None


def test_r35_scalar_and_unknown_rank() -> None:
    inputs = [helper.make_tensor_value_info(name, TensorProto.INT64, shape) for name, shape in (("s", []), ("u", None))]
    artifact = read(model_with(inputs))
    assert [port.rank_known for port in artifact.inputs] == [True, False]
    assert [port.descriptor for port in artifact.inputs] == [(TensorDataType.INT64, ())] * 2


@pytest.mark.parametrize(
    ("code", "data_type"),
    [
        (TensorProto.FLOAT16, TensorDataType.FLOAT16),
        (TensorProto.BFLOAT16, TensorDataType.BFLOAT16),
        (TensorProto.BOOL, TensorDataType.BOOL),
        (TensorProto.UINT4, TensorDataType.UINT4),
        (TensorProto.STRING, TensorDataType.UNDEFINED),
        (TensorProto.COMPLEX64, TensorDataType.UNDEFINED),
        (TensorProto.FLOAT8E4M3FN, TensorDataType.UNDEFINED),
    ],
)
def test_element_types(code: int, data_type: TensorDataType) -> None:
    assert read(model_with([helper.make_tensor_value_info("x", code, [])])).inputs[0].data_type is data_type


def test_sequences_are_no_tensors() -> None:
    port = helper.make_tensor_sequence_value_info("x", TensorProto.FLOAT, ["N"])
    assert read(model_with([port])).inputs == (Port("x", TensorDataType.UNDEFINED, (), rank_known=False),)


@pytest.mark.parametrize(
    ("port", "foreign"),
    [
        (helper.make_tensor_sequence_value_info("x", TensorProto.FLOAT, None), "a sequence"),
        (helper.make_value_info("x", helper.make_map_type_proto(7, helper.make_tensor_type_proto(1, []))), "a map"),
        (
            helper.make_value_info("x", helper.make_optional_type_proto(helper.make_tensor_type_proto(1, []))),
            "an optional value",
        ),
        (helper.make_value_info("x", helper.make_sparse_tensor_type_proto(1, [2])), "a sparse tensor"),
        (helper.make_tensor_value_info("x", TensorProto.STRING, []), "a tensor of STRING"),
        (helper.make_tensor_value_info("x", TensorProto.FLOAT8E5M2, []), "a tensor of FLOAT8E5M2"),
        (helper.make_tensor_value_info("x", 99, []), "a tensor of element type 99"),
        (helper.make_tensor_value_info("x", TensorProto.FLOAT, []), ""),
    ],
)
def test_what_a_port_holds_that_is_no_tensor_of_ours(port: onnx.ValueInfoProto, foreign: str) -> None:
    assert read(model_with([port])).inputs[0].foreign == foreign


def test_r36_initializers_are_no_inputs() -> None:
    model = onnx_models.inc()
    model.graph.input.append(helper.make_tensor_value_info("one", TensorProto.INT64, [1]))
    assert [port.name for port in read(model).inputs] == ["x"]


def test_sparse_initializers_are_no_inputs() -> None:
    values = numpy_helper.from_array(np.asarray([1.0], np.float32), "S")
    sparse = helper.make_sparse_tensor(values, numpy_helper.from_array(np.asarray([0], np.int64), "i"), [4])
    model = onnx_models.add()
    model.graph.input.append(helper.make_tensor_value_info("S", TensorProto.FLOAT, [4]))
    model.graph.sparse_initializer.append(sparse)
    assert [port.name for port in read(model).inputs] == ["A", "B"]


def test_metadata() -> None:
    model = onnx_models.group_query_attention()
    model.metadata_props.add(key="author", value="é")
    assert read(model).metadata == {
        "author": "é",
        "producer": "winml-lite",
        "opset.ai.onnx": "21",
        "opset.com.microsoft": "1",
    }


def test_external_data() -> None:
    model, _ = onnx_models.external_weights("data/w.bin")
    artifact = read(model)
    assert artifact.external_locations == ("data/w.bin",)
    assert artifact.external_sizes == {"data/w.bin": 8}


def test_external_data_needs_the_largest_end() -> None:
    model, _ = onnx_models.external_weights()
    second = model.graph.initializer.add(name="V", data_type=1, dims=[3], data_location=TensorProto.EXTERNAL)
    for key, value in (("location", "weights.bin"), ("offset", "4096"), ("length", "12")):
        second.external_data.add(key=key, value=value)
    assert read(model).external_sizes == {"weights.bin": 4108}


def test_external_data_in_a_subgraph() -> None:
    outer = onnx_models.slow()
    inner, _ = onnx_models.external_weights("inner.bin")
    outer.graph.node[0].attribute[0].g.initializer.append(inner.graph.initializer[0])
    assert read(outer).external_locations == ("inner.bin",)


def test_external_data_in_a_constant_node() -> None:
    model, _ = onnx_models.external_weights("constant.bin")
    weight = model.graph.initializer.pop()
    model.graph.node.insert(0, helper.make_node("Constant", [], ["W"], value=weight))
    assert read(model).external_locations == ("constant.bin",)


def test_external_data_of_a_default_in_a_function() -> None:
    model, _ = onnx_models.external_weights("default.bin")
    function = model.functions.add(name="F", domain="local")
    function.attribute_proto.add(name="v", type=onnx.AttributeProto.TENSOR).t.CopyFrom(model.graph.initializer.pop())
    artifact = read(model)
    assert artifact.external_locations == ("default.bin",)
    assert artifact.nested_locations == {"default.bin"}


def test_only_initializers_of_the_main_graph_are_not_nested() -> None:
    model, _ = onnx_models.external_weights("w.bin")
    inner, _ = onnx_models.external_weights("inner.bin")
    node = onnx_models.slow().graph.node[0]
    node.attribute[0].g.initializer.append(inner.graph.initializer[0])
    model.graph.node.append(node)
    assert read(model).nested_locations == {"inner.bin"}


def delimited(number: int, content: bytes) -> bytes:
    return bytes([number << 3 | 2, len(content)]) + content


def weight_of(*parts: bytes) -> bytes:
    """A model whose weight is followed by more fields of a TensorProto."""
    model, _ = onnx_models.external_weights()
    weight: bytes = model.graph.initializer.pop().SerializeToString()
    whole: bytes = model.SerializeToString()
    return whole + delimited(7, delimited(5, weight + b"".join(parts)))


@pytest.mark.parametrize("place", [b"\x70\x05", b"\x70\x81\x80\x80\x80\x10", b"\x70\x00\x70\x01"])
def test_a_place_of_values_that_protobuf_reads_as_external(place: bytes) -> None:
    """An unknown number counts for nothing, and of a number 32 bits count."""
    assert read_onnx_bytes(weight_of(place)).external_locations == ("weights.bin",)


def test_values_that_are_inside_after_all() -> None:
    assert read_onnx_bytes(weight_of(b"\x70\x00")).external_locations == ()


def test_a_tag_counts_by_its_32_bits() -> None:
    model, _ = onnx_models.external_weights()
    weight = model.graph.initializer.pop().SerializeToString()
    initializer = b"\xaa\x80\x80\x80\x10" + bytes([len(weight)]) + weight
    data = model.SerializeToString() + delimited(7, initializer)
    assert read_onnx_bytes(data).external_locations == ("weights.bin",)


def test_a_tensor_in_two_parts() -> None:
    model, _ = onnx_models.external_weights()
    weight = model.graph.initializer.pop()
    place = onnx.TensorProto(external_data=weight.external_data)
    weight.ClearField("external_data")
    parts = delimited(5, weight.SerializeToString()) + delimited(5, place.SerializeToString())
    node = delimited(1, delimited(5, parts))
    data = model.SerializeToString() + delimited(7, node)
    assert read_onnx_bytes(data).external_locations == ("weights.bin",)


def test_a_constant_of_a_subgraph_hides_no_input() -> None:
    model = model_with([helper.make_tensor_value_info("x", TensorProto.FLOAT, [2])])
    inner = helper.make_graph([], "inner", [], [], [helper.make_tensor("x", TensorProto.FLOAT, [1], [1])])
    model.graph.node.append(helper.make_node("If", [], [], then_branch=inner))
    assert [port.name for port in read(model).inputs] == ["x"]


@pytest.mark.parametrize("length", ["-1", "x", "1_0", ""])
def test_external_data_of_impossible_length(length: str) -> None:
    model, _ = onnx_models.external_weights()
    model.graph.initializer[0].external_data[2].value = length
    assert "length of external data" in str(refusal(model.SerializeToString()))


def test_shareable_pairs() -> None:
    assert read(onnx_models.group_query_attention()).shareable_pairs == {(2, 1), (3, 2)}
    assert read(onnx_models.grow()).shareable_pairs == frozenset()


def test_past_with_a_second_reader_is_not_shareable() -> None:
    model = onnx_models.group_query_attention()
    model.graph.node.append(helper.make_node("Neg", ["past_key_values.0.key"], ["unused"]))
    assert read(model).shareable_pairs == {(3, 2)}


def test_past_read_in_a_subgraph_is_not_shareable() -> None:
    model = onnx_models.group_query_attention()
    inner = helper.make_graph([helper.make_node("Neg", ["past_key_values.0.key"], ["n"])], "inner", [], [])
    model.graph.node.append(helper.make_node("If", ["c"], ["d"], then_branch=inner, else_branch=inner))
    assert read(model).shareable_pairs == {(3, 2)}


def test_present_with_a_reader_is_not_shareable() -> None:
    model = onnx_models.group_query_attention()
    model.graph.node.append(helper.make_node("Neg", ["present.0.value"], ["unused"]))
    assert read(model).shareable_pairs == {(2, 1)}


def test_attention_of_another_domain_is_not_shareable() -> None:
    model = onnx_models.group_query_attention()
    next(node for node in model.graph.node if node.domain).domain = "other"
    assert read(model).shareable_pairs == frozenset()


def test_file_and_resources(tmp_path: Path) -> None:
    path = onnx_models.save(onnx_models.add(), tmp_path / "mödel ✓.onnx")
    artifact = read_onnx(str(path), {"k": memoryview(b"v")})
    assert artifact.path == str(path)
    assert artifact.data is None
    assert artifact.resources["k"] == b"v"


def test_large_payloads_are_stepped_over(tmp_path: Path) -> None:
    # A sparse file: 1 GiB of raw data in an initializer, then an output. Reading it all would take seconds.
    head = b"\x08\x0a" + b"\x3a" + _varint((1 << 30) + 20)
    tensor = b"\x2a" + _varint((1 << 30) + 6) + b"\x4a" + _varint(1 << 30)
    path = tmp_path / "large.onnx"
    with path.open("wb") as file:
        file.write(head + tensor)
        file.seek((1 << 30), 1)
        file.write(b"\x62\x03\x0a\x01Y" + b"\x52\x01d")
        file.truncate(len(head) + (1 << 30) + 20)
    assert [port.name for port in read_onnx(str(path)).outputs] == ["Y"]


def _varint(value: int) -> bytes:
    """Base-128 in five bytes, whatever the value."""
    return bytes((value >> shift & 0x7F) | (0x80 if shift < 28 else 0) for shift in range(0, 35, 7))


# protobuf's rules


def test_repeated_messages_merge() -> None:
    first, second = onnx_models.add(), onnx_models.two()
    artifact = read_onnx_bytes(first.SerializeToString() + second.SerializeToString())
    assert [port.name for port in artifact.inputs] == ["A", "B", "X"]
    merged = onnx.ModelProto.FromString(first.SerializeToString() + second.SerializeToString())
    assert [port.name for port in merged.graph.input] == ["A", "B", "X"]


def test_last_scalar_wins() -> None:
    data = onnx_models.add().SerializeToString() + b"\x12\x05later"
    assert read_onnx_bytes(data).metadata["producer"] == "later"


def test_last_member_of_a_choice_wins() -> None:
    # TypeProto: a tensor type, then a sequence type.
    value = b"\x0a\x01x" + b"\x12\x08" + b"\x0a\x02\x08\x01" + b"\x22\x02\x0a\x00"
    data = b"\x08\x0a" + b"\x3a\x0f" + b"\x5a\x0d" + value
    assert read_onnx_bytes(data).inputs[0].data_type is TensorDataType.UNDEFINED


def test_unknown_fields_and_other_wire_types_are_skipped() -> None:
    data = (
        onnx_models.add().SerializeToString() + b"\xfa\x06\x01x" + b"\xf5\x06abcd" + b"\xf1\x06abcdefgh" + b"\x38\x05"
    )
    assert len(read_onnx_bytes(data).inputs) == 2


# Malformed content


def test_every_truncation_is_refused_or_complete() -> None:
    data = onnx_models.add().SerializeToString()
    complete = 0
    for size in range(len(data)):
        try:
            read_onnx_bytes(data[:size])
            complete += 1
        except WinMLError as error:
            assert error.hresult == FILE_CORRUPT
    # The last message is the opset import: without it the model still reads, and its build fails.
    assert complete == 1


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "an empty file"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:0\n", "Git LFS pointer"),
        (b"<html><body>Not found</body></html>", "HTML"),
        (b"\n<!DOCTYPE html>", "HTML"),
        (b'{"error": "x"}', "JSON"),
        (b"GGUF\x03\0\0\0", "GGUF"),
        (b"PK\x03\x04zzzz", "zip"),
        (b"\x08\0\0\0ORTM", "ORT format"),
    ],
)
def test_s_lod_03_well_known_contents_are_named(content: bytes, words: str) -> None:
    assert words in str(refusal(content))


def test_r11_random_bytes(tmp_path: Path) -> None:
    for seed in range(300):
        data = np.random.default_rng(seed).bytes(200)
        refusal(data)
    path = tmp_path / "random.onnx"
    path.write_bytes(data)
    with pytest.raises(WinMLError, match=r"random\.onnx") as caught:
        read_onnx(str(path))
    assert caught.value.hresult == FILE_CORRUPT


def test_empty_and_missing_files(tmp_path: Path) -> None:
    path = tmp_path / "x.onnx"
    with pytest.raises(WinMLError, match=r"x\.onnx") as caught:
        read_onnx(str(path))
    assert caught.value.hresult == FILE_NOT_FOUND
    path.touch()
    with pytest.raises(WinMLError, match=r"x\.onnx: the file is empty") as caught:
        read_onnx(str(path))
    assert caught.value.hresult == FILE_CORRUPT


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"\x08\x0a", "no graph"),
        (b"\x3a\x00", "IR version is missing"),
        (b"\x08\xff\xff\xff\xff\x0f\x3a\x00", "IR version is 4294967295"),
        (b"\x08\x0a\x3a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", "truncated"),
        (b"\x08\x0a\x3a\x7f", "wants 127 bytes where 0 are left"),
        (b"\x08" + b"\x80" * 11, "cut off or too long"),
        (b"\x00\x01", "number 0"),
        (b"\x08\x0a\x3b\x3c", "wire type 3"),
        (b"\x08\x0a\x7d\x00", "cut off"),
        (b"\x08\x0a\x3a\x07\x5a\x05\x0a\x03\xff\xfe\xfd", "utf-8"),
    ],
)
def test_s_lod_02_malformed_bytes(data: bytes, words: str) -> None:
    assert words in str(refusal(data))


def test_endless_nesting_is_refused() -> None:
    graph = b""
    for _ in range(40):
        attribute = b"\x32" + _varint(len(graph)) + graph
        node = b"\x2a" + _varint(len(attribute)) + attribute
        graph = b"\x0a" + _varint(len(node)) + node
    assert "nested deeper" in str(refusal(b"\x08\x0a\x3a" + _varint(len(graph)) + graph))


def external(name: str, kind: int, *extents: int) -> TensorProto:
    tensor = TensorProto(name=name, data_type=kind, dims=extents, data_location=TensorProto.EXTERNAL)
    tensor.external_data.add(key="location", value="w.bin")
    tensor.external_data.add(key="offset", value="64")
    return tensor


def test_initializers_that_no_protobuf_message_holds() -> None:
    model = model_with([])
    model.graph.initializer.extend(
        [
            external("large", TensorProto.FLOAT, 1 << 16, 1 << 13),
            external("small", TensorProto.FLOAT, 1 << 16, 1 << 12),
            external("packed", TensorProto.INT4, 1 << 16, 1 << 15),
            external("huge", TensorProto.UINT8, 1 << 62, 1 << 62),
            external("unknown", TensorProto.FLOAT8E4M3FN, 1 << 32),
        ]
    )
    large = LargeTensor("large", FLOAT32, (1 << 16, 1 << 13), "w.bin", 64)
    huge = LargeTensor("huge", TensorDataType.UINT8, (1 << 62, 1 << 62), "w.bin", 64)
    assert read(model).large_tensors == (large, huge)


def test_packed_extents_are_read() -> None:
    extents = bytes([0x0A, 10, *[0x80, 0x80, 0x80, 0x80, 0x08] * 2])  # field 1, two times 2**31
    place = bytes([0x6A, 13, 0x0A, 8, *b"location", 0x12, 1, *b"w"])  # field 13
    tensor = extents + bytes([0x10, 2]) + place + bytes([0x70, 1])  # UINT8, external
    graph = bytes([0x2A, len(tensor)]) + tensor
    artifact = read_onnx_bytes(bytes([0x08, 9, 0x3A, len(graph)]) + graph)
    assert artifact.large_tensors == (LargeTensor("", TensorDataType.UINT8, (1 << 31, 1 << 31), "w", 0),)
