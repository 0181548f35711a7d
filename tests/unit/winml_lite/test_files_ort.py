"""The FlatBuffers walker on files built by hand; agreement with ONNX Runtime's own files is in `tests/real`."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from winml_lite.errors import FILE_CORRUPT, WinMLError
from winml_lite.files.artifact import Port
from winml_lite.files.ort import read_ort, read_ort_bytes
from winml_lite.values import TensorDataType


class Writer:
    """Writes FlatBuffers front to back: children may come after their parents, which is all the format asks for."""

    def __init__(self) -> None:
        self.data = bytearray(b"\0\0\0\0ORTM")

    def table(self, **slots: bytes) -> int:
        """Append a table; slot names are `s<number>`, values are inline bytes of 4 or 8. Returns its position."""
        numbers = {int(name[1:]): value for name, value in slots.items()}
        count = max(numbers, default=-1) + 1
        offsets, body = [0] * count, b""
        for number, value in sorted(numbers.items()):
            offsets[number] = 4 + len(body)
            body += value
        vtable = len(self.data)
        self.data += struct.pack(f"<HH{count}H", 4 + 2 * count, 4 + len(body), *offsets)
        position = len(self.data)
        self.data += struct.pack("<i", position - vtable) + body
        return position

    def field(self, table: int, slot: int) -> int:
        """Where a slot of a table is stored."""
        vtable = table - struct.unpack_from("<i", self.data, table)[0]
        offset: int = struct.unpack_from("<H", self.data, vtable + 4 + 2 * slot)[0]
        return table + offset

    def point(self, place: int, target: int) -> None:
        struct.pack_into("<I", self.data, place, target - place)

    def string(self, text: bytes) -> int:
        position = len(self.data)
        self.data += struct.pack("<I", len(text)) + text + b"\0"
        return position

    def vector(self, *targets: int) -> int:
        position = len(self.data)
        self.data += struct.pack("<I", len(targets)) + bytes(4 * len(targets))
        for index, target in enumerate(targets):
            place = position + 4 + 4 * index
            struct.pack_into("<I", self.data, place, (target - place) & 0xFFFFFFFF)
        return position


LINK = bytes(4)


def small_model(nodes: int = 0) -> bytes:
    """One float input `x[2, N]` that is also the output; `nodes` offsets to one and the same node."""
    w = Writer()
    root = w.table(s1=LINK)
    w.point(0, root)
    model = w.table(s0=struct.pack("<q", 9), s1=LINK, s2=LINK, s7=LINK)
    w.point(w.field(root, 1), model)
    graph = w.table(s1=LINK, s2=LINK, s5=LINK, s6=LINK)
    w.point(w.field(model, 7), graph)
    opset_place, node_place = len(w.data), 0
    w.point(w.field(model, 1), opset_place)
    w.data += struct.pack("<II", 1, 0)
    opset = w.table(s1=struct.pack("<q", 21))
    w.point(opset_place + 4, opset)
    w.point(w.field(model, 2), w.string(b"me"))
    node_place = len(w.data)
    w.data += struct.pack("<I", nodes) + bytes(4 * nodes)
    w.point(w.field(graph, 2), node_place)
    if nodes:
        node = w.table(s8=LINK)
        for index in range(nodes):
            w.point(node_place + 4 + 4 * index, node)
        _names(w, w.field(node, 8), [b"x"] * nodes)
    _names(w, w.field(graph, 5), [b"x"])
    _names(w, w.field(graph, 6), [b"x"])
    _argument(w, w.field(graph, 1))
    return bytes(w.data)


def _names(w: Writer, place: int, names: list[bytes]) -> None:
    start = len(w.data)
    w.data += struct.pack("<I", len(names)) + bytes(4 * len(names))
    w.point(place, start)
    for index, name in enumerate(names):
        w.point(start + 4 + 4 * index, w.string(name))


def _argument(w: Writer, place: int) -> None:
    start = len(w.data)
    w.data += struct.pack("<II", 1, 0)
    w.point(place, start)
    value = w.table(s0=LINK, s2=LINK)
    w.point(start + 4, value)
    w.point(w.field(value, 0), w.string(b"x"))
    type_info = w.table(s1=b"\x01\0\0\0", s2=LINK)
    w.point(w.field(value, 2), type_info)
    tensor = w.table(s0=struct.pack("<i", 1), s1=LINK)
    w.point(w.field(type_info, 2), tensor)
    shape = w.table(s0=LINK)
    w.point(w.field(tensor, 1), shape)
    dimensions = len(w.data)
    w.data += struct.pack("<III", 2, 0, 0)
    w.point(w.field(shape, 0), dimensions)
    fixed = w.table(s0=LINK)
    w.point(dimensions + 4, fixed)
    w.point(w.field(fixed, 0), w.table(s0=b"\x01\0\0\0", s1=struct.pack("<q", 2)))
    symbol = w.table(s0=LINK)
    w.point(dimensions + 8, symbol)
    value = w.table(s0=b"\x02\0\0\0", s2=LINK)
    w.point(w.field(symbol, 0), value)
    w.point(w.field(value, 2), w.string(b"N"))


def refusal(data: bytes) -> str:
    with pytest.raises(WinMLError) as caught:
        read_ort_bytes(data)
    assert caught.value.hresult == FILE_CORRUPT
    return str(caught.value)


def test_small_model() -> None:
    artifact = read_ort_bytes(small_model())
    assert artifact.inputs == artifact.outputs == (Port("x", TensorDataType.FLOAT32, (2, "N")),)
    assert artifact.format == "ort"
    assert artifact.metadata == {"producer": "me", "opset.ai.onnx": "21"}


def test_file(tmp_path: Path) -> None:
    path = tmp_path / "x.ort"
    path.write_bytes(small_model())
    assert read_ort(str(path)).path == str(path)


def test_every_truncation_is_refused() -> None:
    data = small_model()
    for size in range(len(data) - 8):
        refusal(data[:size])


def test_identifier_is_needed() -> None:
    assert "ORTM is missing" in refusal(b"\x08\0\0\0NOPE" + bytes(40))


def test_s_lod_03_foreign_contents_are_named() -> None:
    assert "an empty file" in refusal(b"")
    assert "Git LFS pointer" in refusal(b"version https://git-lfs.github.com/spec/v1\n")
    assert "GGUF" in refusal(b"GGUF\x03\0\0\0")


def test_model_without_a_graph() -> None:
    w = Writer()
    w.point(0, w.table())
    assert "no model with a graph" in refusal(bytes(w.data))


def test_offset_out_of_the_file() -> None:
    assert "out of the" in refusal(b"\xff\xff\xff\x7fORTM" + bytes(32))


def test_path_is_in_the_message(tmp_path: Path) -> None:
    path = tmp_path / "broken.ort"
    path.write_bytes(small_model()[:60])
    with pytest.raises(WinMLError, match=r"broken\.ort: not an ORT model"):
        read_ort(str(path))


def test_offsets_that_lead_to_one_place_end_soon() -> None:
    # 4,000 nodes of 4,000 inputs in a file of 60 kB: 16 million reads if nobody counted.
    assert "over and over" in refusal(small_model(nodes=4000))


def test_shared_nodes_are_fine_in_moderation() -> None:
    assert len(read_ort_bytes(small_model(nodes=3)).inputs) == 1
