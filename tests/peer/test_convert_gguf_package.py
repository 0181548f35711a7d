"""Our GGUF reader against the `gguf` package: its files are read, and quantised tensors have its values."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from models.gguf_writer import Stored, write_gguf
from winml_lite import GgufFile
from winml_lite.files.quantization import STORAGE_TYPES

gguf = pytest.importorskip("gguf", reason="the package gguf is not installed")

pytestmark = pytest.mark.peer

VALUES = np.random.default_rng(5).standard_normal((3, 512)).astype(np.float32)
WITH_A_QUANTIZER = ["F16", "BF16", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0"]


@pytest.mark.parametrize("name", WITH_A_QUANTIZER)
def test_values_of_a_quantised_tensor(tmp_path: Path, name: str) -> None:
    kind = gguf.GGMLQuantizationType[name]
    stored = gguf.quants.quantize(VALUES, kind)
    path = write_gguf(tmp_path / "q.gguf", {}, {"w": Stored(int(kind), (3, 512), stored.tobytes())})
    with GgufFile(path) as file:
        assert file.tensors["w"].type_name == name
        assert np.array_equal(file.dequantize("w"), gguf.quants.dequantize(stored, kind).reshape(3, 512))


@pytest.mark.parametrize("name", ["Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K", "IQ4_XS"])
def test_k_quants_are_decoded_through_the_package(tmp_path: Path, name: str) -> None:
    kind = gguf.GGMLQuantizationType[name]
    size = gguf.GGML_QUANT_SIZES[kind][1]
    blocks = np.random.default_rng(6).integers(0, 60, (3, 2 * size), np.uint8)  # small bytes: no NaN among the scales
    path = write_gguf(tmp_path / "q.gguf", {}, {"w": Stored(int(kind), (3, 512), blocks.tobytes())})
    with GgufFile(path) as file:
        values = file.dequantize("w")
    assert values.dtype == np.float32
    assert np.array_equal(values, gguf.quants.dequantize(blocks, kind).reshape(3, 512))


def test_block_sizes_are_those_of_the_package() -> None:
    ours = {code: (kind.block_values, kind.block_bytes) for code, kind in STORAGE_TYPES.items() if kind.name != "Q8_1"}
    theirs = {int(kind): size for kind, size in gguf.GGML_QUANT_SIZES.items()}
    assert ours == {code: theirs[code] for code in ours}


def test_a_file_of_the_package_is_read(tmp_path: Path) -> None:
    path = tmp_path / "theirs.gguf"
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_block_count(3)
    writer.add_token_list(["a", "b"])
    writer.add_array("numbers", [1, 2, 3])
    writer.add_tensor("w", VALUES)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    with GgufFile(path) as file:
        assert (file.architecture, file.metadata["llama.block_count"]) == ("llama", 3)
        assert file.metadata["tokenizer.ggml.tokens"] == ["a", "b"]
        assert np.array_equal(file.metadata["numbers"], [1, 2, 3])  # type: ignore[arg-type]
        assert np.array_equal(file.dequantize("w"), VALUES)


def test_our_file_is_read_by_the_package(tmp_path: Path) -> None:
    path = write_gguf(tmp_path / "ours.gguf", {"general.architecture": "llama", "n": 7}, {"w": VALUES})
    reader = gguf.GGUFReader(path)
    assert reader.get_field("n").contents() == 7
    assert np.array_equal(reader.get_tensor(0).data, VALUES)
