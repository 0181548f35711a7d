"""The GGUF reader: what it returns, and that content of any kind is refused quickly, with the path (runtime 2.1,
S-LOD)."""

from __future__ import annotations

import os
import struct
import tracemalloc
from pathlib import Path

import numpy as np
import pytest

from models.gguf_writer import Stored, Tensors, write_gguf, write_shards
from winml_lite import errors
from winml_lite.errors import WinMLError
from winml_lite.files import gguf as gguf_files
from winml_lite.files.gguf import GgufFile, read_gguf

U8, I8, U32, I32, F32, BOOL, STRING, ARRAY, U64 = 0, 1, 4, 5, 6, 7, 8, 9, 10


def text(content: str | bytes) -> bytes:
    data = content.encode() if isinstance(content, str) else content
    return struct.pack("<Q", len(data)) + data


def pair(key: str | bytes, kind: int, payload: bytes) -> bytes:
    return text(key) + struct.pack("<I", kind) + payload


def row(name: str | bytes, dimensions: tuple[int, ...], kind: int, offset: int) -> bytes:
    extents = struct.pack(f"<I{len(dimensions)}Q", len(dimensions), *dimensions)
    return text(name) + extents + struct.pack("<IQ", kind, offset)


def gguf(pairs: tuple[bytes, ...] = (), rows: tuple[bytes, ...] = (), data: bytes = b"", version: int = 3) -> bytes:
    header = b"GGUF" + struct.pack("<IQQ", version, len(rows), len(pairs)) + b"".join(pairs + rows)
    return header + bytes(-len(header) % 32) + data if rows else header


def counts(tensors: int, keys: int) -> bytes:
    return b"GGUF" + struct.pack("<IQQ", 3, tensors, keys) + bytes(200)


def small_model(folder: Path) -> Path:
    metadata = {
        "general.architecture": "llama",
        "tokenizer.ggml.tokens": ["a", "b", "ż"],
        "tokenizer.ggml.scores": np.array([0, -1, -2.5], np.float32),
        "llama.block_count": 2,
        "llama.rope.freq_base": 10000.0,
        "flag": True,
        "big": np.uint64(1 << 40),
        "flags": np.array([True, False]),
        "no": np.int8(-3),
    }
    tensors: Tensors = {
        "matrix": np.arange(6, dtype=np.float32).reshape(2, 3),
        "half": np.array([1.5, -2.0], np.float16),
        "cube": np.zeros((2, 3, 4), np.float32),
    }
    return write_gguf(folder / "small.gguf", metadata, tensors)


def test_metadata_has_python_values(tmp_path: Path) -> None:
    with GgufFile(small_model(tmp_path)) as file:
        assert file.metadata["general.architecture"] == "llama"
        assert file.metadata["llama.block_count"] == 2
        assert file.metadata["llama.rope.freq_base"] == 10000.0
        assert file.metadata["flag"] is True
        assert file.metadata["big"] == 1 << 40
        assert file.metadata["no"] == -3


def test_string_arrays_are_lists_and_numeric_arrays_are_numpy(tmp_path: Path) -> None:
    with GgufFile(small_model(tmp_path)) as file:
        assert file.metadata["tokenizer.ggml.tokens"] == ["a", "b", "ż"]
        scores, flags = file.metadata["tokenizer.ggml.scores"], file.metadata["flags"]
        assert isinstance(scores, np.ndarray) and scores.dtype == np.float32 and scores.tolist() == [0, -1, -2.5]
        assert isinstance(flags, np.ndarray) and flags.dtype == np.bool_ and flags.tolist() == [True, False]


def test_metadata_is_a_mapping(tmp_path: Path) -> None:
    with GgufFile(small_model(tmp_path)) as file:
        assert len(file.metadata) == 9
        assert list(file.metadata)[:2] == ["general.architecture", "tokenizer.ggml.tokens"]
        assert "nothing" not in file.metadata
        assert file.metadata.get("nothing") is None


def test_a_string_that_is_not_utf8_keeps_its_bytes(tmp_path: Path) -> None:
    path = tmp_path / "x.gguf"
    path.write_bytes(gguf((pair("note", STRING, text(b"a\xffb")),)))
    with GgufFile(path) as file:
        assert file.metadata["note"] == "a\udcffb"


