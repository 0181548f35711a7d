"""TokenSelector against a plain float64 reference over many rows, and the rules of its input."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from fakes.reference_sampler import draw, numbers, penalised
from genai import candidates, sampling
from genai.options import TextGenerationOptions
from genai.sampling import TokenSelector
from winml_lite import WinMLError

Row = npt.NDArray[np.float32]

CHAINS: list[dict[str, float]] = [
    {"temperature": 0.8, "top_k": 40, "top_p": 0.95, "min_p": 0.05},
    {"temperature": 0.8, "top_k": 40},
    {"temperature": 1.3, "top_k": 2},
    {"temperature": 1.0, "top_k": 300, "top_p": 0.9},
    {"temperature": 1.0, "top_k": 5000, "top_p": 0.999},
    {"temperature": 0.8, "top_p": 0.95, "min_p": 0.05},
    {"temperature": 0.7, "top_p": 0.9},
    {"temperature": 2.5, "top_p": 0.99},
    {"temperature": 1.0, "min_p": 0.02},
    {"temperature": 1.0},
    {"temperature": 4.0},
    {"temperature": 1e-4, "top_p": 0.5},
    {"temperature": 0.8, "typical_p": 0.9},
    {"temperature": 1.5, "typical_p": 0.2, "top_p": 0.9},
    {"temperature": 0.8, "typical_p": 0.7, "top_k": 40, "min_p": 0.05},
    {"temperature": 0.8, "top_n_sigma": 1.0},
    {"temperature": 1.0, "top_n_sigma": 3.0, "top_k": 60, "top_p": 0.9},
    {"temperature": 1.0, "top_n_sigma": 2.0, "typical_p": 0.8},
    {"temperature": 1.0, "xtc_probability": 1.0, "xtc_threshold": 0.01},
    {"temperature": 1.0, "xtc_probability": 0.5, "xtc_threshold": 0.0001},
    {"temperature": 0.7, "xtc_probability": 0.5, "top_k": 40, "top_p": 0.95},
    {"temperature": 0.7, "xtc_probability": 1.0, "top_p": 0.95, "min_p": 0.02, "typical_p": 0.9},
    {},
]


def normal(size: int, spread: float, generator: np.random.Generator) -> Row:
    return (generator.standard_normal(size) * spread).astype(np.float32)


def rounded(size: int, spread: float, generator: np.random.Generator) -> Row:
    """Many ties."""
    return np.round(normal(size, spread, generator))


def flat(size: int, spread: float, generator: np.random.Generator) -> Row:
    return np.zeros(size, np.float32)


def masked(size: int, spread: float, generator: np.random.Generator) -> Row:
    """Only a few legal tokens, like under a grammar."""
    row = np.full(size, -np.inf, np.float32)
    row[generator.integers(0, size, 7)] = normal(7, spread, generator)
    return row


def lowest(size: int, spread: float, generator: np.random.Generator) -> Row:
    """Masked by the lowest finite number."""
    row = normal(size, spread, generator)
    row[generator.random(size) < 0.9] = np.finfo(np.float32).min
    return row


def peaked(size: int, spread: float, generator: np.random.Generator) -> Row:
    row = normal(size, spread, generator)
    row[generator.integers(0, size)] += 12
    return row


def spoiled(size: int, spread: float, generator: np.random.Generator) -> Row:
    row = normal(size, spread, generator)
    row[generator.integers(0, size, 5)] = np.nan
    row[generator.integers(0, size, 5)] = -np.inf
    row[0] = 1
    return row


def endless(size: int, spread: float, generator: np.random.Generator) -> Row:
    row = normal(size, spread, generator)
    row[generator.integers(0, size, 3)] = np.inf
    row[generator.integers(0, size, 3)] = -np.inf
    return row


def ascending(size: int, spread: float, generator: np.random.Generator) -> Row:
    """The highest all at the end: columns of the fold are as uneven as they can be."""
    return np.sort(normal(size, spread, generator))


SHAPES = [normal, rounded, flat, masked, lowest, peaked, spoiled, endless, ascending]


LAST = 1 - 2.0**-53
"""The largest random number: it draws the last token that the filters keep, and so shows where they cut."""


def disagreements(size: int, chain: dict[str, float], rows: list[Row]) -> list[tuple[int, int, int]]:
    """Draw once from each row; return index, our token and the reference's where they differ."""
    options = TextGenerationOptions(seed=17, **chain)  # type: ignore[arg-type]
    selector = TokenSelector(options, size)
    found = []
    for index, row in enumerate(rows):
        u, chance = numbers(17, index)
        expected = draw(penalised(row, options, (), ()), options, u, chance < options.xtc_probability)
        actual = selector.select(row)
        selector.accept(0)
        if actual != expected:
            found.append((index, actual, expected))
    return found


