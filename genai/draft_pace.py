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

_MARGIN = 1.1
"""Least gain that is worth it: the measures are not exact."""
_UNLIKELY = 0.05
"""Chance of a drafted token, those before it included, behind which no other is looked at."""
_FIRST_LENGTH = 2
"""Most tokens of a draft while it is not known what a wide step costs."""


def draft_length(costs: StepCosts, chances: Sequence[float]) -> int:
    """Return how many tokens to draft, 0 to the number of chances given.

    The first steps are single ones, and the first drafts short, to find out what steps cost. Costs are forgotten after
    a while, so that is tried again now and then.
    """
    knows_single_steps, knows_wide_steps, curve = costs.present
    if not knows_single_steps or not chances:
        return 0
    most = len(chances) if knows_wide_steps else _FIRST_LENGTH
    best, gain = 0, _MARGIN
    expected = likely = 1.0
    for count, (chance, cost) in enumerate(zip(chances[:most], curve[1:], strict=False), 1):
        likely *= chance
        expected += likely
        if expected > gain * cost:
            best, gain = count, expected / cost
        if likely < _UNLIKELY:
            break
    return best
