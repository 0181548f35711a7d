"""`MediaEncoder` and `SequenceSegmentLayout` (runtime §11): from media to rows that a decoder takes between token runs.

Two kinds of encoder share the public class: one that an engine made of a projector file, and one that is a pipeline of
the caller. Selecting rows for a run is not here (`segments.py`).
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Protocol

import numpy as np

from .errors import CANCELLED, E_INVALIDARG, WinMLError
from .gate import Gate
from .handles import Closeable
from .native.segments import SegmentPlan, plan_of_rows
from .pipeline import PipelineCore
from .stage_core import StageCore
from .storage import Storage, StorageLock
from .tensor import Tensor
from .values import FREE_DIMENSION, Descriptor, TensorDataType, TensorLockMode

_ENCODE = "IWinMLMediaEncoder.Encode"


class Encoding(Protocol):
    """What stands behind an encoder."""

    @property
    def media(self) -> tuple[Descriptor, ...]:
        """What it takes: one of these."""

    @property
    def sample_rate(self) -> int | None:
        """Samples per second of sound, None where that is not known or it takes none."""

    def encode(self, media: Storage, should_stop: Callable[[], bool]) -> tuple[Storage, SegmentPlan]:
        """Return rows and how the decoder takes them; 0x800704C7 when `should_stop` says so before the end."""


class PipelineEncoding:
    """A pipeline of the caller: one input takes the media, one output gives the rows. Implements `Encoding`."""

    def __init__(self, pipeline: PipelineCore, entry: tuple[StageCore, int], exit_: tuple[StageCore, int]) -> None:
        self._pipeline = pipeline
        self._entry = entry
        self._exit = exit_
        stage, output = exit_
        if output not in stage.outputs:
            stage.request_output(output)

    sample_rate: int | None = None

    @property
    def media(self) -> tuple[Descriptor, ...]:
        stage, index = self._entry
        return (stage.built(_ENCODE).inputs[index],)

    def encode(self, media: Storage, should_stop: Callable[[], bool]) -> tuple[Storage, SegmentPlan]:
        if should_stop():
            raise WinMLError(CANCELLED, _ENCODE, "encoding was stopped")
        stage, index = self._entry
        stage.bind_input(index, media, _ENCODE)
        try:
            self._pipeline.gate.hold(_ENCODE, self._pipeline.execute)
        finally:
            stage.bind_input(index, None, _ENCODE)
        source, output = self._exit
        rows = source.output(output)
        return rows, plan_of_rows(rows.shape[-2] if len(rows.shape) > 1 else 0)


class EncoderCore:
    """An encoder for one decoder stage, which it keeps alive."""

    __slots__ = ("encoding", "gate", "row_length", "stage")

    def __init__(self, stage: StageCore, row_length: int, encoding: Encoding) -> None:
        self.stage = stage
        self.row_length = row_length
        self.encoding = encoding
        self.gate = Gate()

    def encode(
        self, media: Storage, into: Storage | None, should_stop: Callable[[], bool]
    ) -> tuple[Storage, LayoutCore]:
        """Run the encoder and pair its rows, copied to `into` if that is given, with their layout."""
        _check_media(media, self.encoding.media)
        with StorageLock(media, TensorLockMode.READ):
            rows, plan = self.encoding.encode(media, should_stop)
        _check_rows(rows, self.row_length)
        if into is not None and into is not rows:
            _copy(rows, into)
            rows = into
        layout = LayoutCore(self.stage, plan)
        _layouts[rows] = layout
        return rows, layout


class LayoutCore:
    """How the decoder takes the rows of one `encode`."""

    __slots__ = ("plan", "stage")

    def __init__(self, stage: StageCore, plan: SegmentPlan) -> None:
        self.stage = weakref.ref(stage)
        self.plan = plan

    def fits(self, stage: StageCore, rows: Storage) -> bool:
        """Whether `rows` are what the same `encode`, for `stage`, has returned, and no later one wrote over them."""
        return self.stage() is stage and _layouts.get(rows) is self


_layouts: weakref.WeakKeyDictionary[Storage, LayoutCore] = weakref.WeakKeyDictionary()
"""The layout of the last `encode` into a storage."""


class SequenceSegmentLayout(Closeable[LayoutCore]):
    """How a decoder takes the rows of one `encode`. The three counts are independent of each other."""

    __slots__ = ()

    def __repr__(self) -> str:
        if self._open is None:
            return "<SequenceSegmentLayout (closed)>"
        return f"<SequenceSegmentLayout of {self.embedding_row_count} rows, {self.position_count} positions>"

    @property
    def embedding_row_count(self) -> int:
        """Rows of the embedding tensor."""
        return self._core.plan.row_count

    @property
    def position_count(self) -> int:
        """By how much the sequence position advances, framing tokens included."""
        return self._core.plan.position_count

    @property
    def sequence_cell_count(self) -> int:
        """What the segment takes of the sequence capacity, framing tokens included."""
        return self._core.plan.cell_count


class MediaEncoder(Closeable[EncoderCore]):
    """Turns media into embedding rows for one decoder stage. Made by that stage, which it keeps alive."""

    __slots__ = ()

    @property
    def media_tensor_desc(self) -> Descriptor:
        """Element type and shape of the media; an extent of 0 or 2**64-1 takes any from 1 up.

        A projector for images takes UINT8 (1, height, width, 3), red, green, blue; one for sound takes FLOAT32
        (1, samples) at its own rate.
        """
        return self._core.encoding.media[0]

    @property
    def media_tensor_descs(self) -> tuple[Descriptor, ...]:
        """All that it takes: one of these. Some projectors take images and sound."""
        return self._core.encoding.media

    @property
    def sample_rate(self) -> int | None:
        """Samples per second of the sound that a projector takes; None for images and for pipelines."""
        return self._core.encoding.sample_rate

    @property
    def embedding_length(self) -> int:
        """Numbers in one embedding row."""
        return self._core.row_length

    @property
    def embedding_data_type(self) -> TensorDataType:
        """Element type of the rows: FLOAT32."""
        self._core  # noqa: B018  (raises on a closed object)
        return TensorDataType.FLOAT32

    def encode(
        self,
        media: Tensor,
        embeddings: Tensor | None = None,
        *,
        should_stop: Callable[[], bool] | None = None,
    ) -> tuple[Tensor, SequenceSegmentLayout]:
        """Return the embedding rows of `media`, FLOAT32 (rows, embedding_length) or (1, rows, embedding_length).

        With `embeddings`, of exactly that shape, the rows are copied there and that object is returned; when encoding
        fails it is left as it was. Media that match none of `media_tensor_descs` are 0x80070057; a second call at the
        same time is 0x800700AA. Tensor and layout belong together: pass both to `bind_embedding_segment`.

        `should_stop` is asked before each piece that a projector encodes (30 seconds of sound, a tile of an image), in
        any thread; when it returns True the call fails with 0x800704C7.
        """
        core = self._core
        source = _storage(media, "media")
        into = None if embeddings is None else _storage(embeddings, "embeddings")
        rows, layout = core.gate.hold(_ENCODE, core.encode, source, into, should_stop or _never)
        tensor = Tensor(rows, core.stage.runtime) if embeddings is None else embeddings
        return tensor, SequenceSegmentLayout(layout)


def _never() -> bool:
    return False


def _storage(tensor: Tensor, name: str) -> Storage:
    if not isinstance(tensor, Tensor):
        raise TypeError(f"{name} must be a Tensor, not {type(tensor).__name__}")
    return tensor._core


def _check_media(media: Storage, wanted: tuple[Descriptor, ...]) -> None:
    if not any(_fits(media, descriptor) for descriptor in wanted):
        takes = " or ".join(map(_wanted_text, wanted))
        text = f"this encoder takes {takes}, not {media.data_type.name} {list(media.shape)}"
        raise WinMLError(E_INVALIDARG, _ENCODE, text)


def _fits(media: Storage, wanted: Descriptor) -> bool:
    data_type, extents = wanted
    if media.data_type is not data_type or len(media.shape) != len(extents):
        return False
    pairs = zip(media.shape, extents, strict=True)
    return all(have > 0 if want in (0, FREE_DIMENSION) else have == want for have, want in pairs)


def _wanted_text(wanted: Descriptor) -> str:
    data_type, extents = wanted
    shape = ", ".join("any" if extent in (0, FREE_DIMENSION) else str(extent) for extent in extents)
    return f"{data_type.name} [{shape}]"


def _check_rows(rows: Storage, row_length: int) -> None:
    shape = rows.shape
    is_matrix = len(shape) == 2 or (len(shape) == 3 and shape[0] == 1)
    if rows.data_type is not TensorDataType.FLOAT32 or not is_matrix or shape[-1] != row_length or not shape[-2]:
        text = (
            f"the encoder gave {rows.data_type.name} {list(shape)}, "
            f"the decoder takes FLOAT32 [rows, {row_length}] with at least one row"
        )
        raise WinMLError(E_INVALIDARG, _ENCODE, text)


def _copy(rows: Storage, into: Storage) -> None:
    """Copy the rows to a tensor of the caller."""
    matrix = rows.shape[-2:]
    if into.data_type is not TensorDataType.FLOAT32 or into.shape not in (matrix, (1, *matrix)):
        text = f"embeddings is {into.data_type.name} {list(into.shape)}, the rows are FLOAT32 {list(matrix)}"
        raise WinMLError(E_INVALIDARG, _ENCODE, text)
    if not into.writable:
        raise WinMLError(E_INVALIDARG, _ENCODE, "embeddings is a read-only view")
    with StorageLock(into, TensorLockMode.WRITE):
        rows.fetch()
        np.copyto(into.data, rows.data)
        into.publish()
