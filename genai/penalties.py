"""Penalties on tokens by how often they have occurred (genai §5.4, steps 2 and 3)."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from .options import TextGenerationOptions

Row: TypeAlias = npt.NDArray[Any]


class _Occurrences:
    """How often each token occurs, in two aligned arrays that grow and shrink in place: reading them costs no copy."""

    __slots__ = ("_counts", "_ids", "_slots")

    def __init__(self) -> None:
        self._slots: dict[int, int] = {}
        self._ids = np.zeros(64, np.intp)
        self._counts = np.zeros(64, np.float64)

    @property
    def ids(self) -> npt.NDArray[np.intp]:
        return self._ids[: len(self._slots)]

    @property
    def counts(self) -> npt.NDArray[np.float64]:
        return self._counts[: len(self._slots)]

    def add(self, token_id: int) -> None:
        slot = self._slots.setdefault(token_id, len(self._slots))
        if slot == self._ids.size:
            self._ids = np.concatenate((self._ids, np.zeros_like(self._ids)))
            self._counts = np.concatenate((self._counts, np.zeros_like(self._counts)))
        self._ids[slot] = token_id
        self._counts[slot] += 1

    def remove(self, token_id: int) -> None:
        """Take one occurrence back; the last slot moves into a freed one."""
        slot = self._slots[token_id]
        self._counts[slot] -= 1
        if self._counts[slot] == 0:
            del self._slots[token_id]
            last = len(self._slots)
            if slot != last:
                moved = int(self._ids[last])
                self._slots[moved] = slot
                self._ids[slot] = moved
                self._counts[slot] = self._counts[last]
            self._counts[last] = 0


class Penalties:
    """Repetition over the last tokens of prompt and output, presence and frequency over the output alone."""

    def __init__(self, options: TextGenerationOptions, vocabulary_size: int, prompt_ids: Iterable[int]) -> None:
        self._repetition = options.repetition_penalty
        self._presence = options.presence_penalty
        self._frequency = options.frequency_penalty
        self._vocabulary_size = vocabulary_size
        self._recent = _Occurrences()
        self._window: deque[int] | None = None
        if options.repetition_penalty_window:
            self._window = deque()
        self._window_size = options.repetition_penalty_window
        self._emitted = _Occurrences()
        for token_id in prompt_ids:
            self._remember(token_id)

    def _remember(self, token_id: int) -> None:
        if self._repetition == 1:
            return
        if self._has_logit(token_id):
            self._recent.add(token_id)
        if self._window is not None:
            self._window.append(token_id)
            if len(self._window) > self._window_size:
                oldest = self._window.popleft()
                if self._has_logit(oldest):
                    self._recent.remove(oldest)

    def _has_logit(self, token_id: int) -> bool:
        """Prompts may hold ids past the row: models exist with more input than output tokens."""
        return 0 <= token_id < self._vocabulary_size

    def accept(self, token_id: int) -> None:
        self._remember(token_id)
        if self._has_logit(token_id):
            self._emitted.add(token_id)

    def apply(self, row: Row) -> None:
        """Penalise a row of float64 in place."""
        with np.errstate(all="ignore"):  # an overflow is a proper infinity, and NaN stays NaN
            if self._repetition != 1:
                ids = self._recent.ids
                z = row[ids]
                row[ids] = np.where(z > 0, z / self._repetition, z * self._repetition)
            if self._frequency or self._presence:
                ids = self._emitted.ids
                row[ids] = row[ids] - self._frequency * self._emitted.counts - self._presence
