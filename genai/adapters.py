"""How LoRA adapters are given to `genai.load`."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any, TypeAlias

from .option_values import finite

Adapter: TypeAlias = str | os.PathLike[str] | tuple[str | os.PathLike[str], float]
"""A file, or a file and the scale of what it adds."""


def adapter_pairs(adapters: Iterable[Adapter]) -> tuple[tuple[str, float], ...]:
    """Return adapters as (absolute path, scale). TypeError for what is neither a path nor such a pair."""
    if isinstance(adapters, str | bytes | os.PathLike):
        raise TypeError(f"adapters must be a list of files, not one: adapters=[{adapters!r}]")
    return tuple(_pair(adapter) for adapter in adapters)


def _pair(adapter: Any) -> tuple[str, float]:
    path, scale = adapter, 1.0
    if isinstance(adapter, tuple | list):
        if len(adapter) != 2:
            raise TypeError(f"an adapter is a file or a pair (file, scale), not {adapter!r}")
        path, scale = adapter
    if not isinstance(path, str | os.PathLike) or not isinstance(os.fspath(path), str):
        raise TypeError(f"an adapter is a file or a pair (file, scale), not {adapter!r}")
    if not os.fspath(path):
        raise ValueError("the path of an adapter must not be empty")
    return os.path.abspath(path), finite(scale, "the scale of an adapter")
