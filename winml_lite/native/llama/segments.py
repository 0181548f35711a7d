"""Embedding rows as input of a llama.cpp stage (runtime §11): selecting a segment, and feeding it.

Rows enter through `llama_batch.embd`. A batch without positions continues the sequence one by one; models that place
image rows in two dimensions (M-RoPE) get every position written out. Making rows is not here (`media.py`).
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from ...errors import E_INVALIDARG, NOT_SUPPORTED, WinMLError
from ...storage import Storage
from ..segments import MediaProjector, SegmentPart, SegmentPlan
from .api import has_media_api
from .media import open_projector

if TYPE_CHECKING:
    from .context import AbortFlag, Context
    from .executor import LlamaExecutor
    from .model import LlamaModel
    from .sequence import LlamaSequence

_BIND = "IWinMLStage.BindEmbeddingSegment"
_RUN = "IWinMLPipeline.Run"
_ABORTED = 2
_AXES = 4  # positions of an embedding row in an M-RoPE model: time, height, width, and one of no use
_FLOATS = ctypes.POINTER(ctypes.c_float)
_INTEGERS = ctypes.POINTER(ctypes.c_int32)


@dataclass(frozen=True, slots=True, eq=False)
class Segment:
    """Rows and how they are taken."""

    rows: Storage
    plan: SegmentPlan

    def array(self, row_length: int) -> npt.NDArray[np.float32]:
        """View the rows, float32 (row count, row length)."""
        self.rows.fetch()
        return self.rows.array().reshape(-1, row_length)

    def check_finite(self) -> None:
        """Refuse NaN and infinite numbers: NaN in the memory would spoil other sequences, even after a reset."""
        self.rows.fetch()
        if not np.isfinite(self.rows.array()).all():
            raise WinMLError(E_INVALIDARG, _RUN, "the embedding rows hold numbers that are NaN or infinite")


class Span(NamedTuple):
    """Where a segment lies in a sequence."""

    start: int
    stop: int
    surplus: int
    """Cells beyond one per position."""
    is_uniform: bool


class Spans:
    """The segments of a sequence, in order."""

    __slots__ = ("_last", "_spans")

    def __init__(self) -> None:
        self._spans: list[Span] = []
        self._last: Segment | None = None
        """The segment that was fed last: it may yet be taken back."""

    def add(self, position: int, segment: Segment) -> None:
        """Note that a segment is about to be fed."""
        plan = segment.plan
        self._last = segment
        surplus = plan.cell_count - plan.position_count
        self._spans.append(Span(position, position + plan.position_count, surplus, plan.is_uniform))

    def cut(self, position: int) -> Segment | None:
        """Strike what lies at `position` or beyond; return the last segment if it was struck as a whole."""
        struck = False
        while self._spans and self._spans[-1].start >= position:
            self._spans.pop()
            struck = True
        if self._spans and self._spans[-1].stop > position:  # in the midst of rows; what follows there is no segment
            self._spans[-1] = self._spans[-1]._replace(stop=position)
        return self._last if struck else None

    @property
    def is_empty(self) -> bool:
        return not self._spans

    @property
    def surplus(self) -> int:
        """Cells beyond one per position."""
        return sum(span.surplus for span in self._spans)

    def ends_at(self, position: int) -> bool:
        """Whether nothing but rows lies before `position`, back to where a segment begins."""
        return bool(self._spans) and self._spans[-1].stop >= position

    def check_cut(self, position: int) -> None:
        """Refuse to cut the sequence inside rows that are not one after the other."""
        for span in self._spans:
            if span.start < position < span.stop and not span.is_uniform:
                text = f"{position} lies inside a segment of media; go back to {span.start} or {span.stop}"
                raise WinMLError(E_INVALIDARG, "IWinMLStage.RewindTo", text)


class LlamaSegments:
    """Implements `Segments`: a view of an executor, which keeps the selection."""

    __slots__ = ("_executor", "_sequence")

    input_index = 0

    def __init__(self, executor: LlamaExecutor, sequence: LlamaSequence) -> None:
        self._executor = executor
        self._sequence = sequence

    @property
    def row_length(self) -> int:
        return self._sequence.model.row_length

    @property
    def reads_projectors(self) -> bool:
        return has_media_api()

    @property
    def selected(self) -> Storage | None:
        segment = self._executor.segment
        return None if segment is None else segment.rows

    @property
    def is_last(self) -> bool:
        return self._sequence.ends_with_segment

    def select(self, rows: Storage, plan: SegmentPlan) -> None:
        check_plan(self._sequence.model, self._sequence.context.batch_size, plan)
        self._executor.select_segment(Segment(rows, plan))

    def clear(self) -> None:
        self._executor.select_segment(None)

    def open_projector(self, path: str) -> MediaProjector:
        return open_projector(path, self._sequence.model, self._sequence.settings)


def check_plan(model: LlamaModel, batch_size: int, plan: SegmentPlan) -> None:
    """Refuse what this model or context cannot take.

    The engine would end the process over rows without causal attention that do not fit one batch. After rows placed in
    several dimensions it would go on at a wrong position, unless a token follows in the segment.
    """
    widest = max((part.row_count for part in plan.parts if not part.is_causal), default=0)
    if widest > batch_size:
        text = f"{widest} rows attend to each other, a batch takes {batch_size}; build the stage with"
        mend = f"llama_options().batch_size = {widest} or more (genai.load(..., batch_size={widest})"
        mend = f"{mend}, or at the terminal --batch-size {widest})"
        raise WinMLError(NOT_SUPPORTED, _BIND, f"{text} {mend}")
    placed = [part.offsets is not None for part in plan.parts]
    if any(placed) and (placed[-1] or not model.has_row_axes):
        raise WinMLError(NOT_SUPPORTED, _BIND, f"{model.path} cannot go on after rows placed in several dimensions")


def feed_segment(model: LlamaModel, context: Context, segment: Segment, position: int, abort: AbortFlag) -> int:
    """Put a segment behind `position` into the memory of a context that has room for it.

    Returns 0, a status of `llama_decode`, or 2 when `abort` was set in between.
    """
    rows = segment.array(model.row_length)
    first = 0
    for part in segment.plan.parts:
        for batch in _batches(model, context.batch_size, part, rows[first : first + part.row_count], position):
            if abort.is_set:  # not every device looks at the callback
                return _ABORTED
            status = _decode(context, batch, part.is_causal)
            if status:
                return status
        first += part.row_count
        position += part.position_count
    return 0


def _batches(
    model: LlamaModel, size: int, part: SegmentPart, rows: npt.NDArray[np.float32], position: int
) -> Iterator[Any]:
    """Yield the batches of a part. Each is valid until the next."""
    tokens = np.array(part.tokens, np.int32)
    count = len(tokens) or len(rows)
    positions = _positions(part, position) if model.has_row_axes else None
    quiet = (ctypes.c_int8 * min(size, count))()  # output marks: nobody reads logits
    for start in range(0, count, size):
        stop = min(start + size, count)
        batch = model.library.api.llama_batch()
        batch.n_tokens = stop - start
        batch.logits = quiet
        if part.tokens:
            batch.token = ctypes.cast(tokens[start:].ctypes.data, _INTEGERS)
        else:
            batch.embd = ctypes.cast(rows[start:].ctypes.data, _FLOATS)
        if positions is not None:
            places = np.ascontiguousarray(positions[:, start:stop])
            batch.pos = ctypes.cast(places.ctypes.data, _INTEGERS)
        yield batch


def _positions(part: SegmentPart, position: int) -> npt.NDArray[np.int32]:
    """Return the position of each token, int32 (1, count), or of each row along each axis, (4, count)."""
    if part.offsets is not None:
        return np.vstack([part.offsets + np.int32(position), np.zeros((1, part.row_count), np.int32)])
    axes = 1 if part.tokens else _AXES
    return np.tile(np.arange(position, position + part.cell_count, dtype=np.int32), (axes, 1))


def _decode(context: Context, batch: Any, is_causal: bool) -> int:
    if is_causal:
        return context.decode(batch)
    try:
        context.set_causal(False)
        return context.decode(batch)
    finally:
        context.set_causal(True)