def test_the_tensor_table(tmp_path: Path) -> None:
    with GgufFile(small_model(tmp_path)) as file:
        assert list(file.tensors) == ["matrix", "half", "cube"]
        matrix = file.tensors["matrix"]
        assert (matrix.shape, matrix.type_name, matrix.type_code, matrix.byte_size) == ((2, 3), "F32", 0, 24)
        assert matrix.offset % 32 == 0
        assert file.tensors["cube"].shape == (2, 3, 4)


def test_raw_gives_rows_of_bytes_without_a_copy(tmp_path: Path) -> None:
    file = GgufFile(small_model(tmp_path))
    raw = file.raw("matrix")
    assert raw.shape == (2, 12) and raw.dtype == np.uint8
    assert not raw.flags.owndata and not raw.flags.writeable
    assert raw.view("<f4").tolist() == [[0, 1, 2], [3, 4, 5]]
    assert file.raw("cube").shape == (6, 16)


def test_dequantize_gives_values_in_the_shape_of_the_tensor(tmp_path: Path) -> None:
    with GgufFile(small_model(tmp_path)) as file:
        assert file.dequantize("matrix").tolist() == [[0, 1, 2], [3, 4, 5]]
        assert file.dequantize("half").tolist() == [1.5, -2.0]
        assert file.dequantize("cube").shape == (2, 3, 4)


def test_dequantize_of_some_rows(tmp_path: Path) -> None:
    with GgufFile(small_model(tmp_path)) as file:
        assert file.dequantize("matrix", slice(1, 2)).tolist() == [[3, 4, 5]]
        assert file.dequantize("matrix", np.array([1, 0])).tolist() == [[3, 4, 5], [0, 1, 2]]


HALF_ONE, HALF_TWO = b"\x00\x3c", b"\x00\x40"  # 1.0 and 2.0 as float16
LEVELS = bytes(range(16))  # low half of byte i is i, high half 0: values 0..15, then sixteen times 0


@pytest.mark.parametrize(
    ("code", "block", "first", "last"),
    [
        (2, HALF_TWO + LEVELS, [-16, -14, -12], -16),  # Q4_0: 2 (q - 8)
        (3, HALF_TWO + HALF_ONE + LEVELS, [1, 3, 5], 1),  # Q4_1: 2 q + 1
        (6, HALF_TWO + b"\x01\x00\x00\x80" + LEVELS, [0, -30, -28], 0),  # Q5_0: 2 (q - 16), bit 4 set in first and last
        (7, HALF_TWO + HALF_ONE + b"\x01\x00\x00\x80" + LEVELS, [33, 3, 5], 33),  # Q5_1: 2 q + 1
        (8, HALF_TWO + bytes([1, 255]) + bytes(29) + b"\x7f", [2, -2, 0], 254),  # Q8_0: 2 q, q signed
    ],
)
def test_dequantize_of_a_block(tmp_path: Path, code: int, block: bytes, first: list[float], last: float) -> None:
    path = write_gguf(tmp_path / "q.gguf", {}, {"w": Stored(code, (1, 32), block)})
    with GgufFile(path) as file:
        values = file.dequantize("w")[0].tolist()
    assert values[:3] == first and values[31] == last


def test_dequantize_of_bfloat16(tmp_path: Path) -> None:
    path = write_gguf(tmp_path / "b.gguf", {}, {"w": Stored(30, (2,), b"\x80\x3f\x20\xc1")})
    with GgufFile(path) as file:
        assert file.dequantize("w").tolist() == [1.0, -10.0]


def test_use_after_close_is_a_runtime_error(tmp_path: Path) -> None:
    file = GgufFile(small_model(tmp_path))
    file.close()
    file.close()
    with pytest.raises(RuntimeError, match="closed"):
        file.raw("matrix")
    with pytest.raises(RuntimeError, match="closed"):
        file.metadata["tokenizer.ggml.tokens"]


def test_a_view_outlives_close(tmp_path: Path) -> None:
    file = GgufFile(small_model(tmp_path))
    raw = file.raw("matrix")
    file.close()
    assert raw.view("<f4")[1].tolist() == [3, 4, 5]


def test_the_file_can_be_replaced_after_close(tmp_path: Path) -> None:
    path = small_model(tmp_path)
    GgufFile(path).close()
    os.replace(path, tmp_path / "other.gguf")
    assert not path.exists()


