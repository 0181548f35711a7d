"""How much memory a process holds, counted where the C library counts, so that fragments of its heap are no leak."""

from __future__ import annotations

import ctypes
import gc
import os
from collections.abc import Callable

import psutil

COUNTED = {"PYTHONMALLOC": "malloc"}
"""Variables for a process that counts: Python's own objects are then blocks of the C library as well."""

_LIBRARY = ctypes.CDLL(None) if os.name == "posix" else None
_IS_COUNTED = hasattr(_LIBRARY, "mallinfo2")
_NOISE = 64 << 10 if _IS_COUNTED else 16 << 20
"""Bytes that caches of engines and of Python take and give; where nothing counts, pages that the heap keeps."""


class _HeapInfo(ctypes.Structure):
    """`struct mallinfo2` of glibc 2.33: bytes and counts of all arenas."""

    _fields_ = [
        (name, ctypes.c_size_t)
        for name in "arena ordblks smblks hblks hblkhd usmblks fsmblks uordblks fordblks keepcost".split()
    ]


def held_memory() -> int:
    """Bytes that are allocated and not freed; resident bytes where nobody counts. Garbage goes first, if `gc` is on."""
    if gc.isenabled():
        gc.collect()
    if not _IS_COUNTED:
        return int(psutil.Process().memory_info().rss)
    assert os.environ.get("PYTHONMALLOC") == COUNTED["PYTHONMALLOC"], "Python's own objects would not be counted"
    assert _LIBRARY is not None
    _LIBRARY.mallinfo2.restype = _HeapInfo
    heap = _LIBRARY.mallinfo2()
    return int(heap.uordblks + heap.hblkhd)


def assert_keeps_nothing(work: Callable[[], object], *, warm_up: int, times: int, each: int = 1024) -> None:
    """Do `work` `warm_up` times, then twice `times` more: these keep at most `each` bytes each, but for noise.

    The better half counts: a table of an engine may grow once, a leak grows in both. ONNX Runtime itself keeps about
    60 bytes of each session.
    """
    for _ in range(warm_up):
        work()
    grown = [_growth(work, times) for _ in range(2)]
    assert min(grown) <= each * times + _NOISE, grown


def _growth(work: Callable[[], object], times: int) -> int:
    before = held_memory()
    for _ in range(times):
        work()
    return held_memory() - before
