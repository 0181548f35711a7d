"""Repeated sequences of tokens: n-grams that may not come twice, and the DRY penalty (genai §8).

Both look up the last tokens in an index of all n-grams so far, which grows by one entry for each token: what a token
costs depends on how often its predecessors occurred together, not on the length of the text.

DRY ("don't repeat yourself") is by the author p-e-w, described in text-generation-webui's pull request 5677 (2024).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from winml_lite import WinMLError

from .option_values import sequence_breakers
from .options import TextGenerationOptions

Row: TypeAlias = npt.NDArray[Any]
Ids: TypeAlias = npt.NDArray[np.int64]
Pieces: TypeAlias = Callable[[int], bytes]

MAX_EXPONENT = 88.7228391
"""Natural logarithm of the largest number of single precision: the power of DRY's base does not grow beyond it."""


def _no_text(token_id: int) -> bytes:
    return b""


class NgramIndex:
    """A growing sequence of tokens, and where each `size` tokens in a row were followed by what."""

    def __init__(self, token_ids: Sequence[int], size: int) -> None:
        self._size = size
        self._count = len(token_ids)
        self._buffer: Ids = np.array([*token_ids, *[0] * 64], np.int64)
        self._followers: dict[bytes, list[int]] = {}
        data, width = self.ids.tobytes(), 8 * size
        for place in range(size, self._count):
            self._followers.setdefault(data[8 * place - width : 8 * place], []).append(place)

    @property
    def ids(self) -> Ids:
        """The sequence so far."""
        return self._buffer[: self._count]

    def append(self, token_id: int) -> None:
        if self._count >= self._size:
            self._followers.setdefault(self._last(), []).append(self._count)
        if self._count == self._buffer.size:
            self._buffer = np.concatenate((self._buffer, np.zeros_like(self._buffer)))
        self._buffer[self._count] = token_id
        self._count += 1

    def followers(self) -> list[int]:
        """Return the places, ascending, of the tokens that came after earlier occurrences of the last `size` tokens."""
        return self._followers.get(self._last(), []) if self._count >= self._size else []

    def _last(self) -> bytes:
        return self._buffer[self._count - self._size : self._count].tobytes()


class NoRepeat:
    """Bans every token that would complete an n-gram of the sequence once more."""

    def __init__(self, size: int, vocabulary_size: int, prompt_ids: Sequence[int]) -> None:
        self._index = NgramIndex(prompt_ids, size - 1)
        self._vocabulary_size = vocabulary_size

    def apply(self, row: Row) -> None:
        places = self._index.followers()
        if places:
            ids = self._index.ids[places]
            row[ids[ids < self._vocabulary_size]] = -np.inf

    def accept(self, token_id: int) -> None:
        self._index.append(token_id)


class Dry:
    """Lowers the logits of tokens that would prolong a repetition.

    A token that came after an earlier occurrence of the last n tokens, n at least the allowed length and as long as it
    can be, loses multiplier * base ** (n - allowed length). The last n tokens never reach over a sequence breaker: an
    id, or a text that the output contains, however it is split into tokens. Tokens that are or contain a breaker lose
    nothing.
    """

    def __init__(
        self, options: TextGenerationOptions, vocabulary_size: int, prompt_ids: Sequence[int], pieces: Pieces | None
    ) -> None:
        self._multiplier = options.dry_multiplier
        self._base = options.dry_base
        self._allowed = options.dry_allowed_length
        growth = math.log(self._base)
        # Beyond this length the penalty stays the same, so there is no need to look further back.
        self._longest = self._allowed + (int(MAX_EXPONENT / growth) if growth > 1e-6 else 0)
        self._vocabulary_size = vocabulary_size
        breakers = sequence_breakers(options.dry_sequence_breakers)
        self._breaker_ids = {item for item in breakers if isinstance(item, int)}
        self._breakers = [item.encode() for item in breakers if isinstance(item, str)]
        if pieces is None:
            if self._breakers:
                raise ValueError("dry_sequence_breakers: without a tokenizer they must be token ids")
            pieces = _no_text
        self._pieces = pieces
        self._tail_size = max(map(len, self._breakers), default=1) - 1
        self._tail = b""
        self._since_breaker = 0
        self._index = NgramIndex(prompt_ids, self._allowed)
        for token_id in prompt_ids:
            self._read(token_id)

    def _read(self, token_id: int) -> None:
        """Count the tokens since the last breaker."""
        self._since_breaker += 1
        if token_id in self._breaker_ids:
            self._since_breaker = 0
        if not self._breakers:
            return
        text = self._tail + self._text(token_id)
        before = len(self._tail)  # a match inside the tail was one of an earlier token
        if any(text.find(breaker, max(before - len(breaker) + 1, 0)) >= 0 for breaker in self._breakers):
            self._since_breaker = 0
        self._tail = text[max(len(text) - self._tail_size, 0) :]

    def _is_breaker(self, token_id: int) -> bool:
        if token_id in self._breaker_ids:
            return True
        text = self._text(token_id) if self._breakers else b""
        return any(breaker in text for breaker in self._breakers)

    def _text(self, token_id: int) -> bytes:
        try:
            return self._pieces(token_id)
        except WinMLError:  # an id that the model has and the tokenizer has not
            return b""

    def apply(self, row: Row) -> None:
        if self._since_breaker < self._allowed:
            return
        places = self._index.followers()
        if not places:
            return
        for token_id, length in self._repetitions(np.array(places, np.intp)).items():
            if token_id < self._vocabulary_size and not self._is_breaker(token_id):
                row[token_id] -= self._multiplier * self._base ** (length - self._allowed)

    def _repetitions(self, places: npt.NDArray[np.intp]) -> dict[int, int]:
        """Return the longest repetition that each of the tokens at `places` would prolong."""
        ids = self._index.ids
        longest = min(self._since_breaker, self._longest)
        length = self._allowed
        lengths = np.full(places.size, length)
        alive = np.arange(places.size)  # places after at least `length` tokens that equal the last ones
        while length < longest:
            alive = alive[places[alive] > length]
            alive = alive[ids[places[alive] - length - 1] == ids[-length - 1]]
            if not alive.size:
                break
            length += 1
            lengths[alive] = length
        order = np.argsort(lengths, kind="stable")  # of several lengths the longest is set last
        return dict(zip(ids[places[order]].tolist(), lengths[order].tolist(), strict=True))

    def accept(self, token_id: int) -> None:
        self._index.append(token_id)
        self._read(token_id)