def test_only_the_header_is_in_memory(tmp_path: Path) -> None:
    path = small_model(tmp_path)
    with GgufFile(path) as file:
        os.truncate(path, 8)
        assert file.metadata["tokenizer.ggml.tokens"] == ["a", "b", "ż"]
        with pytest.raises(WinMLError, match="has changed since it was loaded") as caught:
            file.raw("matrix")
    assert caught.value.hresult == errors.FILE_INVALID


@pytest.mark.parametrize("first_read", [24, 50, 100, 200, 300, 400])
def test_a_long_header_is_read_in_steps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, first_read: int) -> None:
    path = small_model(tmp_path)
    with GgufFile(path) as whole:
        expected = whole.tensors, dict(whole.metadata)
    monkeypatch.setattr(gguf_files, "_FIRST_READ", first_read)
    with GgufFile(path) as file:
        assert repr((file.tensors, dict(file.metadata))) == repr(expected)


def test_writing_is_deterministic(tmp_path: Path) -> None:
    first = small_model(tmp_path).read_bytes()
    assert small_model(tmp_path).read_bytes() == first


def test_version_2_is_read(tmp_path: Path) -> None:
    path = write_gguf(tmp_path / "v2.gguf", {"a": 1}, version=2)
    with GgufFile(path) as file:
        assert (file.version, file.metadata["a"]) == (2, 1)


def test_another_alignment_is_used(tmp_path: Path) -> None:
    tensors: Tensors = {"a": np.ones(3, np.float32), "b": np.full(3, 2, np.float32)}
    path = write_gguf(tmp_path / "a.gguf", {"general.alignment": 256}, tensors, alignment=256)
    with GgufFile(path) as file:
        assert file.tensors["b"].offset % 256 == 0
        assert file.dequantize("b").tolist() == [2, 2, 2]


def test_s_lod_05_path_with_blanks_accents_and_an_emoji(tmp_path: Path) -> None:
    folder = tmp_path / "mödel dir ✓ 🙂"
    folder.mkdir()
    path = small_model(folder)
    assert GgufFile(os.fsencode(path).decode()).path == str(path)
    assert read_gguf(str(path)).path == str(path)


def test_s_lod_09_a_file_without_tensors_is_read(tmp_path: Path) -> None:
    path = tmp_path / "empty.gguf"
    path.write_bytes(gguf())
    assert read_gguf(str(path)).file.architecture is None


