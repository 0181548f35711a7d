"""Running the model on what a sequence holds and has not consumed yet, up to the row that the next token is chosen
from (genai §6.5 step 4).

Not here: choosing the token (`sampling.py`) and what ends a generation (`loop.py`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from winml_lite import WinMLError

from .cancellation import CancellationLatch
from .codes import CANCELLED
from .endpoints import Row

if TYPE_CHECKING:
    from .sequence import SequenceCore
    from .speculative_statistics import TextGenerationSpeculativeStatistics


class Evaluation:
    """The model's side of one generation: a row, the token that was chosen from it, the next row.

    An interrupt at any place loses nothing: the same row comes again.
    """

    __slots__ = ("_core", "_latch", "_row", "_statistics")

    def __init__(
        self,
        core: SequenceCore,
        latch: CancellationLatch,
        statistics: TextGenerationSpeculativeStatistics | None = None,
    ) -> None:
        self._core = core
        self._latch = latch
        self._row: Row | None = None
        self._statistics = statistics

    @property
    def statistics(self) -> TextGenerationSpeculativeStatistics | None:
        """What drafting came to; None where the composition drafts nothing."""
        return self._statistics

    def next_row(self) -> Row | None:
        """Return the logits that the next token is chosen from, None when cancelled before or while the model ran.

        Until `accept` it is the same row, and the model runs for it once.
        """
        if self._row is None:
            self._row = self._evaluate()
        return self._row

    def accept(self, token_id: int) -> None:
        """Append the token that was chosen from the row to the sequence."""
        self._row = None
        self._core.retained.append(token_id)

    def settle(self) -> None:
        """Let go of the row; again is fine."""
        self._row = None

    def _evaluate(self) -> Row | None:
        """Run everything that is retained but not yet consumed; return the last row, None when cancelled before it."""
        core = self._core
        was_aborted = was_lost = False
        if core.evaluated == len(core.retained):
            core.step_back()  # an interrupt fell between a run and the use of its row
        while True:
            pending = len(core.retained) - core.evaluated
            try:
                if pending == 1:
                    row = core.feed.step(core.retained[-1], core.evaluated)
                    core.evaluated += 1
                    return row
                if pending <= core.feed.chunk:
                    row = core.feed.run(core.retained[core.evaluated :], core.evaluated)
                    core.evaluated += pending
                    return row
                piece = core.retained[core.evaluated : core.evaluated + core.feed.chunk]
                core.feed.skip(piece, core.evaluated)
                core.evaluated += len(piece)
            except BaseException as error:
                before = core.evaluated
                core.synchronize()
                if not isinstance(error, WinMLError):
                    raise
                if error.hresult == CANCELLED and not was_aborted:
                    was_aborted = True  # without a cancel of ours it was a late one for an earlier operation: run again
                elif core.evaluated < before and not was_lost:
                    was_lost = True  # what an interrupt had left could not be taken back: evaluate all again
                else:
                    raise
            if self._latch.is_canceled:
                return None
