"""How much memory of Python some work keeps."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable


def traced_growth(work: Callable[[], object], times: int, settled: Callable[[], object] = bool) -> int:
    """Do `work` once, and then twice `times` more; return the bytes that the better half keeps.

    A leak grows in both halves. A table that others fill as well, as weakref's of all finalizers, is made larger in one
    of them at most. `settled` waits until nothing is on its way any more, such as threads that end.
    """

    def held() -> int:
        settled()
        return tracemalloc.get_traced_memory()[0]

    tracemalloc.start()
    try:
        work()
        marks = [held()]
        for _ in range(2):
            for _ in range(times):
                work()
            marks.append(held())
    finally:
        tracemalloc.stop()
    return min(marks[1] - marks[0], marks[2] - marks[1])
