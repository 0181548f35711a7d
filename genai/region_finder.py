"""From the probability of speech in each step of sound to the regions in which somebody speaks.

The rule is that of silero-vad, with its defaults, taken step by step, so that sound may have any length. Not here:
where the probabilities come from (`voice_activity.py`).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields
from numbers import Real

SAMPLE_RATE = 16000
STEP = 512
"""Samples of one step: 32 ms."""
_SPLIT_PAUSE = SAMPLE_RATE * 98 // 1000
"""Samples that a pause has at least, to be where a region that is too long is split."""


@dataclass(frozen=True, slots=True)
class SpeechRegion:
    """A part of the sound in which somebody speaks: from sample `start` up to sample `end`, at 16 kHz."""

    start: int
    end: int

    @property
    def start_time(self) -> float:
        """Where it starts, in seconds."""
        return self.start / SAMPLE_RATE

    @property
    def end_time(self) -> float:
        """Where it ends, in seconds."""
        return self.end / SAMPLE_RATE


@dataclass(frozen=True, slots=True)
class SpeechRegionOptions:
    """When speech begins and ends. Lengths are in seconds; ValueError for values that cannot be."""

    threshold: float = 0.5
    """Speech begins in a step of at least this probability."""
    release_threshold: float | None = None
    """It ends in a step below this one; None means `threshold` - 0.15, at least 0.01."""
    min_speech: float = 0.25
    """A region must be longer than this, before it is padded."""
    min_silence: float = 0.1
    """Speech that goes on after a shorter pause is the same region."""
    padding: float = 0.03
    """What a region gets at both sides, where there is room; two that are near share the pause between them."""
    max_speech: float | None = None
    """A longer region is split at its longest pause, or where it becomes too long when it has none; at least 1."""

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if value is not None and (isinstance(value, bool) or not isinstance(value, Real)):
                raise TypeError(f"{field.name} must be a number, not {type(value).__name__}")
        release = self.threshold if self.release_threshold is None else self.release_threshold
        if not 0 < release <= self.threshold <= 1:
            raise ValueError("thresholds must be above 0 and at most 1, the release_threshold not above the threshold")
        for name in ("min_speech", "min_silence", "padding"):
            if not 0 <= getattr(self, name) < float("inf"):
                raise ValueError(f"{name} must be at least 0, not {getattr(self, name)!r}")
        if self.max_speech is not None and not self.max_speech >= 1 + 2 * self.padding:
            raise ValueError(f"max_speech must be at least 1 and twice the padding, not {self.max_speech!r}")


class RegionFinder:
    """Finds regions while probabilities come in; each is told once nothing that follows can change it."""

    def __init__(self, options: SpeechRegionOptions | None = None) -> None:
        wanted = options or SpeechRegionOptions()
        release = wanted.release_threshold
        self._threshold = wanted.threshold
        self._release = max(wanted.threshold - 0.15, 0.01) if release is None else release
        self._min_speech = wanted.min_speech * SAMPLE_RATE
        self._min_silence = wanted.min_silence * SAMPLE_RATE
        self._padding = round(wanted.padding * SAMPLE_RATE)
        longest = float("inf") if wanted.max_speech is None else wanted.max_speech * SAMPLE_RATE
        self._longest = longest - 2 * self._padding
        self._position = 0
        self._start: int | None = None
        """Where the speech began that has not ended yet."""
        self._silence: int | None = None
        """Where the pause began that may be its end."""
        self._pauses: list[tuple[int, int]] = []
        """Earlier pauses in it."""
        self._waiting: SpeechRegion | None = None
        """The last region: its start is padded, its end not yet, since the next may be near."""
        self._told_until = 0
        """Where the region ends that was told last."""
        self._found: list[SpeechRegion] = []

    @property
    def undecided_from(self) -> int:
        """The first sample that a later region may still hold: what lies before it is decided."""
        if self._waiting is not None:
            return self._waiting.start
        return max(self._told_until, self._frontier - self._padding)

    def push(self, probabilities: Iterable[float]) -> list[SpeechRegion]:
        """Take the probabilities of the next steps; return the regions that are now known."""
        for probability in probabilities:
            self._step(probability)
        if self._waiting is not None:
            if self._frontier - self._waiting.end >= 2 * self._padding:
                self._settle(self._waiting.end + self._padding)
            elif self._start is not None and self._end_at_least - self._start > self._min_speech:
                self._settle_before(self._start)
        return self._taken()

    def finish(self, length: int) -> list[SpeechRegion]:
        """Return the regions that are left, of sound of so many samples."""
        if self._start is not None:
            self._end(length)
        if self._waiting is not None:
            self._settle(min(length, self._waiting.end + self._padding))
        return self._taken()

    @property
    def _frontier(self) -> int:
        """No region to come starts before this sample. The last step is left out, since it may reach beyond the end."""
        return self._position - STEP if self._start is None else self._start

    @property
    def _end_at_least(self) -> int:
        """The speech that goes on does not end before this sample; the last step is left out, as above."""
        return self._position - STEP if self._silence is None else self._silence

    def _step(self, probability: float) -> None:
        now = self._position
        self._position = now + STEP
        if probability >= self._threshold:
            if self._start is None:
                self._start = now
            elif self._silence is not None:
                self._pauses.append((self._silence, now))
                self._silence = None
        elif self._start is not None and probability < self._release:
            if self._silence is None:
                self._silence = now
            if now - self._silence >= self._min_silence:
                self._end(self._silence)
        if self._start is not None and self._position - self._start > self._longest:
            self._split(self._start, now)

    def _split(self, start: int, now: int) -> None:
        """End a region that is about to be too long."""
        pauses = list(self._pauses)
        if self._silence is not None:
            pauses.append((self._silence, now))
        fitting = [
            (begin, end) for begin, end in pauses if end - begin >= _SPLIT_PAUSE and begin - start > self._min_speech
        ]
        longest = max(fitting, key=lambda pause: pause[1] - pause[0], default=(now, now))
        later, silence = [pause for pause in self._pauses if pause[0] >= longest[1]], self._silence
        self._end(longest[0])
        if longest[0] == silence:
            return  # speech has paused; it begins anew when it begins
        self._start, self._pauses = longest[1], later
        self._silence = None if longest[1] == now else silence

    def _end(self, end: int) -> None:
        """End the speech that goes on; too short, it was none."""
        assert self._start is not None
        start, self._start, self._silence, self._pauses = self._start, None, None, []
        if end - start <= self._min_speech:
            return
        if self._waiting is not None:
            self._settle_before(start)
        self._waiting = SpeechRegion(max(self._told_until, start - self._padding), end)

    def _settle_before(self, start: int) -> None:
        """Give the last region its end, speech beginning anew at `start`."""
        assert self._waiting is not None
        self._settle(self._waiting.end + min(self._padding, (start - self._waiting.end) // 2))

    def _settle(self, end: int) -> None:
        """Give the last region its end."""
        assert self._waiting is not None
        self._found.append(SpeechRegion(self._waiting.start, end))
        self._waiting, self._told_until = None, end

    def _taken(self) -> list[SpeechRegion]:
        found, self._found = self._found, []
        return found
