"""The sound that is transcribed, as a Whisper model is to hear it: mono at 16 kHz, without its long silences, a window
of up to 30 seconds at a time. A window of live sound ends at the first pause.

Memory is bounded: a window and a little more, however long the recording is. Not here: what the samples come from
(`speech_sources.py`), what is heard (`speech_windows.py`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass
from itertools import chain, islice
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from .log_mel import SAMPLE_COUNT, SAMPLE_RATE
from .region_finder import RegionFinder, SpeechRegionOptions
from .voice_activity import VoiceActivity

Samples: TypeAlias = npt.NDArray[np.float32]
SPEECH = SpeechRegionOptions(min_speech=0.0, min_silence=2.0, padding=0.4, max_speech=30.0)
"""What counts as speech: silences of more than 2 s are cut out, and 0.4 s of them stay on each side. Regions of more
than 30 s are told in parts, so that they need not be kept whole."""
LIVE_SPEECH = SpeechRegionOptions(min_speech=0.1, min_silence=0.5, padding=0.25, max_speech=30.0)
"""What counts as speech in live sound, whose regions are windows. What lasts 0.1 s at most holds no word and is not
worth one. The padding is half the silence: a region is told when its own and that of the next have room in the pause.
"""
_KEPT = round(SPEECH.padding * SAMPLE_RATE)
_VAGUE = SAMPLE_RATE // 5
"""Samples by which a model is late to say that something ends."""
_PATIENCE = SAMPLE_COUNT
"""Samples after which a recording counts as long: only then silences are looked for, unless that is asked for."""
TOO_LOUD = 32.0
"""No sound of full scale 1 has such samples (30 dB above it); floats on the scale of 16 bits have."""


class SoundBuffer:
    """The samples of a sound from `start` up to `end`, both counted from its beginning."""

    def __init__(self) -> None:
        self.start = self.end = 0
        self._blocks: deque[Samples] = deque()
        self._first = 0
        """Where the first block begins."""

    def append(self, samples: Samples) -> None:
        """Add what follows."""
        if samples.size:
            self._blocks.append(samples)
            self.end += samples.size

    def between(self, start: int, end: int) -> Samples:
        """Return samples that are there."""
        parts, place = [], self._first
        for block in self._blocks:
            if place < end and place + block.size > start:
                parts.append(block[max(0, start - place) : end - place])
            place += block.size
        if not parts:
            return np.zeros(0, np.float32)
        return parts[0] if len(parts) == 1 else np.concatenate(parts)

    def forget(self, until: int) -> None:
        """Give up the samples before a place."""
        self.start = min(max(until, self.start), self.end)
        while self._blocks and self._first + self._blocks[0].size <= self.start:
            self._first += self._blocks.popleft().size


@dataclass(frozen=True, slots=True)
class _Part:
    """Samples that are heard, and where in the recording they begin."""

    start: int
    samples: Samples
    ends_at_pause: bool = False
    """Whether speech pauses behind it, so that no word is cut off."""


class SpokenSound:
    """A recording, walked over from window to window. Places are counted in samples.

    blocks: the recording, mono at 16 kHz.
    activity: returns what tells speech from silence; None hears everything. `only_when_long` asks for it only when the
        recording is longer than a window.
    is_live: whether a window ends at the first pause, which takes an `activity`; nothing is read behind it.
    check: called for each block, since a long silence is passed over without a window; what it raises goes through.
    """

    def __init__(
        self,
        blocks: Iterator[Samples],
        activity: Callable[[], VoiceActivity] | None,
        *,
        only_when_long: bool = False,
        is_live: bool = False,
        check: Callable[[], None] = lambda: None,
    ) -> None:
        self._check = check
        self._is_live = is_live
        self.is_spoken = False
        """Whether silences are cut out, so that somebody speaks in what is left."""
        self._read = 0
        self._is_at_end = False
        self._source = blocks
        self._blocks = self._counted(blocks)
        self._parts = self._heard(activity, only_when_long)
        self._buffer = SoundBuffer()
        self._borders: deque[tuple[int, int]] = deque()
        """Where sound goes on behind a cut, in what is heard and in the recording; the first is before the window."""
        self._ends_at_pause = False
        """Whether speech pauses at the end of the buffer."""
        self._shown = 0
        """Where the last window ended."""

    @property
    def length(self) -> int:
        """Samples of the recording that were read so far."""
        return self._read

    @property
    def done(self) -> int:
        """Samples of the recording before the window."""
        if self._buffer.start == self._buffer.end and self._is_at_end:
            return self._read
        return self._in_recording(self._buffer.start)

    def window(self) -> tuple[Samples, bool]:
        """Return the next samples, up to 30 seconds of them, and whether they are the last, at least before a pause;
        none at the end.
        """
        while not self._is_at_end and self._is_wanting:
            part = next(self._parts, None)
            if part is None:
                self._is_at_end = True
            else:
                self._append(part)
        start = self._buffer.start
        end = self._shown = min(start + SAMPLE_COUNT, self._buffer.end)
        is_last = end == self._buffer.end and (self._is_at_end or self._ends_at_pause)
        return self._buffer.between(start, end), is_last

    @property
    def _is_wanting(self) -> bool:
        """Whether a window needs more than the buffer holds."""
        size = self._buffer.end - self._buffer.start
        if not self._is_live or not size:
            return size <= SAMPLE_COUNT
        return not self._ends_at_pause and self._buffer.end == self._shown

    def _append(self, part: _Part) -> None:
        if not self._borders or part.start != self._in_recording(self._buffer.end):
            self._borders.append((self._buffer.end, part.start))
        self._buffer.append(part.samples)
        self._ends_at_pause = self._is_live and part.ends_at_pause

    def advance(self, count: int) -> None:
        """Go on `count` samples behind the beginning of the window."""
        self._buffer.forget(self._buffer.start + count)
        while len(self._borders) > 1 and self._borders[1][0] <= self._buffer.start:
            self._borders.popleft()

    def times_of(self, start: int, end: int) -> tuple[float, float]:
        """Return the seconds of the recording from which and up to which something is heard, given its places in the
        window.

        What begins in the silence that is left before a cut begins behind it, and what ends in the silence behind a cut
        ends before it.
        """
        first, last = self._buffer.start + start, self._buffer.start + end
        cuts = [heard for heard, _ in islice(self._borders, 1, None) if first < heard <= last]
        if cuts and cuts[0] <= first + _KEPT and cuts[0] < last:
            first = cuts.pop(0)
        if cuts and cuts[-1] > last - _KEPT - _VAGUE:
            last = cuts[-1]
        begin = self._in_recording(first)
        finish = self._in_recording(last - 1) + 1 if last > first else begin
        return begin / SAMPLE_RATE, finish / SAMPLE_RATE

    def close(self) -> None:
        """Close the file that the sound comes from; what was read counts still. Again is fine."""
        self._is_at_end = True
        for reading in (self._parts, self._blocks, self._source):
            if isinstance(reading, Generator):
                reading.close()

    def _in_recording(self, place: int) -> int:
        heard, recorded = 0, 0
        for border in self._borders:
            if border[0] > place:
                break
            heard, recorded = border
        return recorded + place - heard

    def _counted(self, blocks: Iterator[Samples]) -> Iterator[Samples]:
        for block in blocks:
            self._check()
            loudest = float(np.abs(block).max(initial=0))
            if loudest > TOO_LOUD:
                mend = "divide samples on the scale of 16 bits by 32768"
                raise ValueError(f"full scale of float samples is -1 to 1, and one of these is {loudest:.0f}: {mend}")
            self._read += block.size
            yield block

    def _heard(self, activity: Callable[[], VoiceActivity] | None, only_when_long: bool) -> Iterator[_Part]:
        """Yield what is to be heard."""
        blocks = self._blocks
        if activity is not None and only_when_long:
            first: list[Samples] = []
            while self._read <= _PATIENCE:
                block = next(blocks, None)
                if block is None:
                    activity = None
                    break
                first.append(block)
            blocks = chain(first, blocks)
        self.is_spoken = activity is not None
        speech = LIVE_SPEECH if self._is_live else SPEECH
        yield from _whole(blocks) if activity is None else _spoken(blocks, activity(), speech)


def _whole(blocks: Iterator[Samples]) -> Iterator[_Part]:
    place = 0
    for block in blocks:
        yield _Part(place, block)
        place += block.size


def _spoken(blocks: Iterator[Samples], activity: VoiceActivity, speech: SpeechRegionOptions) -> Iterator[_Part]:
    """Yield the parts in which somebody speaks, each as soon as it is certain."""
    finder, buffer = RegionFinder(speech), SoundBuffer()
    activity.reset()
    for block in chain(blocks, [None]):
        if block is None:
            rest = activity.probabilities(np.zeros(0, np.float32), last=True)
            regions = [*finder.push(rest.tolist()), *finder.finish(buffer.end)]
            undecided = buffer.end + 1
        else:
            buffer.append(block)
            regions = finder.push(activity.probabilities(block).tolist())
            undecided = finder.undecided_from
        following = [*(region.start for region in regions[1:]), undecided]
        for region, later in zip(regions, following, strict=False):
            yield _Part(region.start, buffer.between(region.start, region.end), later > region.end)
        buffer.forget(undecided)
