"""Which model it is: digests of files, whole and in samples."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from winml_lite import WinMLError
from winml_lite.files import content
from winml_lite.files.content import file_digest, model_digest
from winml_lite.files.onnx import read_onnx, read_onnx_bytes


@pytest.fixture
def small_samples(monkeypatch: pytest.MonkeyPatch) -> None:
    """A head of 16 bytes, then three blocks of 4."""
    content._digest_of_file.cache_clear()
    monkeypatch.setattr(content, "HEAD", 16)
    monkeypatch.setattr(content, "BLOCK", 4)
    monkeypatch.setattr(content, "BLOCK_COUNT", 3)


def digest(folder: Path, data: bytes, name: str = "file") -> bytes:
    path = folder / name
    path.write_bytes(data)
    return file_digest(str(path))


def changed(data: bytes, place: int) -> bytes:
    return data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :]


def test_equal_contents_have_one_digest_wherever_they_lie(tmp_path: Path) -> None:
    assert digest(tmp_path, b"abc", "one") == digest(tmp_path, b"abc", "two")


def test_a_small_file_counts_whole(tmp_path: Path) -> None:
    data = bytes(range(100))
    digests = {digest(tmp_path, changed(data, place), f"file-{place}") for place in (0, 50, 99)}
    assert len(digests | {digest(tmp_path, data)}) == 4


def test_the_size_counts(tmp_path: Path) -> None:
    assert digest(tmp_path, bytes(10), "one") != digest(tmp_path, bytes(11), "two")


@pytest.mark.usefixtures("small_samples")
@pytest.mark.parametrize("place", [0, 15, 16, 19, 56, 59, 96, 99])
def test_head_blocks_and_end_of_a_large_file_count(tmp_path: Path, place: int) -> None:
    data = bytes(range(100))
    assert digest(tmp_path, changed(data, place), "changed") != digest(tmp_path, data)


@pytest.mark.usefixtures("small_samples")
def test_between_the_blocks_nothing_is_read(tmp_path: Path) -> None:
    data = bytes(range(100))
    assert digest(tmp_path, changed(data, 30), "changed") == digest(tmp_path, data)


def test_a_file_that_changes_gets_another_digest(tmp_path: Path) -> None:
    before = digest(tmp_path, b"before")
    os.utime(tmp_path / "file", (1, 1))
    assert digest(tmp_path, b"after!") != before


def test_a_file_that_is_gone_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(WinMLError, match="absent"):
        file_digest(str(tmp_path / "absent"))


def test_external_data_is_part_of_an_onnx_model(tmp_path: Path) -> None:
    from models.onnx_models import external_weights

    graph, weights = external_weights()
    (tmp_path / "model.onnx").write_bytes(graph.SerializeToString())
    (tmp_path / "weights.bin").write_bytes(weights)
    before = model_digest(read_onnx(str(tmp_path / "model.onnx")))
    (tmp_path / "weights.bin").write_bytes(changed(weights, 0))
    os.utime(tmp_path / "weights.bin", (1, 1))
    assert model_digest(read_onnx(str(tmp_path / "model.onnx"))) != before


def test_a_model_in_memory_has_a_digest_of_its_bytes(tmp_path: Path) -> None:
    from models.onnx_models import external_weights

    graph, weights = external_weights()
    data = graph.SerializeToString()
    one = model_digest(read_onnx_bytes(data, {"weights.bin": memoryview(weights)}))
    two = model_digest(read_onnx_bytes(data, {"weights.bin": memoryview(changed(weights, 3))}))
    assert one != two


def test_a_model_that_changed_after_it_was_read_is_refused(tmp_path: Path) -> None:
    from models.onnx_models import add, save

    path = save(add(), tmp_path / "model.onnx")
    artifact = read_onnx(str(path))
    os.utime(path, (1, 1))
    with pytest.raises(WinMLError, match="has changed"):
        model_digest(artifact)
