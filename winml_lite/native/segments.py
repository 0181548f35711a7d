"""The border for embedding rows as input of a decoder stage (runtime §11).

A segment is a stretch of a sequence that does not come from token ids alone: the rows that an encoder made of an image
or of sound, and the framing tokens around them. `SegmentPlan` says how the decoder takes it. Implementations are in the
engines; the border of a whole stage is `backend.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

from ..storage import Storage
from ..values import Descriptor


@dataclass(frozen=True, slots=True, eq=False)
class SegmentPart:
    """A run of framing tokens, or of embedding rows, that the decoder takes in one go."""

    tokens: tuple[int, ...] = ()
    """Framing tokens; then there are no rows."""
    row_count: int = 0
    """Rows, taken from the segment's tensor in order."""
    position_count: int = 0
    """By how much the sequence position advances."""
    offsets: npt.NDArray[np.int32] | None = None
    """Where the rows lie relative to the part, int32 (3, row_count): in time, height and width. None: one by one."""
    is_causal: bool = True
    """False: the rows attend to each other in both directions."""

    @property
    def cell_count(self) -> int:
        """Cells of the sequence memory that the part takes."""
        return len(self.tokens) + self.row_count


@dataclass(frozen=True, slots=True, eq=False)
class SegmentPlan:
    """How the decoder takes one segment, part by part."""

    parts: tuple[SegmentPart, ...]

    @property
    def row_count(self) -> int:
        """Rows of the tensor."""
        return sum(part.row_count for part in self.parts)

    @property
    def position_count(self) -> int:
        """By how much the sequence position advances, framing included."""
        return sum(part.position_count for part in self.parts)

    @property
    def cell_count(self) -> int:
        """What the capacity is charged, framing included."""
        return sum(part.cell_count for part in self.parts)

    @property
    def is_uniform(self) -> bool:
        """Whether each cell is a position of its own and attends to what is before it, as tokens do."""
        return all(part.is_causal and part.offsets is None for part in self.parts)


def plan_of_rows(count: int) -> SegmentPlan:
    """Return the plan of plain rows: one position each, one after the other, nothing around them."""
    return SegmentPlan((SegmentPart(row_count=count, position_count=count),))


class MediaProjector(Protocol):
    """An encoder that the engine made from a projector file. Used by one thread at a time."""

    media: tuple[Descriptor, ...]
    """What it takes, one of these; a free extent is any from 1 up."""
    sample_rate: int | None
    """Samples per second of the sound that it takes, None where it takes none."""

    def encode(self, media: Storage, should_stop: Callable[[], bool]) -> tuple[Storage, SegmentPlan]:
        """Return fresh FLOAT32 rows (row count, row length) and how the decoder takes them; 0x800704C7 once
        `should_stop`, which is asked between two pieces, says so."""


class Segments(Protocol):
    """Embedding input of a built stage, at its input `input_index`."""

    input_index: int

    @property
    def row_length(self) -> int:
        """Numbers in one row."""

    @property
    def reads_projectors(self) -> bool:
        """Whether the engine makes encoders from projector files."""

    @property
    def selected(self) -> Storage | None:
        """The rows that the next run consumes instead of the bound input."""

    @property
    def is_last(self) -> bool:
        """Whether the sequence ends with a segment: nothing has been decoded after it."""

    def select(self, rows: Storage, plan: SegmentPlan) -> None:
        """Make the next successful run consume `rows`, FLOAT32, `plan.row_count` rows of `row_length` numbers.

        0x80070032 when this stage cannot take such a plan.
        """

    def clear(self) -> None:
        """Drop the selection."""

    def open_projector(self, path: str) -> MediaProjector:
        """Load a projector file; 0x80070032 when it does not fit the stage, 0x80070570 when it is no projector."""
