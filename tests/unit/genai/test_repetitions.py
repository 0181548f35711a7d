"""NoRepeat and Dry against a plain look at the whole sequence, and how DRY finds its breakers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fakes.reference_sampler import prolonged, repeated
from genai.options import TextGenerationOptions
from genai.repetitions import Dry, NgramIndex, NoRepeat


def sequence(seed: int, length: int, size: int) -> list[int]:
    """Return random ids of a small vocabulary, so that much is repeated."""
    ids: list[int] = np.random.default_rng(seed).integers(0, size, length).tolist()
    return ids


def banned(edit: NoRepeat, size: int) -> set[int]:
    row = np.zeros(size)
    edit.apply(row)
    return set(np.isneginf(row).nonzero()[0].tolist())


def lowered(edit: Dry, size: int) -> dict[int, float]:
    row = np.zeros(size)
    edit.apply(row)
    return {int(token_id): float(-row[token_id]) for token_id in row.nonzero()[0]}


def dry(prompt: list[int], pieces: list[bytes] | None = None, **options: Any) -> Dry:
    fields = {"dry_multiplier": 1.0, "dry_sequence_breakers": (), **options}
    text = None if pieces is None else pieces.__getitem__
    return Dry(TextGenerationOptions(**fields), 12, prompt, text)


@pytest.mark.parametrize("size", [1, 2, 3, 5])
@pytest.mark.parametrize("prompt_length", [0, 1, 4, 40])
def test_no_repeat_equals_a_search_of_the_sequence(size: int, prompt_length: int) -> None:
    ids = sequence(size, 120, 5)
    edit = NoRepeat(size, 5, ids[:prompt_length])
    for place in range(prompt_length, len(ids)):
        assert banned(edit, 5) == repeated(ids[:place], size)
        edit.accept(ids[place])


@pytest.mark.parametrize("allowed", [1, 2, 4])
@pytest.mark.parametrize("breakers", [(), (0,), (1, 2)])
@pytest.mark.parametrize("prompt_length", [0, 3, 60])
def test_dry_equals_a_search_of_the_sequence(allowed: int, breakers: tuple[int, ...], prompt_length: int) -> None:
    ids = sequence(allowed, 150, 4)
    edit = dry(ids[:prompt_length], dry_base=2, dry_allowed_length=allowed, dry_sequence_breakers=breakers)
    for place in range(prompt_length, len(ids)):
        expected = prolonged(ids[:place], allowed, breakers)
        assert lowered(edit, 4) == {token_id: 2.0 ** (length - allowed) for token_id, length in expected.items()}
        edit.accept(ids[place])


def test_dry_stops_growing_where_single_precision_ends() -> None:
    # ln(3.4e38) / ln(2) = 128.0: the power is at most 2**127 (88.7228391 / ln 2 = 127.9999).
    assert lowered(dry([3] * 600, dry_base=2), 12) == {3: 2.0**127}


def test_dry_with_base_one_is_the_same_for_every_length() -> None:
    assert lowered(dry([3] * 600, dry_base=1), 12) == {3: 1.0}


PIECES = [b"a", b"b", b"c\n", b"-", b"--", b"x-", b"", b"-y", b"d"]
A, B, C_LINE, DASH, DASHES, X_DASH, NOTHING, DASH_Y, D = range(9)


@pytest.mark.parametrize(
    ("breakers", "prompt", "expected"),
    [
        ("\n", [A, B, D, C_LINE, A, B], {D: 1.0}),
        ("\n", [A, C_LINE, D, A, C_LINE], {}),  # it ends with the breaker
        ("\n", [A, B, C_LINE, A, B], {}),  # what would prolong it is the breaker
        ("---", [X_DASH, DASHES, D, X_DASH, DASHES], {}),
        ("---", [A, DASHES, D, A, DASHES], {D: 1.0}),
        ("---", [DASH, DASHES, A, B, D, DASH, DASHES, A, B], {D: 1.0}),  # "a b" only, not four tokens
        ("--", [DASH, NOTHING, DASH_Y, A, D, DASH, NOTHING, DASH_Y, A], {}),  # over a token without text
        (["---", "-"], [DASH, A, B, D, A, B], {D: 1.0}),
        (["---", "-"], [A, DASH, NOTHING, D, A, DASH, NOTHING], {}),  # one token since the breaker
        (["---", "-"], [DASH, NOTHING, A, D, DASH, NOTHING, A], {D: 1.0}),  # not found again in the text before
    ],
)
def test_text_breakers_are_found_in_the_text(
    breakers: str | list[str], prompt: list[int], expected: dict[int, float]
) -> None:
    assert lowered(dry(prompt, PIECES, dry_sequence_breakers=breakers), 12) == expected


def test_text_breakers_are_found_in_emitted_tokens_too() -> None:
    edit = dry([X_DASH, DASHES, D, X_DASH], PIECES, dry_sequence_breakers="---")
    edit.accept(DASHES)
    assert lowered(edit, 12) == {}


def test_the_index_grows_by_one_entry_for_a_token() -> None:
    index = NgramIndex([1, 2, 3], 2)
    for token_id in range(200):
        index.append(token_id % 3)
    assert sum(map(len, index._followers.values())) == 201
    assert index.ids.tolist() == [1, 2, 3, *[token_id % 3 for token_id in range(200)]]


def test_a_sequence_shorter_than_an_n_gram_has_no_followers() -> None:
    assert NgramIndex([1], 2).followers() == []
