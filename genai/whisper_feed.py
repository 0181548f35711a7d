"""Running a Whisper decoder on a sequence of tokens: the row of logits behind the last of them.

A decoder with a cache runs only what it has not consumed yet; one without is given the whole sequence each time. Asking
again is always right, also after an interrupt: the stage itself says how far it has come. Not here: where the cross
attention comes from (`whisper_stages.py`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from winml_lite import Pipeline, Stage, TensorLockFlags, TensorLockMode, WinMLError

from .codes import INSUFFICIENT_BUFFER
from .endpoints import FREE_DIMENSION, NUMPY, Endpoints, Row, TensorMaker
from .feed import TokenFeed

_FEW = 8
"""Tokens whose rows cost less than another run."""


class DecoderFeed(Protocol):
    """Runs a decoder on what the encoder heard."""

    @property
    def vocabulary_size(self) -> int:
        """Length of a row; 0 where only a run can tell."""

    @property
    def capacity(self) -> int:
        """Most tokens of a sequence; 0 where the stage sets no limit."""

    def restart(self) -> None:
        """Forget all tokens: the encoder has heard something else."""

    def row(self, token_ids: Sequence[int]) -> Row:
        """Return the logits behind `token_ids`, of shape (vocabulary,); they are valid until the next run."""

    def close(self) -> None:
        """Give up the hold on pipeline and stage."""


class CachedDecoderFeed:
    """A decoder that keeps keys and values of the tokens it has consumed."""

    def __init__(self, feed: TokenFeed, stage: Stage) -> None:
        self._feed = feed
        self._stage = stage
        self._consumed: list[int] = []
        self.vocabulary_size = feed.vocabulary_size
        self.capacity = stage.sequence_capacity
        feed.prepare()

    def restart(self) -> None:
        self._stage.rewind(0)
        self._feed.begin()

    def row(self, token_ids: Sequence[int]) -> Row:
        ids = list(token_ids)
        position = self._stage.sequence_position
        kept = min(position, len(self._consumed), len(ids) - 1)
        if self._consumed[:kept] != ids[:kept]:
            kept = next(place for place in range(kept) if self._consumed[place] != ids[place])
        if kept < position:
            kept = self._rewind(kept)
        self._consumed = ids
        rest = ids[kept:]
        if len(rest) > min(_FEW, self._feed.chunk):
            kept = self._skip(rest[:-1], kept)
            rest = rest[-1:]
        return self._feed.step(rest[0], kept) if len(rest) == 1 else self._feed.run(rest, kept)

    def _rewind(self, position: int) -> int:
        """Forget tokens; return how many stay."""
        try:
            self._stage.rewind(position)
        except WinMLError:  # a state that can only start over
            self._stage.rewind(0)
            return 0
        return position

    def _skip(self, ids: list[int], position: int) -> int:
        chunk = self._feed.chunk
        for begin in range(0, len(ids), chunk):
            self._feed.skip(ids[begin : begin + chunk], position + begin)
        return position + len(ids)

    def close(self) -> None:
        self._feed.close()


class WholeDecoderFeed:
    """A decoder without a cache. Where its input is built for a number of tokens, the rest of them are `filler`."""

    def __init__(self, tensors: TensorMaker, endpoints: Endpoints, filler: int) -> None:
        self._tensors = tensors
        self._pipeline: Pipeline = endpoints.pipeline
        self._stage = endpoints.token_stage
        self._input, self._output = endpoints.token_index, endpoints.output_index
        self._type, shape = self._stage.schema().input_desc(self._input)
        logits_type, logits_shape = self._stage.schema().output_desc(self._output)
        self._logits_type: np.dtype[Any] = NUMPY[logits_type]
        self._filler = filler
        self.capacity = 0 if shape[-1] == FREE_DIMENSION else shape[-1]
        self.vocabulary_size = 0 if logits_shape[-1] == FREE_DIMENSION else logits_shape[-1]

    def restart(self) -> None:
        """Nothing is kept."""

    def row(self, token_ids: Sequence[int]) -> Row:
        count = len(token_ids)
        if self.capacity and count > self.capacity:
            raise WinMLError(
                INSUFFICIENT_BUFFER, "speech recognition", f"the decoder takes {self.capacity} tokens, not {count}"
            )
        ids: npt.NDArray[Any] = np.full((1, self.capacity or count), self._filler, NUMPY[self._type])
        ids[0, :count] = token_ids
        self._stage.bind_input(self._input, self._tensors.over(ids, self._type, ids.shape))
        self._stage.request_output(self._output)
        self._pipeline.run()
        flags = TensorLockFlags.ALLOW_SYNCHRONIZED_CPU_ACCESS
        with self._stage.output(self._output) as output, output.lock(TensorLockMode.READ, flags) as lock:
            *_, row_count, length = output.desc()[1]
            place = min(count, row_count) - 1  # some decoders give the last row only
            offset = place * length * self._logits_type.itemsize
            return np.frombuffer(lock.data(), self._logits_type, length, offset).copy()

    def close(self) -> None:
        self._stage.close()
        self._pipeline.close()