HOSTILE = {
    "tensor count 2^60": counts(1 << 60, 0),
    "key count 2^60": counts(0, 1 << 60),
    "key count 2^63": counts(0, 1 << 63),
    "counts that do not fit": counts(6, 10),
    "key length 2^63": gguf((struct.pack("<Q", 1 << 63) + bytes(100),)),
    "key longer than 64k": gguf((pair("k" * 70000, U32, bytes(4)),)),
    "empty key": gguf((pair("", U32, bytes(4)),)),
    "key that is not UTF-8": gguf((pair(b"\xff\xfe", U32, bytes(4)),)),
    "key twice": gguf((pair("a", U32, bytes(4)), pair("a", U32, bytes(4)))),
    "string length 2^63": gguf((pair("a", STRING, struct.pack("<Q", 1 << 63)),)),
    "string past the end": gguf((pair("a", STRING, struct.pack("<Q", 1) + b""),)),
    "array length 2^63": gguf((pair("a", ARRAY, struct.pack("<IQ", U32, 1 << 63)),)),
    "array of strings, length 2^63": gguf((pair("a", ARRAY, struct.pack("<IQ", STRING, 1 << 63)),)),
    "array of strings, length 2^24": gguf((pair("a", ARRAY, struct.pack("<IQ", STRING, 1 << 24) + bytes(80)),)),
    "string in an array past the end": gguf(
        (pair("a", ARRAY, struct.pack("<IQ", STRING, 2) + text("x") + struct.pack("<Q", 1 << 62)),)
    ),
    "array of arrays": gguf((pair("a", ARRAY, struct.pack("<IQIQ", ARRAY, 1, U8, 0)),)),
    "value type 99": gguf((pair("a", 99, bytes(8)),)),
    "array of type 99": gguf((pair("a", ARRAY, struct.pack("<IQ", 99, 1) + bytes(8)),)),
    "alignment of the wrong type": gguf((pair("general.alignment", I32, struct.pack("<i", 32)),)),
    "alignment 0": gguf((pair("general.alignment", U32, struct.pack("<I", 0)),)),
    "alignment 3": gguf((pair("general.alignment", U32, struct.pack("<I", 3)),)),
    "architecture that is a number": gguf((pair("general.architecture", U32, bytes(4)),)),
    "tokens that are a number": gguf((pair("tokenizer.ggml.tokens", U32, bytes(4)),)),
    "tokens that are numbers": gguf((pair("tokenizer.ggml.tokens", ARRAY, struct.pack("<IQI", U32, 1, 7)),)),
    "the same token twice": gguf(
        (pair("tokenizer.ggml.tokens", ARRAY, struct.pack("<IQ", STRING, 2) + text("a") + text("a")),)
    ),
    "fewer scores than tokens": gguf(
        (
            pair("tokenizer.ggml.tokens", ARRAY, struct.pack("<IQ", STRING, 2) + text("a") + text("b")),
            pair("tokenizer.ggml.scores", ARRAY, struct.pack("<IQf", F32, 1, 0.0)),
        )
    ),
    "tensor type 4": gguf((), (row("t", (32,), 4, 0),), bytes(64)),
    "tensor type 2^31": gguf((), (row("t", (32,), 1 << 31, 0),), bytes(64)),
    "tensor without dimensions": gguf((), (row("t", (), 0, 0) + bytes(8),), bytes(64)),
    "tensor with five dimensions": gguf((), (row("t", (1, 1, 1, 1, 1), 0, 0),), bytes(64)),
    "tensor with 2^31 dimensions": gguf((), (text("t") + struct.pack("<I", 1 << 31) + bytes(20),), bytes(64)),
    "tensor with an extent 0": gguf((), (row("t", (0,), 0, 0) + bytes(1),), bytes(64)),
    "tensor whose size overflows": gguf((), (row("t", (1 << 62, 1 << 62, 4), 0, 0),), bytes(64)),
    "tensor of half a block": gguf((), (row("t", (48,), 8, 0),), bytes(64)),
    "tensor name that is not UTF-8": gguf((), (row(b"\xff", (4,), 0, 0),), bytes(64)),
    "tensor twice": gguf((), (row("t", (4,), 0, 0), row("t", (4,), 0, 32)), bytes(64)),
    "offset that is not aligned": gguf((), (row("t", (4,), 0, 8),), bytes(64)),
    "offset past the end": gguf((), (row("t", (4,), 0, 64),), bytes(64)),
    "offset 2^63": gguf((), (row("t", (4,), 0, 1 << 63),), bytes(64)),
    "offset and size that wrap": gguf((), (row("t", (4,), 0, (1 << 64) - 32),), bytes(64)),
    "version 1": gguf(version=1),
    "version 4": gguf(version=4),
    "version 0": gguf(version=0),
    "big-endian": b"GGUF" + struct.pack(">IQQ", 3, 0, 0),
    "magic only": b"GGUF",
    "random bytes": bytes(range(7, 250)),
    "zeros": bytes(4096),
}


@pytest.mark.parametrize("content", HOSTILE.values(), ids=HOSTILE.keys())
def test_s_lod_02_hostile_content_is_refused_with_the_path(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "hostile.gguf"
    path.write_bytes(content)
    tracemalloc.start()
    with pytest.raises(WinMLError, match=r"hostile\.gguf") as caught:
        read_gguf(str(path))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert caught.value.hresult == errors.FILE_CORRUPT
    assert "IWinMLRuntime.LoadModelFromFile" in str(caught.value)
    assert str(path) in str(caught.value.native_message)
    assert peak < 2_000_000


@pytest.mark.parametrize("kept", [1, 3, 4, 10, 24, 40, 100, 300, 500, 600])
def test_s_lod_01_a_truncated_file_is_refused(tmp_path: Path, kept: int) -> None:
    path = small_model(tmp_path)
    path.write_bytes(path.read_bytes()[:kept])
    with pytest.raises(WinMLError, match=r"small\.gguf") as caught:
        read_gguf(str(path))
    assert caught.value.hresult == errors.FILE_CORRUPT


def test_s_lod_01_the_message_of_a_truncated_file_has_both_sizes(tmp_path: Path) -> None:
    path = small_model(tmp_path)
    size = path.stat().st_size
    path.write_bytes(path.read_bytes()[:-40])
    with pytest.raises(WinMLError, match=rf"ends at byte {size}, the file has {size - 40}"):
        GgufFile(path)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "empty"),
        (b"version https://git-lfs.github.com/spec/v1\n", "Git LFS pointer"),
        (b"<!DOCTYPE html><html>", "web page"),
        (b"\x08\x08\x12\x07pytorch" + bytes(40), r"ONNX model \(\.onnx\)"),
        (b"\x18\x00\x00\x00ORTM" + bytes(40), r"ONNX Runtime model"),
        (b"PK\x03\x04 zip file", "PK"),
    ],
)
def test_s_lod_03_common_wrong_contents_are_named(tmp_path: Path, content: bytes, said: str) -> None:
    path = tmp_path / "wrong.gguf"
    path.write_bytes(content)
    with pytest.raises(WinMLError, match=said):
        GgufFile(path)


