"""Declared state pairs, checked against the ports of a session (runtime §9.1, 20.3)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ...errors import E_INVALIDARG, WinMLError
from ...files.artifact import Dimension, Port
from ...values import TensorDataType


@dataclass(frozen=True, slots=True)
class StatePair:
    """A past input and the present output that follows it."""

    input: int
    output: int
    name: str
    data_type: TensorDataType
    dimensions: tuple[Dimension, ...]
    """Of the past, with overrides applied."""
    axis: int
    """The sequence axis."""
    total: str | None = None
    """Symbol of that axis of the present, if it has one of its own: the positions at the end of a run."""

    @property
    def fixed_extent(self) -> int | None:
        """Extent of the sequence axis of a static pair; None for one that grows."""
        extent = self.dimensions[self.axis]
        return extent if isinstance(extent, int) else None

    @property
    def free_symbols(self) -> tuple[str, ...]:
        """Symbols of the axes other than the sequence axis."""
        return tuple(d for axis, d in enumerate(self.dimensions) if isinstance(d, str) and axis != self.axis)

    def shape(self, extents: Mapping[str, int], length: int) -> tuple[int, ...]:
        """Concrete shape with `length` on a free sequence axis; free extents by symbol from `extents`, else 1."""
        known = (d if isinstance(d, int) else extents.get(d, 1) if d is not None else 1 for d in self.dimensions)
        return tuple(
            length if axis == self.axis and self.fixed_extent is None else extent for axis, extent in enumerate(known)
        )


def check_pairs(
    pairs: Sequence[tuple[int, int]], inputs: Sequence[Port], outputs: Sequence[Port]
) -> tuple[StatePair, ...]:
    """Check declared pairs against the built ports; anything that does not fit is 0x80070057."""
    return tuple(_check_pair(past, present, inputs, outputs) for past, present in pairs)


def _check_pair(past_index: int, present_index: int, inputs: Sequence[Port], outputs: Sequence[Port]) -> StatePair:
    what = f"state tensor pair ({past_index}, {present_index})"
    if past_index >= len(inputs) or present_index >= len(outputs):
        raise WinMLError(E_INVALIDARG, "", f"{what}: there are {len(inputs)} inputs and {len(outputs)} outputs")
    past, present = inputs[past_index], outputs[present_index]
    if past.data_type is not present.data_type or past.data_type is TensorDataType.UNDEFINED:
        raise WinMLError(
            E_INVALIDARG, "", f"{what}: {past.name} is {past.data_type.name}, {present.name} {present.data_type.name}"
        )
    if past.name == present.name:
        raise WinMLError(E_INVALIDARG, "", f"{what}: {past.name} passes through the model unchanged")
    rank = len(past.dimensions)
    if rank == 0 or (present.rank_known and len(present.dimensions) != rank):
        raise WinMLError(
            E_INVALIDARG, "", f"{what}: {past.name} has rank {rank}, {present.name} {len(present.dimensions)}"
        )
    axis = _sequence_axis(past, present)
    produced = present.dimensions[axis] if present.rank_known else None
    total = produced if isinstance(produced, str) and produced not in past.dimensions else None
    pair = StatePair(past_index, present_index, past.name, past.data_type, past.dimensions, axis, total)
    if pair.fixed_extent is not None and isinstance(produced, int) and produced != pair.fixed_extent:
        raise WinMLError(
            E_INVALIDARG, "", f"{what}: {past.name} holds {pair.fixed_extent} positions, {present.name} {produced}"
        )
    return pair


def _sequence_axis(past: Port, present: Port) -> int:
    """The axis on which past and present differ; else axis 2 of rank 4; else the last but one."""
    rank = len(past.dimensions)
    usual = 2 if rank == 4 else max(rank - 2, 0)
    if not present.rank_known:
        return usual
    differing = [axis for axis in range(rank) if past.dimensions[axis] != present.dimensions[axis]]
    return differing[0] if differing and usual not in differing else usual
