"""Managed state pairs: the past that a stage keeps between runs (runtime §20.3, 20.5, 20.6).

Three kinds of pairs. *Growing*: the present of one run is the past of the next, by pointer. *Shared*: past and present
are one buffer of the capacity, bound to both sides for good. *Static*: like growing, with a fixed extent and zeros at
the start. Not here: pairs that the caller owns (`executor.py`).
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from ...errors import E_BOUNDS, E_INVALIDARG, NOT_SUPPORTED, NotSupportedError, WinMLError
from ...handles import finalizer
from ...storage import Storage, allocate, byte_size
from ..activity import is_leaving
from . import api
from .pairs import StatePair
from .slots import OutputSlots
from .values import has_whole_bytes, size_in_bytes, truncated, value_descriptor, value_of, view_of

Value = Storage | int
"""What a pair holds: a storage, or a value of the engine that belongs to the state; 0 is nothing."""


@dataclass(slots=True)
class _Held:
    """The values of all pairs and the position that they are for; replaced as a whole, so no interruption tears it."""

    values: list[Value]
    position: int = 0


class ManagedState:
    """The values of all pairs of one stage; implements `backend.Sequence`."""

    def __init__(self, pairs: tuple[StatePair, ...], shareable: frozenset[tuple[int, int]], capacity: int) -> None:
        self.pairs = pairs
        self.inputs = frozenset(pair.input for pair in pairs)
        self.outputs = {pair.output: index for index, pair in enumerate(pairs)}
        self.placed_in: OutputSlots | None = None
        """The slots of the call that has the present values; any other must get them with `place` before it runs."""
        self._shareable = shareable
        extents = [pair.fixed_extent for pair in pairs if pair.fixed_extent is not None]
        self._declared = min(extents) if len(extents) == len(pairs) else None
        self._capacity = capacity if self._declared is None else self._declared
        self._step = 0
        """Positions of a run that is not committed yet."""
        self._used: dict[str, int] = {}
        """Extents of the free dimensions that the present values were made with, by symbol."""
        self._row_bytes: list[int] = [0] * len(pairs)
        """Bytes of one position of each pair; 0 where positions are not whole bytes."""
        self._shared: list[bool] = []
        self.total_symbol: str | None = None
        """Symbol of the inputs that are as long as all positions at the end of a run, as masks are, for shared pairs.

        Pairs that grow take their length from such an input, or the engine refuses it.
        """
        self._moving: list[int] = []
        self._growing: list[int] = []
        self._places: list[int] = []
        self._process = os.getpid()
        self._held = [_Held([0] * len(pairs))]  # one element; a list because the finalizer must see the present one
        finalizer(self, _release, self._held)
        self._sort()

    # backend.Sequence

    @property
    def position(self) -> int:
        return self._held[0].position

    @property
    def capacity(self) -> int:
        return self._capacity

    @property
    def declared_capacity(self) -> int | None:
        return self._declared

    def rewind(self, position: int) -> None:
        if position > self.position:
            raise WinMLError(
                E_INVALIDARG, "IWinMLStage.RewindTo", f"position {position} is beyond the present {self.position}"
            )
        if position == 0:
            self.reset()
        elif position < self.position:
            if not self.can_be_cut:
                raise NotSupportedError(NOT_SUPPORTED, "IWinMLStage.RewindTo", "state of 4-bit elements cannot be cut")
            values = self._held[0].values.copy()
            for index in self._growing:
                values[index] = self._cut(values[index], self.pairs[index].axis, position)
            self._replace(values, position)

    def set_capacity(self, capacity: int) -> None:
        context = "IWinMLStage.SetSequenceCapacity"
        if capacity == self._capacity:
            return
        if self._declared is not None:
            raise NotSupportedError(NOT_SUPPORTED, context, f"the model fixes the capacity at {self._declared}")
        if capacity < self.position:
            raise WinMLError(E_INVALIDARG, context, f"{self.position} positions are in use, {capacity} is less")
        self._replace([0] * len(self.pairs), 0)
        self._capacity = capacity
        self._sort()

    def reset(self) -> None:
        """Drop the state; shared buffers stay, for they are as large as ever."""
        values = self._held[0].values.copy()
        for index in self._moving:
            values[index] = 0
        self._replace(values, 0)
        self._step = 0

    # For the executor

    @property
    def step(self) -> int:
        """Positions of a run that is not committed yet."""
        return self._step

    @property
    def can_be_cut(self) -> bool:
        """Whether the sequence can go back to any position."""
        return all(has_whole_bytes(self.pairs[index].data_type) for index in self._growing)

    def admit(self, step: int, total: int | None = None) -> None:
        """Refuse a run of `step` positions that the capacity cannot hold (0x8000000B).

        `total`: extent of `total_symbol` in the inputs. Less than the positions at the end of the run is 0x80070057,
        for the engine would write over earlier ones; more may be masked.
        """
        position = self._held[0].position
        if total is not None and total < position + step:
            raise WinMLError(
                E_INVALIDARG,
                "IWinMLPipeline.Run",
                f"{self.total_symbol} is {total} in the inputs, but {step} more positions after {position} are "
                f"{position + step}; a mask covers all of them",
            )
        if self._capacity and position + step > self._capacity:
            raise WinMLError(
                E_BOUNDS,
                "IWinMLPipeline.Run",
                f"{step} more positions after {position} are over the capacity of {self._capacity}",
            )

    def start(self, extents: Mapping[str, int]) -> None:
        """Make the start values, with the extents of the bound inputs by symbol; later, check that they still fit."""
        if self.position > 0:
            for symbol, extent in self._used.items():
                if extents.get(symbol, extent) != extent:
                    raise WinMLError(
                        E_INVALIDARG,
                        "IWinMLPipeline.Run",
                        f"the state was made for {symbol} = {extent}, the inputs have {extents[symbol]}; reset first",
                    )
            return
        values = self._held[0].values.copy()
        for index, pair in enumerate(self.pairs):
            shape = pair.shape(extents, self._capacity if self._shared[index] else 0)
            value = values[index]
            if isinstance(value, int) or value.shape != shape:
                values[index] = allocate(pair.data_type, shape)
            if has_whole_bytes(pair.data_type):
                self._row_bytes[index] = byte_size(pair.data_type, (*shape[: pair.axis], *shape[pair.axis + 1 :]))
            self._used.update((d, extents.get(d, 1)) for d in pair.free_symbols)
        if values != self._held[0].values:
            self._replace(values, 0)

    def placed(self, output: int) -> int | None:
        """The value that the present of a shared pair goes to; None when the engine makes a new one."""
        index = self.outputs[output]
        return _pointer(self._held[0].values[index]) if self._shared[index] else None

    def place(self, input_values: ctypes.Array[ctypes.c_void_p], slots: OutputSlots) -> None:
        """Put the pasts into the input array and remember where the presents will be."""
        for pair, value in zip(self.pairs, self._held[0].values, strict=True):
            input_values[pair.input] = _pointer(value)
        self._places = [slots.place[pair.output] for pair in self.pairs]
        self.placed_in = slots

    def measure(self, slots: OutputSlots, step: int) -> None:
        """Find out by how many positions a run advanced: what growing pairs grew by, else the tokens of the run."""
        growth: int | None = None
        position = self._held[0].position
        for index in self._growing:
            grown = self._length(index, slots.value(self._places[index])) - position
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
        held = self._held[0]
        if self._moving:
            values = held.values.copy()
            for index in self._moving:
                values[index] = taken.get(self.pairs[index].output) or slots.take(self._places[index])
            self._replace(values, held.position + self._step)
            for index in self._moving:
                input_values[self.pairs[index].input] = _pointer(values[index])
            self.placed_in = slots
        else:
            held.position += self._step
        self._step = 0

    def discard(self) -> None:
        self._step = 0

    def storage(self, index: int) -> Storage:
        """A copy of the part in use of a shared pair."""
        held = self._held[0]
        return self._cut(held.values[index], self.pairs[index].axis, held.position + self._step)

    # For a saved state

    @property
    def extents(self) -> dict[str, int]:
        """Extents of the free dimensions that the present values were made with, by symbol."""
        return dict(self._used)

    def present(self) -> Iterator[tuple[StatePair, Value, bool]]:
        """Each pair with its present value, and whether it is shared."""
        return zip(self.pairs, self._held[0].values, self._shared, strict=True)

    def replace(self, values: list[Value], position: int, extents: Mapping[str, int]) -> None:
        """Take over another state: values of the shapes that `start` would make, at a position above 0."""
        self._row_bytes = [
            byte_size(pair.data_type, (*value.shape[: pair.axis], *value.shape[pair.axis + 1 :]))
            if isinstance(value, Storage) and has_whole_bytes(pair.data_type)
            else 0
            for pair, value in zip(self.pairs, values, strict=True)
        ]
        self._used = dict(extents)
        self._replace(values, position)
        self._step = 0

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
        self.total_symbol = next(
            (pair.total for pair, is_shared in zip(self.pairs, self._shared, strict=True) if is_shared), None
        )
        self._moving = [index for index, shared in enumerate(self._shared) if not shared]
        self._growing = [index for index in self._moving if self.pairs[index].fixed_extent is None]

    def _cut(self, value: Value, axis: int, extent: int) -> Storage:
        return truncated(view_of(value) if isinstance(value, int) else value, axis, extent)

    def _length(self, index: int, value: int) -> int:
        """Extent of a value's sequence axis; by its size, which is much cheaper to ask for than its shape."""
        row = self._row_bytes[index]
        return size_in_bytes(value) // row if row else value_descriptor(value)[1][self.pairs[index].axis]

    def _replace(self, values: list[Value], position: int) -> None:
        self.placed_in = None
        before, after = self._held[0], _Held(values, position)
        self._held[0] = after
        if self._process != os.getpid():  # in a forked child a lock of the engine's may be held for ever
            return
        for old, new in zip(before.values, values, strict=True):
            if isinstance(old, int) and old and old != new:
                api.ReleaseValue(old)


def _pointer(value: Value) -> int:
    return value if isinstance(value, int) else value_of(value)


def _release(held: list[_Held]) -> None:
    """Finalizer of a state. At exit, what a daemon thread may use is left alone."""
    if not is_leaving():
        for value in held[0].values:
            if isinstance(value, int) and value:
                api.ReleaseValue(value)
