"""Prompts with embedding rows between their tokens (genai §6.6): what they take, and feeding them.

Three counts are independent: tokens, positions and cells. Tokens are what a session keeps, positions are how the stage
counts, cells are what the capacity is charged with. Where a prompt is at is asked of the stage, so an interrupt at any
place loses nothing.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import zip_longest

from winml_lite import (
    ExecutionTarget,
    MediaEncoder,
    Pipeline,
    SequenceSegmentLayout,
    Stage,
    Tensor,
    WinMLError,
)

from .codes import CANCELLED
from .endpoints import Endpoints, Row
from .evaluation import Evaluation
from .results import TextGenerationOutputKind
from .segments import TextGenerationSegment, TextGenerationSegmentKind


class SegmentInput:
    """The token input of a decoder, which may take embedding rows instead.

    Rows give no logits, so no other stage can go on from there: the decoder must be alone in its pipeline.
    """

    def __init__(self, pipeline: Pipeline, stage: Stage, index: int) -> None:
        self._pipeline = pipeline
        self._stage = stage
        self._index = index

    @classmethod
    def of(cls, endpoints: Endpoints) -> SegmentInput | None:
        """Return the input, None where rows could not go through the pipeline."""
        is_alone = endpoints.pipeline.stage_count == 1
        if not is_alone or endpoints.output_kind is not TextGenerationOutputKind.LOGITS:
            return None
        return cls(endpoints.pipeline, endpoints.token_stage, endpoints.token_index)

    @property
    def takes_rows(self) -> bool:
        """Whether the stage takes embedding rows."""
        return self._stage.segmented_capabilities.supports_embedding_input

    def create_encoder(self, path: str | os.PathLike[str], target: ExecutionTarget | None) -> MediaEncoder:
        """Load a projector file as an encoder for the stage."""
        return self._stage.create_media_encoder_from_file(path, target)

    def check(self, rows: Tensor, layout: SequenceSegmentLayout) -> None:
        """Raise what the stage has against a pair of rows and layout."""
        self._stage.bind_embedding_segment(self._index, rows, layout)
        self._stage.clear_embedding_segment(self._index)

    def run(self, rows: Tensor, layout: SequenceSegmentLayout) -> None:
        """Have the stage consume the rows. A failure leaves nothing selected."""
        self._stage.bind_embedding_segment(self._index, rows, layout)
        try:
            self._pipeline.run()
        except BaseException:
            self._stage.clear_embedding_segment(self._index)
            raise


@dataclass(frozen=True, slots=True)
class Start:
    """How much of a prompt the model has consumed already."""

    tokens: int = 0
    position: int = 0
    """How the stage counts it."""
    cells: int = 0
    """What the rows in it take of the capacity."""


NOTHING = Start()


@dataclass(frozen=True, slots=True)
class _Rows:
    """Embedding rows, and where they are: behind `token_count` tokens of the prompt, at `position`."""

    tensor: Tensor
    layout: SequenceSegmentLayout
    token_count: int
    position: int

    @property
    def end(self) -> int:
        return self.position + self.layout.position_count

    def is_same(self, other: _Rows) -> bool:
        """Whether these are the same objects in the same place."""
        same_rows = self.tensor is other.tensor and self.layout is other.layout
        return same_rows and self.token_count == other.token_count


class SegmentedPrompt:
    """A prompt of tokens and rows, in the order they are fed; tokens come last.

    `token_ids` are all its tokens, `cell_count` what its rows take of the capacity.
    """

    def __init__(self, segments: Sequence[TextGenerationSegment]) -> None:
        self.token_ids: list[int] = []
        self.cell_count = 0
        self.rows: list[_Rows] = []
        position = 0
        for segment in segments:
            if segment.kind is TextGenerationSegmentKind.TOKENS:
                ids = list(segment.token_ids)
                self.token_ids += ids
                position += len(ids)
            elif segment.embedding_tensor is not None and segment.layout is not None:
                rows = _Rows(segment.embedding_tensor, segment.layout, len(self.token_ids), position)
                self.rows.append(rows)
                self.cell_count += segment.layout.sequence_cell_count
                position = rows.end

    def token_count_at(self, position: int) -> int:
        """Return how many tokens are consumed at a position of the stage."""
        before = [rows for rows in self.rows if rows.end <= position]
        return position - sum(rows.layout.position_count for rows in before)

    def shared_start(self, other: SegmentedPrompt | None, token_count: int, position: int) -> Start:
        """Return the beginning that this prompt has in common with `other` (None: it has no rows).

        `token_count` leading tokens are the same, and the model has consumed up to `position`. Tokens behind rows that
        differ do not count.
        """
        theirs = other.rows if other is not None else []
        shared: list[_Rows] = []
        for mine, its in zip_longest(self.rows, theirs):
            at = min(rows.token_count for rows in (mine, its) if rows is not None)
            if at > token_count:
                break
            if mine is None or its is None or not mine.is_same(its) or its.end > position:
                token_count = at
                break
            shared.append(mine)
        advance = sum(rows.layout.position_count for rows in shared)
        return Start(token_count, token_count + advance, sum(rows.layout.sequence_cell_count for rows in shared))

    def next_rows(self, position: int) -> _Rows | None:
        """Return the first rows that are not consumed at a position of the stage, None behind the last."""
        return next((rows for rows in self.rows if rows.end > position), None)


class SegmentedEvaluation(Evaluation):
    """An evaluation that feeds rows in their places. It asks the stage where it is before every run."""

    __slots__ = ()

    def _evaluate(self) -> Row | None:
        core = self._core
        was_aborted = False
        while True:
            try:
                row = self._run_piece()
            except BaseException as error:
                core.synchronize()
                if not isinstance(error, WinMLError) or error.hresult != CANCELLED or was_aborted:
                    raise
                was_aborted = True  # see `Evaluation`
            else:
                core.synchronize()
                if row is not None:
                    return row
            if self._latch.is_canceled:
                return None

    def _run_piece(self) -> Row | None:
        """Feed the next rows, or tokens up to the next rows; return the row of the last token of all."""
        core = self._core
        prompt, segments, feed = core.segmented, core.composition.segments, core.composition.feed
        assert prompt is not None and segments is not None
        position, start = core.composition.position, core.evaluated
        rows = prompt.next_rows(position)
        if rows is not None and rows.position == position:
            segments.run(rows.tensor, rows.layout)
            return None
        if rows is not None:
            feed.skip(core.retained[start : min(rows.token_count, start + feed.chunk)], start)
            return None
        if start == len(core.retained):
            core.step_back()  # an interrupt fell between a run and the use of its row
            return None
        piece = core.retained[start : start + feed.chunk]
        if start + len(piece) < len(core.retained):
            feed.skip(piece, start)
            return None
        return feed.step(piece[0], start) if len(piece) == 1 else feed.run(piece, start)
