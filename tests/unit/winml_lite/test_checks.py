"""The two families of argument checks (runtime 1.3)."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from winml_lite import ExecutionTargetKind, TensorDataType
from winml_lite.checks import (
    engine_text,
    enum_value,
    flag_value,
    index_value,
    member_of,
    number_value,
    path_value,
    text_value,
)


class Five:
    def __index__(self) -> int:
        return 5


@pytest.mark.parametrize("check", [index_value, number_value])
@pytest.mark.parametrize("value", [5, np.int8(5), np.uint64(5), Five()])
def test_integers_of_any_kind(check: object, value: object) -> None:
    result = check(value, "count")  # type: ignore[operator]
    assert type(result) is int
    assert result == 5


@pytest.mark.parametrize("value", [True, np.True_, 1.0, np.float32(1), "1", None, [1], b"1"])
def test_what_is_no_integer(value: object) -> None:
    with pytest.raises(TypeError, match="index must be an integer"):
        index_value(value, "index")
    with pytest.raises(ValueError, match="extent must be an integer"):
        number_value(value, "extent")


@pytest.mark.parametrize("value", [-1, 2**32])
def test_the_default_range_is_uint32(value: int) -> None:
    with pytest.raises(ValueError):
        index_value(value, "index")
    with pytest.raises(ValueError):
        number_value(value, "extent")
    assert index_value(2**32 - 1, "index") == 2**32 - 1


def test_a_range_of_its_own() -> None:
    assert index_value(1, "capacity", 8, 1) == 1
    with pytest.raises(ValueError, match=r"capacity must be in 1\.\.8, not 0"):
        index_value(0, "capacity", 8, 1)
    with pytest.raises(ValueError):
        index_value(9, "capacity", 8, 1)


def test_texts() -> None:
    assert text_value("", "name") == ""
    with pytest.raises(ValueError, match="name must be a str, not bytes"):
        text_value(b"x", "name")


@pytest.mark.parametrize("value", ["a\0b", "\ud800", b"x"])
def test_texts_that_c_would_not_get_whole(value: object) -> None:
    assert engine_text("größe", "name") == "größe"
    with pytest.raises(ValueError, match="name must be"):
        engine_text(value, "name")


def test_paths() -> None:
    assert path_value("a/b") == "a/b"
    assert path_value(Path("b")) == "b"
    with pytest.raises(ValueError):
        path_value(b"a/b")


@pytest.mark.parametrize("value", [0, 1, None, "true", np.True_])
def test_flags_are_real_bools(value: object) -> None:
    assert flag_value(True, "flag") is True
    with pytest.raises(ValueError):
        flag_value(value, "flag")


def test_an_array_of_numbers_is_no_integer() -> None:
    with pytest.raises(TypeError, match="token must be an integer, not ndarray"):
        index_value(np.array([1, 2]), "token")
    with pytest.raises(ValueError, match="token must be an integer, not ndarray"):
        number_value(np.array([1, 2]), "token")


@pytest.mark.parametrize("value", [ExecutionTargetKind.GPU, 2, np.int8(2), np.uint64(2)])
def test_a_member_of_an_enumeration_or_its_number(value: object) -> None:
    assert member_of(value, ExecutionTargetKind) is ExecutionTargetKind.GPU
    assert enum_value(value, ExecutionTargetKind, "kind") is ExecutionTargetKind.GPU


@pytest.mark.parametrize(
    "value", [True, np.True_, 1.0, np.float32(1), TensorDataType.FLOAT32, "CPU", None, [1], 99, -1]
)
def test_what_is_no_member(value: object) -> None:
    assert member_of(value, ExecutionTargetKind) is None
    with pytest.raises(ValueError):
        enum_value(value, ExecutionTargetKind, "kind")


def test_who_means_no_member_is_told_the_enumeration() -> None:
    with pytest.raises(ValueError, match="kind must be a member of ExecutionTargetKind or its number, not True"):
        enum_value(True, ExecutionTargetKind, "kind")
