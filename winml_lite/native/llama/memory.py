"""How much host memory a context takes, and how much there is.

Asked before a context is made: a system that grants more memory than it has ends the process later, without an
exception.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import numpy as np

from ...files.gguf import GgufFile


def bytes_per_position(file: GgufFile, key_bits: float, value_bits: float) -> int:
    """Size of keys and values of one position in all layers, by the header; 0 when it does not tell."""
    layers = _numbers(file, "block_count")
    heads = _numbers(file, "attention.head_count")
    width = _numbers(file, "embedding_length")
    if not (layers and heads and width) or max(heads) == 0:
        return 0
    shared = _numbers(file, "attention.head_count_kv") or heads
    pairs = sum(shared) if len(shared) > 1 else shared[0] * layers[0]
    head_size = width[0] // max(heads)
    keys = (_numbers(file, "attention.key_length") or [head_size])[0]
    values = (_numbers(file, "attention.value_length") or [head_size])[0]
    return int(pairs * (keys * key_bits + values * value_bits) // 8)


def host_memory() -> int:
    """Bytes that this process may use at most: the memory of the machine or of its control group; 0 when unknown."""
    if sys.platform == "win32":
        return 0  # Windows itself refuses what it cannot back
    total = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    for name in ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"):
        try:
            text = Path(name).read_text(encoding="ascii").strip()
        except OSError:
            continue
        if text.isdigit():
            total = min(total, int(text))
    return total


def _numbers(file: GgufFile, key: str) -> list[int]:
    """Return a hyper-parameter as one integer or one per layer; [] when it is absent or no integer."""
    value = file.metadata.get(f"{file.architecture}.{key}")
    if isinstance(value, np.ndarray) and value.dtype.kind in "iu":
        return [int(number) for number in value]
    return [value] if isinstance(value, int) and not isinstance(value, bool) else []
