"""What a step over several positions costs, measured while generating.

On some engines a step of four positions takes as long as three single ones, on others little more than one; it depends
on the weights, the machine and its load. So the steps of a generation are timed as they come, and each width has the
median of its last ones. Widths that were not tried yet are estimated from those that were.

Not here: what is done with that knowledge (`draft_pace.py`).
"""

from __future__ import annotations

from collections import deque

WIDEST = 17
"""Most positions of one step: a pending token and 16 drafted ones."""
_KEPT = 7
"""Steps that a median is of."""
_SINGLES = 2
"""Single steps that are enough to compare with: the first one may also prepare for the others."""
_FIRST_SLOPE = 0.25
"""What each further position is thought to cost, in single steps, before anything was measured."""
_FLATTENING = 0.75
"""Further positions cost less than the ones before: from the widest step that was measured the slope goes on as this
part of the average one."""


class StepCosts:
    """Times of steps by their width. One sequence core keeps them from operation to operation."""

    def __init__(self) -> None:
        self._seconds: dict[int, deque[float]] = {}
        self._draft_seconds: deque[float] = deque(maxlen=_KEPT)
        self._curve: list[float] | None = None

    def note(self, width: int, seconds: float) -> None:
        """Note the time that a step over `width` positions took."""
        self._seconds.setdefault(width, deque(maxlen=_KEPT)).append(seconds)
        self._curve = None

    def note_draft(self, count: int, seconds: float) -> None:
        """Note the time that drafting `count` tokens took."""
        self._draft_seconds.append(seconds / count)
        self._curve = None

    @property
    def is_known(self) -> bool:
        """Whether single steps were measured, which all costs are compared with."""
        return len(self._seconds.get(1, ())) >= _SINGLES

    @property
    def curve(self) -> list[float]:
        """The cost of drafting `n` tokens and of the step over the pending token and them, for `n` = 0, 1, ... 16, in
        single steps: the first is 1.0.
        """
        if self._curve is None:
            self._curve = self._make_curve()
        return self._curve

    def _make_curve(self) -> list[float]:
        single = _median(self._seconds.get(1, ()))
        if not single:
            return [1 + _FIRST_SLOPE * count for count in range(WIDEST)]
        known = {width: _median(times) / single for width, times in self._seconds.items() if width > 1}
        known = {width: max(cost, 1.0) for width, cost in known.items()}
        draft = _median(self._draft_seconds) / single
        return [_interpolated(known, width) + draft * (width - 1) for width in range(1, WIDEST + 1)]


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


def _median(times: deque[float] | tuple[()]) -> float:
    """The median, of two the lower one, since the first step of a width also prepares for it; 0.0 of nothing."""
    return sorted(times)[(len(times) - 1) // 2] if times else 0.0
