"""Repeated sequences of tokens: n-grams that may not come twice, and the DRY penalty (genai §8).

Both look up the last tokens in an index of all n-grams so far, which grows by one entry for each token: what a token
costs depends on how often its predecessors occurred together, not on the length of the text, nor on that of what is
repeated.

DRY ("don't repeat yourself") is by the author p-e-w, described in text-generation-webui's pull request 5677 (2024).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from winml_lite import WinMLError

from .option_values import sequence_breakers
from .options import TextGenerationOptions

Row: TypeAlias = npt.NDArray[Any]
Ids: TypeAlias = npt.NDArray[np.int64]
Places: TypeAlias = npt.NDArray[np.intp]
Pieces: TypeAlias = Callable[[int], bytes]

MAX_EXPONENT = 88.7228391
"""Natural logarithm of the largest number of single precision: the power of DRY's base does not grow beyond it."""


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
        self._breakers = _Breakers(sequence_breakers(options.dry_sequence_breakers), pieces)
        for token_id in prompt_ids:
            self._breakers.read(token_id)
        self._index = NgramIndex(prompt_ids, self._allowed)
        self._places = self._followers()
        self._lengths = self._measured(self._places)

    def _followers(self) -> Places:
        """Return the places of the tokens that came after the last tokens before, as many as are allowed."""
        if self._breakers.count < self._allowed:
            return np.zeros(0, np.intp)
        return np.array(self._index.followers(), np.intp)

    def _measured(self, places: Places) -> Places:
        """Return how many tokens in front of each place equal the last ones."""
        ids = self._index.ids
        length = self._allowed
        lengths = np.full(places.size, length)
        alive = np.arange(places.size)  # those with at least `length` equal tokens
        while alive.size and length < min(self._breakers.count, self._longest):
            alive = alive[places[alive] > length]
            alive = alive[ids[places[alive] - length - 1] == ids[-length - 1]]
            length += 1
            lengths[alive] = length
        return lengths

    def apply(self, row: Row) -> None:
        if not self._places.size:
            return
        order = np.argsort(self._lengths, kind="stable")  # of several lengths for one token the longest is set last
        followers = self._index.ids[self._places[order]]
        for token_id, length in dict(zip(followers.tolist(), self._lengths[order].tolist(), strict=True)).items():
            if token_id < self._vocabulary_size and not self._breakers.holds(token_id):
                row[token_id] -= self._multiplier * self._base ** (length - self._allowed)

    def accept(self, token_id: int) -> None:
        self._breakers.read(token_id)
        self._index.append(token_id)
        places, before = self._followers(), self._places
        lengths = np.full(places.size, self._allowed)
        if places.size and before.size:
            # Behind a place of the last token a repetition goes on, elsewhere it begins.
            slots = np.minimum(np.searchsorted(before, places - 1), before.size - 1)
            goes_on = before[slots] == places - 1
            lengths[goes_on] = np.minimum(self._lengths[slots[goes_on]] + 1, self._longest)
        self._places, self._lengths = places, lengths


class _Breakers:
    """Counts the tokens since the last sequence breaker."""

    def __init__(self, breakers: Iterable[str | int], pieces: Pieces | None) -> None:
        breakers = tuple(breakers)
        self.count = 0
        self._ids = {item for item in breakers if isinstance(item, int)}
        self._texts = [item.encode() for item in breakers if isinstance(item, str)]
        if pieces is None and self._texts:
            raise ValueError("dry_sequence_breakers: without a tokenizer they must be token ids")
        self._pieces = pieces
        self._tail_size = max(map(len, self._texts), default=1) - 1
        self._tail = b""

    def read(self, token_id: int) -> None:
        """Take the next token."""
        self.count = 0 if token_id in self._ids else self.count + 1
        if not self._texts:
            return
        before = len(self._tail)  # a match inside the tail was one of an earlier token
        text = self._tail + self._text(token_id)
        if any(text.find(breaker, max(before - len(breaker) + 1, 0)) >= 0 for breaker in self._texts):
            self.count = 0
        self._tail = text[max(len(text) - self._tail_size, 0) :]

    def holds(self, token_id: int) -> bool:
        """Whether the token is a breaker, or has one in its text."""
        if token_id in self._ids:
            return True
        text = self._text(token_id)
        return any(breaker in text for breaker in self._texts)

    def _text(self, token_id: int) -> bytes:
        if self._pieces is None:
            return b""
        try:
            return self._pieces(token_id)
        except WinMLError:  # an id that the model has and the tokenizer has not
            return b""
