"""Runs on memory that the CPU reaches only through a copy: fetched before a run, published after it (tensors §3).

Engines work on `Storage.data`, which is the memory itself for all storages but staged ones.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from .stage_core import StageCore
from .storage import Storage


def fetch_bound(stages: Sequence[StageCore]) -> None:
    """Bring the copies of everything that a run of the stages reads up to date."""
    for stage in stages:
        for storage in _staged(stage.inputs.values()):
            storage.fetch()
        for storage in _staged(stage.source.kept):
            storage.fetch()


def publish_bound(stages: Sequence[StageCore]) -> None:
    """Write what a successful run of the stages has left in the copies to the memory itself."""
    for stage in stages:
        for storage in _staged(publication.storage for publication in stage.outputs.values()):
            storage.publish()
        for storage in _staged(stage.in_place_outputs().values()):
            storage.publish()
        for storage in _staged(stage.source.kept):
            storage.publish()


def _staged(storages: Iterable[Storage | None]) -> Iterator[Storage]:
    return (storage for storage in storages if storage is not None and not storage.is_direct)
