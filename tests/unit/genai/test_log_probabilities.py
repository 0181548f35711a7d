"""Log probabilities against NumPy over random rows."""

from __future__ import annotations

import numpy as np
import pytest

from genai.log_probabilities import token_logprob


@pytest.mark.parametrize("count", [0, 1, 5, 999, 1000, 5000])
@pytest.mark.parametrize("spread", [0.0, 1.0, 30.0])
def test_equal_to_numpy(count: int, spread: float) -> None:
    row = (np.random.default_rng(3).standard_normal(1000) * spread).astype(np.float32)
    z = row.astype(np.float64)
    expected = z - np.log(np.exp(z - z.max()).sum()) - z.max()
    record = token_logprob(row, 7, count)
    order = np.argsort(-z, kind="stable")[:count]
    assert (record.token_id, record.logprob) == (7, pytest.approx(expected[7], abs=1e-12))
    assert [token_id for token_id, _ in record.top] == order.tolist()
    assert [value for _, value in record.top] == pytest.approx(expected[order].tolist(), abs=1e-12)


def test_the_row_is_left_unchanged() -> None:
    row = np.array([np.nan, 1, np.inf], np.float64)
    before = row.tobytes()
    token_logprob(row, 2, 3)
    assert row.tobytes() == before


def test_huge_logits_do_not_overflow() -> None:
    assert token_logprob(np.array([1e30, 1e30, -1e30]), 1, 1).logprob == pytest.approx(-np.log(2))


def test_an_impossible_token_has_minus_infinity() -> None:
    assert token_logprob(np.array([1.0, -np.inf]), 1, 2).logprob == -np.inf