@pytest.mark.parametrize("chain", CHAINS, ids=str)
@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: shape.__name__)
@pytest.mark.parametrize("size", [5, 1027, 4099])
def test_selection_equals_the_reference(size: int, shape: Any, chain: dict[str, float]) -> None:
    generator = np.random.default_rng(size)
    rows = [shape(size, spread, generator) for spread in (0.5, 2, 5) for _ in range(2)]
    assert disagreements(size, chain, rows) == []


@pytest.mark.parametrize("chain", CHAINS[:-1], ids=str)
@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: shape.__name__)
@pytest.mark.parametrize("u", [0.317, 0.9071, LAST])
def test_the_filters_cut_where_the_reference_cuts(
    u: float, shape: Any, chain: dict[str, float], monkeypatch: pytest.MonkeyPatch
) -> None:
    options = TextGenerationOptions(**chain)  # type: ignore[arg-type]
    row = shape(2049, 2, np.random.default_rng(8))
    selector = TokenSelector(options, 2049)
    monkeypatch.setattr(sampling, "split_mix64", lambda seed, place=0: int(u * 2**53) << 11)
    u = int(u * 2**53) / 2**53
    expected = draw(penalised(row, options, (), ()), options, u, u < options.xtc_probability)
    assert selector.select(row) == expected


@pytest.mark.parametrize("chain", CHAINS, ids=str)
@pytest.mark.parametrize("size", [49_152, 151_937])
def test_selection_equals_the_reference_on_large_vocabularies(size: int, chain: dict[str, float]) -> None:
    generator = np.random.default_rng(size)
    assert disagreements(size, chain, [normal(size, 2.5, generator), rounded(size, 2, generator)]) == []


@pytest.mark.parametrize(
    "penalties",
    [
        {"repetition_penalty": 1.3},
        {"repetition_penalty": 0.7, "repetition_penalty_window": 9},
        {"presence_penalty": 0.6, "frequency_penalty": 0.2},
        {"presence_penalty": -0.5},
        {"repetition_penalty": 1.1, "repetition_penalty_window": 3, "presence_penalty": 0.3, "frequency_penalty": -0.1},
    ],
    ids=str,
)
@pytest.mark.parametrize("chain", [CHAINS[0], CHAINS[6], {}], ids=str)
def test_penalties_equal_the_reference_over_a_generation(chain: dict[str, float], penalties: dict[str, float]) -> None:
    size, generator = 1500, np.random.default_rng(3)
    options = TextGenerationOptions(seed=29, **chain, **penalties)  # type: ignore[arg-type]
    prompt = [int(token) for token in generator.integers(0, 60, 30)]
    selector = TokenSelector(options, size, prompt)
    base = normal(size, 1, generator)
    base[:60] += 4  # so that penalised tokens compete
    emitted: list[int] = []
    for place in range(60):
        row = base + normal(size, 0.1, generator)
        expected = draw(penalised(row, options, prompt, emitted), options, numbers(29, place)[0])
        token_id = selector.select(row)
        assert token_id == expected
        selector.accept(token_id)
        emitted.append(token_id)


def test_the_mass_is_summed_again_where_single_precision_cannot_decide(monkeypatch: pytest.MonkeyPatch) -> None:
    exact: list[int] = []
    original = candidates.Candidates._exact_mass

    def counted(self: candidates.Candidates, row: Row, peak: float) -> float:
        exact.append(1)
        return original(self, row, peak)

    monkeypatch.setattr(candidates.Candidates, "_exact_mass", counted)
    selector = TokenSelector(TextGenerationOptions(temperature=1, top_p=0.5, seed=3), 8192)
    selector.select(np.zeros(8192, np.float32))  # 4,096 equal tokens reach one half exactly
    assert exact == [1]


