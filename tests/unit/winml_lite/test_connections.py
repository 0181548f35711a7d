"""Unknown ranks on an edge; the other rules are in `contract/test_graph.py`."""

from __future__ import annotations

from winml_lite.connections import is_compatible, is_token_row, may_hold_as_many
from winml_lite.storage import shape_text
from winml_lite.values import ANY_SHAPE, FREE_DIMENSION, TensorDataType, is_fixed

F32, I32, I64 = TensorDataType.FLOAT32, TensorDataType.INT32, TensorDataType.INT64


def test_unknown_rank_meets_any_shape_of_its_type() -> None:
    assert is_compatible((F32, ANY_SHAPE), (F32, (2, 3)))
    assert is_compatible((F32, (2, 3)), (F32, ANY_SHAPE))
    assert not is_compatible((F32, ANY_SHAPE), (I64, (2, 3)))


def test_scalar_is_not_of_unknown_rank() -> None:
    assert not is_compatible((F32, ()), (F32, (2, 3)))


def test_unknown_rank_may_be_tokens() -> None:
    assert is_token_row((I32, ANY_SHAPE))
    assert not is_token_row((F32, ANY_SHAPE))


def test_unknown_rank_may_hold_as_many() -> None:
    assert may_hold_as_many((F32, ANY_SHAPE), (F32, (2, 3)))
    assert not may_hold_as_many((I32, ANY_SHAPE), (F32, (2, 3)))


def test_unknown_rank_is_not_fixed() -> None:
    assert is_fixed(())
    assert not is_fixed((2, FREE_DIMENSION))
    assert not is_fixed(ANY_SHAPE)


def test_unknown_rank_shows_dots() -> None:
    assert shape_text(ANY_SHAPE) == "[...]"
    assert shape_text(()) == "[]"
