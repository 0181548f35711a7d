"""Feeding token ids to one pipeline and reading the last row of its output (genai §6.9, "unified").

Single-token steps use one bound id and one bound row; a run of several tokens (a piece of the prompt) reads the last
row of a runtime-owned output instead. The form of feeding two pipelines is `prefill_decode.py`.
"""

from __future__ import annotations

from typing import Protocol

from winml_lite import ExecutionTarget, Runtime, Stage, WinMLError

from .codes import E_INVALIDARG
from .endpoints import Endpoints, Row, RowOutput, TensorMaker, TokenInput
from .position_inputs import Mask, Positions, find_masks, find_positions
from .results import TextGenerationOutputKind

CHUNK = 128
"""Most tokens in one run: cancellation and Ctrl-C are looked at between runs."""
UNLIMITED = 0xFFFFFFFF


class Feed(Protocol):
    """What runs a model on tokens."""

    @property
    def chunk(self) -> int:
        """Most tokens that one run takes."""

    @property
    def vocabulary_size(self) -> int:
        """Length of a row of logits; 0 where it is not known, or where tokens come out."""

    def prepare(self) -> None:
        """Get ready to use the pipeline, which has no other user from now on."""

    def begin(self) -> None:
        """Begin an operation."""

    def step(self, token_id: int, position: int) -> Row:
        """Evaluate one token after `position` earlier ones; return the row, which is valid until the next run."""

    def run(self, ids: list[int], position: int) -> Row:
        """Evaluate 1 to `chunk` ids after `position` earlier ones; return a copy of the last row."""

    def skip(self, ids: list[int], position: int) -> None:
        """Evaluate 1 to `chunk` ids without a row: an earlier piece of a long prompt."""

    def bind_positions(self, position: int, count: int) -> None:
        """Bind what a run over `count` tokens after `position` earlier ones reads beside the tokens."""

    def abort(self) -> None:
        """Ask a run on another thread to stop early; it then fails with 0x800704C7."""

    def close(self) -> None:
        """Give up the hold on pipelines and stages."""


class TokenFeed:
    """Runs a pipeline on token ids; `target` is where its tensors are made. It closes the wrappers it is given.

    `chunk` is 128, or 1 where the graph is built for single tokens. A pipeline that samples gets its prompt in one
    piece: each run of it chooses a token. Mask and positions are looked for at all stages that are known:
    those of the endpoints and `state_owner`.
    """

    def __init__(
        self, runtime: Runtime, endpoints: Endpoints, target: ExecutionTarget, state_owner: Stage | None = None
    ) -> None:
        self._tensors = TensorMaker(runtime, target)
        self._pipeline = endpoints.pipeline
        self._stages = (endpoints.token_stage, endpoints.output_stage, *endpoints.others)
        self._placed = _distinct(endpoints.token_stage, state_owner, endpoints.output_stage, *endpoints.others)
        self._tokens = TokenInput(self._tensors, endpoints.token_stage, endpoints.token_index)
        if self._tokens.fixed_length not in (None, 1):
            raise WinMLError(
                E_INVALIDARG,
                "token input",
                f"it was built for {self._tokens.fixed_length} tokens; it must take one, or any number",
            )
        kind = endpoints.output_kind
        self._output = RowOutput(self._tensors, endpoints.output_stage, endpoints.output_index, kind)
        self.vocabulary_size = self._output.vocabulary_size
        self.chunk = UNLIMITED if kind is TextGenerationOutputKind.SAMPLED_TOKEN else CHUNK
        if self._tokens.fixed_length == 1:
            self.chunk = 1
        self._is_stepping = False
        self._masks: tuple[Mask, ...] = ()
        self._positions: tuple[Positions, ...] = ()

    def prepare(self) -> None:
        """Look for mask and position inputs. 0x80070057 for one of another type."""
        self._masks = find_masks(self._tensors, self._pipeline, self._placed)
        self._positions = find_positions(self._tensors, self._pipeline, self._placed)

    def begin(self) -> None:
        """Begin an operation: bind everything again, since others may have used the pipeline since the last one."""
        self._is_stepping = False

    def step(self, token_id: int, position: int) -> Row:
        """Evaluate one token after `position` earlier ones; return the row, of shape (vocabulary,) or (1,).

        The row is valid until the next run. Failures of the engine are WinMLError and leave the position as it was.
        """
        if not self._is_stepping and not self._start_stepping():
            return self.run([token_id], position)
        self._tokens.single.flat[0] = token_id
        for mask in self._masks:
            mask.bind(position + 1)
        for positions in self._positions:
            positions.bind_one(position)
        self._pipeline.run()
        return self._output.row

    def run(self, ids: list[int], position: int) -> Row:
        """Evaluate 1 to `chunk` ids after `position` earlier ones; return a copy of the last row, of shape
        (vocabulary,) or (1,).
        """
        self._output.request()
        self._evaluate(ids, position)
        return self._output.read()

    def skip(self, ids: list[int], position: int) -> None:
        """Evaluate 1 to `chunk` ids without their row: an earlier piece of a long prompt."""
        self._output.withhold()
        self._evaluate(ids, position)

    def abort(self) -> None:
        """Ask a run on another thread to stop early; it then fails with 0x800704C7."""
        self._pipeline.cancel_run()

    def close(self) -> None:
        """Give up the hold on the pipeline."""
        self._masks = ()
        self._positions = ()
        for stage in self._stages:
            stage.close()
        self._pipeline.close()

    def bind_positions(self, position: int, count: int) -> None:
        """Bind mask and positions for `count` tokens after `position` earlier ones, for a run of another's making."""
        self._is_stepping = False
        for mask in self._masks:
            mask.bind(position + count)
        for positions in self._positions:
            positions.bind_many(position, count)

    def _start_stepping(self) -> bool:
        """Bind what all single steps use; False where the shape of their row is not known."""
        if not self._output.can_bind:
            return False
        self._tokens.bind_single()
        self._output.bind()
        for positions in self._positions:
            positions.start_stepping()
        self._is_stepping = True
        return True

    def _evaluate(self, ids: list[int], position: int) -> None:
        self.bind_positions(position, len(ids))
        self._tokens.bind(ids)
        self._pipeline.run()


def _distinct(*stages: Stage | None) -> tuple[Stage, ...]:
    """Return one wrapper for each stage."""
    found: dict[object, Stage] = {}
    for stage in stages:
        if stage is not None:
            found.setdefault(stage.underlying_object, stage)
    return tuple(found.values())
