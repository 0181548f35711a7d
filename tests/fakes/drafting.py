"""What speculative decoding is tried with: a scripted decoder that steps, costs that do not depend on the clock, and a
source that drafts what it is told.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from random import Random

import numpy as np

from fakes.scripted import Logits, ScriptedDecoder
from genai.step_costs import WIDEST, Costs, StepCosts
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
    """Costs that are set once: each further position of a step costs `slope` single steps, or as in `curve`."""

    def __init__(self, slope: float = 0.0, curve: list[float] | None = None) -> None:
        super().__init__()
        self._set = Costs(True, True, curve or [1 + slope * count for count in range(WIDEST)])

    @property
    def present(self) -> Costs:
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


@dataclass
class GuessedDrafts:
    """A `DraftSource` that mostly knows what the model says next, often guesses wrong, and now and then fails."""

    logits: Logits
    random: Random
    pipelines = ()

    def begin(self, sequence: Sequence[int]) -> None:
        pass

    def outlook(self, sequence: Sequence[int], most: int) -> Sequence[float]:
        return [0.5] * most

    def propose(self, sequence: Sequence[int], count: int) -> list[int]:
        if self.random.random() < 0.02:
            raise WinMLError(0x80004005, "draft", "scripted failure")
        drafted = list(sequence)
        for _ in range(count):
            row = self.logits(drafted)
            drafted.append(int(row.argmax()) if self.random.random() < 0.8 else self.random.randrange(row.size))
        return drafted[len(sequence) :]

    def observe(self, drafted: int, accepted: int) -> None:
        pass

    def abort(self) -> None:
        pass

    def close(self) -> None:
        pass
