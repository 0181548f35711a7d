"""Running the model on a pending token and a draft at once, and handing out the rows one by one (genai §7).

A step over [pending, d1 ... dm] gives the rows that m + 1 single steps would give, provided that the drafted tokens are
the chosen ones. `next_row` hands out a row without running the model for as long as they are. After the first that is
not, what the step has consumed beyond is taken back before the model runs again, or at the end.

So after each read `evaluated` is what it would be without drafts: the tokens whose rows were handed out. Selection,
constraint and random numbers see the same rows in the same order.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from contextlib import suppress
from time import perf_counter
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from winml_lite import WinMLError

from .cancellation import CancellationLatch
from .codes import CANCELLED
from .draft_pace import draft_length
from .endpoints import Row
from .evaluation import Evaluation
from .options import TextGenerationOptions
from .speculation import Speculation
from .speculative_statistics import TextGenerationSpeculativeStatistics

if TYPE_CHECKING:
    from .sequence import SequenceCore

_log = logging.getLogger("genai.speculation")


class SpeculativeEvaluation(Evaluation):
    """An evaluation that drafts tokens and verifies them.

    A draft that would not pay is not made, and a source that fails ends drafting, never the generation.
    """

    __slots__ = (
        "_base",
        "_draft",
        "_end",
        "_failure",
        "_has_begun",
        "_is_ahead",
        "_rows",
        "_seconds",
        "_speculation",
        "_stops",
        "_totals",
    )

    def __init__(
        self,
        core: SequenceCore,
        latch: CancellationLatch,
        speculation: Speculation,
        options: TextGenerationOptions,
    ) -> None:
        super().__init__(core, latch)
        self._speculation = speculation
        self._stops = frozenset((*core.eos_token_ids, *options.stop_token_ids))
        """Tokens that end a draft."""
        self._end = len(core.retained) + options.max_new_tokens
        """Most tokens that the sequence can come to."""
        if core.capacity:
            self._end = min(self._end, core.capacity)
        self._has_begun = False
        self._failure: str | None = None
        self._is_ahead = False
        """Whether the stage may have consumed more than `core.evaluated`."""
        self._rows: npt.NDArray[np.float32] | None = None
        """The rows of a step, while the tokens that were chosen are the drafted ones."""
        self._draft: Sequence[int] = ()
        self._base = 0
        """The position before the step; the pending token was `core.retained[_base]`."""
        self._seconds = 0.0
        """What the step took."""
        self._totals = [0, 0, 0]
        """Verification steps, drafted tokens, accepted tokens."""

    @property
    def statistics(self) -> TextGenerationSpeculativeStatistics:
        return TextGenerationSpeculativeStatistics(self._speculation.method, *self._totals, failure=self._failure)

    def next_row(self) -> Row | None:
        rows = self._rows
        if rows is None:
            return super().next_row()
        core = self._core
        index = len(core.retained) - 1 - self._base
        core.evaluated = self._base + index + 1
        row: Row = rows[index]
        return row

    def accept(self, token_id: int) -> None:
        if self._rows is not None:
            index = len(self._core.retained) - 1 - self._base
            if index == len(self._draft) or self._draft[index] != token_id:
                self._rows = None
        super().accept(token_id)

    def settle(self) -> None:
        super().settle()
        self._rows = None
        self._latch.off_cancel(self._speculation.source.abort)
        if self._is_ahead:
            self._is_ahead = False
            with suppress(WinMLError):  # the next operation finds that the position does not fit
                self._end_step()

    # --- running ------------------------------------------------------------------------------------------------------

    def _evaluate(self) -> Row | None:
        core = self._core
        if self._is_ahead:
            self._end_step()
        if len(core.retained) - core.evaluated != 1:
            return super()._evaluate()
        draft = self._make_draft()
        if self._latch.is_canceled:
            return None
        if draft:
            return self._verify(draft)
        started = perf_counter()
        row = super()._evaluate()
        if row is not None:
            self._speculation.costs.note(1, perf_counter() - started)
        return row

    def _verify(self, draft: list[int]) -> Row | None:
        """Run the model on the pending token and the draft; return the first row, None when cancelled."""
        core = self._core
        base = core.evaluated
        started = perf_counter()
        self._is_ahead = True  # before the step: an interrupt may come right behind it
        try:
            rows = core.step_rows([core.retained[base], *draft], base)
        except WinMLError as error:
            self._end_step()
            if error.hresult != CANCELLED:
                raise
            # without a cancel of ours it was a late one for an earlier operation
            return None if self._latch.is_canceled else super()._evaluate()
        self._seconds = perf_counter() - started
        self._totals[0] += 1
        self._totals[1] += len(draft)
        self._draft, self._base, self._rows = draft, base, rows
        return self.next_row()

    def _end_step(self) -> None:
        """Have the stage forget what it has consumed beyond the rows that were handed out, and learn from the draft."""
        core = self._core
        kept = core.evaluated
        started = perf_counter()
        core.take_back()
        seconds = self._seconds + perf_counter() - started  # where state is copied to go back, that belongs to the step
        self._is_ahead = False
        if core.evaluated < kept:
            self._give_up("the state could not be taken back, and was evaluated again")
        draft, chosen = self._draft, core.retained[self._base + 1 :]
        self._draft = ()
        if draft:
            accepted = 0
            while accepted < min(len(draft), len(chosen)) and draft[accepted] == chosen[accepted]:
                accepted += 1
            self._totals[2] += accepted
            self._speculation.costs.note(len(draft) + 1, seconds)
            self._speculation.source.observe(len(draft), accepted)

    def _give_up(self, reason: str) -> None:
        """Draft nothing more in this operation."""
        self._failure = reason
        _log.warning("drafting ended, the rest is generated token by token: %s", reason)

    def _make_draft(self) -> list[int]:
        """Return the tokens to try; [] when there are none, or trying them would not pay."""
        sequence = self._core.retained
        most = min(self._speculation.limit, self._end - len(sequence) - 1)
        if most < 1 or self._failure is not None:
            return []
        try:
            return self._ask_source(sequence, most)
        except WinMLError as error:
            if error.hresult != CANCELLED:
                self._give_up(str(error))
            return []

    def _ask_source(self, sequence: list[int], most: int) -> list[int]:
        source, costs = self._speculation.source, self._speculation.costs
        if not self._has_begun:
            self._latch.off_cancel(source.abort)  # an interrupt may have struck here before
            self._latch.on_cancel(source.abort)
            source.begin(sequence)
            self._has_begun = True
        count = draft_length(costs, source.outlook(sequence, most))
        if not count:
            return []
        started = perf_counter()
        draft = source.propose(sequence, count)
        if draft:
            costs.note_draft(len(draft), perf_counter() - started)
        for index, token_id in enumerate(draft):
            if token_id in self._stops:
                return draft[:index]
        return draft
