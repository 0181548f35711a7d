"""Voice activity that a test can work out: a step of sound is speech when it is loud."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from genai import VoiceActivity

Samples = npt.NDArray[np.float32]
STEP = 512


class Loudness:
    """Finds speech in each step of 512 samples that is loud."""

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        self._rest = np.zeros(0, np.float32)

    def probabilities(self, samples: Samples, *, last: bool = False) -> Samples:
        joined = np.concatenate([self._rest, samples])
        if last:
            joined = np.concatenate([joined, np.zeros(-len(joined) % STEP, np.float32)])
        count = len(joined) // STEP
        self._rest = joined[count * STEP :]
        loud: Samples = (np.abs(joined[: count * STEP]).reshape(count, STEP).max(axis=1) > 0.1).astype(np.float32)
        return loud


def loudness() -> VoiceActivity:
    """One that has heard nothing."""
    return Loudness()  # type: ignore[return-value]