def test_a_missing_file_and_a_missing_folder(tmp_path: Path) -> None:
    with pytest.raises(WinMLError, match=r"none\.gguf") as missing_file:
        GgufFile(tmp_path / "none.gguf")
    with pytest.raises(WinMLError) as missing_folder:
        GgufFile(tmp_path / "no folder" / "none.gguf")
    assert missing_file.value.hresult == errors.FILE_NOT_FOUND
    assert missing_folder.value.hresult == errors.PATH_NOT_FOUND


def test_a_folder_is_an_invalid_argument(tmp_path: Path) -> None:
    with pytest.raises(WinMLError) as caught:
        GgufFile(tmp_path)
    assert caught.value.hresult == errors.E_INVALIDARG


def two_shards(folder: Path) -> tuple[Path, ...]:
    tensors: Tensors = {"a": np.ones(4, np.float32), "b": np.ones(4, np.float32)}
    return write_shards(folder, "m", {"general.architecture": "llama"}, tensors)


def test_s_lod_06_the_first_shard_opens_all(tmp_path: Path) -> None:
    first, second = two_shards(tmp_path)
    artifact = read_gguf(str(first))
    assert [shard.path for shard in artifact.shards] == [str(first), str(second)]
    assert artifact.file.architecture == "llama"


def test_a_later_shard_is_an_invalid_argument_that_names_the_first(tmp_path: Path) -> None:
    _, second = two_shards(tmp_path)
    with pytest.raises(WinMLError, match="m-00001-of-00002") as caught:
        read_gguf(str(second))
    assert caught.value.hresult == errors.E_INVALIDARG


def test_s_lod_06_a_missing_shard_is_named(tmp_path: Path) -> None:
    first, second = two_shards(tmp_path)
    second.unlink()
    with pytest.raises(WinMLError, match="m-00002-of-00002") as caught:
        read_gguf(str(first))
    assert caught.value.hresult == errors.FILE_NOT_FOUND


def test_s_lod_06_shards_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    first, second = two_shards(tmp_path)
    second.write_bytes(first.read_bytes())
    with pytest.raises(WinMLError, match="m-00002-of-00002") as caught:
        read_gguf(str(first))
    assert caught.value.hresult == errors.FILE_CORRUPT


def test_s_lod_06_a_damaged_shard_is_refused_at_load(tmp_path: Path) -> None:
    first, second = two_shards(tmp_path)
    second.write_bytes(second.read_bytes()[:-20])
    with pytest.raises(WinMLError, match="m-00002-of-00002") as caught:
        read_gguf(str(first))
    assert caught.value.hresult == errors.FILE_CORRUPT


def test_s_lod_06_a_renamed_first_shard_says_its_name(tmp_path: Path) -> None:
    first, _ = two_shards(tmp_path)
    with pytest.raises(WinMLError, match="-00001-of-00002"):
        read_gguf(str(first.rename(tmp_path / "model.gguf")))


def test_a_renamed_later_shard_is_an_invalid_argument(tmp_path: Path) -> None:
    _, second = two_shards(tmp_path)
    with pytest.raises(WinMLError, match="load the first one") as caught:
        read_gguf(str(second.rename(tmp_path / "model.gguf")))
    assert caught.value.hresult == errors.E_INVALIDARG


def test_one_shard_of_one_is_a_model(tmp_path: Path) -> None:
    path = write_gguf(tmp_path / "m-00001-of-00001.gguf", {"general.architecture": "llama"})
    assert [shard.path for shard in read_gguf(str(path)).shards] == [str(path)]
