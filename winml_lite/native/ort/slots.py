"""The outputs that one run asks for: names and values as the engine wants them, and who frees what."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence

from . import api


class OutputSlots:
    """Arrays for the outputs of a run.

    A slot is *placed* when a value is given to the engine, and *fresh* when the engine makes one, which then belongs to
    the slot until somebody takes it. The array is the only record of that, so an interruption loses nothing.
    """

    __slots__ = ("_fresh", "_names", "count", "has_fresh", "names", "outputs", "place", "values")

    def __init__(self, outputs: Sequence[int], names: Sequence[bytes], placed: Sequence[int | None]) -> None:
        self.count = len(outputs)
        self.outputs = tuple(outputs)
        self.place = {output: slot for slot, output in enumerate(outputs)}
        """Slot of an output index."""
        self._names = (ctypes.c_char_p * self.count)(*names)
        # The address: `cast` would make the array refer to itself.
        self.names = ctypes.c_void_p(ctypes.addressof(self._names))
        self.values = (ctypes.c_void_p * self.count)(*placed)
        self._fresh = frozenset(slot for slot, pointer in enumerate(placed) if not pointer)
        self.has_fresh = bool(self._fresh)

    def value(self, slot: int) -> int:
        """The value in a slot; 0 when the engine made none yet or it was taken."""
        return self.values[slot] or 0

    def take(self, slot: int) -> int:
        """Give the value of a fresh slot away; 0 when there is none, or the slot is a placed one."""
        if slot not in self._fresh:
            return 0
        pointer = self.values[slot] or 0
        self.values[slot] = None
        return pointer

    def empty(self) -> None:
        """Free what nobody took, so that the engine makes new values in the fresh slots."""
        values = self.values
        for slot in self._fresh:
            pointer = values[slot]
            if pointer:
                values[slot] = None
                api.ReleaseValue(pointer)
