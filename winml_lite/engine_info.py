"""Which engines this process has: versions, paths, and what to do about a missing one."""

from __future__ import annotations

from .native.backend import backend
from .values import EngineInfo


def engines() -> tuple[EngineInfo, ...]:
    """Describe ONNX Runtime and llama.cpp; loads their libraries.

    Never raises: a missing engine says why in `problem`.
    """
    return backend("ort").describe(), backend("llama").describe()
