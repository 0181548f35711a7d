"""Managed state pairs: the past that a stage keeps between runs (runtime 20.3, 20.5, 20.6).

Three kinds of pairs. *Growing*: the present of one run is the past of the next, by pointer. *Shared*: past and present
are one buffer of the capacity, bound to both sides for good. *Static*: like growing, with a fixed extent and zeros at
the start. Not here: pairs that the caller owns (`executor.py`).
"""

from __future__ import annotations

import ctypes
import weakref
from collections.abc import Mapping

from ...errors import E_BOUNDS, E_INVALIDARG, NOT_SUPPORTED, NotSupportedError, WinMLError
from ...storage import Storage, allocate, byte_size
from . import api
from .environment import RunState
from .pairs import StatePair
from .slots import OutputSlots
from .values import has_whole_bytes, own_value, size_in_bytes, storage_of, truncated, value_descriptor, value_of


class ManagedState:
    """The values of all pairs of one stage; implements `backend.Sequence`."""

    def __init__(
        self, pairs: tuple[StatePair, ...], shareable: frozenset[tuple[int, int]], capacity: int, run: RunState
    ) -> None:
        self.pairs = pairs
        self.inputs = frozenset(pair.input for pair in pairs)
        self.outputs = {pair.output: index for index, pair in enumerate(pairs)}
        self.stale = True
        """The values changed outside a run; the executor must place them anew."""
        self._shareable = shareable
        extents = [pair.fixed_extent for pair in pairs if pair.fixed_extent is not None]
        self._declared = min(extents) if len(extents) == len(pairs) else None
        self._capacity = capacity if self._declared is None else self._declared
        self._position = 0
        self._step = 0
        self._used: dict[str, int] = {}
        """Extents of the free dimensions that the present values were made with, by symbol."""
        self._row_bytes: list[int] = [0] * len(pairs)
        """Bytes of one position of each pair."""
        self._shared: list[bool] = []
        self._moving: list[int] = []
        self._growing: list[int] = []
        self._places: list[int] = []
        # A value belongs to the storage in `_owners` or, where that is None, to this object.
        self._pointers: list[int] = [0] * len(pairs)
        self._owners: list[Storage | None] = [None] * len(pairs)
        weakref.finalize(self, _release, self._pointers, self._owners, run)
        self._sort()

    # backend.Sequence

    @property
    def position(self) -> int:
        return self._position

    @property
    def capacity(self) -> int:
        return self._capacity

    @property
    def declared_capacity(self) -> int | None:
        return self._declared

    def rewind(self, position: int) -> None:
        if position > self._position:
            raise WinMLError(
                E_INVALIDARG, "IWinMLStage.RewindTo", f"position {position} is beyond the present {self._position}"
            )
        if position == 0:
            self._restart()
        elif position < self._position:
            if not all(has_whole_bytes(self.pairs[index].data_type) for index in self._growing):
                raise NotSupportedError(NOT_SUPPORTED, "IWinMLStage.RewindTo", "state of 4-bit elements cannot be cut")
            for index in self._growing:
                self._own(index, truncated(self.storage(index), self.pairs[index].axis, position))
            self._position = position
            self.stale = True

    def set_capacity(self, capacity: int) -> None:
        context = "IWinMLStage.SetSequenceCapacity"
        if capacity == self._capacity:
            return
        if self._declared is not None:
            raise NotSupportedError(NOT_SUPPORTED, context, f"the model fixes the capacity at {self._declared}")
        if capacity < self._position:
            raise WinMLError(E_INVALIDARG, context, f"{self._position} positions are in use, {capacity} is less")
        self._restart()
        for index in range(len(self.pairs)):
            self._free(index)
        self._capacity = capacity
        self._sort()

    def reset(self) -> None:
        self._restart()

    # For the executor

    def admit(self, step: int) -> None:
        """Refuse a run of `step` positions that the capacity cannot hold (0x8000000B)."""
        if self._capacity and self._position + step > self._capacity:
            raise WinMLError(
                E_BOUNDS,
                "IWinMLPipeline.Run",
                f"{step} more positions after {self._position} are over the capacity of {self._capacity}",
            )

    def start(self, extents: Mapping[str, int]) -> None:
        """Make the start values, with the extents of the bound inputs by symbol; later, check that they still fit."""
        if self._position > 0:
            for symbol, extent in self._used.items():
                if extents.get(symbol, extent) != extent:
                    raise WinMLError(
                        E_INVALIDARG,
                        "IWinMLPipeline.Run",
                        f"the state was made for {symbol} = {extent}, the inputs have {extents[symbol]}; reset first",
                    )
            return
        for index, pair in enumerate(self.pairs):
            shape = pair.shape(extents, self._capacity if self._shared[index] else 0)
            owner = self._owners[index]
            if owner is None or owner.shape != shape:
                self._own(index, allocate(pair.data_type, shape))
                self.stale = True
            self._row_bytes[index] = byte_size(pair.data_type, (*shape[: pair.axis], *shape[pair.axis + 1 :]))
            self._used.update((d, extents.get(d, 1)) for d in pair.free_symbols)

    def placed(self, output: int) -> int | None:
        """The value that the present of a shared pair goes to; None when the engine makes a new one."""
        index = self.outputs[output]
        return self._pointers[index] if self._shared[index] else None

    def place(self, input_values: ctypes.Array[ctypes.c_void_p], slots: OutputSlots) -> None:
        """Put the pasts into the input array and remember where the presents will be."""
        for pair, pointer in zip(self.pairs, self._pointers, strict=True):
            input_values[pair.input] = pointer
        self._places = [slots.place[pair.output] for pair in self.pairs]
        self.stale = False

    def measure(self, slots: OutputSlots, step: int) -> None:
        """Find out by how many positions a run advanced: what growing pairs grew by, else the tokens of the run."""
        growth: int | None = None
        for index in self._growing:
            grown = self._length(index, slots.value(self._places[index])) - self._position
            if growth is not None and grown != growth:
                name = self.pairs[index].name
                raise WinMLError(
                    E_INVALIDARG, "IWinMLPipeline.Run", f"{name} grew by {grown}, another state by {growth}"
                )
            growth = grown
        step = step if growth is None else growth
        if step < 0:
            raise WinMLError(E_INVALIDARG, "IWinMLPipeline.Run", f"the state shrank by {-step}")
        self.admit(step)
        self._step = step

    def commit(
        self, slots: OutputSlots, taken: Mapping[int, Storage], input_values: ctypes.Array[ctypes.c_void_p]
    ) -> None:
        """Make the presents of the last run the pasts of the next."""
        self._position += self._step
        self._step = 0
        for index in self._moving:
            pair = self.pairs[index]
            storage = taken.get(pair.output)
            if storage is not None:
                self._own(index, storage)
            else:
                self._free(index)
                self._pointers[index] = slots.take(self._places[index])
            input_values[pair.input] = self._pointers[index]

    def discard(self) -> None:
        self._step = 0

    def storage(self, index: int) -> Storage:
        """The present value of a pair as a storage; of a shared pair a copy of the part in use."""
        owner = self._owners[index]
        if owner is None:
            owner = storage_of(own_value(self._pointers[index]))
            self._own(index, owner, free=False)
        if self._shared[index]:
            return truncated(owner, self.pairs[index].axis, self._position + self._step)
        return owner

    # Inside

    def _sort(self) -> None:
        """Find out which pairs are shared, which move, and which of those grow; it depends on the capacity."""
        self._shared = [
            self._capacity > 0
            and (pair.input, pair.output) in self._shareable
            and pair.fixed_extent is None
            and has_whole_bytes(pair.data_type)
            for pair in self.pairs
        ]
        self._moving = [index for index, shared in enumerate(self._shared) if not shared]
        self._growing = [index for index in self._moving if self.pairs[index].fixed_extent is None]

    def _length(self, index: int, value: int) -> int:
        """Extent of a value's sequence axis; by its size, which is much cheaper to ask for than its shape."""
        pair, row = self.pairs[index], self._row_bytes[index]
        if row and has_whole_bytes(pair.data_type):
            return size_in_bytes(value) // row
        return value_descriptor(value)[1][pair.axis]

    def _own(self, index: int, storage: Storage, free: bool = True) -> None:
        if free:
            self._free(index)
        self._owners[index] = storage
        self._pointers[index] = value_of(storage)

    def _free(self, index: int) -> None:
        pointer, owner = self._pointers[index], self._owners[index]
        self._pointers[index], self._owners[index] = 0, None
        if pointer and owner is None:
            api.ReleaseValue(pointer)

    def _restart(self) -> None:
        for index in self._moving:
            self._free(index)
        self._position = self._step = 0
        self.stale = True


def _release(pointers: list[int], owners: list[Storage | None], run: RunState) -> None:
    if not run.running:
        for pointer, owner in zip(pointers, owners, strict=True):
            if pointer and owner is None:
                api.ReleaseValue(pointer)
