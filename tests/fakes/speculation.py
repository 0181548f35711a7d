"""Steps over several positions on the fake token model. Each counts as one run of the script."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from winml_lite.errors import E_INVALIDARG, WinMLError
from winml_lite.values import SpeculativeCapabilities, SpeculativeResidency, SpeculativeRollbackBound

if TYPE_CHECKING:
    from fakes.backend import FakeSequence, TokenExecutor

_WIDEST = 16


class FakeSpeculation:
    """Implements `Speculation`."""

    def __init__(self, executor: TokenExecutor, sequence: FakeSequence) -> None:
        self._executor = executor
        self._sequence = sequence

    @property
    def capabilities(self) -> SpeculativeCapabilities:
        width = min(_WIDEST, self._sequence.capacity)
        return SpeculativeCapabilities(width, width, SpeculativeRollbackBound.UNBOUNDED, 0, SpeculativeResidency.HOST)

    def step(self, tokens: npt.NDArray[np.int32]) -> npt.NDArray[np.float32]:
        executor = self._executor
        if tokens.size > self.capabilities.max_proposed_step_width:
            raise WinMLError(E_INVALIDARG, "", f"{tokens.size} tokens are too many for a step")
        try:
            executor.compute([tokens])  # what would be refused is refused before anything moves
            executor.follow_script()
            rows = [executor.compute([tokens[: index + 1]])[0][0] for index in range(tokens.size)]
        except BaseException:
            executor.discard()
            raise
        executor.commit()
        return np.array(rows, np.float32)

    def propose(self, pending: int, maximum: int) -> list[int]:
        return []
