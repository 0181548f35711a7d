"""From what a model writes about windows of sound to the segments of a recording, none twice and none lost.

A window is 30 seconds; of live sound it is what is spoken up to a pause. Timestamps in the tokens divide it into
pieces. A piece that the end of the window may have cut off is left to the next one, which begins where the last whole
piece ends; where nothing is cut off it begins at a quiet place. The last window is written down to its end, and so is
one that ends at a pause.

Here: pure functions over tokens, and the walk over a sound. Not here: where the sound comes from (`spoken_sound.py`),
how a window is decoded (`window_hearing.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

from .log_mel import SAMPLE_RATE
from .whisper_folder import TIMESTAMP_SECONDS, WhisperTokens

Samples: TypeAlias = npt.NDArray[np.float32]

_STEP = round(TIMESTAMP_SECONDS * SAMPLE_RATE)
"""Samples of a timestamp: all places are multiples of it."""
_CUT_OFF = SAMPLE_RATE // 5
"""A piece that ends closer to the end of a window may have been cut off."""
_LEAST_ADVANCE = SAMPLE_RATE
"""Samples from one window to the next at least, so that a model that is stuck does not hold up everything."""
_QUIET_WITH_TIMES, _QUIET_WITHOUT_TIMES = 2 * SAMPLE_RATE, 5 * SAMPLE_RATE
"""How far before the end of a window a quiet place is looked for."""
_SMOOTHED = 9
"""Steps over which loudness is averaged: 0.18 s, longer than the pauses within a word."""
_SHORTEST = SAMPLE_RATE // 10
"""Samples that hold no word."""


@dataclass(frozen=True, slots=True)
class Heard:
    """What a model wrote about one window."""

    token_ids: tuple[int, ...]
    """Timestamps among them, the end token not."""
    is_whole: bool = True
    """Whether the model said itself that it was done; else it ran out of positions."""
    is_speech: bool = True
    """Whether the model found that something is said."""
    average_log_probability: float = 0.0
    no_speech_probability: float = 0.0
    temperature: float = 0.0


@dataclass(frozen=True, slots=True)
class Piece:
    """Tokens of text, and where they are spoken: samples from the beginning of the window."""

    start: int
    end: int
    token_ids: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class TimedPiece:
    """A piece with its seconds in the recording, and what was heard in its window."""

    start: float
    end: float
    token_ids: tuple[int, ...]
    heard: Heard


class WalkedSound(Protocol):
    """A sound that windows walk over; see `SpokenSound`."""

    def window(self) -> tuple[Samples, bool]: ...

    def advance(self, count: int) -> None: ...

    def times_of(self, start: int, end: int) -> tuple[float, float]: ...


Hear: TypeAlias = Callable[[Samples], Heard]
"""Writes about a window of sound."""


def walk(
    sound: WalkedSound, hear: Hear, tokens: WhisperTokens, *, timestamps: bool
) -> Generator[list[TimedPiece], None, None]:
    """Yield the pieces of each window, in order: times never decrease, and end with the recording."""
    latest = 0.0
    while True:
        samples, is_last = sound.window()
        if not samples.size:
            return
        if samples.size < _SHORTEST:
            sound.advance(samples.size)
            continue
        if not is_last and not timestamps:
            samples = samples[: quiet_place(samples, samples.size - _QUIET_WITHOUT_TIMES)]
        heard = hear(samples)
        if timestamps:
            pieces, advance = divided(heard, tokens, samples, is_last)
        else:
            pieces, advance = undivided(heard, samples.size)
        found = []
        for piece in pieces:
            start, end = sound.times_of(piece.start, piece.end)
            start = max(start, latest)
            latest = max(end, start)
            found.append(TimedPiece(start, latest, piece.token_ids, heard))
        sound.advance(advance)
        yield found


def divided(heard: Heard, tokens: WhisperTokens, samples: Samples, is_last: bool) -> tuple[list[Piece], int]:
    """Return the pieces of a window that timestamps divide, and where the next window begins. `is_last`: whether the
    sound ends with it, at least what is spoken.

    Where no window can begin before a piece that is cut off, it goes up to the end of this one.
    """
    size = samples.size
    pieces, rest, opened = _pieces(heard.token_ids if heard.is_speech else (), tokens, size)
    latest = pieces[-1].end if pieces else 0
    whole = pieces
    if rest is None and not is_last and latest > size - _CUT_OFF:
        whole, rest = pieces[:-1], pieces[-1]
    if rest is None and not opened and heard.is_whole:
        return pieces, size if is_last else quiet_place(samples, max(latest, size - _QUIET_WITH_TIMES))
    if not (is_last and heard.is_whole and not opened):
        place = whole[-1].end if whole else 0
        if place < _LEAST_ADVANCE and rest is not None:
            place = rest.start - _CUT_OFF  # its time may be late
        if place >= _LEAST_ADVANCE:
            return whole, place
    return whole if rest is None else [*whole, rest], size


def undivided(heard: Heard, size: int) -> tuple[list[Piece], int]:
    """Return the one piece of a window without timestamps, if anything is said, and where the next window begins."""
    if not heard.is_speech or not heard.token_ids:
        return [], size
    return [Piece(0, size, heard.token_ids)], size


def quiet_place(samples: Samples, earliest: int) -> int:
    """Return the quietest place from `earliest` to the end of a window, of equal ones the last: the end, or a multiple
    of 0.02 s.
    """
    size = len(samples)
    first = -(-max(0, earliest) // _STEP)
    count = size // _STEP - first
    if count <= 0:
        return size
    steps = samples[first * _STEP : (first + count) * _STEP].reshape(count, _STEP)
    loudness = np.sqrt(np.square(steps, dtype=np.float64).mean(axis=1))
    width = min(_SMOOTHED, count)
    sums = np.concatenate([[0.0], np.cumsum(loudness)])
    means = (sums[width:] - sums[:-width]) / width
    best = len(means) - 1 - int(np.argmin(means[::-1].round(6)))  # sums of silence differ in their last digits
    if best == len(means) - 1:
        return size
    return (first + best + width // 2) * _STEP


def _pieces(token_ids: Sequence[int], tokens: WhisperTokens, size: int) -> tuple[list[Piece], Piece | None, bool]:
    """Return the pieces that have an end, the one that has none, and whether a time begins one that has no text."""
    pieces: list[Piece] = []
    start, text, opened = 0, list[int](), False
    for token_id in token_ids:
        if not tokens.is_timestamp(token_id):
            if token_id < tokens.end:
                text.append(token_id)
            continue
        place = min((token_id - tokens.timestamp_begin) * _STEP, size)
        if text:
            pieces.append(Piece(start, max(place, start), tuple(text)))
            text, opened = [], False
        else:
            opened = bool(pieces)
        start = place
    return pieces, Piece(start, size, tuple(text)) if text else None, opened and not text
