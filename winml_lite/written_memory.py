"""Outputs of one run lie apart (runtime §7.2): what is published into a caller's tensor is there when the run ends.

An input and an output may share memory, as may an output and an input of another stage: engines and processors see to
that. Two outputs may not, but where a stage in between reads the first, as in a chain of stages that work in place.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from .errors import E_INVALIDARG, WinMLError
from .stage_core import StageCore
from .storage import Storage

if TYPE_CHECKING:
    from .graph import Edge

_RUN = "IWinMLPipeline.Run"


class _Written(NamedTuple):
    """An output that a run writes into a tensor of the caller."""

    step: int
    """Place of the stage in the run."""
    output: int
    storage: Storage


def check_outputs_apart(stages: Sequence[StageCore], edges: Sequence[Edge], feedback: Sequence[Edge]) -> bool:
    """Raise 0x80070057 when a run of the stages, in this order, would write over an output that nobody has read.

    Return whether that depends on what inputs are bound to, which may be another tensor in the next run.
    """
    depends_on_inputs = False
    written = [
        _Written(step, output, storage)
        for step, stage in enumerate(stages)
        for output, storage in (
            *((output, publication.storage) for output, publication in stage.outputs.items()),
            *stage.in_place_outputs().items(),
        )
        if storage is not None and storage.data.size
    ]
    for first, second in _shared(written):
        stage = stages[first.step]
        if first.step != second.step and not any(_edges_of(first, stage, feedback)):
            between = stages[first.step + 1 : second.step + 1]
            if any(edge.target in between for edge in _edges_of(first, stage, edges)):
                continue
            if _is_read(first, between):
                depends_on_inputs = True
                continue
        raise WinMLError(
            E_INVALIDARG,
            _RUN,
            f"output {first.output} of {stage.debug_name} and output {second.output} of "
            f"{stages[second.step].debug_name} are bound to the same memory: give each a tensor of its own",
        )
    return depends_on_inputs


def _shared(written: Sequence[_Written]) -> Iterable[tuple[_Written, _Written]]:
    """Pairs of outputs with common memory, each in the order of the run; of several in one storage each with the next.

    Only memory of a caller may lie in several storages, so the others are compared as objects, which is much cheaper.
    """
    latest: dict[Storage, _Written] = {}
    for place in written:
        before = latest.get(place.storage)
        if before is not None:
            yield before, place
        latest[place.storage] = place
    if any(place.storage.is_alias for place in written):
        yield from _overlapping(written)


def _overlapping(written: Sequence[_Written]) -> Iterable[tuple[_Written, _Written]]:
    """Pairs of outputs in two storages with common memory, each in the order of the run.

    They are sorted by address, for a run may follow each binding of the many tensors of a state.
    """
    spans = [(place.storage.address, place.storage.data.nbytes, place) for place in written]
    spans.sort(key=lambda span: span[0])
    for index, (address, size, one) in enumerate(spans, 1):
        for start, _, other in islice(spans, index, None):
            if start >= address + size:
                break
            if one.storage is not other.storage:
                yield (one, other) if one[:2] < other[:2] else (other, one)


def _overlap(one: Storage, other: Storage) -> bool:
    return np.may_share_memory(one.data, other.data)


def _edges_of(place: _Written, stage: StageCore, edges: Sequence[Edge]) -> Iterable[Edge]:
    return (edge for edge in edges if edge.source is stage and edge.output == place.output)


def _is_read(place: _Written, stages: Sequence[StageCore]) -> bool:
    """Whether one of the stages reads the memory as a bound input, or as what it keeps."""
    return any(
        _overlap(storage, place.storage) for stage in stages for storage in (*stage.inputs.values(), *stage.source.kept)
    )
