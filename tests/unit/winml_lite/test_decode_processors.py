"""The choice of a token, and the record that undoes a run."""

from __future__ import annotations

import tracemalloc

import numpy as np
import numpy.typing as npt
import pytest

from winml_lite.connections import may_hold_as_many
from winml_lite.decode_processors import largest
from winml_lite.processor_stage import Journal
from winml_lite.storage import allocate
from winml_lite.values import FREE_DIMENSION, TensorDataType

F16, F32, I32 = TensorDataType.FLOAT16, TensorDataType.FLOAT32, TensorDataType.INT32
NAN, INFINITY = float("nan"), float("inf")


@pytest.mark.parametrize("dtype", [np.float16, np.float32])
@pytest.mark.parametrize(
    ("row", "position"),
    [
        ([1, 3, 2], 1),
        ([3, 1, 3], 0),
        ([-3, -1, -2, -1], 1),
        ([-1, 0, 0], 1),
        ([-0.0, 0.0], 0),
        ([0.0, -0.0], 0),
        ([NAN, -5, -6], 1),
        ([-6, -5, -NAN], 1),
        ([1, NAN, 2], 2),
        ([NAN, NAN], 0),
        ([-NAN, -NAN], 0),
        ([-INFINITY, NAN], 0),
        ([NAN, -INFINITY], 0),
        ([5, INFINITY, INFINITY], 1),
        ([-INFINITY, -INFINITY], 0),
        ([7], 0),
    ],
)
def test_the_first_of_the_largest_is_chosen(dtype: npt.DTypeLike, row: list[float], position: int) -> None:
    assert largest(np.array(row, dtype)) == position


def test_every_pair_of_halves_is_compared_like_floats() -> None:
    rng = np.random.default_rng(1)
    pairs = rng.integers(0, 1 << 16, (2000, 2), np.uint16).view(np.float16)
    finite = pairs[np.isfinite(pairs).all(axis=1)]
    assert [largest(pair) for pair in finite] == finite.astype(np.float32).argmax(axis=1).tolist()


def test_a_journal_puts_back_what_was_there() -> None:
    storage = allocate(I32, (3,))
    cells = storage.array()
    journal = Journal()
    journal.write(cells[1:2], 5)
    journal.write(cells[1:2], 6)
    journal.write(cells[2:], 7)
    assert cells.tolist() == [0, 6, 7]
    journal.take_back()
    assert cells.tolist() == [0, 0, 0]


def test_a_journal_forgets() -> None:
    storage = allocate(I32, (1,))
    journal = Journal()
    journal.write(storage.array(), 5)
    journal.forget()
    journal.take_back()
    assert storage.array().tolist() == [5]


@pytest.mark.parametrize(
    ("given", "fits"),
    [
        ((F32, (1, 8)), True),
        ((F32, (1, 1, 8)), True),
        ((F32, (FREE_DIMENSION, FREE_DIMENSION, 8)), True),
        ((F32, (FREE_DIMENSION, 4)), True),
        ((F32, (FREE_DIMENSION, 3)), False),
        ((F32, (2, 8)), False),
        ((F32, (0, 8)), False),
        ((F32, (FREE_DIMENSION, 0)), False),
        ((F16, (1, 8)), False),
    ],
)
def test_an_output_may_hold_as_many_elements(given: tuple[TensorDataType, tuple[int, ...]], fits: bool) -> None:
    assert may_hold_as_many(given, (F32, (1, 8))) is fits


@pytest.mark.parametrize("dtype", [np.float16, np.float32])
@pytest.mark.parametrize("sign", [1, -1])
def test_choosing_copies_no_logits(dtype: npt.DTypeLike, sign: int) -> None:
    row = np.full(100_000, sign, dtype)
    row[70_000] = sign * (1 + sign / 2)
    tracemalloc.start()
    try:
        assert largest(row) == 70_000
        assert tracemalloc.get_traced_memory()[1] < 10_000
    finally:
        tracemalloc.stop()
