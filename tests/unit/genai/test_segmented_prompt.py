"""Where a prompt of tokens and rows is at, by the position of the stage."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from genai.segmented_prompt import SegmentedPrompt
from genai.segments import TextGenerationSegment, TextGenerationSegmentKind


@dataclass(frozen=True)
class Layout:
    """Counts of a layout that no encoder has made."""

    embedding_row_count: int
    position_count: int
    sequence_cell_count: int


@dataclass(frozen=True)
class Rows:
    """A segment of rows, without a tensor."""

    layout: Layout
    kind = TextGenerationSegmentKind.EMBEDDINGS
    embedding_tensor = "rows"


def prompt_of(*segments: Any) -> SegmentedPrompt:
    return SegmentedPrompt(
        [TextGenerationSegment.from_tokens(part) if isinstance(part, list) else part for part in segments]
    )


@pytest.fixture
def prompt() -> SegmentedPrompt:
    """Two tokens, 15 rows in 7 positions and 17 cells, one token, 4 rows in 6 positions and cells, two tokens."""
    return prompt_of([1, 2], Rows(Layout(15, 7, 17)), [3], Rows(Layout(4, 6, 6)), [4, 5])


def test_tokens_are_joined_and_cells_are_added(prompt: SegmentedPrompt) -> None:
    assert prompt.token_ids == [1, 2, 3, 4, 5]
    assert prompt.cell_count == 23


@pytest.mark.parametrize(
    ("position", "tokens", "next_rows"),
    [
        (0, 0, 2),
        (1, 1, 2),
        (2, 2, 2),
        (9, 2, 10),
        (10, 3, 10),
        (16, 3, None),
        (17, 4, None),
        (18, 5, None),
        (20, 7, None),
    ],
)
def test_a_position_tells_tokens_and_rows_to_come(
    prompt: SegmentedPrompt, position: int, tokens: int, next_rows: int | None
) -> None:
    assert prompt.token_count_at(position) == tokens
    rows = prompt.next_rows(position)
    assert (None if rows is None else rows.position) == next_rows


def test_rows_know_how_many_tokens_are_before_them(prompt: SegmentedPrompt) -> None:
    assert [(rows.token_count, rows.position, rows.end) for rows in prompt.rows] == [(2, 2, 9), (3, 10, 16)]


def test_a_prompt_of_tokens_alone_has_no_rows() -> None:
    prompt = prompt_of([1], [2, 3])
    assert (prompt.token_ids, prompt.cell_count, prompt.rows) == ([1, 2, 3], 0, [])
    assert prompt.token_count_at(2) == 2
    assert prompt.next_rows(0) is None


def test_rows_at_the_beginning_and_next_to_each_other() -> None:
    prompt = prompt_of(Rows(Layout(1, 1, 1)), Rows(Layout(2, 2, 2)), [7])
    assert [rows.position for rows in prompt.rows] == [0, 1]
    assert [prompt.token_count_at(position) for position in (0, 1, 3, 4)] == [0, 0, 0, 1]
