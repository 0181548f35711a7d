"""What speculative decoding is tried with: a scripted decoder that steps, costs that do not depend on the clock, and a
source that drafts what it is told.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from fakes.scripted import ScriptedDecoder
from genai.step_costs import WIDEST, StepCosts
from winml_lite import WinMLError


@dataclass
class SteppingDecoder(ScriptedDecoder):
    """A `ScriptedDecoder` that also takes steps over several positions; each counts as one run."""

    def bind_positions(self, position: int, count: int) -> None:
        """Check what a step is to be told."""
        assert position == len(self.history)

    def step_all_positions(self, tokens: Sequence[int]) -> memoryview:
        """Evaluate all tokens, and return the rows."""
        before = list(self.history)
        self._evaluate(list(tokens), len(before))
        rows = [self.logits([*before, *tokens[: index + 1]]) for index in range(len(tokens))]
        return np.array(rows, np.float32).data


class SetCosts(StepCosts):
    """Costs that are set once: each further position of a step costs `slope` single steps."""

    def __init__(self, slope: float = 0.0) -> None:
        super().__init__()
        self._set = [1 + slope * count for count in range(WIDEST)]

    @property
    def knows_single_steps(self) -> bool:
        return True

    @property
    def knows_wide_steps(self) -> bool:
        return True

    @property
    def curve(self) -> list[float]:
        return self._set


@dataclass
class SetDrafts:
    """A `DraftSource` that drafts `drafts`, one after the other, and then nothing."""

    drafts: list[list[int]]
    chance: float = 0.9
    failure: WinMLError | None = None
    observed: list[tuple[int, int]] = field(default_factory=list)
    asked: list[list[int]] = field(default_factory=list)
    aborts: int = 0
    pipelines = ()

    def begin(self, sequence: Sequence[int]) -> None:
        pass

    def outlook(self, sequence: Sequence[int], most: int) -> Sequence[float]:
        return [self.chance] * min(most, len(self.drafts[0]) if self.drafts else 0)

    def propose(self, sequence: Sequence[int], count: int) -> list[int]:
        self.asked.append(list(sequence))
        if self.failure is not None:
            raise self.failure
        return self.drafts.pop(0)[:count]

    def observe(self, drafted: int, accepted: int) -> None:
        self.observed.append((drafted, accepted))

    def abort(self) -> None:
        self.aborts += 1

    def close(self) -> None:
        pass
