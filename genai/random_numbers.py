"""The random numbers of one operation: SplitMix64 (genai §5.4; Steele, Lea and Flood, Fast splittable pseudorandom
number generators, 2014).

Its numbers can be had in any order, so that a token that is selected again after an interrupt gets the same number.
"""

from __future__ import annotations

UNIT = 2.0**-53
"""Turns the upper 53 bits of a number into one in [0, 1)."""


def split_mix64(seed: int, index: int = 0) -> int:
    """Return number `index` of the sequence that `seed` begins; the first of seed 1 is 0x910A2DEC89025CC1."""
    z = (seed + (index + 1) * 0x9E3779B97F4A7C15) & 0xFFFFFFFFFFFFFFFF
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & 0xFFFFFFFFFFFFFFFF
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & 0xFFFFFFFFFFFFFFFF
    return z ^ (z >> 31)


def unit_interval(number: int) -> float:
    """Return a number in [0, 1), a multiple of 2**-53; that of the first of seed 1 is 0.566561575172."""
    return (number >> 11) * UNIT
