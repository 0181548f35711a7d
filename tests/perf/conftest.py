"""Counts of a test hold nothing of the garbage that earlier tests have left."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True)
def _no_collection_in_between() -> Iterator[None]:
    """A collection calls finalizers wherever it falls, and frees what a test did not allocate."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
