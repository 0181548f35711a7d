"""A constraint at one place: some tokens are legal, the others are not."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt


class Only:
    """Permits these tokens of a vocabulary of at most 8."""

    def __init__(self, *token_ids: int) -> None:
        self._token_ids = token_ids

    def allows(self, token_id: int) -> bool:
        return token_id in self._token_ids

    def mask(self) -> npt.NDArray[np.uint8]:
        return np.array([sum(1 << token_id for token_id in self._token_ids)], np.uint8)
