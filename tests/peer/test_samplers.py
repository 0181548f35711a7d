"""Filters and penalties next to the samplers of llama.cpp, on random rows.

Where they differ on purpose: a typical-p that is reached exactly is enough for ours, llama.cpp takes one token more;
the power of DRY is double precision here; DRY's breakers that lie over several tokens are found however they are cut.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import numpy.typing as npt
import pytest

pytest.importorskip("llama_cpp", reason="llama-cpp-python is not installed")

from fakes import llama_samplers as theirs
from fakes.reference_sampler import ranking
from genai import Tokenizer
from genai.options import TextGenerationOptions
from genai.repetitions import Dry
from genai.sampling import TokenSelector
from models.recipes import scripted_gguf

pytestmark = pytest.mark.peer

SIZE = 4000
FIRST, LAST = 0, 2**64 - 1
"""Numbers that draw the first and the last of the tokens that the filters leave."""


def rows(spread: float) -> Iterator[npt.NDArray[np.float32]]:
    generator = np.random.default_rng(11)
    for _ in range(8):
        yield (generator.standard_normal(SIZE) * spread).astype(np.float32)


def ends(row: npt.NDArray[np.float32], **options: Any) -> tuple[int, int]:
    """Return the likeliest and the least likely token that our filters leave."""
    selector = TokenSelector(TextGenerationOptions(temperature=1, **options), row.size)
    picks = []
    for number in (FIRST, LAST):
        with patch("genai.sampling.split_mix64", lambda seed, place=0, number=number: number):
            picks.append(selector.select(row))
    return picks[0], picks[1]


def likeliest_and_least(kept: dict[int, float]) -> tuple[int, int]:
    return max(kept, key=kept.__getitem__), min(kept, key=kept.__getitem__)


@pytest.mark.parametrize("spread", [1.0, 3.0])
@pytest.mark.parametrize("p", [0.1, 0.5, 0.9])
def test_typical_p(p: float, spread: float) -> None:
    for row in rows(spread):
        kept = theirs.applied(theirs.typical(p), row)
        assert ends(row, typical_p=p) == likeliest_and_least(kept)
        reference, _ = ranking(row.astype(np.float64), TextGenerationOptions(temperature=1, typical_p=p))
        assert set(reference) == set(kept)


@pytest.mark.parametrize("spread", [1.0, 3.0])
@pytest.mark.parametrize("n", [0.3, 1.0, 2.0])
def test_top_n_sigma(n: float, spread: float) -> None:
    for row in rows(spread):
        assert ends(row, top_n_sigma=n) == likeliest_and_least(theirs.applied(theirs.top_n_sigma(n), row))


def test_top_n_sigma_of_a_masked_row() -> None:
    for row in rows(2.0):
        row[::3] = -np.inf
        assert ends(row, top_n_sigma=0.5) == likeliest_and_least(theirs.applied(theirs.top_n_sigma(0.5), row))


@pytest.mark.parametrize("threshold", [0.01, 0.05, 0.3])
def test_xtc(threshold: float) -> None:
    for row in rows(3.0):
        kept = theirs.applied(theirs.xtc(threshold), row)
        assert ends(row, xtc_probability=1, xtc_threshold=threshold)[0] == likeliest_and_least(kept)[0]


def test_logit_bias() -> None:
    row = next(rows(2.0))
    bias = {3: 4.5, 17: -np.inf, 3999: -100.0}
    kept = theirs.applied(theirs.logit_bias(SIZE, bias), row)
    seen: list[npt.NDArray[np.float64]] = []

    def look(ids: tuple[int, ...], z: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        seen.append(z.copy())
        return z

    TokenSelector(TextGenerationOptions(logit_bias=bias, logits_processors=look), SIZE).select(row)
    assert {i: z for i, z in enumerate(seen[0]) if z > -np.inf} == pytest.approx(kept, abs=1e-5)


TEXTS = [
    "the cat sat on the mat. the cat sat on the",
    "one: two\nthree: two\nthree: two\nthree:",
    "a b a b a b a b a b a b",
    'he said "no" and "no" and "no" and',
    "x" * 400,
    "no repetition here",
    "**bold** and **bold** and **bold",
]


@pytest.mark.parametrize("allowed", [1, 2, 4])
@pytest.mark.parametrize("breakers", [("\n", ":", '"', "*"), ("zzz",)])
@pytest.mark.parametrize("text", TEXTS)
def test_dry(tmp_path: Path, text: str, breakers: tuple[str, ...], allowed: int) -> None:
    path = scripted_gguf(tmp_path)
    options = TextGenerationOptions(
        dry_multiplier=0.8, dry_base=1.3, dry_allowed_length=allowed, dry_sequence_breakers=breakers
    )
    with Tokenizer.from_file(path) as tokenizer, theirs.vocabulary(path) as vocabulary:
        ids = tokenizer.encode(text)
        row = np.zeros(tokenizer.token_count, np.float32)
        kept = theirs.applied(theirs.dry(vocabulary, 0.8, 1.3, allowed, breakers), row, ids)
        ours = row.astype(np.float64)
        half = len(ids) // 2
        edit = Dry(options, row.size, ids[:half], tokenizer.token_bytes)
        for token_id in ids[half:]:
            edit.accept(token_id)
        edit.apply(ours)
    assert dict(enumerate(ours.tolist())) == pytest.approx(kept, rel=1e-4, abs=1e-5)
