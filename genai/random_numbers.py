"""The random numbers of one operation (genai §5.4)."""

from __future__ import annotations


class SplitMix64:
    """A generator of 64-bit numbers (Steele, Lea and Flood, Fast splittable pseudorandom number generators, 2014)."""

    __slots__ = ("_state",)

    def __init__(self, seed: int) -> None:
        self._state = seed

    def next(self) -> int:
        """Return the next 64-bit number; the first of seed 1 is 0x910A2DEC89025CC1."""
        self._state = (self._state + 0x9E3779B97F4A7C15) & 0xFFFFFFFFFFFFFFFF
        z = self._state
        z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & 0xFFFFFFFFFFFFFFFF
        z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & 0xFFFFFFFFFFFFFFFF
        return z ^ (z >> 31)

    def random(self) -> float:
        """Return a number in [0, 1), a multiple of 2**-53; the first of seed 1 is 0.566561575172."""
        return (self.next() >> 11) * 2.0**-53

    def random_pair(self) -> tuple[float, float]:
        """Return what `random` would, and a second number that belongs to it: the first one of a generator whose seed
        is the number drawn. The sequence goes on as after one `random`.
        """
        number = self.next()
        return (number >> 11) * 2.0**-53, SplitMix64(number).random()
