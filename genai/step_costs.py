"""What a step over several positions costs, measured while generating.

On some engines a step of four positions takes as long as three single ones, on others little more than one; it depends
on the weights, the machine and its load. So the steps of a generation are timed as they come, and each width has the
median of its last ones. Widths that were not tried are estimated from those that were. What is older than 128 steps is
forgotten: a bad moment of the machine is not held against an engine for long.

Not here: what is done with that knowledge (`draft_pace.py`).
"""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

WIDEST = 17
"""Most positions of one step: a pending token and 16 drafted ones."""
_KEPT = 7
"""Steps of a width that a median is of, at most."""
_WINDOW = 128
"""Steps after which a time is forgotten."""
_EACH = 8
"""Single steps after which the costs are worked out anew."""
_SINGLES = 2
"""Single steps that are enough to compare with: the first one may also prepare for the others."""
_FIRST_SLOPE = 0.25
"""What each further position is thought to cost, in single steps, while nothing is measured."""
_FLATTENING = 0.75
"""Further positions cost less than the ones before: from the widest step that was measured the slope goes on as this
part of the average one."""


class Costs(NamedTuple):
    """What is known at the moment."""

    knows_single_steps: bool
    """Whether single steps were measured, which all costs are compared with."""
    knows_wide_steps: bool
    """Whether any wider step was measured."""
    curve: list[float]
    """The cost of drafting `n` tokens and of the step over the pending token and them, for `n` = 0, 1, ... 16, in
    single steps: the first is 1.0.
    """


class StepCosts:
    """Times of steps by their width. One sequence core keeps them from operation to operation."""

    def __init__(self) -> None:
        self._steps = 0
        self._times: dict[int, deque[tuple[int, float]]] = {}
        """For each width the last steps: their number, and the seconds."""
        self._draft_seconds: deque[float] = deque(maxlen=_KEPT)
        self._present: Costs | None = None

    def note(self, width: int, seconds: float) -> None:
        """Note the time that a step over `width` positions took."""
        self._steps = steps = self._steps + 1
        self._times.setdefault(width, deque(maxlen=_KEPT)).append((steps, seconds))
        if width > 1 or steps % _EACH == 0 or steps <= _EACH:  # single steps are many, and tell little new
            self._present = None

    def note_draft(self, count: int, seconds: float) -> None:
        """Note the time that drafting `count` tokens took."""
        self._draft_seconds.append(seconds / count)

    @property
    def present(self) -> Costs:
        """What the last steps have told."""
        if self._present is None:
            self._present = self._compute()
        return self._present

    def _compute(self) -> Costs:
        first = self._steps - _WINDOW
        recent = {width: [seconds for step, seconds in times if step > first] for width, times in self._times.items()}
        singles = recent.pop(1, [])
        wide = {width: _median(times) for width, times in recent.items() if times}
        single = _median(singles)
        if single:
            known = {width: max(seconds / single, 1.0) for width, seconds in wide.items()}
            draft = _median(list(self._draft_seconds)) / single
            curve = [_interpolated(known, width) + draft * (width - 1) for width in range(1, WIDEST + 1)]
        else:
            curve = [1 + _FIRST_SLOPE * count for count in range(WIDEST)]
        return Costs(len(singles) >= _SINGLES, bool(wide), curve)


def _interpolated(known: dict[int, float], width: int) -> float:
    """The cost of a width: on the line between the measured widths around it, the single step among them."""
    below, cost_below = 1, 1.0
    above = WIDEST + 1
    for measured, cost in known.items():
        if below <= measured <= width:
            below, cost_below = measured, cost
        elif width < measured < above:
            above = measured
    if above in known:
        slope = (known[above] - cost_below) / (above - below)
    elif below > 1:
        slope = _FLATTENING * (cost_below - 1) / (below - 1)
    else:
        slope = _FIRST_SLOPE
    return cost_below + slope * (width - below)


def _median(times: list[float]) -> float:
    """The median, of two the lower one, since the first step of a width also prepares for it; 0.0 of nothing."""
    return sorted(times)[(len(times) - 1) // 2] if times else 0.0
