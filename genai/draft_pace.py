"""How many tokens are worth drafting: as many as promise the most tokens for the time of a step.

With chances c1, c2, ... that the first, second, ... drafted token is the one that will be chosen, a step over a pending
token and n drafted ones brings 1 + c1 + c1 c2 + ... + c1 ... cn tokens, and costs what `step_costs.py` has measured. If
that is not worth it for any n, nothing is drafted: after misses the chances are low, and where wide steps are slow the
cost is high.

Worked example, chances of 0.9 and steps that cost 1, 1.77, 2.49, 2.79 single ones: the tokens per single step are
1.90 / 1.77 = 1.07, 2.71 / 2.49 = 1.09, 3.44 / 2.79 = 1.23, so three are drafted. With chances of 0.6 they are 0.90,
0.79, 0.78, and none is.
"""

from __future__ import annotations

from collections.abc import Sequence

from .step_costs import StepCosts

_MARGIN = 1.05
"""Least gain that is worth it: the measures are not exact."""
_FIRST_PAUSE, _LONGEST_PAUSE = 16, 1024
_PROBE_CHANCE = 0.6
"""Least chance with which a cost is measured anew."""


class DraftPace:
    """Chooses the length of each draft.

    The first steps are single ones, to know what the others cost. A cost may have been measured in a bad moment. So when nothing pays although the chances are fair, one token is
    drafted now and then all the same: after 16 steps, then after twice as many each time.
    """

    def __init__(self, costs: StepCosts) -> None:
        self._costs = costs
        self._pause = _FIRST_PAUSE
        self._waited = 0

    def length(self, chances: Sequence[float]) -> int:
        """Return how many tokens to draft: 0 to the number of chances given."""
        if not self._costs.is_known:
            return 0
        best, gain = 0, _MARGIN
        expected = likely = 1.0
        for count, (chance, cost) in enumerate(zip(chances, self._costs.curve[1:], strict=False), 1):
            likely *= chance
            expected += likely
            if expected > gain * cost:
                best, gain = count, expected / cost
        if best:
            self._pause, self._waited = _FIRST_PAUSE, 0
            return best
        self._waited += 1
        if not chances or self._waited < self._pause or chances[0] < _PROBE_CHANCE:
            return 0
        self._pause, self._waited = min(2 * self._pause, _LONGEST_PAUSE), 0
        return 1