@pytest.mark.parametrize("chain", CHAINS, ids=str)
@pytest.mark.parametrize("penalty", [1.0, 1.5])
def test_the_row_is_left_unchanged(chain: dict[str, float], penalty: float) -> None:
    row = spoiled(2000, 2, np.random.default_rng(1))
    before = row.tobytes()
    row.flags.writeable = False
    options = TextGenerationOptions(seed=1, repetition_penalty=penalty, **chain)  # type: ignore[arg-type]
    TokenSelector(options, 2000, [1, 2, 3]).select(row)
    assert row.tobytes() == before


@pytest.mark.parametrize("chain", CHAINS, ids=str)
def test_float64_rows_are_used_as_they_are(chain: dict[str, float]) -> None:
    row = np.random.default_rng(5).standard_normal(3000)
    options = TextGenerationOptions(seed=6, **chain)  # type: ignore[arg-type]
    u, chance = numbers(6)
    assert TokenSelector(options, 3000).select(row) == draw(row, options, u, chance < options.xtc_probability)


def test_strided_rows_are_accepted() -> None:
    block = np.random.default_rng(5).standard_normal((3000, 2)).astype(np.float32)
    options = TextGenerationOptions(temperature=1, top_k=40, seed=6)
    strided, packed = block[:, 0], block[:, 0].copy()
    assert TokenSelector(options, 3000).select(strided) == TokenSelector(options, 3000).select(packed)


def test_a_row_of_another_length_is_refused() -> None:
    with pytest.raises(WinMLError, match=r"0x8007000D.*shape \(4,\) was expected, not \(5,\)"):
        TokenSelector(TextGenerationOptions(), 4).select(np.zeros(5, np.float32))


def test_prompt_ids_past_the_row_have_no_logit_to_penalise() -> None:
    options = TextGenerationOptions(repetition_penalty=2, repetition_penalty_window=2)
    selector = TokenSelector(options, 3, [7, 0, 9])
    assert selector.select(np.array([2, 1.5, 0], np.float32)) == 1
    selector.accept(2)
    assert selector.select(np.array([2, 1.5, 0], np.float32)) == 0


def test_the_prompt_is_not_read_after_construction() -> None:
    prompt = [0]
    selector = TokenSelector(TextGenerationOptions(repetition_penalty=2), 3, prompt)
    prompt.append(1)
    assert selector.select(np.array([2, 1.5, 0], np.float32)) == 1


def test_penalties_overflow_without_a_warning() -> None:
    selector = TokenSelector(TextGenerationOptions(repetition_penalty=1e-300, frequency_penalty=1e308), 3, [0, 1])
    selector.accept(2)
    selector.accept(2)
    assert selector.select(np.array([1e30, -1, 1e38], np.float32)) == 0


def test_a_given_seed_is_reported() -> None:
    assert TokenSelector(TextGenerationOptions(seed=5), 3).seed == 5


def test_a_fresh_seed_is_never_zero_and_differs() -> None:
    seeds = {TokenSelector(TextGenerationOptions(), 3).seed for _ in range(20)}
    assert len(seeds) == 20 and 0 not in seeds
    assert max(seeds) < 2**53  # a JSON reader with doubles only gives them back as they are


def test_greedy_without_penalties_makes_no_buffers() -> None:
    selector = TokenSelector(TextGenerationOptions(top_k=40, top_p=0.9), 262_144)
    assert (selector._candidates, selector._work) == (None, None)


def test_the_first_row_says_the_size_of_the_vocabulary_where_it_is_not_known() -> None:
    options = TextGenerationOptions(temperature=0.7, repetition_penalty=1.3, seed=5)
    known, unknown = TokenSelector(options, 40, [1, 2]), TokenSelector(options, 0, [1, 2])
    row = np.random.default_rng(3).standard_normal(40).astype(np.float32)
    assert [unknown.select(row), unknown.select(row[::-1])] == [known.select(row), known.select(row[::-1])]
    with pytest.raises(WinMLError, match=r"0x8007000D.*shape \(40,\) was expected, not \(41,\)"):
        unknown.select(np.zeros(41, np.float32))


@pytest.mark.parametrize("shape", [(1, 4), (0,), ()])
def test_a_first_row_that_is_no_row_is_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(WinMLError, match=r"0x8007000D.*one dimension was expected"):
        TokenSelector(TextGenerationOptions(), 0).select(np.zeros(shape, np.float32))
