"""Reading `model.bin`: element types, scales, aliases, and files that contradict themselves."""

from __future__ import annotations

import os
import struct
import sys
from pathlib import Path

import numpy as np
import pytest

from genai.convert.ctranslate2 import CTranslate2File
from models.whisper_weights import Stored, model_bytes
from winml_lite import WinMLError

TWO_ROWS = np.array([[1, -2, 3], [10, 20, -30]])


def write(tmp_path: Path, variables: dict[str, Stored], aliases: dict[str, str] | None = None) -> Path:
    path = tmp_path / "model.bin"
    path.write_bytes(model_bytes(variables, aliases or {}))
    return path


def head(*parts: bytes, version: int = 6, count: int = 1) -> bytes:
    return struct.pack("<IH", version, 5) + b"Spec\0" + struct.pack("<II", 3, count) + b"".join(parts)


def variable(shape: tuple[int, ...], kind: int, size: int, data: bytes = b"") -> bytes:
    extents = struct.pack(f"<HBBB{len(shape)}I", 2, ord("a"), 0, len(shape), *shape)
    return extents + struct.pack("<BI", kind, size) + data


@pytest.mark.parametrize("dtype", [np.float32, np.float16, np.int8, np.int16, np.int32])
def test_element_types(tmp_path: Path, dtype: type[np.generic]) -> None:
    stored: dict[str, Stored] = {"a": TWO_ROWS.astype(dtype), "a_scale": np.array(1, np.float32)}
    with CTranslate2File(write(tmp_path, stored)) as file:
        values = file.floats("a")
    assert values.dtype == np.float32
    assert values.tolist() == [[1, -2, 3], [10, 20, -30]]


def test_bfloat16(tmp_path: Path) -> None:
    # The upper halves of the float32 1.0 and -2.5.
    with CTranslate2File(write(tmp_path, {"a": np.array([0x3F80, 0xC020], np.uint16)})) as file:
        assert file.floats("a").tolist() == [1.0, -2.5]


def test_integers_are_divided_by_the_scale_of_their_row(tmp_path: Path) -> None:
    stored: dict[str, Stored] = {"a": TWO_ROWS.astype(np.int8), "a_scale": np.array([2, 10], np.float32)}
    with CTranslate2File(write(tmp_path, stored)) as file:
        assert file.floats("a").tolist() == [[0.5, -1, 1.5], [1, 2, -3]]


def test_some_rows(tmp_path: Path) -> None:
    stored: dict[str, Stored] = {"a": TWO_ROWS.astype(np.int8), "a_scale": np.array([2, 10], np.float32)}
    with CTranslate2File(write(tmp_path, stored)) as file:
        assert file.floats("a", slice(1, 2)).tolist() == [[1, 2, -3]]


def test_a_scalar(tmp_path: Path) -> None:
    with CTranslate2File(write(tmp_path, {"heads": np.array(6, np.int16)})) as file:
        assert (file.scalar("heads"), file.variables["heads"].shape) == (6.0, ())


def test_an_alias_is_its_variable(tmp_path: Path) -> None:
    path = write(tmp_path, {"a": np.array([7], np.float32)}, {"b": "a"})
    with CTranslate2File(path) as file:
        assert file.floats("b").tolist() == [7]
        assert file.variables["b"] == file.variables["a"]


def test_the_head(tmp_path: Path) -> None:
    path = tmp_path / "model.bin"
    path.write_bytes(model_bytes({}, {}, (6, "TransformerSpec", 7)))
    with CTranslate2File(path) as file:
        assert (file.specification, file.revision, dict(file.variables)) == ("TransformerSpec", 7, {})


def test_progress_counts_each_variable_once(tmp_path: Path) -> None:
    calls: list[tuple[int, int]] = []
    path = write(tmp_path, {"a": np.zeros(3, np.float32), "b": np.zeros(5, np.float32)}, {"c": "a"})
    with CTranslate2File(path, lambda done, total: calls.append((done, total))) as file:
        for name in ("a", "a", "b"):
            file.report(name)
    assert calls == [(12, 32), (32, 32)]


def test_values_that_are_not_finite(tmp_path: Path) -> None:
    with (
        CTranslate2File(write(tmp_path, {"a": np.array([1, np.nan], np.float32)})) as file,
        pytest.raises(WinMLError, match=r"0x80070570.*model\.bin: a has values that are not finite"),
    ):
        file.floats("a")


def test_a_scale_of_zero(tmp_path: Path) -> None:
    stored: dict[str, Stored] = {"a": np.ones((1, 2), np.int8), "a_scale": np.zeros(1, np.float32)}
    with CTranslate2File(write(tmp_path, stored)) as file, pytest.raises(WinMLError, match="not finite"):
        file.floats("a")


def test_a_missing_file(tmp_path: Path) -> None:
    with pytest.raises(WinMLError, match=r"0x80070002.*there is no file .*absent"):
        CTranslate2File(tmp_path / "absent")


def test_an_empty_file(tmp_path: Path) -> None:
    (tmp_path / "model.bin").write_bytes(b"")
    with pytest.raises(WinMLError, match=r"0x80070570.*model\.bin cannot be read"):
        CTranslate2File(tmp_path / "model.bin")


@pytest.mark.skipif(sys.platform == "win32", reason="pipes are no files there")
def test_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "model.bin")
    with pytest.raises(WinMLError, match="is not a file"):
        CTranslate2File(tmp_path / "model.bin")


def test_another_version_is_named(tmp_path: Path) -> None:
    (tmp_path / "model.bin").write_bytes(model_bytes({}, {}, (5, "WhisperSpec", 3)))
    with pytest.raises(WinMLError, match=r"0x80070032.*version 6, the only one that is read; it begins with 5"):
        CTranslate2File(tmp_path / "model.bin")


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (struct.pack("<I", 6), "ends within the specification"),
        (struct.pack("<IH", 6, 60000), "the specification has 60000 characters"),
        (struct.pack("<IH", 6, 2) + b"\xff\0", "the specification is not UTF-8"),
        (head(count=(1 << 32) - 1), "ends within the name of a variable"),
        (head(variable((2,), 9, 8, bytes(8))), "a has the unknown type 9"),
        (head(variable((2,), 0, 4, bytes(8))), r"a of shape \(2,\) cannot have 4 bytes"),
        (head(variable((1 << 31, 1 << 31, 4), 0, 0)), "cannot have 0 bytes"),
        (head(variable((1 << 30,), 0, 1 << 32 - 1)), "cannot have"),
        (head(variable((1 << 29,), 0, 1 << 31)), "ends within a"),
        (head(variable((1,) * 5, 0, 4, bytes(4))), "a has 5 dimensions"),
        (head(*[variable((1,), 0, 4, bytes(4))] * 2, count=2), "a is there twice"),
        (head(variable((1,), 0, 4, bytes(4))), "ends within the number of aliases"),
        (head(count=0) + struct.pack("<IH", 1, 2) + b"b\0" + struct.pack("<H", 2) + b"a\0", "alias b of a cannot be"),
    ],
)
def test_a_file_that_contradicts_itself(tmp_path: Path, data: bytes, reason: str) -> None:
    (tmp_path / "model.bin").write_bytes(data)
    with pytest.raises(WinMLError, match=rf"0x80070570.*model\.bin: .*{reason}"):
        CTranslate2File(tmp_path / "model.bin")
