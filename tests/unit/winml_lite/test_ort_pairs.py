"""What the declared shapes of a state pair say of the lengths of other inputs."""

from __future__ import annotations

import pytest

from winml_lite.files.artifact import Dimension, Port
from winml_lite.native.ort.pairs import check_pairs
from winml_lite.values import TensorDataType

FLOAT = TensorDataType.FLOAT32


@pytest.mark.parametrize(
    ("past", "present", "total"),
    [("past", "total", "total"), ("past", "past", None), ("past", None, None), (8, 8, None), (None, "total", "total")],
)
def test_only_a_symbol_of_its_own_is_the_length_of_all_positions(
    past: Dimension, present: Dimension, total: str | None
) -> None:
    inputs = (Port("past", FLOAT, ("batch", 2, past, 4)),)
    (pair,) = check_pairs([(0, 0)], inputs, (Port("present", FLOAT, ("batch", 2, present, 4)),))
    assert (pair.axis, pair.total) == (2, total)


def test_a_present_of_unknown_rank_says_nothing() -> None:
    (pair,) = check_pairs([(0, 0)], (Port("past", FLOAT, (1, "past", 4)),), (Port("present", FLOAT, (), False),))
    assert (pair.axis, pair.total) == (1, None)
